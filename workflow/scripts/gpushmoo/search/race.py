"""A race: every cell of a group gets a few samples, those that may be the fastest go on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..core.median import median_interval
from .planner import Ask, SearchEnd, SearchMode, SearchSettings, SearchVerdict

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

# Half the width of an interval in standard errors. Many cells are compared with one, and one that
# drops out wrongly is lost, so it is wider than one of 95 %.
STANDARD_ERRORS = 2.5
# The standard error of a median over that of a mean, of normal samples: √(π/2).
OF_MEDIAN = math.sqrt(math.pi / 2.0)
# What the group's spread counts for beside the spread of a cell's own few samples, in samples.
GROUP_COUNTS = 4.0
# Relative; a clock that gives the same time again and again does not know it better than this.
LEAST_SPREAD = 1e-4
# When a cell is full: its fewest and most samples, and half of a narrow interval's relative width.
FullRule = tuple[int, int, float]


class Tally:
    """Samples of `count` cells; a cell is full as a stopping rule of measuring has it.

    That is at `most` samples, or from `least` on where half of the median's 95 % interval is not
    wider than the share `half_width` of it.
    """

    def __init__(self, count: int, rule: FullRule) -> None:
        self._least, self._most, self._half_width = rule
        self._samples: list[list[float]] = [[] for _ in range(count)]
        self.taken = np.zeros(count, dtype=np.int64)
        # Medians, log of seconds; infinite where there is none or the cell is out.
        self.log_s = np.full(count, np.inf)
        self._variance = np.zeros(count)
        self._full = np.zeros(count, dtype=bool)
        self._out = np.zeros(count, dtype=bool)

    def tell(self, place: int, samples_s: Sequence[float]) -> None:
        """New samples of a candidate, in seconds of a launch; more or fewer than were asked.

        Raises ValueError for a time that is not positive and finite.
        """
        if not all(0.0 < s < math.inf for s in samples_s):
            raise ValueError(f"no time of a launch: {list(samples_s)}")
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

    def is_new(self, place: int) -> bool:
        """Whether the cell has no samples and may get some."""
        return not (self.taken[place] or self._out[place])

    @property
    def best(self) -> int | None:
        """The place with the least median; the first of equal ones."""
        place = int(np.argmin(self.log_s)) if len(self.log_s) else 0
        return place if len(self.log_s) and np.isfinite(self.log_s[place]) else None

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
        """Measured places whose interval reaches that of the fastest."""
        measured = self.measured
        half = STANDARD_ERRORS * self.standard_errors()
        log_s = self.log_s[measured]
        reached = np.min(log_s + half) if len(measured) else 0.0
        return measured[log_s - half <= reached]

    def wanted(self, place: int, fewest: int) -> int:
        """How many more samples a cell of the front gets at once; 0 when it is full.

        First `fewest`, then up to the fewest of a full cell, then three at a time.
        """
        if self._full[place] or self._out[place]:
            return 0
        taken = int(self.taken[place])
        if taken < fewest:
            return fewest - taken
        if taken < self._least:
            return min(self._least - taken, max(fewest, 2))
        return min(self._most - taken, 3)


class Planner(Tally, ABC):
    """Searches one group: asks for samples, is told what they were, and at last gives a verdict.

    Places count the candidates from 0. Of what was asked nothing has to be told before the next
    question; what was neither told nor failed may be asked again.
    """

    mode: SearchMode

    def __init__(self, count: int, settings: SearchSettings, rule: FullRule) -> None:
        super().__init__(count, rule)
        self._settings = settings

    @abstractmethod
    def propose(self) -> list[Ask]:
        """What to sample next, each place at most once; empty when the search has ended."""

    @abstractmethod
    def verdict(self) -> SearchVerdict:
        """What is known so far."""

    def _further(self) -> list[Ask]:
        """More samples of the cells that may be the fastest and have too few."""
        fewest = self._settings.fewest
        asks = [Ask(int(place), self.wanted(int(place), fewest)) for place in self.front()]
        return [ask for ask in asks if ask.samples]

    def _verdict(self, better: float | None, ended: SearchEnd) -> SearchVerdict:
        return SearchVerdict(
            mode=self.mode,
            candidates=len(self.taken),
            measured=len(self.measured),
            samples=int(self.taken.sum()),
            best=self.best,
            better_probability=better,
            ended=ended,
        )


class RacePlanner(Planner):
    """Racing: cells whose interval does not reach that of the fastest get no more samples.

    After Maron and Moore, Hoeffding races (1994), with intervals of the samples' spread.
    """

    mode = SearchMode.RACE

    def propose(self) -> list[Ask]:
        """See `Planner`."""
        new = [Ask(int(place), self._settings.fewest) for place in self.unmeasured]
        return new or self._further()

    def verdict(self) -> SearchVerdict:
        """See `Planner`; a race measures every cell, so it ends only with `stop`."""
        return self._verdict(None, SearchEnd.OPEN if self.propose() else SearchEnd.STOP)
