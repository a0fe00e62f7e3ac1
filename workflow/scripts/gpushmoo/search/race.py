"""Every cell gets a few samples, the fast ones go on."""

from __future__ import annotations

from .planner import Ask, SearchEnd, SearchVerdict
from .settings import SearchMode, SearchSettings
from .tallied import TalliedSearch
from .tally import Tally


class RacePlanner(TalliedSearch):
    """Racing: cells whose interval does not reach that of the fastest get no more samples.

    After Maron and Moore, Hoeffding races (1994), with intervals of the samples' spread.
    """

    def __init__(self, tally: Tally, settings: SearchSettings) -> None:
        super().__init__(tally)
        self._settings = settings

    def propose(self) -> list[Ask]:
        """See `Planner`."""
        fewest = self._settings.fewest
        new = [Ask(int(place), fewest) for place in self._tally.unmeasured]
        return new or further(self._tally, fewest)

    def verdict(self) -> SearchVerdict:
        """See `Planner`; a race measures all, so that it ends with `stop` alone."""
        ended = SearchEnd.OPEN if self.propose() else SearchEnd.STOP
        return self._verdict(SearchMode.RACE, None, ended)


def further(tally: Tally, fewest: int) -> list[Ask]:
    """More samples of the cells that may be the fastest and have too few."""
    asks = [Ask(int(place), tally.wanted(int(place), fewest)) for place in tally.front()]
    return [ask for ask in asks if ask.samples]
