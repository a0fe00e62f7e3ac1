"""When a cell has been sampled enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .median import CONFIDENCE, median_interval


@dataclass(frozen=True)
class StoppingRule:
    """Stop at a narrow interval, at `max_samples`, or when `budget_s` seconds are spent.

    `min_samples` are always taken; `relative_half_width` is that of the 95 % interval.
    """

    min_samples: int
    max_samples: int
    relative_half_width: float
    budget_s: float

    def done(self, samples: Sequence[float], spent_s: float) -> bool:
        """Whether a cell with these samples, having cost `spent_s` seconds, needs no more."""
        n = len(samples)
        if n < self.min_samples:
            return False
        if n >= self.max_samples or spent_s >= self.budget_s:
            return True
        interval = median_interval(samples)
        return (
            interval.coverage >= CONFIDENCE
            and interval.relative_half_width <= self.relative_half_width
        )
