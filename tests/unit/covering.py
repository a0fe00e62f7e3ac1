"""A few cells of many in which every two values of two launch parameters still meet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gpushmoo.space import Cell

Pair = tuple[tuple[str, int], tuple[str, int]]


def pairs_of(cell: Cell) -> set[Pair]:
    """Every two launch parameters of a cell, with their values."""
    return set(itertools.combinations(sorted(cell.params), 2))


def covering(cells: Sequence[Cell]) -> list[Cell]:
    """Of `cells`, which differ in launch parameters only, some that hold every pair of all.

    Most faults need a certain value of one parameter or of two. Taken greedily: always the first
    cell with the most pairs that are missing, so that the choice is the same in every run.
    """
    missing = set().union(*map(pairs_of, cells))
    chosen: list[Cell] = []
    while missing:
        chosen.append(max(cells, key=lambda cell: len(pairs_of(cell) & missing)))
        missing -= pairs_of(chosen[-1])
    return chosen
