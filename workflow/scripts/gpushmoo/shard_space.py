"""The part of a sweep that one shard measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .space import Cell, Problem, enumerate_cells, shard_rounds


@dataclass(frozen=True)
class ShardSpace:
    """The cells of one shard: what is swept, and part `index` of `count` of it.

    `axes` are specifications, whose values may depend on the device.
    """

    dtype: str
    variants: Sequence[str]
    problems: Sequence[Problem]
    cache_states: Sequence[str]
    axes: dict[str, Any]
    index: int
    count: int

    def cells(self, kernel: str, values: Mapping[str, Sequence[int]]) -> list[Cell]:
        """The cells of `kernel` in this part, where the axes have these values."""
        rounds = shard_rounds(self.problems, self.cache_states, self.index, self.count)
        return [
            cell
            for problem, state in rounds
            for cell in enumerate_cells(
                kernel, self.dtype, self.variants, [problem], values, [state]
            )
        ]


def space_of(params: Mapping[str, Any]) -> ShardSpace:
    """The shard's part of the sweep in the parameters of a measuring job (`run_plan`)."""
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
