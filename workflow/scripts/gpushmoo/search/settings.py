"""How a group is searched."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SearchMode(StrEnum):
    """`all`: every cell has all samples. `race`: slow cells have few. `guided`: or none."""

    ALL = "all"
    RACE = "race"
    GUIDED = "guided"


@dataclass(frozen=True)
class SearchSettings:
    """How a group is searched; all but `mode` and `fewest` matter to guided searches alone.

    A search ends once an unmeasured cell is faster than the best by more than the share
    `tolerance` with less than `better_probability`, all cells together, or once `most_share` of the
    cells have samples. It begins with `first` cells and goes on with `batch` at a time, fewer in a
    small group. Every cell has `fewest` samples before it is judged.
    """

    mode: str = SearchMode.ALL
    tolerance: float = 0.01
    better_probability: float = 0.05
    first: int = 8
    batch: int = 8
    fewest: int = 2
    most_share: float = 1.0
