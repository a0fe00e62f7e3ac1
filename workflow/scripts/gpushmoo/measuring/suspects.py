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
    """Early end of a measuring process.

    Attributes
    ----------
    running
        Keys of the cells that ran.
    status, text
        Status and message for the cell to blame.
    from_outside
        Whether a signal that no kernel causes ended the process.
    preparing
        Keys of the cells whose data was being made, if no cell ran.
    had_whole_time
        Whether a process that sent nothing had the whole time limit of a launch.
    """

    running: tuple[str, ...]
    status: Status
    text: str
    from_outside: bool = False
    preparing: tuple[str, ...] = ()
    had_whole_time: bool = True


@dataclass(frozen=True)
class Turn:
    """Cells that a process measures, and how it launches them.

    Attributes
    ----------
    keys
        Keys of the cells.
    together
        Largest number of cells that run without a wait between them.
    first
        Key of the cell that is launched before all others.
    is_patient
        Whether a first launch may take the whole time limit.
    is_careful
        Whether cells that were never launched are launched one at a time.
    """

    keys: frozenset[str]
    together: int = TOGETHER
    first: str | None = None
    is_patient: bool = False
    is_careful: bool = False


@dataclass
class Attempt:
    """A process that works on a turn.

    Attributes
    ----------
    turn
        Its cells.
    is_fresh
        Whether the process has done no earlier job.
    is_clean
        Whether no cell had a fault in the process.
    ran
        Keys of the cells that have run in it.
    """

    turn: Turn
    is_fresh: bool = True
    is_clean: bool = True
    ran: set[str] = field(default_factory=set)

    def is_alone(self, key: str) -> bool:
        """Return whether the cell is the only one that has run in a new process."""
        return self.is_fresh and self.ran == {key}


class Suspects:
    """Cells that ran when a process failed, and the order in which they are tried again.

    First come all cells without a suspicion. Then come several cells that failed together between
    their samples, one at a time. Slow first launches follow. Last come single cells that failed
    between their samples, each in its own process.
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
        """Return the turn of the next process.

        Parameters
        ----------
        left
            Keys of the cells without a status.
        """
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
        """Return the key of the cell that caused a failure, or None if it is not known.

        Parameters
        ----------
        attempt
            The process that failed.
        failure
            Its failure.
        launched
            Keys of the cells that have been launched once without a fault.
        """
        key = failure.running[0] if len(failure.running) == 1 else None
        self._kills += failure.from_outside
        if key is not None and self._is_proven(key, attempt, failure):
            return key
        if not failure.from_outside or self._kills > STRIKES_FORGIVEN:
            self._suspect(attempt, failure, launched)
        return None

    def _is_proven(self, key: str, attempt: Attempt, failure: WorkerFailure) -> bool:
        """Return whether the one running cell has caused the failure."""
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
        """Return whether the device counts as lost, as too many processes failed without a cell.

        Parameters
        ----------
        left
            Number of cells without a status. If it changes, the count starts again.
        failure
            The failure of a process.
        """
        if left != self._left:
            self._left = left
            self._unattributed.clear()
        self._unattributed[failure.from_outside] += 1
        limit = MAX_UNATTRIBUTED_KILLS if failure.from_outside else MAX_UNATTRIBUTED_CRASHES
        return self._unattributed[failure.from_outside] >= limit
