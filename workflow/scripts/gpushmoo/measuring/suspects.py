"""Decide which cells the next measuring process gets, and which cell ended the last one.

Only a cell that ran alone can be blamed. After a fault, each cell that was never launched is
launched alone. A cell is blamed for a crash if it was the first to run in a fresh process, so that
no other cell can have damaged it. A first launch that takes long is tried again after all others,
with the whole time limit. So most faults cost one process, and correct cells do not wait for
hanging ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ..core.schema import Status
from ..storage.joblog import STRIKES_FORGIVEN
from .process import MAX_UNATTRIBUTED_CRASHES, MAX_UNATTRIBUTED_KILLS
from .sampling import TOGETHER

# After this many kills while a cell runs alone, blame it: it probably exhausts the host's memory.
KILLS_WHEN_ALONE = 3


@dataclass(frozen=True)
class WorkerFailure:
    """The early end of a process: the keys of the running cells, and the status for a culprit.

    `from_outside`: by a signal that no kernel causes. `preparing` are the keys of the cells whose
    data were made, if none ran. `had_whole_time`: a silent process had the time limit of a launch.
    """

    running: tuple[str, ...]
    status: Status
    text: str
    from_outside: bool = False
    preparing: tuple[str, ...] = ()
    had_whole_time: bool = True


@dataclass(frozen=True)
class Turn:
    """The cells of a process.

    At most `together` cells run without a wait between them. `first` is launched before all others.
    `is_patient`: a first launch may take the whole time limit. `is_careful`: cells that were never
    launched are launched one at a time.
    """

    keys: frozenset[str]
    together: int = TOGETHER
    first: str | None = None
    is_patient: bool = False
    is_careful: bool = False


@dataclass
class Attempt:
    """The process that does a turn: the cells that have run in it.

    `is_fresh`: it has done no earlier job. `is_clean`: no cell had a fault in it.
    """

    turn: Turn
    is_fresh: bool = True
    is_clean: bool = True
    ran: set[str] = field(default_factory=set)

    def is_alone(self, key: str) -> bool:
        """Whether the cell is the only one that has run in a fresh process."""
        return self.is_fresh and self.ran == {key}


class Suspects:
    """Cells that ran when a process failed, and which turn each gets next.

    Turns come in this order: all cells without a suspicion, several cells that failed together
    between their samples (one at a time), slow first launches, single cells that failed between
    their samples (each alone).
    """

    def __init__(self) -> None:
        self._is_careful = False
        self._first: str | None = None
        # Ordered sets: cells that are slow at first, and cells that failed between their samples.
        self._slow: dict[str, None] = {}
        self._aside: dict[str, None] = {}
        self._crowds: list[frozenset[str]] = []
        self._kills = 0
        self._kills_alone: Counter[str] = Counter()
        self._unattributed: Counter[bool] = Counter()
        self._left = -1

    def next(self, left: frozenset[str]) -> Turn:
        """The turn of the next process, out of the keys that are `left`."""
        return replace(self._next(left), is_careful=self._is_careful)

    def _next(self, left: frozenset[str]) -> Turn:
        aside = [key for key in self._aside if key in left]
        slow = [key for key in self._slow if key in left.difference(aside)]
        crowd = frozenset().union(*self._crowds).difference(aside, slow) & left
        if ready := left.difference(aside, slow, crowd):
            return Turn(ready, first=self._first_of(ready))
        if crowd:
            return Turn(crowd, 1, self._first_of(crowd))
        if slow:
            return Turn(frozenset(slow), first=self._first_of(slow) or slow[0], is_patient=True)
        return Turn(frozenset(aside[:1]), 1)

    def _first_of(self, keys: Collection[str]) -> str | None:
        return self._first if self._first in keys else None

    def assign_blame(
        self, attempt: Attempt, failure: WorkerFailure, launched: Collection[str]
    ) -> str | None:
        """The culprit of a failed attempt, or None if it is not known.

        `launched` are the keys of the cells that have been launched once without a fault.
        """
        key = failure.running[0] if len(failure.running) == 1 else None
        self._kills += failure.from_outside
        if key is not None and self._is_proven(key, attempt, failure):
            return key
        if not failure.from_outside or self._kills > STRIKES_FORGIVEN:
            self._suspect(attempt, failure, launched)
        return None

    def _is_proven(self, key: str, attempt: Attempt, failure: WorkerFailure) -> bool:
        """Whether the one running cell has caused the failure."""
        alone = attempt.is_alone(key)
        if failure.from_outside:
            if alone and (key == self._first or key in self._aside):
                self._kills_alone[key] += 1
            return self._kills_alone[key] >= KILLS_WHEN_ALONE
        if failure.status is Status.TIMEOUT:
            # A second wait would cost the time limit again.
            is_sound = attempt.is_fresh and attempt.is_clean
            again = any(key in crowd for crowd in self._crowds)
            return failure.had_whole_time and (again or alone or is_sound)
        return alone

    def _suspect(self, attempt: Attempt, failure: WorkerFailure, launched: Collection[str]) -> None:
        running, turn = failure.running, attempt.turn
        is_new = not all(key in launched for key in running)
        self._is_careful |= is_new
        if len(running) > 1:
            # Each new one is launched by itself next.
            if not is_new or turn.is_careful:
                self._crowds.append(frozenset(running))
            return
        (key,) = running
        if is_new and failure.status is Status.TIMEOUT and not failure.had_whole_time:
            self._slow.setdefault(key)
        elif is_new and key != turn.first:
            self._first = key
        else:
            self._aside.setdefault(key)

    def is_lost(self, left: int, failure: WorkerFailure) -> bool:
        """Whether too many processes have failed without a running cell since `left` changed."""
        if left != self._left:
            self._left = left
            self._unattributed.clear()
        self._unattributed[failure.from_outside] += 1
        limit = MAX_UNATTRIBUTED_KILLS if failure.from_outside else MAX_UNATTRIBUTED_CRASHES
        return self._unattributed[failure.from_outside] >= limit
