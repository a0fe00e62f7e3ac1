"""Compute medians and means with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MedianInterval:
    """Median of n samples with its interval, and that interval's exact confidence."""

    median: float
    low: float
    high: float
    coverage: float

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width divided by the median."""
        return (self.high - self.low) / (2.0 * self.median)


@lru_cache(maxsize=1024)
def _order_statistic(n: int) -> tuple[int, float]:
    """Return the largest k with P(X(k) ≤ median ≤ X(n+1−k)) ≥ CONFIDENCE, and the probability.

    The number of samples below the median is binomial(n, 1/2), so the probability is 1 − 2 P(B ≤
    k−1) (David and Nagaraja, Order Statistics, section 7.1).
    """
    # Whole numbers instead of SciPy, whose import takes a measuring process longer than its first
    # cells. `below` is 2ⁿ P(B ≤ k−1), `term` the binomial coefficient of n and k.
    every = 2**n
    k = 1
    below = 1
    term = n
    while 2 * (k + 1) <= n and (every - 2 * (below + term)) / every >= CONFIDENCE:
        below += term
        k += 1
        term = term * (n - k + 1) // k
    return k, (every - 2 * below) / every


def coverage_of(n: int) -> float:
    """Return the confidence of the interval that `median_interval` returns for `n` samples.

    It is 0 for one sample.
    """
    return max(0.0, _order_statistic(n)[1])


def median_interval(samples: Sequence[float]) -> MedianInterval:
    """Return median and order-statistic interval of samples; a 95 % interval needs six or more.

    Raises ValueError without samples.
    """
    if not len(samples):
        raise ValueError("median of no samples")
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    k, _ = _order_statistic(len(ordered))
    return MedianInterval(
        float(np.median(ordered)),
        float(ordered[k - 1]),
        float(ordered[-k]),
        coverage_of(len(ordered)),
    )


@dataclass(frozen=True)
class MedianIntervals:
    """The `MedianInterval` of many cells; each attribute is an array of shape (cells,)."""

    median: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    coverage: npt.NDArray[np.float64]


def median_intervals(
    samples: npt.NDArray[np.float64], lengths: npt.NDArray[np.int64]
) -> MedianIntervals:
    """Compute `median_interval` for all cells.

    Parameters
    ----------
    samples
        Samples of all cells, one cell after the other.
    lengths
        Number of samples of each cell, shape (cells,), at least 1.
    """
    ends = np.cumsum(lengths)
    out = np.empty((4, len(lengths)))
    for n in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == n)
        ordered = np.sort(samples[(ends[places] - n)[:, None] + np.arange(n)], axis=1)
        k, _ = _order_statistic(n)
        out[:3, places] = np.median(ordered, axis=1), ordered[:, k - 1], ordered[:, -k]
        out[3, places] = coverage_of(n)
    return MedianIntervals(*out)


# 0.975 quantiles of Student's t for 1, 2, ... degrees of freedom. It is a table because measuring
# jobs do not import SciPy.
_T_975 = (
    12.7062,
    4.3027,
    3.1824,
    2.7764,
    2.5706,
    2.4469,
    2.3646,
    2.3060,
    2.2622,
    2.2281,
    2.2010,
    2.1788,
    2.1604,
    2.1448,
    2.1314,
    2.1199,
    2.1098,
    2.1009,
    2.0930,
    2.0860,
    2.0796,
    2.0739,
    2.0687,
    2.0639,
    2.0595,
    2.0555,
    2.0518,
    2.0484,
    2.0452,
    2.0423,
)


@dataclass(frozen=True)
class MeanInterval:
    """Mean and its 95 % confidence interval; a single value has no interval."""

    mean: float
    low: float | None
    high: float | None


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Return mean and 95 % t interval of one or more independent, normally distributed values."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return MeanInterval(mean, None, None)
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    # Beyond the table, the last entry is at most 4 % too wide.
    half = _T_975[min(n - 1, len(_T_975)) - 1] * math.sqrt(variance / n)
    return MeanInterval(mean, mean - half, mean + half)
