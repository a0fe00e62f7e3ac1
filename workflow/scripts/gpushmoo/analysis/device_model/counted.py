"""Whether hardware counters bear out the limit that the model names for a launch.

No counter says what binds a launch. But a unit that binds is about as busy as it can be, and where
launches wait, or start too slowly, no unit is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...storage.wholefile import read_json

Busy = Mapping[str, float]

# Percent of what a unit can do at most, by the unit; and the units of each limit.
UNITS: Mapping[str, tuple[str, ...]] = {"DRAM": ("dram",), "L2": ("l2",), "service": ("l1", "sm")}
# A unit binds where it is at least so busy, as a share of the busiest that it was in any launch: a
# bus that is turned between reads and writes never reaches all of its rate.
BOUND = 0.8
# Blocks that start too slowly leave more than this share of a multiprocessor's room for warps free.
FREE = 0.45


@dataclass(frozen=True)
class CountedLimit:
    """Whether counters back a limit, and what they say of it."""

    backed: bool
    words: str


@dataclass(frozen=True)
class CountedCells:
    """How busy the units of one device were, by cell; `most` is the busiest of each."""

    cells: Mapping[str, Busy]
    most: Busy

    @classmethod
    def of(cls, cells: Mapping[str, Busy]) -> CountedCells:
        """From percentages of DRAM, L2, L1 and multiprocessors, and the warps that were there."""
        units = [unit for mine in UNITS.values() for unit in mine]
        most = {u: max((cell[u] for cell in cells.values()), default=0.0) for u in units}
        return cls(cells, most)

    def of_limit(self, cell_key: str, limit: str) -> CountedLimit | None:
        """What was counted of a cell for one of `form.LIMITS`; None where nothing was."""
        busy = self.cells.get(cell_key)
        if busy is None or limit == "start":
            return None
        if limit in UNITS:
            unit = max(UNITS[limit], key=lambda u: busy[u] / self.most[u])
            return CountedLimit(self._binds(busy, unit), f"{busy[unit]:.0f} % busy")
        bound = [u for u in self.most if self._binds(busy, u)]
        if bound:
            return CountedLimit(False, f"{', '.join(map(_name, bound))} busy")
        held = busy["active_warps"] / busy["room_for_warps"]
        free = held < 1 - FREE
        backed = free if limit == "dispatch" else not free
        return CountedLimit(backed, f"no unit busy, {100 * held:.0f} % of warps there")

    def _binds(self, busy: Busy, unit: str) -> bool:
        return busy[unit] >= BOUND * self.most[unit]


def _name(unit: str) -> str:
    return unit if unit == "sm" else unit.upper()


def read_counted(files: Iterable[Path]) -> dict[str, CountedCells]:
    """What the study of counters wrote, by the device's name.

    Raises DamagedFileError.
    """
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        told = read_json(file)
        found.setdefault(told["device"], {}).update(told["cells"])
    return {device: CountedCells.of(cells) for device, cells in found.items() if cells}
