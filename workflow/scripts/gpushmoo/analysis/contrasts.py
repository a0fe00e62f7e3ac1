"""Two ratios of a device: the cost of one block too many, and double over float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..core.schema import Status

# A step that costs less than this, by the lower end of its interval, is not told.
WORTH_TELLING = 0.02


@dataclass(frozen=True)
class Ratio:
    """A ratio of two bandwidths; `low` and `high` from the far ends of both 95 % intervals."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Step:
    """What bandwidth is lost, as a share of it, from `blocks` to one block more."""

    dtype: str
    blocks: int
    units: int
    per_unit: int
    lost: Ratio


def ratio(above: Mapping[str, Any], below: Mapping[str, Any]) -> Ratio:
    """Bandwidth of one cell over that of another."""
    return Ratio(
        above["bandwidth_gbs"] / below["bandwidth_gbs"],
        above["bandwidth_low_gbs"] / below["bandwidth_high_gbs"],
        above["bandwidth_high_gbs"] / below["bandwidth_low_gbs"],
    )


def steps(cells: pd.DataFrame) -> list[Step]:
    """The largest loss from one number of blocks to the next, for each dtype, if worth telling.

    `cells` are those of one persistent-block kernel, variant, problem and cache state.
    """
    losses = []
    ok = cells[cells["status"] == Status.OK]
    for dtype, group in ok.groupby("dtype", sort=True, observed=True):
        # Of launches with as many blocks that differ in another axis, the fastest stands for them.
        ranked = group.sort_values("bandwidth_gbs")
        by_blocks = {int(row["blocks"]): row for _, row in ranked.iterrows()}
        pairs = [
            (n, ratio(by_blocks[n + 1], by_blocks[n])) for n in by_blocks if n + 1 in by_blocks
        ]
        if not pairs:
            continue
        blocks, kept = min(pairs, key=lambda pair: pair[1].value)
        lost = Ratio(1 - kept.value, 1 - kept.high, 1 - kept.low)
        if lost.low >= WORTH_TELLING:
            row = by_blocks[blocks]
            place = int(row["units"]), int(row["resident_per_unit"])
            losses.append(Step(str(dtype), blocks, *place, lost))
    return losses


def double_over_float(cells: pd.DataFrame, axes: Sequence[str]) -> tuple[Ratio, Mapping[str, Any]]:
    """Where float is fastest: the bandwidth of double over float at the same launch.

    `cells` are those of one kernel, variant, problem and cache state. Raises ValueError when no
    launch was measured in both types.
    """
    ok = cells[cells["status"] == Status.OK]
    single = ok[ok["dtype"] == "float"].set_index(list(axes))
    double = ok[ok["dtype"] == "double"].set_index(list(axes))
    shared = single.index.intersection(double.index)
    if shared.empty:
        raise ValueError("no launch was measured in float and in double")
    at = single.loc[shared, "bandwidth_gbs"].idxmax()
    top = single.loc[at]
    return ratio(double.loc[at], top), {**ok.loc[ok["cell_key"] == top["cell_key"]].iloc[0]}
