"""What a measuring job reads out of its parameters, which `plan` makes of a configuration.

Apart from `plan`, so that measuring does not depend on how a configuration is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .measure import MeasureSettings
from .shard_cells import ShardSpace
from .space import Problem
from .timing.stopping import StoppingRule

# The project's root, which relative paths in a configuration refer to.
ROOT = Path(__file__).resolve().parents[3]


def settings_of(params: Mapping[str, Any]) -> MeasureSettings:
    """The settings in `plan.shard_params`."""
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


def space_of(params: Mapping[str, Any]) -> ShardSpace:
    """The shard's part of the sweep in `plan.shard_params`."""
    index, count = params["shard"]
    return ShardSpace(
        dtype=params["dtype"],
        variants=params["variants"],
        problems=[Problem(h, w) for h, w in params["sizes"]],
        cache_states=params["cache_states"],
        axes=params["axes"],
        index=index,
        count=count,
    )


def cache_folder(results: Path) -> Path:
    """Where device runtimes of a run keep their caches; HOME may not be writable."""
    return results / ".cache"
