"""When a cell has been sampled enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.median import median_interval

# Samples of a cell in one repeat: fewer have no 95 % interval, and a cell that was fast four times
# in a row by luck stopped there and won.
FEWEST = 6


@dataclass(frozen=True)
class StoppingRule:
    """Stop at a narrow interval, at `max_samples`, or when `budget_s` seconds are spent.

    `min_samples`, which should be six or more for the interval to be one of 95 %, are always taken.
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
        return median_interval(samples).relative_half_width <= self.relative_half_width

    def shared_among(self, repeats: int) -> StoppingRule:
        """The rule of each of so many repeats, which together take what this one rule takes.

        The mean of k medians is known √k times as well as each of them.
        """
        return StoppingRule(
            min_samples=max(FEWEST, math.ceil(self.min_samples / repeats)),
            max_samples=max(FEWEST, math.ceil(self.max_samples / repeats)),
            relative_half_width=self.relative_half_width * math.sqrt(repeats),
            budget_s=self.budget_s / repeats,
        )
