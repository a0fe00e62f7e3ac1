"""Was the machine steady? Asked of the runtime's own copies, which are timed beside the cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.space import LAUNCH_KINDS

Floats = npt.NDArray[np.float64]

# A change of the control's speed that is no news.
STEADY = 0.02
# Copies that take less are mostly the start of a launch, which varies more than memory does: on an
# H200 they changed by 1.2 % between repeats where longer ones did by 0.1 %.
LONG_S = 50e-6


@dataclass(frozen=True)
class Steadiness:
    """Relative changes of the speed of the runtime's own copies; None where nothing tells.

    `between` are the typical and the largest change between repeats of the same copies, `within`
    those between the first and the second half of a repeat's rounds; `controls` is how many copies
    of different buffers were looked at (those of LONG_S and more, where there are some), `repeats`
    how often the run measured. Of several recordings
    put together, `once` are the kernels that only ones of a single repeat have.
    """

    repeats: int
    controls: int
    between: tuple[float, float] | None
    within: tuple[float, float] | None
    once: tuple[str, ...] = ()

    @property
    def steady(self) -> bool:
        """Whether no change that was looked at is large for half of the controls or more."""
        changes = [typical for pair in (self.between, self.within) if pair for typical in pair[:1]]
        return all(change <= STEADY for change in changes)


def steadiness(provenance: Sequence[Mapping[str, Any]]) -> Steadiness:
    """The steadiness of a run, from the provenance of all its shards and repeats."""
    controls: dict[tuple[Any, ...], list[Floats]] = {}
    repeats: dict[str, int] = {}
    for shard in provenance:
        params = shard["params"]
        kernel = params["folder"].rsplit("/", 1)[-1]
        repeats[kernel] = max(repeats.get(kernel, 1), params["repeat"])
        name = json.dumps({k: v for k, v in params.items() if k != "repeat"}, sort_keys=True)
        for control in shard["controls"]:
            if control["seconds"]:
                # Shards of before there were several kinds of launch do not name theirs.
                kind = control.get("launch_kind", LAUNCH_KINDS[0])
                size = control["height"], control["width"]
                key = (name, *size, control["cache_state"], kind)
                controls.setdefault(key, []).append(np.asarray(control["seconds"]))
    most = max(repeats.values(), default=1)
    once = tuple(sorted(k for k, n in repeats.items() if n == 1 < most))
    medians_of = [[float(np.median(c)) for c in each] for each in controls.values()]
    long = [min(medians) >= LONG_S for medians in medians_of]
    is_used = [all_or_long or not any(long) for all_or_long in long]
    between = [
        _change(min(m), max(m))
        for m, used in zip(medians_of, is_used, strict=True)
        if used and len(m) > 1
    ]
    halves = [
        np.array_split(c, 2)
        for each, used in zip(controls.values(), is_used, strict=True)
        for c in each
        if used and len(c) >= 4
    ]
    within = [_change(np.median(first), np.median(second)) for first, second in halves]
    return Steadiness(most, sum(is_used), _typical(between), _typical(within), once)


def _change(a: Any, b: Any) -> float:
    """How much faster one is than the other."""
    return float(max(a, b) / min(a, b) - 1.0)


def _typical(changes: Sequence[float]) -> tuple[float, float] | None:
    return (float(np.median(changes)), float(max(changes))) if changes else None
