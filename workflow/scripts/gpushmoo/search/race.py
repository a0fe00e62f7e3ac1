"""Every cell gets a few samples, the fast ones go on."""

from __future__ import annotations

from collections.abc import Sequence

from .planner import Ask, SearchEnd, SearchVerdict
from .settings import SearchMode, SearchSettings
from .tally import Tally


class RacePlanner:
    """Racing: cells whose interval does not reach that of the fastest get no more samples.

    After Maron and Moore, Hoeffding races (1994), with intervals of the samples' spread.
    """

    def __init__(self, tally: Tally, settings: SearchSettings) -> None:
        self._tally, self._settings = tally, settings

    def propose(self) -> list[Ask]:
        """See `Planner`."""
        fewest = self._settings.fewest
        new = [Ask(int(place), fewest) for place in self._tally.unmeasured]
        return new or further(self._tally, fewest)

    def tell(self, place: int, samples_s: Sequence[float]) -> None:
        """See `Planner`."""
        self._tally.add(place, samples_s)

    def fail(self, place: int) -> None:
        """See `Planner`."""
        self._tally.drop(place)

    def enough(self, place: int) -> None:
        """See `Planner`."""
        self._tally.fill(place)

    def verdict(self) -> SearchVerdict:
        """See `Planner`; a race measures all, so that it ends with `stop` alone."""
        tally = self._tally
        return SearchVerdict(
            mode=SearchMode.RACE,
            candidates=len(tally.taken),
            measured=len(tally.measured),
            samples=int(tally.taken.sum()),
            best=tally.best,
            better_probability=None,
            ended=SearchEnd.OPEN if self.propose() else SearchEnd.STOP,
        )


def further(tally: Tally, fewest: int) -> list[Ask]:
    """More samples of the cells that may be the fastest and have too few."""
    asks = [Ask(int(place), tally.wanted(int(place), fewest)) for place in tally.front()]
    return [ask for ask in asks if ask.samples]
