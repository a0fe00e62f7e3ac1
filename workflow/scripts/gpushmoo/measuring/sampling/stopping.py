"""When a cell has been sampled enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.median import median_interval
from ...core.sampled import FEWEST, TELLING_REPEATS, least_samples


@dataclass(frozen=True)
class StoppingRule:
    """Stop at a narrow interval, at `max_samples`, or when `budget_s` seconds are spent.

    `min_samples` are always taken, and FEWEST before an interval counts as narrow. With
    `gives_up`, a cell also stops where `max_samples` would not narrow its interval enough, which is
    about as the root of their number.
    """

    min_samples: int
    max_samples: int
    relative_half_width: float
    budget_s: float
    gives_up: bool = False

    def done(self, samples: Sequence[float], spent_s: float) -> bool:
        """Whether a cell with these samples, having cost `spent_s` seconds, needs no more."""
        n = len(samples)
        if n < self.min_samples:
            return False
        if n >= self.max_samples or spent_s >= self.budget_s:
            return True
        half = median_interval(samples).relative_half_width
        if self.gives_up and half * math.sqrt(n / self.max_samples) > self.relative_half_width:
            return True
        return n >= FEWEST and half <= self.relative_half_width

    def shared_among(self, repeats: int) -> StoppingRule:
        """The rule of each of so many repeats, which together take what this one rule takes.

        The mean of k medians is known √k times as well as each of them.
        """
        return StoppingRule(
            min_samples=least_samples(self.min_samples, repeats),
            max_samples=max(FEWEST, math.ceil(self.max_samples / repeats)),
            relative_half_width=self.relative_half_width * math.sqrt(repeats),
            budget_s=self.budget_s / repeats,
            gives_up=repeats >= TELLING_REPEATS,
        )
