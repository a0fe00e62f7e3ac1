"""The mean of a few values, with its 95 % interval by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# 0.975 quantiles of Student's t for 1, 2, ... degrees of freedom. A table, because jobs that
# measure do without SciPy.
_T_975 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


@dataclass(frozen=True)
class MeanInterval:
    """A mean, and where it would lie in 95 % of repetitions; no interval of a single value."""

    mean: float
    low: float | None
    high: float | None


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Of independent values of one normal distribution, at least one of them."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return MeanInterval(mean, None, None)
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    # Beyond the table the last entry is at most 4 % too wide.
    half = _T_975[min(n - 1, len(_T_975)) - 1] * math.sqrt(variance / n)
    return MeanInterval(mean, mean - half, mean + half)
