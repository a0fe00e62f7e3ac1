"""Was the machine steady? Asked of the runtime's own copies, which are timed beside the cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# A change of the control's speed that is no news: repeats on an H200 differ by 0.2 % (95th
# percentile 0.9 %).
STEADY = 0.02


@dataclass(frozen=True)
class Steadiness:
    """Relative changes of the speed of the runtime's own copies; None where nothing tells.

    `between` are the typical and the largest change between repeats of the same copies, `within`
    those between the first and the second half of a repeat's rounds; `controls` is how many copies
    of different buffers were looked at, `repeats` how often the run measured. Of several recordings
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
        found = [typical for pair in (self.between, self.within) if pair for typical in pair[:1]]
        return all(change <= STEADY for change in found)


def steadiness(provenance: Sequence[Mapping[str, Any]]) -> Steadiness:
    """Of a run, from the provenance of all its shards and repeats."""
    medians: dict[tuple[Any, ...], list[float]] = {}
    within = []
    repeats: dict[str, int] = {}
    for shard in provenance:
        params = shard["params"]
        kernel = params["folder"].rsplit("/", 1)[-1]
        repeats[kernel] = max(repeats.get(kernel, 1), params["repeat"])
        name = json.dumps({k: v for k, v in params.items() if k != "repeat"}, sort_keys=True)
        for control in shard["controls"]:
            seconds = np.asarray(control["seconds"])
            if not len(seconds):
                continue
            key = (name, control["height"], control["width"], control["cache_state"])
            medians.setdefault(key, []).append(float(np.median(seconds)))
            if len(seconds) >= 4:
                half = len(seconds) // 2
                within.append(_change(np.median(seconds[:half]), np.median(seconds[half:])))
    between = [_change(min(m), max(m)) for m in medians.values() if len(m) > 1]
    most = max(repeats.values(), default=1)
    once = tuple(sorted(k for k, n in repeats.items() if n == 1 < most))
    return Steadiness(most, len(medians), _typical(between), _typical(within), once)


def _change(a: float, b: float) -> float:
    """How much faster one is than the other."""
    return float(max(a, b) / min(a, b) - 1.0)


def _typical(changes: Sequence[float]) -> tuple[float, float] | None:
    return (float(np.median(changes)), float(max(changes))) if changes else None
