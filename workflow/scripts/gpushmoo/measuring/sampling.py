"""Define how a job samples its cells, and the rule by which a cell has enough samples."""

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
    """Rule by which a cell has enough samples.

    A cell stops at a narrow interval, at the largest number of samples, or when its budget is
    spent.

    Attributes
    ----------
    min_samples, max_samples
        Smallest and largest number of samples. An interval can count as narrow only from
        MIN_SAMPLES samples on.
    relative_half_width
        Half width of the interval of the median, as a share of the median, that counts as narrow.
    budget_s
        Time of all launches in samples, in seconds.
    gives_up
        Whether a cell also stops if even `max_samples` would not make its interval narrow enough.
        The width is assumed to fall with the square root of the number.
    """

    min_samples: int
    max_samples: int
    relative_half_width: float
    budget_s: float
    gives_up: bool = False

    def done(self, samples: Sequence[float], spent_s: float) -> bool:
        """Return whether a cell needs no more samples.

        Parameters
        ----------
        samples
            Times of a launch in seconds.
        spent_s
            Time of all launches in these samples, in seconds.
        """
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
        """Return the rule for each of several repeats of a run.

        The mean of k medians has 1/√k of the uncertainty of each, so each repeat needs fewer
        samples.
        """
        return StoppingRule(
            min_samples=least_samples(self.min_samples, repeats),
            max_samples=max(MIN_SAMPLES, math.ceil(self.max_samples / repeats)),
            relative_half_width=self.relative_half_width * math.sqrt(repeats),
            budget_s=self.budget_s / repeats,
            gives_up=repeats >= TELLING_REPEATS,
        )


@dataclass(frozen=True)
class Sampling:
    """How the cells of a job are sampled: the rule and the search that follow from the job."""

    job: ShardJob
    rule: StoppingRule
    search: SearchSettings = EVERY_CELL

    @classmethod
    def of(cls, job: ShardJob) -> Self:
        """Return the stopping rule of one repeat, and the search, that a job's settings define."""
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
        """Whether cells may be skipped. Later repeats measure the same cells as the first one."""
        return self.search.mode != SearchMode.ALL and self.job.repeat == 1

    @property
    def verifies_before(self) -> bool:
        """Whether a cell is verified before its first sample, which is so in the first repeat."""
        return self.job.repeat == 1

    @property
    def verifies_after(self) -> bool:
        """Whether a cell is verified after its last sample, so that each repeat verifies it."""
        return self.job.repeat > 1 or self.job.measure.repeats == 1
