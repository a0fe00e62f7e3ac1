"""What a search of a group is given, what it asks for, and its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Candidate:
    """One cell of a group: how it is launched, on which problem, on which device.

    `params` are sorted by name; `block` holds the threads of a block along x, y and z, `blocks` the
    blocks of the grid; the problem has `height` rows of `width` elements of `element_bytes` bytes;
    the device has `units` multiprocessors, each of which holds `resident_per_unit` of these blocks
    at once (None where that is not told).
    """

    params: tuple[tuple[str, int], ...]
    block: tuple[int, int, int]
    blocks: int
    height: int
    width: int
    element_bytes: int
    units: int
    resident_per_unit: int | None

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Prior:
    """A cell with these launch parameters elsewhere: on another size, type or device.

    `slower` is its time over that of the fastest cell of its own group, 1.0 or more.
    """

    params: tuple[tuple[str, int], ...]
    slower: float


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


@dataclass(frozen=True)
class Ask:
    """Take `samples` more samples of candidate number `place`."""

    place: int
    samples: int


class SearchEnd(StrEnum):
    """Why a search asks for no more.

    `stop`: nothing more is likely to be found, or all that is near the fastest is known well.
    `budget`: it may not take more cells. `exhausted`: there are no more. `open`: it has not ended.
    """

    STOP = "stop"
    BUDGET = "budget"
    EXHAUSTED = "exhausted"
    OPEN = "open"


@dataclass(frozen=True)
class SearchVerdict:
    """What a search has found, and how sure it is.

    `measured` of the `candidates` have samples, `samples` in all. `best` is the place of the one
    with the least median, None where none has a time. `better_probability` is the summed
    probability that a candidate without samples is faster than the best by more than the settings'
    tolerance; None where nothing estimates it.
    """

    mode: str
    candidates: int
    measured: int
    samples: int
    best: int | None
    better_probability: float | None
    ended: SearchEnd
