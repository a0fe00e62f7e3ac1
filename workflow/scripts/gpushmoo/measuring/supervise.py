"""Has a shard measured by a process that is replaced when a cell takes it down.

A kernel that reads outside its buffers leaves a context in which nothing works; one that never
returns leaves a process that nothing but a signal ends. Either costs its own cell, once that has
done the same to a fresh process alone (see `suspects`): it gets a status, and other processes
measure the cells that have none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..core.errors import DeviceError
from ..core.schema import Status
from ..core.space import CellGroup
from .events import (
    Began,
    CellRun,
    Copied,
    Ended,
    Finished,
    Grouped,
    Lost,
    Measure,
    Message,
    Preparing,
    Read,
    Searched,
    ShardResult,
    Timed,
    Worked,
)
from .process import (
    IDLE_LIMIT_S,
    WorkerCrashedError,
    WorkerGoneError,
    WorkerKilledError,
    WorkerSilentError,
)
from .settings import TOGETHER

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


log = logging.getLogger(__name__)

# What a launch may take beyond the configured time: the host's own work and OpenCL's compilers,
# which some runtimes start with the first launch of a shape.
LAUNCH_GRACE_S = 10.0
# Cells of one variant that may take a process down, and their share of those that ran, before the
# variant's other cells are not tried any more: each of them costs the start of two processes.
FAULTS_PER_VARIANT = 8
FAULTY_SHARE = 0.1


class Worker(Protocol):
    """The measuring process as its caller sees it; see `handle.WorkerProcess`."""

    def hear(self, limit_s: float) -> Message:
        """The next message; WorkerSilentError or WorkerGoneError when there is none."""

    def stop(self) -> None:
        """End the process at once, whatever it does."""

    def done(self) -> None:
        """The process has done its work, and may end or be kept."""


class Supervisor:
    """Collects what the processes tell until every cell has its status."""

    def __init__(
        self,
        runs: Sequence[CellRun],
        start: Callable[[Measure], Worker],
        cell_timeout_s: float,
        on_progress: Callable[[int, float], None],
        launches: Mapping[CellGroup, int] | None = None,
    ) -> None:
        """`runs` have not begun.

        `start` opens a process that does what it is told. `launches` is how many make a sample of
        the groups that were measured before.
        """
        self.result = ShardResult({r.cell.key: r for r in runs}, launches=dict(launches or {}))
        # Seconds of a launch of those cells that were launched, by key; for who watches.
        self.timed_s: dict[str, float] = {}
        self._start, self._on_progress = start, on_progress
        self._launch_limit_s = cell_timeout_s + LAUNCH_GRACE_S
        self._timeout_s = cell_timeout_s
        self._faults: Counter[str] = Counter()
        self._suspects = Suspects()
        # Keys of cells that ran while their process lived on.
        self._survived: set[str] = set()
        # Cells that the present process is to measure, the share of all that had ended when it
        # began, and what was last told: what a process did for cells that had not ended is done
        # again, but progress never falls.
        self._asked = frozenset(self.result.runs)
        self._before = self._told = 0.0

    def measure(self, first: Worker) -> ShardResult:
        """Measure with `first`, a process that is at work on all cells, and its successors."""
        worker = first
        while True:
            try:
                fall = self._follow(worker)
            except WorkerCrashedError as err:
                # A program's error, not the device's; what was measured before it is kept.
                if len(self._left()) == len(self.result.runs):
                    raise
                self._end_open(Status.LAUNCH_FAILED, f"a program failed: {err}")
                return self.result
            except BaseException:
                worker.stop()
                raise
            if fall is None:
                worker.done()
                for key in self._asked & self._left():
                    self._run(key).end(Status.LOST_DEVICE, "the measuring process left it out")
            else:
                worker.stop()
                self._judge(fall)
                self._tell_ended()
            left = self._left()
            if not left:
                return self.result
            self._before = 1.0 - len(left) / len(self.result.runs)
            self._asked, together = self._suspects.next(left)
            try:
                worker = self._start(Measure(self._asked, together, self.result.launches))
            except (DeviceError, WorkerGoneError, WorkerSilentError, WorkerCrashedError) as err:
                self._end_open(Status.LOST_DEVICE, f"the device did not come back: {err}")
                return self.result

    def _run(self, key: str) -> CellRun:
        return self.result.runs[key]

    def _left(self) -> frozenset[str]:
        return frozenset(key for key, run in self.result.runs.items() if run.status is None)

    def _end_open(self, status: Status, message: str) -> None:
        for key in self._left():
            self._run(key).end(status, message)

    def _follow(self, worker: Worker) -> Fall | None:
        """Collect until the end. How the process fell; None when it has done its work.

        Raises DeviceError and WorkerCrashedError, which no cell is to blame for.
        """
        running: tuple[str, ...] = ()
        preparing: Preparing | None = None
        while True:
            limit_s = self._launch_limit_s if running else IDLE_LIMIT_S
            try:
                message = worker.hear(limit_s)
            except WorkerSilentError as err:
                text = f"a launch did not end within {self._timeout_s:g} s; its process was ended"
                if running:
                    return Fall(running, Status.TIMEOUT, text)
                return self._fall(running, preparing, Status.TIMEOUT, err)
            except WorkerGoneError as err:
                return self._fall(running, preparing, Status.LAUNCH_FAILED, err)
            if isinstance(message, Finished):
                return None
            if isinstance(message, Lost):
                return Fall(running, Status.LAUNCH_FAILED, message.message)
            if isinstance(message, Began | Preparing | Ended):
                self._survived.update(running)
            if isinstance(message, Began):
                running = message.keys
            elif isinstance(message, Preparing | Ended):
                running = ()
                if isinstance(message, Preparing):
                    preparing = message
            self._collect(message)

    def _fall(
        self,
        running: tuple[str, ...],
        preparing: Preparing | None,
        status: Status,
        err: WorkerSilentError | WorkerGoneError,
    ) -> Fall:
        """What the end of a process means, which may have come in a method of the workload.

        Without a cell that ran, the method was asked for all cells of a group, or for every cell.
        """
        struck = isinstance(err, WorkerKilledError)
        if not err.in_workload:
            said = str(err)
            if running and said.endswith(("SIGSEGV", "SIGBUS")):
                said += (
                    ", as by a kernel that reaches outside of its buffers: look at its indices and "
                    "at the order of its arguments"
                )
            return Fall(running, status, said, struck)
        group = [
            key
            for key in self._left()
            if preparing is not None
            and self._run(key).cell.problem == preparing.problem
            and self._run(key).cell.variant in preparing.variants
        ]
        asked_for = () if running else tuple(group or self._left())
        return Fall(running, Status.WORKLOAD_FAILED, str(err), struck, asked_for)

    def _collect(self, message: Message) -> None:
        if isinstance(message, Ended):
            self.result.runs[message.run.cell.key] = message.run
        elif isinstance(message, Copied):
            key = (message.problem, message.met)
            self.result.copies.setdefault(key, []).append((message.at_s, message.seconds))
        elif isinstance(message, Grouped):
            self.result.launches[message.group] = message.launches
        elif isinstance(message, Read):
            self.result.readings.append((message.at_s, message.reading))
        elif isinstance(message, Searched):
            self.result.searches.append(message)
        elif isinstance(message, Timed):
            self.timed_s[message.key] = message.seconds
        elif isinstance(message, Worked):
            done = len(self.result.runs) - len(self._left())
            of_all = len(self._asked) / len(self.result.runs)
            share = min(1.0, self._before + of_all * message.fraction)
            self._told = max(self._told, share)
            self._on_progress(done, self._told)

    def _judge(self, fall: Fall) -> None:
        """Give the cell that is to blame its status; without any, the device may be lost to all."""
        culprit = self._suspects.accuse(self._asked, fall) if fall.running else None
        if culprit is not None:
            log.error("%s: %s: %s", culprit, fall.status, fall.text)
            self._blame(self._run(culprit), fall)
        elif not fall.running and self._suspects.lost(len(self._left()), fall):
            log.error("%s, while no cell ran", fall.text)
            if fall.asked_for:
                for key in fall.asked_for:
                    self._run(key).end(Status.WORKLOAD_FAILED, fall.text)
            else:
                self._end_open(Status.LOST_DEVICE, fall.text)
        else:
            # Who is suspected is taken again alone.
            log.error("%s; what it had not ended is measured again", fall.text)
            log.info("while these ran: %s", ", ".join(fall.running) or "none")

    def _tell_ended(self) -> None:
        """That a cell was blamed and has ended is told by no process."""
        left = len(self._left())
        self._told = self._told if left else 1.0
        self._on_progress(len(self.result.runs) - left, self._told)

    def _blame(self, run: CellRun, fall: Fall) -> None:
        often = ", each time that it measured this cell alone" if fall.from_outside else ""
        text = fall.text + often
        run.end(fall.status, text)
        self._faults[run.cell.variant] += 1
        self._give_up(run.cell.variant, fall.status, text)

    def _give_up(self, variant: str, status: Status, text: str) -> None:
        """Try no more cells of a variant of which too many of those that ran have faulted.

        A few among very many say nothing about the others.
        """
        faults = self._faults[variant]
        ran = sum(self._run(key).cell.variant == variant for key in self._survived)
        if faults < FAULTS_PER_VARIANT or faults <= FAULTY_SHARE * ran:
            return
        for key in self._left():
            if self._run(key).cell.variant == variant:
                self._run(key).end(status, f"not tried: {faults} cells before it: {text}")
