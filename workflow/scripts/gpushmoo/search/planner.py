"""A planner asks for samples of a group's cells; a race asks the more of those that may be fastest.

Every cell of a race gets a few samples. Cells whose interval does not reach that of the fastest get
no more of them, after Maron and Moore, Hoeffding races (1994), with intervals of the samples'
spread.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.median import median_interval

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

# Half the width of an interval in standard errors. Many cells are compared with one, and one that
# drops out wrongly is lost, so it is wider than one of 95 %.
STANDARD_ERRORS = 2.5
# The standard error of a median over that of a mean, of normal samples: √(π/2).
OF_MEDIAN = math.sqrt(math.pi / 2.0)
# The weight of the group's spread against the spread of a cell's own few samples, in samples.
GROUP_COUNTS = 4.0
# Relative; a clock that gives the same time again and again does not know it better than this.
LEAST_SPREAD = 1e-4
# Cells whose interval ends by less than this share behind that of the fastest are measured as well:
# other processes may find them in another order. One recorded tied cell in 600 is behind.
NEAR = 0.03
# In a race whose cells are measured in other processes, too.
WITNESSES = 128
# When a cell is full: its fewest and most samples, and half of a narrow interval's relative width.
FullRule = tuple[int, int, float]


@dataclass(frozen=True)
class Candidate:
    """One cell of a group: its launch, problem and device.

    `params` are sorted by name; `block` holds the threads of a block along x, y and z, `blocks` the
    blocks of the grid; the problem has `height` rows of `width` elements of `element_bytes` bytes;
    the device has `units` multiprocessors, each of which holds `resident_blocks` of these blocks
    at once (None where that is unknown).
    """

    params: tuple[tuple[str, int], ...]
    block: tuple[int, int, int]
    blocks: int
    height: int
    width: int
    element_bytes: int
    multiprocessors: int
    resident_blocks: int | None

    @property
    def threads(self) -> int:
        """Return the number of threads in a block."""
        return math.prod(self.block)


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
    small group. Every cell has `fewest` samples before it is judged. A race measures `witnesses`
    cells of each decade of time to the end, however slow they are.
    """

    mode: str = SearchMode.ALL
    tolerance: float = 0.01
    better_probability: float = 0.05
    first: int = 8
    batch: int = 8
    fewest: int = 2
    most_share: float = 1.0
    witnesses: int = WITNESSES


