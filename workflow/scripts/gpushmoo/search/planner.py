"""Plan the samples of a group's cells; a race samples cells that may be the fastest further.

Every cell of a race gets one sample. A cell whose interval does not reach that of the fastest gets
no more, as in Hoeffding races (Maron and Moore 1994), but with intervals from the samples' spread.
The spread is that of the cells that get more samples.
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

# Half the width of an interval in standard errors. Many cells are compared with one, and a cell
# that is dropped by mistake is lost, so it is wider than a 95 % interval.
STANDARD_ERRORS = 2.5
# Standard error of a median relative to that of a mean, for normal samples: √(π/2).
OF_MEDIAN = math.sqrt(math.pi / 2.0)
# Weight of the group's spread relative to the spread of a cell's own few samples, in samples.
GROUP_COUNTS = 4.0
# Least relative error: a clock that repeats the same value is not more precise than this.
MIN_SPREAD = 1e-4
# Cells whose interval ends within this share behind that of the fastest are measured, too: other
# processes may find them in another order. One recorded tied cell in 600 is further behind.
NEAR = 0.03
# Cells of each decade of time that a race measures fully if other processes repeat its cells.
RACE_REFERENCE_CELLS = 128
# Rule for a full cell: fewest and most samples, and half of a narrow interval's relative width.
FullRule = tuple[int, int, float]


@dataclass(frozen=True)
class Candidate:
    """One cell of a group: its launch, problem and device.

    `params` are sorted by name. `block` has the threads of a block along x, y and z, and `blocks`
    is the number of blocks in the grid. The problem has `height` rows of `width` elements of
    `element_bytes` bytes. The device has `units` multiprocessors, and `resident_blocks` of these
    blocks fit on each (None if unknown).
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
        """Number of threads in a block."""
        return math.prod(self.block)


