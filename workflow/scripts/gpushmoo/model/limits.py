"""What binds a launch, what would have to change for it to be faster, whether counters agree.

The model's limits say what binds. How much there is to gain by removing it is another question: the
next limit may be as near. So the parameters of the limit that binds are made better by one factor
until the model predicts a time of 1/GAIN, or until no factor up to MOST does.

No hardware counter says what binds a launch. But a unit that binds is about as busy as it can be,
and where launches wait, or start too slowly, no unit is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..storage.wholefile import read_json
from .form import LIMITS, Model
from .launches import Launches

Json = dict[str, Any]

GAIN = 1.1
MOST = 4.0
# The parameters by which a limit becomes cheaper. Of those of `service` are what the pipelines of a
# multiprocessor take, of `waiting` latencies and what a block's own life takes besides.
LEVERS: Mapping[str, tuple[str, ...]] = {
    "start": ("start", "sample"),
    "dispatch": ("dispatch", "warp_launch"),
    "service": ("issue", "store_line", "store_again", "load_line", "texel_store"),
    "waiting": ("l2_latency", "dram_latency", "block", "turn"),
    "L2": ("l2_rate", "l2_write_rate"),
    "DRAM": ("dram_rate",),
}
# These become better by growing.
RATES = frozenset({"l2_rate", "l2_write_rate", "dram_rate"})
# Halvings of the range of factors: to better than a thousandth.
HALVINGS = 14


def improved(model: Model, limit: str, factor: float) -> Model:
    """The model of a device on which a limit costs 1/`factor` of what it does."""
    scaled = {
        name: model.values[name] * (factor if name in RATES else 1 / factor)
        for name in LEVERS[limit]
    }
    return Model({**model.values, **scaled})


def factor_to_gain(model: Model, launch: Launches, limit: str) -> float | None:
    """By what factor, up to MOST, a limit must become cheaper for a `launch` to gain GAIN."""
    goal = float(model.seconds(launch)[0]) / GAIN

    def gains(factor: float) -> bool:
        return float(improved(model, limit, factor).seconds(launch)[0]) <= goal

    if not gains(MOST):
        return None
    too_little = 1.0
    enough = MOST
    for _ in range(HALVINGS):
        middle = (too_little + enough) / 2
        too_little, enough = (too_little, middle) if gains(middle) else (middle, enough)
    return enough


def fastest_cells(predicted: pd.DataFrame, controls: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """The fastest measured cell of each kernel and type: of its largest problem, warm if there is.

    Variants in a kernel's `controls` are not to win. Rows keep their index.
    """
    rows = []
    for (kernel, _), every in predicted.groupby(["kernel", "dtype"], observed=True):
        cells = every[~every["variant"].isin(controls.get(str(kernel), ()))]
        sizes = cells["height"] * cells["width"]
        cells = cells[sizes == sizes.max()]
        warm = cells[cells["cache_state"] == "warm"]
        cells = cells if warm.empty else warm
        rows += [] if cells.empty else [cells["measured_s"].idxmin()]
    return predicted.loc[rows]


def whys(
    model: Model,
    described: pd.DataFrame,
    predicted: pd.DataFrame,
    points: pd.DataFrame,
    controls: Mapping[str, Collection[str]],
) -> list[Json]:
    """For each kernel and type its fastest cell, what binds it, and what gains GAIN.

    `described` are cells as the model sees them, `predicted` what it says of them and `points`
    their launch parameters, row by row the same cells. ``low_gbs`` and ``high_gbs`` are None where
    there is no band, ``factor`` where none does; then ``then`` is the limit that binds next.
    """
    found = []
    for at, row in fastest_cells(predicted, controls).iterrows():
        launch = Launches.of(described.loc[[at]])
        alone = {name: float(cycles[0]) for name, cycles in model.limits(launch).items()}
        limit, following = sorted(LIMITS, key=lambda name: -alone[name])[:2]
        factor = factor_to_gain(model, launch, limit)
        low, high = (
            None if pd.isna(row[end]) else row["predicted_gbs"] * row["predicted_s"] / row[end]
            for end in ("high_s", "low_s")
        )
        found.append(
            {
                **{n: row[n] for n in ("kernel", "dtype", "variant", "cell_key")},
                **{n: row[n] for n in ("cache_state", "timing_mode")},
                "height": int(row["height"]),
                "width": int(row["width"]),
                "params": {n: int(v) for n, v in points.loc[at].dropna().items()},
                "measured_gbs": row["measured_gbs"],
                "predicted_gbs": row["predicted_gbs"],
                "low_gbs": low,
                "high_gbs": high,
                "limit": limit,
                "next": following,
                "next_share": alone[following] / alone[limit],
                "factor": factor,
                "then": _in_the_way(model, launch, limit) if factor is None else None,
            }
        )
    return found


def _in_the_way(model: Model, launch: Launches, limit: str) -> str:
    """The limit that binds once `limit` has been improved MOST times."""
    alone = improved(model, limit, MOST).limits(launch)
    return max((n for n in LIMITS if n != limit), key=lambda name: float(alone[name][0]))


# Counters

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
        """What was counted of a cell for one of LIMITS; None where nothing was."""
        busy = self.cells.get(cell_key)
        if busy is None or limit == "start":
            return None
        if limit in UNITS:
            unit = max(UNITS[limit], key=lambda u: busy[u] / self.most[u])
            return CountedLimit(self._binds(busy, unit), f"{busy[unit]:.0f} % busy")
        bound = [u for u in self.most if self._binds(busy, u)]
        if bound:
            names = ", ".join(u if u == "sm" else u.upper() for u in bound)
            return CountedLimit(False, f"{names} busy")
        held = busy["active_warps"] / busy["room_for_warps"]
        free = held < 1 - FREE
        backed = free if limit == "dispatch" else not free
        return CountedLimit(backed, f"no unit busy, {100 * held:.0f} % of warps there")

    def _binds(self, busy: Busy, unit: str) -> bool:
        return busy[unit] >= BOUND * self.most[unit]


def read_counted(files: Iterable[Path]) -> dict[str, CountedCells]:
    """What the study of counters wrote, by the device's name."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        told = read_json(file)
        found.setdefault(told["device"], {}).update(told["cells"])
    return {device: CountedCells.of(cells) for device, cells in found.items() if cells}
