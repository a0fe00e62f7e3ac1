"""Median with a distribution-free confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MedianInterval:
    """Median of n samples with the interval [low, high], in the samples' unit.

    `coverage` is the interval's exact confidence; with few samples it stays under CONFIDENCE.
    """

    median: float
    low: float
    high: float
    coverage: float

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width over the median."""
        return (self.high - self.low) / (2.0 * self.median)


@lru_cache(maxsize=1024)
def _order_statistic(n: int) -> tuple[int, float]:
    """Largest k with P(X(k) ≤ median ≤ X(n+1−k)) ≥ CONFIDENCE, and that probability.

    The number of samples under the median is binomial(n, 1/2), so the probability is
    1 − 2 P(B ≤ k−1) (David and Nagaraja, Order Statistics, section 7.1).
    """
    # In whole numbers and without SciPy, which a measuring process takes longer to import than to
    # measure its first cells. `below` is 2ⁿ P(B ≤ k−1), `term` the binomial coefficient of n, k.
    every, k, below, term = 2**n, 1, 1, n
    while 2 * (k + 1) <= n and (every - 2 * (below + term)) / every >= CONFIDENCE:
        below += term
        k += 1
        term = term * (n - k + 1) // k
    return k, (every - 2 * below) / every


def median_interval(samples: Sequence[float]) -> MedianInterval:
    """Median and order-statistic interval of `samples` (at least one). Raises ValueError if empty.

    Six samples are the fewest whose full range covers the median with 95 %.
    """
    if not len(samples):
        raise ValueError("median of no samples")
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    k, coverage = _order_statistic(len(ordered))
    return MedianInterval(
        float(np.median(ordered)), float(ordered[k - 1]), float(ordered[-k]), max(0.0, coverage)
    )


@dataclass(frozen=True)
class MedianIntervals:
    """The `MedianInterval` of many cells, each an array of one value a cell."""

    median: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    coverage: npt.NDArray[np.float64]


def median_intervals(
    samples: npt.NDArray[np.float64], lengths: npt.NDArray[np.int64]
) -> MedianIntervals:
    """As `median_interval` for each cell, whose samples, `lengths` of them, stand in a row."""
    ends = np.cumsum(lengths)
    out = np.empty((4, len(lengths)))
    for n in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == n)
        ordered = np.sort(samples[(ends[places] - n)[:, None] + np.arange(n)], axis=1)
        k, coverage = _order_statistic(n)
        out[:3, places] = np.median(ordered, axis=1), ordered[:, k - 1], ordered[:, -k]
        out[3, places] = max(0.0, coverage)
    return MedianIntervals(*out)
