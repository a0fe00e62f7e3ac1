"""How a job samples its cells, and the rule by which a cell has enough samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ..core.median import median_interval
from ..core.run_plan import MIN_SAMPLES, TELLING_REPEATS, least_samples
from ..core.shard_job import ShardJob
from ..search.planner import RACE_REFERENCE_CELLS, SearchMode, SearchSettings

# The most cells that are launched without a wait between them, and the most seconds that they may
# take: the job takes a longer silence for a hanging launch.
TOGETHER = 32
TOGETHER_S = 0.1

EVERY_CELL = SearchSettings()


@dataclass(frozen=True)
class StoppingRule:
    """Stop at a narrow interval, at `max_samples`, or when `budget_s` seconds are spent.

    A cell gets at least `min_samples`, and MIN_SAMPLES before an interval counts as narrow. With
    `gives_up`, a cell also stops if even `max_samples` would not make its interval narrow enough;
    the width falls about as the root of the number.
    """

    min_samples: int
    max_samples: int
    relative_half_width: float
    budget_s: float
    gives_up: bool = False

    def done(self, samples: Sequence[float], spent_s: float) -> bool:
        """Whether a cell with these samples, which took `spent_s` seconds, needs no more."""
        n = len(samples)
        if n < self.min_samples:
            return False
        if n >= self.max_samples or spent_s >= self.budget_s:
            return True
        half = median_interval(samples).relative_half_width
        if self.gives_up and half * math.sqrt(n / self.max_samples) > self.relative_half_width:
            return True
        return n >= MIN_SAMPLES and half <= self.relative_half_width

    def shared_among(self, repeats: int) -> StoppingRule:
        """The rule of each repeat: the mean of k medians has 1/√k of the uncertainty of each."""
        return StoppingRule(
            min_samples=least_samples(self.min_samples, repeats),
            max_samples=max(MIN_SAMPLES, math.ceil(self.max_samples / repeats)),
            relative_half_width=self.relative_half_width * math.sqrt(repeats),
            budget_s=self.budget_s / repeats,
            gives_up=repeats >= TELLING_REPEATS,
        )


@dataclass(frozen=True)
class Sampling:
    """How the cells of a job are sampled: its stopping rule and its search follow from the job."""

    job: ShardJob
    rule: StoppingRule
    search: SearchSettings = EVERY_CELL

    @classmethod
    def of(cls, job: ShardJob) -> Self:
        """Return the rule of one repeat, and the search."""
        how = job.measure
        rule = StoppingRule(
            how.min_samples, how.max_samples, how.relative_half_width, how.cell_budget_s
        )
        search = SearchSettings(
            mode=how.search.mode,
            tolerance=how.search.tolerance,
            better_probability=how.search.better_probability,
            max_share=how.search.max_share,
            # One repeat has no spread between repeats.
            reference_cells=RACE_REFERENCE_CELLS if how.repeats > 1 else 0,
        )
        return cls(job, rule if how.repeats == 1 else rule.shared_among(how.repeats), search)

    @property
    def searches(self) -> bool:
        """Whether cells may be left out. Later repeats measure the cells of the first one."""
        return self.search.mode != SearchMode.ALL and self.job.repeat == 1

    @property
    def verifies_before(self) -> bool:
        """Whether a cell is verified before its first sample: in the first repeat."""
        return self.job.repeat == 1

    @property
    def verifies_after(self) -> bool:
        """Whether a cell is verified after its last sample, so that each repeat verifies it."""
        return self.job.repeat > 1 or self.job.measure.repeats == 1
