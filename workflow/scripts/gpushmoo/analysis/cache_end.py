"""Where a cache ends, as the bandwidth over the working set shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..storage.dataset import of_one_kind
from .fastest import BYTES_TOUCHED, cache_bytes, fastest

# A series of fewer sizes has no shape, and one that falls by less has no end of a cache in it.
FEWEST_SIZES = 4
LEAST_FALL = 0.1


@dataclass(frozen=True)
class CacheEnd:
    """Between these working sets (bytes) the bandwidth of `dtype` falls to what lies outside.

    `cache` is the nominal size of the last cache level in bytes; None where it is not told.
    """

    dtype: str
    low: int
    high: int
    cache: int | None

    @property
    def multiples(self) -> tuple[float, float] | None:
        """The working sets as multiples of the nominal cache."""
        return None if self.cache is None else (self.low / self.cache, self.high / self.cache)


def fall_interval(sizes: Sequence[int], bandwidths: Sequence[float]) -> tuple[int, int] | None:
    """The neighbouring `sizes` between which the bandwidth falls for good.

    Fallen is what lies below the midpoint between the maximum of the series and its value at the
    largest size. A series that crosses the midpoint several times gets an interval from before the
    first fall to after the last. `sizes` increase. None when there are too few of them, or when the
    bandwidth does not fall after its maximum by more than LEAST_FALL of it.
    """
    if len(sizes) < FEWEST_SIZES:
        return None
    values = np.asarray(bandwidths, dtype=np.float64)
    top, last = float(values.max()), float(values[-1])
    if last >= (1.0 - LEAST_FALL) * top:
        return None
    fallen = values < (top + last) / 2
    peak = int(values.argmax())
    first = peak + int(np.flatnonzero(fallen[peak:])[0])
    final = int(np.flatnonzero(~fallen)[-1]) + 1
    return int(sizes[first - 1]), int(sizes[final])


def cache_ends(cells: pd.DataFrame) -> list[CacheEnd]:
    """The end of the cache in each dtype's warm series of one kernel, where it shows one.

    A series is the fastest verified cell for each number of bytes touched.
    """
    warm = of_one_kind(cells[cells["cache_state"] == "warm"])
    series = fastest(warm, ["dtype", BYTES_TOUCHED])
    ends = []
    for dtype, rows in series.groupby("dtype", sort=True):
        interval = fall_interval(list(rows[BYTES_TOUCHED]), list(rows["bandwidth_gbs"]))
        if interval is not None:
            ends.append(CacheEnd(str(dtype), *interval, cache_bytes(rows)))
    return ends