class SearchMode(StrEnum):
    """Samples per cell: `all` gives each cell all, `race` slow cells few, `guided` some none."""

    ALL = "all"
    RACE = "race"
    GUIDED = "guided"


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search for the fastest cell of a group.

    All except `mode` and `reference_cells` affect only guided searches.

    Attributes
    ----------
    mode
        Which cells are measured, see `SearchMode`.
    tolerance
        Relative difference in time that does not matter.
    better_probability
        The search stops if the probability that an unmeasured cell is faster than the best one by
        more than `tolerance`, summed over these cells, is below this value.
    first, batch
        Number of cells at the start, and number of cells that are added at a time. Both are smaller
        in a small group.
    fewest
        Number of samples of a cell of a guided search before it is compared with others.
    max_share
        The search stops if this share of the cells has samples.
    reference_cells
        A race measures this number of cells in each decade of time completely, even if they are
        slow.
    """

    mode: str = SearchMode.ALL
    tolerance: float = 0.01
    better_probability: float = 0.05
    first: int = 8
    batch: int = 8
    fewest: int = 2
    max_share: float = 1.0
    reference_cells: int = RACE_REFERENCE_CELLS


class SampleRequest(NamedTuple):
    """Request for `samples` more samples of candidate number `place`."""

    place: int
    samples: int


class SearchEnd(StrEnum):
    """Reason why a search requests no more samples.

    `stop`: a better cell is unlikely, and all cells near the fastest have enough samples. `budget`:
    the limit of cells is reached. `exhausted`: no cells are left. `open`: the search has not ended.
    """

    STOP = "stop"
    BUDGET = "budget"
    EXHAUSTED = "exhausted"
    OPEN = "open"


@dataclass(frozen=True)
class SearchVerdict:
    """Result of a search, and its certainty.

    `measured` of the `candidates` have samples, `samples` in all. `best` is the place of the one
    with the smallest median, or None if no cell has a time. `better_probability` is the summed
    probability that a candidate without samples is faster than the best by more than the tolerance,
    or None if nothing estimates it.
    """

    mode: str
    candidates: int
    measured: int
    samples: int
    best: int | None
    better_probability: float | None
    ended: SearchEnd


class Planner(ABC):
    """Search of one group: it requests samples, receives them, and returns a verdict.

    Places count the `count` candidates from 0. You may request the next samples before all samples
    of the last request are there; the planner may then repeat the missing ones. A cell is full by
    the stopping rule of measuring: at `most` samples, or from `least` on if half of the median's 95
    % interval is at most the share `half_width` of the median.
    """

    mode: SearchMode

    def __init__(self, count: int, settings: SearchSettings, rule: FullRule) -> None:
        self._settings = settings
        self._least, self._most, self._half_width = rule
        self._samples: list[list[float]] = [[] for _ in range(count)]
        self.taken = np.zeros(count, dtype=np.int64)
        # Medians, log of seconds; infinite without samples, and for a cell that is out.
        self.log_s = np.full(count, np.inf)
        self._variance = np.zeros(count)
        self._full = np.zeros(count, dtype=bool)
        self._out = np.zeros(count, dtype=bool)

    @abstractmethod
    def propose(self) -> list[SampleRequest]:
        """Return the samples to take next, each place at most once; empty when the search ended."""

    @abstractmethod
    def _end(self) -> tuple[float | None, SearchEnd]:
        """Return the verdict's `better_probability` and `ended`."""

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
        """Record new samples of candidate `place`, in seconds per launch.

        The number of samples may differ from the number requested.
        """
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
        """Drop a candidate that gave no time, or cannot give more."""
        self._out[place] = True
        self.log_s[place] = np.inf

    def enough(self, place: int) -> None:
        """Stop sampling a candidate, which counts with the samples that it has."""
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
        """Return the relative standard error of the median of each measured place.

        The variance of a cell's samples is shrunk towards the group's, which is known better than
        the variance of a few samples.
        """
        taken, own = self.taken[self.measured], self._variance[self.measured]
        several = taken > 1
        # Use the median variance of all cells, not the mean: a few cells are far noisier.
        group = max(float(np.median(own[several])) if several.any() else 0.0, MIN_SPREAD**2)
        degrees = np.maximum(taken - 1, 0)
        variance = (GROUP_COUNTS * group + degrees * own) / (GROUP_COUNTS + degrees)
        errors: Floats = OF_MEDIAN * np.sqrt(variance / taken)
        return errors

    def front(self) -> Places:
        """Return measured places whose interval reaches that of the fastest, or nearly (NEAR)."""
        measured = self.measured
        half = STANDARD_ERRORS * self.standard_errors()
        log_s = self.log_s[measured]
        reached = np.min(log_s + half) + NEAR if len(measured) else 0.0
        return measured[log_s - half <= reached]

    def wanted(self, place: int) -> int:
        """Return the number of samples to request for a cell of the front; 0 when it is full."""
        if self._full[place] or self._out[place]:
            return 0
        taken = int(self.taken[place])
        fewest = self._settings.fewest
        if taken < fewest:
            return fewest - taken
        if taken < self._least:
            return min(self._least - taken, max(fewest, 2))
        return min(self._most - taken, 3)

    def _further(self, besides: Collection[int] = ()) -> list[SampleRequest]:
        """Request more samples of cells that may be the fastest, and of others with too few."""
        places = {*self.front().tolist(), *besides}
        asks = [SampleRequest(place, self.wanted(place)) for place in sorted(places)]
        return [ask for ask in asks if ask.samples]


class RacePlanner(Planner):
    """Planner of a race: it measures every cell, so it ends only with `stop`.

    Its reference cells show the spread between repeats of all kinds of cells, not only of the
    fastest (`analysis.repeats`).
    """

    mode = SearchMode.RACE
    _witnesses: Collection[int] | None = None

    def propose(self) -> list[SampleRequest]:
        """Propose one sample of every cell, then more for those that may be the fastest."""
        new = [SampleRequest(place, 1) for place in self.unmeasured.tolist()]
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
            for place in measured[decades == decade][: self._settings.reference_cells]
        ]

    def _end(self) -> tuple[float | None, SearchEnd]:
        return None, SearchEnd.OPEN if self.propose() else SearchEnd.STOP
