"""What searches that keep a tally of their group's samples have in common."""

from __future__ import annotations

from collections.abc import Sequence

from .planner import SearchEnd, SearchVerdict
from .settings import SearchMode
from .tally import Tally


class TalliedSearch:
    """The part of a `Planner` that is the same whatever it proposes."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def tell(self, place: int, samples_s: Sequence[float]) -> None:
        """Count new samples of a candidate, in seconds of a launch.

        Raises ValueError for a time that is not positive and finite.
        """
        self._tally.add(place, samples_s)

    def fail(self, place: int) -> None:
        """Leave the candidate out from now on, whatever samples it has."""
        self._tally.drop(place)

    def enough(self, place: int) -> None:
        """Ask for no more samples of the candidate; those that it has count."""
        self._tally.fill(place)

    def _verdict(self, mode: SearchMode, better: float | None, ended: SearchEnd) -> SearchVerdict:
        tally = self._tally
        return SearchVerdict(
            mode=mode,
            candidates=len(tally.taken),
            measured=len(tally.measured),
            samples=int(tally.taken.sum()),
            best=tally.best,
            better_probability=better,
            ended=ended,
        )