class Ask(NamedTuple):
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
    """The result of a search, and how sure it is.

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


class Planner(ABC):
    """Searches one group: asks for samples, gets them, and at last gives a verdict.

    Places count the `count` candidates from 0. The next question may be asked before all samples of
    the last one are there, and may repeat what is missing. A cell is full by the stopping rule of
    measuring: at `most` samples, or from `least` on where half of the median's 95 % interval is not
    wider than the share `half_width` of it.
    """

    mode: SearchMode

    def __init__(self, count: int, settings: SearchSettings, rule: FullRule) -> None:
        self._settings = settings
        self._least, self._most, self._half_width = rule
        self._samples: list[list[float]] = [[] for _ in range(count)]
        self.taken = np.zeros(count, dtype=np.int64)
        # Medians, log of seconds; infinite where there is none or the cell is out.
        self.log_s = np.full(count, np.inf)
        self._variance = np.zeros(count)
        self._full = np.zeros(count, dtype=bool)
        self._out = np.zeros(count, dtype=bool)

    @abstractmethod
    def propose(self) -> list[Ask]:
        """The samples to take next, each place at most once; empty when the search has ended."""

    @abstractmethod
    def _end(self) -> tuple[float | None, SearchEnd]:
        """The verdict's `better_probability` and `ended`."""

    def verdict(self) -> SearchVerdict:
        """Summarize the search as far as it has come."""
        best = int(np.argmin(self.log_s))
        return SearchVerdict(
            self.mode,
            len(self.taken),
            len(self.measured),
            int(self.taken.sum()),
            best if np.isfinite(self.log_s[best]) else None,
            *self._end(),
        )

    def tell(self, place: int, samples_s: Sequence[float]) -> None:
        """New samples of a candidate, in seconds of a launch; more or fewer than were asked."""
        if not len(samples_s):
            return
        mine = self._samples[place]
        mine += map(float, samples_s)
        n = len(mine)
        self.taken[place] = n
        interval = median_interval(mine)
        if not self._out[place]:
            self.log_s[place] = math.log(interval.median)
        self._variance[place] = np.var(np.log(mine), ddof=1) if n > 1 else 0.0
        narrow = interval.relative_half_width <= self._half_width
        self._full[place] |= n >= self._most or (n >= self._least and narrow)

    def fail(self, place: int) -> None:
        """The candidate gave no time, or can give no more; it is out."""
        self._out[place] = True
        self.log_s[place] = np.inf

    def enough(self, place: int) -> None:
        """The candidate is to get no more samples, and counts with those that it has."""
        self._full[place] = True

    @property
    def measured(self) -> Places:
        """Places with a time, in order."""
        return np.flatnonzero(np.isfinite(self.log_s))

    @property
    def unmeasured(self) -> Places:
        """Places that may still get a time, in order."""
        return np.flatnonzero((self.taken == 0) & ~self._out)

    def standard_errors(self) -> Floats:
        """Of the median of each measured place, relative.

        The variance of a cell's samples is shrunk to the group's, of which a few samples know more
        than of their own.
        """
        taken, own = self.taken[self.measured], self._variance[self.measured]
        several = taken > 1
        # The median variance of all cells, not the mean: a few cells are far noisier.
        group = max(float(np.median(own[several])) if several.any() else 0.0, LEAST_SPREAD**2)
        degrees = np.maximum(taken - 1, 0)
        variance = (GROUP_COUNTS * group + degrees * own) / (GROUP_COUNTS + degrees)
        errors: Floats = OF_MEDIAN * np.sqrt(variance / taken)
        return errors

    def front(self) -> Places:
        """Measured places whose interval reaches that of the fastest, or nearly (NEAR)."""
        measured = self.measured
        half = STANDARD_ERRORS * self.standard_errors()
        log_s = self.log_s[measured]
        reached = np.min(log_s + half) + NEAR if len(measured) else 0.0
        return measured[log_s - half <= reached]

    def wanted(self, place: int) -> int:
        """How many more samples a cell of the front gets at once; 0 when it is full."""
        if self._full[place] or self._out[place]:
            return 0
        taken = int(self.taken[place])
        fewest = self._settings.fewest
        if taken < fewest:
            return fewest - taken
        if taken < self._least:
            return min(self._least - taken, max(fewest, 2))
        return min(self._most - taken, 3)

    def _further(self, besides: Collection[int] = ()) -> list[Ask]:
        """More samples of the cells that may be the fastest, and of others, and have too few."""
        places = {*self.front().tolist(), *besides}
        asks = [Ask(place, self.wanted(place)) for place in sorted(places)]
        return [ask for ask in asks if ask.samples]


class RacePlanner(Planner):
    """A race: it measures every cell, so it ends only with `stop`.

    Its witnesses are there because the spread between repeats is that of all kinds of cells, not of
    the fastest alone (`analysis.repeats`).
    """

    mode = SearchMode.RACE
    _witnesses: Collection[int] | None = None

    def propose(self) -> list[Ask]:
        """Propose the fewest samples of every cell, then more for those that may be the fastest."""
        new = [Ask(place, self._settings.fewest) for place in self.unmeasured.tolist()]
        if new:
            return new
        if self._witnesses is None:
            self._witnesses = self._chosen()
        return self._further(self._witnesses)

    def _chosen(self) -> list[int]:
        measured = np.random.default_rng(len(self.taken)).permutation(self.measured)
        decades = np.floor(self.log_s[measured] / math.log(10.0))
        return [
            int(place)
            for decade in np.unique(decades)
            for place in measured[decades == decade][: self._settings.witnesses]
        ]

    def _end(self) -> tuple[float | None, SearchEnd]:
        return None, SearchEnd.OPEN if self.propose() else SearchEnd.STOP
