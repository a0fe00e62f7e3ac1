"""Analyze series of cells: the fastest of each group, the end of a cache, and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..core.metric import Speeds, metric_of
from ..core.schema import DERIVED, Status, is_axis
from ..core.space import in_order
from ..storage.dataset import of_one_mode

# In units of the last cache level. A working set up to INSIDE counts as in the cache, from OUTSIDE
# on as in memory. Between them, a cache may contain a part of it.
INSIDE, OUTSIDE = 1.0, 4.0
# Column of the result of `bytes_touched`.
BYTES_TOUCHED = f"{DERIVED}bytes_touched"
# A series needs this number of sizes, and must fall by this share, to show the end of a cache.
MIN_SIZES = 4
MIN_FALL = 0.1
# A step is reported if the lower end of its interval is at least this share.
WORTH_TELLING = 0.02


def axes_of(cells: pd.DataFrame) -> list[str]:
    """Return the names of the launch-parameter columns that are set for these cells."""
    return in_order(c for c in cells.columns if is_axis(c) and cells[c].notna().any())


def params_text(cell: Mapping[str, Any], axes: Sequence[str]) -> str:
    """Return the launch parameters of `cell` named by `axes`, as in ``block_x=64, block_y=4``."""
    # Files of other tuners contain texts. A whole number may be in a column of floats.
    values = ((a, cell[a]) for a in axes)
    return ", ".join(f"{a}={v if isinstance(v, str) else int(v)}" for a, v in values)


def params_texts(cells: pd.DataFrame) -> pd.Series:
    """Return `params_text` of each of the cells, which may belong to several kernels."""
    axes = axes_of(cells)
    values = zip(*(cells[axis] for axis in axes), strict=True)
    named = [{a: v for a, v in zip(axes, row, strict=True) if pd.notna(v)} for row in values]
    texts = [params_text(cell, [*cell]) for cell in named] if axes else ""
    return pd.Series(texts, cells.index, object)


def bytes_touched(cells: pd.DataFrame) -> pd.Series:
    """Return the bytes that a launch reads and writes, each counted once."""
    return cells["bytes_read"] + cells["bytes_written"]


def fastest(cells: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the ``ok`` cell of smallest median for each `names`, sorted, with BYTES_TOUCHED."""
    ok = cells[cells["status"] == Status.OK]
    ok = ok.assign(**{BYTES_TOUCHED: bytes_touched(ok)})
    ranked = ok.sort_values(["median_s", "cell_key"])
    return ranked.drop_duplicates(list(names)).sort_values(list(names), ignore_index=True)


def cache_bytes(cells: pd.DataFrame) -> int | None:
    """Return the size of the device's last cache level in bytes; None if it is unknown."""
    known = cells[cells["working_set_over_cache"].fillna(0.0) > 0]
    if known.empty:
        return None
    sizes = bytes_touched(known) / known["working_set_over_cache"]
    return round(float(sizes.median()))


@dataclass(frozen=True)
class CacheEnd:
    """Working sets (bytes) between which bandwidth falls; `cache` is the nominal size, if known."""

    dtype: str
    low: int
    high: int
    cache: int | None

    @property
    def multiples(self) -> tuple[float, float] | None:
        """The working sets as multiples of the nominal cache."""
        return None if self.cache is None else (self.low / self.cache, self.high / self.cache)


def fall_interval(sizes: Sequence[int], bandwidths: Sequence[float]) -> tuple[int, int] | None:
    """Return the neighboring `sizes` between which the bandwidth falls and stays low, or None.

    A bandwidth is low if it is below the midpoint between the maximum of the series and its value
    at the largest size. If a series crosses the midpoint several times, the interval is from before
    the first fall to after the last. The result is None if there are too few sizes, or if the
    bandwidth does not fall by more than MIN_FALL of its maximum.

    Parameters
    ----------
    sizes
        Working sets in bytes, increasing.
    bandwidths
        Bandwidth at each size, in any unit.
    """
    if len(sizes) < MIN_SIZES:
        return None
    values = np.asarray(bandwidths, dtype=np.float64)
    top, last = float(values.max()), float(values[-1])
    if last >= (1.0 - MIN_FALL) * top:
        return None
    fallen = values < (top + last) / 2
    peak = int(values.argmax())
    first = peak + int(np.flatnonzero(fallen[peak:])[0])
    final = int(np.flatnonzero(~fallen)[-1]) + 1
    return int(sizes[first - 1]), int(sizes[final])


def cache_ends(cells: pd.DataFrame) -> list[CacheEnd]:
    """Return the end of the cache in each type's warm series of fastest cells, if it shows one."""
    warm = of_one_mode(cells[(cells["cache_state"] == "warm") & (bytes_touched(cells) > 0)])
    series = fastest(warm, ["dtype", BYTES_TOUCHED])
    ends = []
    for dtype, rows in series.groupby("dtype", sort=True):
        interval = fall_interval(list(rows[BYTES_TOUCHED]), list(rows["bandwidth_gbs"]))
        if interval is not None:
            ends.append(CacheEnd(str(dtype), *interval, cache_bytes(rows)))
    return ends


@dataclass(frozen=True)
class Ratio:
    """Ratio of two speeds; `low` and `high` combine the opposite ends of both 95 % intervals."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class OccupancyStep:
    """Share of the speed that is lost from `blocks` to one block more."""

    dtype: str
    blocks: int
    multiprocessors: int
    resident_blocks: int
    lost: Ratio


def ratio(above: Mapping[str, Any], below: Mapping[str, Any]) -> Ratio:
    """Return the bandwidth, or rate of work, of cell `above` divided by that of cell `below`."""
    merit = metric_of(below)
    return _quotient(merit.of(above), merit.of(below))


def _quotient(above: Speeds, below: Speeds) -> Ratio:
    return Ratio(above.value / below.value, above.low / below.high, above.high / below.low)


def occupancy_steps(cells: pd.DataFrame) -> list[OccupancyStep]:
    """Return the largest significant loss from one number of blocks to the next, for each type."""
    losses = []
    ok = cells[cells["status"] == Status.OK]
    for dtype, group in ok.groupby("dtype", sort=True, observed=True):
        # If launches with the same number of blocks differ in another axis, only the fastest
        # counts.
        ranked = group.sort_values("median_s", ascending=False)
        by_blocks = {int(row["blocks"]): row for _, row in ranked.iterrows()}
        times = ("median_s", "median_high_s", "median_low_s")
        speeds = {n: Speeds(*(1 / row[t] for t in times)) for n, row in by_blocks.items()}
        pairs = [(n, _quotient(speeds[n + 1], speeds[n])) for n in speeds if n + 1 in speeds]
        if not pairs:
            continue
        blocks, kept = min(pairs, key=lambda pair: pair[1].value)
        lost = Ratio(1 - kept.value, 1 - kept.high, 1 - kept.low)
        if lost.low >= WORTH_TELLING:
            row = by_blocks[blocks]
            losses.append(
                OccupancyStep(
                    dtype=str(dtype),
                    blocks=blocks,
                    multiprocessors=int(row["multiprocessors"]),
                    resident_blocks=int(row["resident_blocks"]),
                    lost=lost,
                )
            )
    return losses
