"""Whether the best cell lies on the edge of what was swept: a better one may lie outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

# Values of an axis that make a range, of which the last is an edge.
_RANGE = 3


@dataclass(frozen=True)
class Limits:
    """How far axes can go at all: by kernel and axis, and by the threads of a block."""

    most: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    threads: int = 1024


def edges(
    best: Mapping[str, Any], group: pd.DataFrame, axes: Sequence[str], limits: Limits
) -> list[str]:
    """Axes by which the cell `best` lies on the edge of its `group`, all cells that were swept.

    ``block_x up`` asks for larger values, ``block_x down`` for smaller ones. An end that cannot be
    passed is no edge: 1, the largest value that the kernel takes, the largest block.
    """
    most = limits.most.get(best["kernel"], {})
    ways = []
    for axis in axes:
        values = sorted(group[axis].dropna().unique())
        if len(values) < _RANGE:
            continue
        first, last, best_value = int(values[0]), int(values[-1]), int(best[axis])
        if best_value == last < most.get(axis, last + 1) and _room(group, axis, limits.threads):
            ways.append(f"{axis} up")
        elif best_value == first > 1:
            ways.append(f"{axis} down")
    return ways


def _room(group: pd.DataFrame, axis: str, threads: int) -> bool:
    """Whether a block of a value above the largest of `axis` may have few enough threads."""
    least = group.groupby(axis)["threads_per_block"].min().sort_index()
    before, last = least.iloc[-2], least.iloc[-1]
    # An axis that does not change the block's size is not limited by it.
    return bool(last == before or last + (last - before) <= threads)
