"""How cells are measured, and how a measuring job reads it out of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..search.planner import SearchMode, SearchSettings
from .sampling.stopping import StoppingRule

EVERY_CELL = SearchSettings()


@dataclass(frozen=True)
class MeasureSettings:
    """How cells are measured; see config/config.yaml for each value's meaning.

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
