"""What every search of a group can be asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


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


class Planner(Protocol):
    """Searches one group: asks for samples, is told what they were, and at last gives a verdict.

    Places count the candidates from 0. Of what was asked nothing has to be told before the next
    question; what was neither told nor failed may be asked again.
    """

    def propose(self) -> list[Ask]:
        """What to sample next, each place at most once; empty when the search has ended."""
        ...

    def tell(self, place: int, samples_s: Sequence[float]) -> None:
        """New samples of a candidate, in seconds of a launch; more or fewer than were asked.

        Raises ValueError for a time that is not positive and finite.
        """
        ...

    def fail(self, place: int) -> None:
        """The candidate gave no time, or can give no more; it is out."""
        ...

    def enough(self, place: int) -> None:
        """The candidate is to get no more samples, and counts with those that it has."""
        ...

    def verdict(self) -> SearchVerdict:
        """What is known so far."""
        ...
