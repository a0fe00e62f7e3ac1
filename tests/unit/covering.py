"""A few cells of many in which every two values of two launch parameters still meet."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from gpushmoo.space import Cell

Choice = Callable[[list[Cell]], list[Cell]]
Values = tuple[tuple[str, int], ...]


def pairs_of(cell: Cell) -> set[Values]:
    """Every two launch parameters of a cell with their values, each by itself, and none at all."""
    params = sorted(cell.params)
    return {some for count in range(3) for some in itertools.combinations(params, count)}


def covering(cells: list[Cell]) -> list[Cell]:
    """Of `cells`, which differ in launch parameters only, some that hold every pair of all.

    Most faults need a certain value of one parameter or of two. Taken greedily: always the first
    cell with the most pairs that are missing, so that the choice is the same in every run.
    """
    missing, chosen = set().union(*map(pairs_of, cells)), []
    while missing:
        chosen.append(max(cells, key=lambda cell: len(pairs_of(cell) & missing)))
        missing -= pairs_of(chosen[-1])
    return chosen


# A test with this parameter takes few cells; in a hunt, all of them, too.
CHOSEN = pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(covering, id="every pair of values"),
        pytest.param(list, id="all", marks=pytest.mark.hunt),
    ],
)
