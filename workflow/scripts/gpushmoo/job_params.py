"""What a measuring job reads out of its parameters, which `run_plan` gives.

Apart from `plan`, so that measuring does not depend on how a configuration is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .measure import MeasureSettings
from .timing.stopping import StoppingRule

# The project's root, which relative paths in a configuration refer to.
ROOT = Path(__file__).resolve().parents[3]


def settings_of(params: Mapping[str, Any]) -> MeasureSettings:
    """The settings in `run_plan.RunPlan`."""
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
    )


def cache_folder(results: Path) -> Path:
    """Where device runtimes of a run keep their caches; HOME may not be writable."""
    return results / ".cache"
