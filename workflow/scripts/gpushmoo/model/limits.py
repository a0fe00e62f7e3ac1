"""Find the limit of a launch and the change that would make it faster, and check it by counters.

The model's limits name the resource that limits a launch. They do not show the gain from removing
that limit, because the next limit may be close. So this module improves all parameters of the limit
by one factor, until the model predicts a time of 1/GAIN, or until no factor up to MAX_FACTOR does.

No hardware counter names the limit of a launch. But a limiting unit is about as busy as it can be.
If launches wait, or start too slowly, no unit is busy.
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
MAX_FACTOR = 4.0
# Parameters that make a limit cheaper. For `service` these are the costs of a multiprocessor's
# pipelines. For `waiting` they are latencies, and the other costs of a block's life.
LEVERS: Mapping[str, tuple[str, ...]] = {
    "start": ("start", "sample"),
    "dispatch": ("dispatch", "warp_launch"),
    "service": (
        "issue",
        "store_line",
        "store_again",
        "load_line",
        "texel_store",
        "texel_filter",
        "shared_wave",
    ),
    "waiting": ("l2_latency", "dram_latency", "block", "turn", "shared_latency", "barrier"),
    "L2": ("l2_rate", "l2_write_rate"),
    "DRAM": ("dram_rate",),
}
# These parameters improve by growing.
RATES = frozenset({"l2_rate", "l2_write_rate", "dram_rate"})
# Bisections of the range of factors, which find it to better than a thousandth.
HALVINGS = 14


def improved(model: Model, limit: str, factor: float) -> Model:
    """Return the model of a device on which a limit costs 1/`factor` of its cost."""
    scaled = {
        name: model.values[name] * (factor if name in RATES else 1 / factor)
        for name in LEVERS[limit]
    }
    return Model({**model.values, **scaled})


def factor_to_gain(model: Model, launch: Launches, limit: str) -> float | None:
    """Return the factor by which `limit` must get cheaper for `launch` to run GAIN times as fast.

    The result is None if no factor up to MAX_FACTOR suffices.
    """
    goal = float(model.seconds(launch)[0]) / GAIN

    def gains(factor: float) -> bool:
        return float(improved(model, limit, factor).seconds(launch)[0]) <= goal

    if not gains(MAX_FACTOR):
        return None
    too_little = 1.0
    enough = MAX_FACTOR
    for _ in range(HALVINGS):
        middle = (too_little + enough) / 2
        too_little, enough = (too_little, middle) if gains(middle) else (middle, enough)
    return enough


def fastest_cells(predicted: pd.DataFrame, controls: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """Return the fastest measured cell of each kernel and type.

    Its problem is the largest, if possible warm.

    Variants in a kernel's `controls` are excluded. Rows keep their index.
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
    """Return for each kernel and type its fastest cell, the limit of that cell, and the gain.

    ``low_gbs`` and ``high_gbs`` are None without a band. ``factor`` is None if no factor yields
    GAIN. In that case ``then`` is the next limit.

    Parameters
    ----------
    model
        The fitted model.
    described
        Cells as `Describer.table` returns them.
    predicted
        Columns of `Model.said`, with the same rows.
    points
        Launch parameters, with the same rows.
    controls
        Variants of each kernel that must not win.
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
    """Return the limit that remains after `limit` has been improved MAX_FACTOR times."""
    alone = improved(model, limit, MAX_FACTOR).limits(launch)
    return max((n for n in LIMITS if n != limit), key=lambda name: float(alone[name][0]))


# Counters

Busy = Mapping[str, float]

# Percent of a unit's maximum, by unit; and the units of each limit.
UNITS: Mapping[str, tuple[str, ...]] = {"DRAM": ("dram",), "L2": ("l2",), "service": ("l1", "sm")}
# A unit limits a launch if it is at least this busy, as a share of its busiest launch. A bus that
# turns between reads and writes never reaches its full rate, so 100 % is the wrong reference.
BOUND = 0.8
# Blocks that start too slowly leave more than this share of a multiprocessor's warp slots empty.
FREE = 0.45


@dataclass(frozen=True)
class CountedLimit:
    """Whether counters back a limit, and the counted values in words."""

    backed: bool
    words: str


@dataclass(frozen=True)
class CountedCells:
    """Utilization of the units of one device, by cell; `most` is the highest of each unit."""

    cells: Mapping[str, Busy]
    most: Busy

    @classmethod
    def of(cls, cells: Mapping[str, Busy]) -> CountedCells:
        """Return the cells with percentages of DRAM, L2, L1, multiprocessors and active warps."""
        units = [unit for mine in UNITS.values() for unit in mine]
        most = {u: max((cell[u] for cell in cells.values()), default=0.0) for u in units}
        return cls(cells, most)

    def of_limit(self, cell_key: str, limit: str) -> CountedLimit | None:
        """Compare the counts of a cell with one of LIMITS; return None if it was not counted."""
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
        return CountedLimit(backed, f"no unit busy, {100 * held:.0f} % of warp slots used")

    def _binds(self, busy: Busy, unit: str) -> bool:
        return busy[unit] >= BOUND * self.most[unit]


def read_counted(files: Iterable[Path]) -> dict[str, CountedCells]:
    """Read the counters that the study wrote, by the device's name."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        told = read_json(file)
        found.setdefault(told["device"], {}).update(told["cells"])
    return {device: CountedCells.of(cells) for device, cells in found.items() if cells}
