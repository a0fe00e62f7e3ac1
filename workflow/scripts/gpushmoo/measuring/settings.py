"""How cells are measured, when one has been sampled enough, and how a job reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.median import median_interval
from ..core.run_plan import FEWEST, TELLING_REPEATS, least_samples
from ..search.planner import SearchMode, SearchSettings

# Cells that are worked on without waiting between them, and the seconds that they may take
# together: a hanging cell is looked for when nothing is heard for longer than one launch may take.
TOGETHER = 32
TOGETHER_S = 0.1

EVERY_CELL = SearchSettings()


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


@dataclass(frozen=True)
class MeasureSettings:
    """How cells are measured; see workflow/schemas/config.schema.yaml for each value's meaning.

    `rule` is that of one repeat. `repeat`, from 1, is which of the `repeats` this is.
    """

    seed: int
    thread_limit: int | None
    warmup: int
    cell_timeout_s: float
    rule: StoppingRule
    repeat: int = 1
    repeats: int = 1
    search: SearchSettings = EVERY_CELL
    # A folder of recorded shards from which searches learn where to begin; None for none.
    transfer: str | None = None
    # ``base`` or a core clock in MHz at which the device is held; None leaves it alone.
    lock_clocks: int | str | None = None

    @property
    def searches(self) -> bool:
        """Whether cells may be left out; a later repeat measures what the first one found."""
        return self.search.mode != SearchMode.ALL and self.repeat == 1

    @property
    def verifies_before(self) -> bool:
        """Whether results are compared before a cell is sampled: before the first sample of all."""
        return self.repeat == 1

    @property
    def verifies_after(self) -> bool:
        """Whether results are compared after a cell's last sample: each repeat does so once."""
        return self.repeat > 1 or self.repeats == 1


def settings_of(params: Mapping[str, Any]) -> MeasureSettings:
    """The settings in the parameters of a measuring job (`run_plan.RunPlan.shard_params`)."""
    m = params["measure"]
    rule = StoppingRule(m["min_samples"], m["max_samples"], m["relative_half_width"], m["budget_s"])
    return MeasureSettings(
        seed=params["seed"],
        thread_limit=params["thread_limit"],
        warmup=m["warmup"],
        cell_timeout_s=m["timeout_s"],
        rule=rule if m["repeats"] == 1 else rule.shared_among(m["repeats"]),
        repeat=params["repeat"],
        repeats=m["repeats"],
        search=SearchSettings(
            **{name: value for name, value in m["search"].items() if name != "transfer"}
        ),
        transfer=m["search"]["transfer"],
        lock_clocks=m.get("lock_clocks"),
    )
