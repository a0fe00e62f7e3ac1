"""The settings of a measuring job, and the rule by which a cell has enough samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.median import median_interval
from ..core.run_plan import FEWEST, TELLING_REPEATS, least_samples
from ..core.settings import Measure
from ..search.planner import WITNESSES, SearchMode, SearchSettings

# The most cells that are launched without a wait between them, and the most seconds that they may
# take: the job takes a longer silence for a hanging launch.
TOGETHER = 32
TOGETHER_S = 0.1

EVERY_CELL = SearchSettings()


@dataclass(frozen=True)
class StoppingRule:
    """Stop at a narrow interval, at `max_samples`, or when `budget_s` seconds are spent.

    At least `min_samples` are taken, and FEWEST before an interval counts as narrow. With
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
        return n >= FEWEST and half <= self.relative_half_width

    def shared_among(self, repeats: int) -> StoppingRule:
        """The rule of each repeat: the mean of k medians has 1/√k of the uncertainty of each."""
        return StoppingRule(
            min_samples=least_samples(self.min_samples, repeats),
            max_samples=max(FEWEST, math.ceil(self.max_samples / repeats)),
            relative_half_width=self.relative_half_width * math.sqrt(repeats),
            budget_s=self.budget_s / repeats,
            gives_up=repeats >= TELLING_REPEATS,
        )


@dataclass(frozen=True)
class MeasureSettings:
    """The settings of one repeat; `core.settings.Measure` explains each.

    `repeat` counts from 1. `lock_clocks` is ``base``, a core clock in MHz, or None.
    `launches_factor` multiplies the length of samples.
    """

    seed: int
    thread_limit: int | None
    warmup: int
    cell_timeout_s: float
    rule: StoppingRule
    repeat: int = 1
    repeats: int = 1
    search: SearchSettings = EVERY_CELL
    lock_clocks: int | str | None = None
    launches_factor: float = 1.0

    @property
    def searches(self) -> bool:
        """Whether cells may be left out. Later repeats measure the cells of the first one."""
        return self.search.mode != SearchMode.ALL and self.repeat == 1

    @property
    def verifies_before(self) -> bool:
        """Whether a cell is verified before its first sample: in the first repeat."""
        return self.repeat == 1

    @property
    def verifies_after(self) -> bool:
        """Whether a cell is verified after its last sample: so that each repeat verifies it."""
        return self.repeat > 1 or self.repeats == 1


def settings_of(params: Mapping[str, Any]) -> MeasureSettings:
    """The settings in a job's parameters (`run_plan.RunPlan.shard_params`)."""
    m = Measure.of_plain(params["measure"])
    rule = StoppingRule(m.min_samples, m.max_samples, m.relative_half_width, m.cell_budget_s)
    return MeasureSettings(
        seed=params["seed"],
        thread_limit=params["thread_limit"],
        warmup=m.warmup,
        cell_timeout_s=m.cell_timeout_s,
        rule=rule if m.repeats == 1 else rule.shared_among(m.repeats),
        repeat=params["repeat"],
        repeats=m.repeats,
        search=SearchSettings(
            mode=m.search.mode,
            tolerance=m.search.tolerance,
            better_probability=m.search.better_probability,
            most_share=m.search.most_share,
            # One repeat has no spread between repeats.
            witnesses=WITNESSES if m.repeats > 1 else 0,
        ),
        lock_clocks=m.lock_clocks,
        launches_factor=m.launches_factor,
    )
