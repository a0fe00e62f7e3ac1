"""Cells that one stage chooses and another measures, and the file in which they lie between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .space import CACHE_STATES, Cell, Problem


@dataclass(frozen=True)
class ChosenCell:
    """A cell, and why it was chosen: ``fastest``, ``tied``, ``32 × 8``."""

    cell: Cell
    role: str


def to_plain(chosen: Sequence[ChosenCell]) -> dict[str, Any]:
    """An object for JSON; `from_plain` reads it."""
    return {
        "cells": [
            {**asdict(one.cell), "params": dict(one.cell.params), "role": one.role}
            for one in chosen
        ]
    }


def from_plain(content: Mapping[str, Any]) -> list[ChosenCell]:
    """The cells that `to_plain` gave. Raises ValueError, one sentence, where they are none."""
    try:
        return [_chosen(values) for values in content["cells"]]
    except (KeyError, TypeError, AttributeError) as err:
        raise ValueError(
            f"the file of cells is not as it should be ({type(err).__name__}: {err}); it holds "
            "'cells', a list of objects with kernel, dtype, variant, problem {height, width}, "
            "params {axis: value}, cache_state and role."
        ) from err


def _chosen(values: Mapping[str, Any]) -> ChosenCell:
    rest = {k: v for k, v in values.items() if k not in ("role", "problem", "params")}
    problem, params = Problem(**values["problem"]), tuple(sorted(values["params"].items()))
    return ChosenCell(Cell(**rest, problem=problem, params=params), values.get("role", "named"))


def cells_in(text: str) -> list[ChosenCell]:
    """The cells of ``KERNEL DTYPE VARIANT SIZE axis=1,2 axis=4``: all combinations, warm.

    SIZE is one number for a square array, or ``HEIGHTxWIDTH``. Raises ValueError, one sentence.
    """
    kernel, dtype, variant, size, *axes = [*text.split(), *[""] * 4][: max(4, len(text.split()))]
    try:
        sides = [int(side) for side in size.split("x")]
        height, width = sides * 2 if len(sides) == 1 else sides
        values = {
            name: [int(value) for value in several.split(",")]
            for name, _, several in (axis.partition("=") for axis in axes)
        }
    except ValueError as err:
        raise ValueError(
            f"'{text}' names no cells; write KERNEL DTYPE VARIANT SIZE axis=value,value ..., such "
            "as 'copy2d_coalesced float element 8192 block_x=32,64 block_y=8'."
        ) from err
    points: list[tuple[tuple[str, int], ...]] = [()]
    for name in sorted(values):
        points = [(*point, (name, value)) for point in points for value in values[name]]
    problem, state = Problem(height, width), CACHE_STATES[0]
    return [
        ChosenCell(Cell(kernel, dtype, variant, problem, point, state), "named") for point in points
    ]
