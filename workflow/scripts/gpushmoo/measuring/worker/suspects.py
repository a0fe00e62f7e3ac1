"""Which cells were running when measuring processes ended, and which of them is to blame."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...core.schema import Status
from ..steps import TOGETHER

# Ends by a signal from outside that cast no suspicion in a shard: everything is measured again,
# cells that compete in the same rounds. No kernel sends such signals, but persons do, and a system
# short of memory.
STRIKES_FORGIVEN = 2
# Such ends in which a suspect was alone before it is blamed: it takes all memory, most likely.
STRIKES_ALONE = 3
# Ends in a row, while no cell ran and none ended, after which the device is lost to all: by a
# fault, and by a signal from outside.
FAULTS_OF_NOBODY = 2
STRIKES_OF_NOBODY = 10
# Ends that no blame explains yet at which suspects are looked at before others are measured, so
# that a variant whose every cell hangs is found out early.
MOST_UNEXPLAINED = 8


@dataclass(frozen=True)
class Fall:
    """A process that ended before its work: the keys of the cells that ran, and what it means.

    `from_outside` when it was ended by a signal that no kernel causes; `asked_for` are the keys of
    the cells for which a method of the workload was asked, where none ran.
    """

    running: tuple[str, ...]
    status: Status
    text: str
    from_outside: bool = False
    asked_for: tuple[str, ...] = ()


class Suspects:
    """Says which cells a process measures next, and whom a fall is to be blamed on.

    A cell is blamed only for what happened to a fresh process that measured it alone, after an
    earlier process fell while it ran: for one fault, or for STRIKES_ALONE signals from outside. Of
    several that ran at once when one hung, one that hangs when it runs by itself is blamed as well.
    Suspects come last, when nothing else is left, so that cells that compete stay together; those
    that ran several at once first one by one in one process, to find who is to be taken alone.
    """

    def __init__(self) -> None:
        self._strikes = 0
        # Cells that ran by themselves in a fall, with the strikes that they had alone since.
        self._single: dict[str, int] = {}
        self._crowds: list[frozenset[str]] = []
        self._explaining = False
        self._of_nobody: Counter[bool] = Counter()
        self._left = -1

    def next(self, left: frozenset[str]) -> tuple[frozenset[str], int]:
        """Keys for the next process, of the cells `left`, and how many of them at a time."""
        single = [key for key in self._single if key in left]
        crowds = [c for crowd in self._crowds if (c := (crowd & left).difference(single))]
        unexplained = len(single) + len(crowds)
        self._explaining = unexplained >= MOST_UNEXPLAINED or (self._explaining and unexplained > 0)
        crowd = frozenset().union(*crowds)
        if self._explaining and single:
            return frozenset(single[:1]), 1
        if not self._explaining and (trusted := left - crowd - set(single)):
            return trusted, TOGETHER
        return crowd or frozenset(single[:1]), 1

    def accuse(self, asked: frozenset[str], fall: Fall) -> str | None:
        """The key of the cell to blame for the `fall` of a process that was to measure `asked`."""
        if fall.from_outside:
            self._strikes += 1
        if len(asked) == 1 and (alone := self._single.keys() & set(fall.running)):
            (key,) = alone
            self._single[key] += fall.from_outside
            return key if self._single[key] >= STRIKES_ALONE or not fall.from_outside else None
        if fall.from_outside and self._strikes <= STRIKES_FORGIVEN:
            return None
        if len(fall.running) == 1:
            (key,) = fall.running
            if fall.status is Status.TIMEOUT and any(key in crowd for crowd in self._crowds):
                return key
            self._single.setdefault(key, 0)
        elif fall.running:
            self._crowds.append(frozenset(fall.running))
        return None

    def lost(self, left: int, fall: Fall) -> bool:
        """Whether a fall in which no cell ran, with so many cells left, is one too many."""
        if left != self._left:
            self._left = left
            self._of_nobody.clear()
        self._of_nobody[fall.from_outside] += 1
        limit = STRIKES_OF_NOBODY if fall.from_outside else FAULTS_OF_NOBODY
        return self._of_nobody[fall.from_outside] >= limit
