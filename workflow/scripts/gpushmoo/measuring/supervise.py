"""Supervises the process that measures cells or pairs, and replaces it when it fails.

A kernel that reads outside its buffers leaves a broken context; one that never returns ends only
with its process. Its cell gets a status after it has failed alone in a fresh process (see
`Suspects`); other processes measure the rest.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from ..core.errors import DeviceError, DeviceLostError
from ..core.schema import Status
from ..storage.joblog import STRIKES_FORGIVEN
from .events import (
    Began,
    Copied,
    Ended,
    Finished,
    Grouped,
    Measure,
    Preparing,
    Read,
    Run,
    Searched,
    ShardResult,
    Timed,
    Tried,
    Worked,
    WorkerCrashedError,
)
from .process import (
    FAULTS_OF_NOBODY,
    IDLE_LIMIT_S,
    STRIKES_OF_NOBODY,
    WorkerGoneError,
    WorkerKilledError,
    WorkerProcess,
    WorkerSilentError,
)
from .settings import TOGETHER

log = logging.getLogger(__name__)

# So many of them while a suspect runs alone blame it: most likely it takes all memory.
STRIKES_ALONE = 3
# From so many unexplained ends on, suspects come first: a variant may hang in every cell.
MOST_UNEXPLAINED = 8
# Added to the configured time of a launch, for the host's work and OpenCL's compilers, which some
# runtimes start with the first launch of a shape.
LAUNCH_GRACE_S = 10.0
# A variant is blamed after so many faults of a process that tried the same cell of it.
TRIAL_FAULTS = 2
# After so many faulty cells of a variant, and this share of those that ran, its other cells are not
# tried: each faulty cell costs the start of two processes.
FAULTS_PER_VARIANT = 8
FAULTY_SHARE = 0.1


@dataclass(frozen=True)
class WorkerFailure:
    """The early end of a process: the keys of the running cells, and the status for a culprit.

    `from_outside`: by a signal that no kernel causes. `preparing` are the keys of the cells whose
    data were made, if none ran.
    """

    running: tuple[str, ...]
    status: Status
    text: str
    from_outside: bool = False
    preparing: tuple[str, ...] = ()


class Suspects:
    """Chooses the cells of the next process, and the culprit of a failure.

    A cell that ran in a failure is a suspect. It is blamed for the failure of a fresh process that
    measured it alone: for one fault, or for STRIKES_ALONE signals from outside. If several ran when
    a process hung, one that hangs again while it runs by itself is blamed as well. Suspects come
    last, so that competing cells stay together. Those that ran at the same time are first taken one
    by one in one process, to find the one to take alone.
    """

    def __init__(self) -> None:
        self._strikes = 0
        # Cells that ran by themselves in a failure, with the strikes that they had alone since.
        self._single: dict[str, int] = {}
        self._crowds: list[frozenset[str]] = []
        self._explaining = False
        self._of_nobody: Counter[bool] = Counter()
        self._left = -1

    def next(self, left: frozenset[str]) -> tuple[frozenset[str], int]:
        """Keys for the next process, out of those `left`, and how many to run at a time."""
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

    def accuse(self, asked: frozenset[str], failure: WorkerFailure) -> str | None:
        """The culprit, if any, of the failure of a process that was to measure `asked`."""
        if failure.from_outside:
            self._strikes += 1
        if len(asked) == 1 and (alone := self._single.keys() & set(failure.running)):
            (key,) = alone
            self._single[key] += failure.from_outside
            return key if self._single[key] >= STRIKES_ALONE or not failure.from_outside else None
        if failure.from_outside and self._strikes <= STRIKES_FORGIVEN:
            return None
        if len(failure.running) == 1:
            (key,) = failure.running
            if failure.status is Status.TIMEOUT and any(key in crowd for crowd in self._crowds):
                return key
            self._single.setdefault(key, 0)
        elif failure.running:
            self._crowds.append(frozenset(failure.running))
        return None

    def lost(self, left: int, failure: WorkerFailure) -> bool:
        """Whether too many processes have failed without a running cell since `left` changed."""
        if left != self._left:
            self._left = left
            self._of_nobody.clear()
        self._of_nobody[failure.from_outside] += 1
        limit = STRIKES_OF_NOBODY if failure.from_outside else FAULTS_OF_NOBODY
        return self._of_nobody[failure.from_outside] >= limit


class Supervisor(Generic[Run]):
    """Collects the messages of the processes until every cell has a status."""

    def __init__(
        self,
        runs: Sequence[Run],
        start: Callable[[Measure], WorkerProcess],
        cell_timeout_s: float,
        on_progress: Callable[[int, float], None],
        request: Measure | None = None,
    ) -> None:
        """`start` opens a process for a request; `request` is the first process's."""
        own: dict[str, Run] = {run.cell.key: run for run in runs}
        self._request = request or Measure(None, TOGETHER, {})
        self.result: ShardResult[Run] = ShardResult(own, launches=dict(self._request.launches))
        self._start, self._on_progress = start, on_progress
        self._timeout_s = cell_timeout_s
        self._faults: Counter[str] = Counter()
        self._suspects = Suspects()
        self._tried: frozenset[str] = frozenset()
        # Failures on trial, by a signal from outside or not, and the key.
        self._trials: Counter[tuple[bool, str]] = Counter()
        # Keys of cells that ran while their process lived on.
        self._survived: set[str] = set()
        # The cells requested of the present process, and the share of all that had ended before.
        self._asked = frozenset(self.result.runs)
        self._before = 0.0
        # The reported share of the work never falls, although a new process repeats a part.
        self._share = 0.0

    def measure(self, first: WorkerProcess) -> ShardResult[Run]:
        """Measure with `first`, a process at work on all cells, and its successors."""
        worker = first
        while True:
            tries = False
            try:
                failure = self._follow(worker)
            except WorkerCrashedError as err:
                # A program's error, not the device's; finished cells are kept.
                worker.stop()
                if len(self._left()) == len(self.result.runs):
                    raise
                self._end_open(Status.LAUNCH_FAILED, f"a program failed: {err}")
                return self.result
            except BaseException:
                worker.stop()
                raise
            if failure is None:
                worker.done()
                left_out = self._asked & self._left()
                self._end_open(Status.LOST_DEVICE, "the measuring process left it out", left_out)
            else:
                worker.stop()
                tries = self._judge_trial(failure)
                if not tries:
                    self._judge(failure)
                self._report(self._share if self._left() else 1.0)
            left = self._left()
            if not left and not tries:
                return self.result
            self._before = 1.0 - len(left) / len(self.result.runs)
            self._asked, together = self._suspects.next(left)
            try:
                worker = self._start(self._again(together))
            except (DeviceError, WorkerGoneError, WorkerSilentError, WorkerCrashedError) as err:
                self._end_open(Status.LOST_DEVICE, f"the device did not come back: {err}")
                return self.result

    def _again(self, together: int) -> Measure:
        """The request for the cells that are asked next."""
        ended: list[Any] = [r for r in self.result.runs.values() if r.status is Status.OK]
        return replace(
            self._request,
            keys=self._asked,
            together=together,
            launches=self.result.launches,
            ended=ended,
            tried=self._tried,
        )

    def _left(self) -> frozenset[str]:
        return frozenset(key for key, run in self.result.runs.items() if run.status is None)

    def _end_open(
        self, status: Status, message: str, keys: frozenset[str] | tuple[str, ...] | None = None
    ) -> None:
        """End the cells with these keys, by default all open ones."""
        for key in self._left() if keys is None else keys:
            self.result.runs[key].end(status, message)

    def _end_ok(self, status: Status, message: str, variant: str) -> None:
        """End measured cells of a variant once more."""
        for run in self.result.runs.values():
            if run.status is Status.OK and run.cell.variant == variant:
                run.end(status, message)

    def _follow(self, worker: WorkerProcess) -> WorkerFailure | None:
        """Collect messages until the process fails, or has done its work (None).

        Raises DeviceError and WorkerCrashedError, for which no cell is to blame.
        """
        doing: Began | Preparing | None = None
        while True:
            runs = isinstance(doing, Began)
            try:
                message = worker.hear(self._timeout_s + LAUNCH_GRACE_S if runs else IDLE_LIMIT_S)
            except (WorkerSilentError, WorkerGoneError, DeviceLostError) as err:
                return self._failure(doing, err)
            if isinstance(message, Finished):
                return None
            if isinstance(message, Began | Preparing | Ended):
                self._survived.update(doing.keys if isinstance(doing, Began) else ())
                doing = None if isinstance(message, Ended) else message
            self._collect(message)

    def _failure(self, doing: Began | Preparing | None, err: Exception) -> WorkerFailure:
        """The meaning of the end of a process that was `doing` something."""
        text, struck = str(err), isinstance(err, WorkerKilledError)
        status = Status.LAUNCH_FAILED
        if isinstance(doing, Began):
            if isinstance(err, WorkerSilentError):
                status = Status.TIMEOUT
                text = f"a launch did not end within {self._timeout_s:g} s; its process was ended"
            elif text.endswith(("SIGSEGV", "SIGBUS")):
                text += (
                    ", as by a kernel that reaches outside of its buffers: look at its indices and "
                    "at the order of its arguments"
                )
            text = f"{doing.who}: {text}" if doing.who else text
            return WorkerFailure(doing.keys, status, text, struck)
        if isinstance(err, DeviceLostError) or doing is None or not doing.variants:
            return WorkerFailure((), status, text, struck)
        keys = tuple(
            key
            for key in self._left()
            if (cell := self.result.runs[key].cell).problem == doing.problem
            and cell.variant in doing.variants
        )
        text += f" while workload.py made the data of {doing.problem.label}"
        return WorkerFailure((), Status.WORKLOAD_FAILED, text, struck, keys)

    def _collect(self, message: Any) -> None:
        result = self.result
        match message:
            case Ended():
                run: Any = message.run
                result.runs[run.cell.key] = run
            case Copied(problem, met, seconds, at_s):
                result.copies.setdefault((problem, met), []).append((at_s, seconds))
            case Grouped(group, launches):
                result.launches[group] = launches
            case Read(at_s, reading):
                result.readings.append((at_s, reading))
            case Searched():
                result.searches.append(message)
            case Tried(key):
                self._tried |= {key}
            case Timed(key, seconds):
                result.timed_s[key] = seconds
            case Worked(fraction):
                share = self._before + fraction * len(self._asked) / len(result.runs)
                self._report(max(self._share, min(1.0, share)))

    def _judge_trial(self, failure: WorkerFailure) -> bool:
        """Whether the process failed in a trial, which a fresh one may repeat or go on with."""
        runs = self.result.runs
        tried = [key for key in failure.running if runs[key].status is Status.OK]
        for key in tried:
            log.error("%s: %s, on trial", key, failure.text)
            self._trials[failure.from_outside, key] += 1
            if self._trials[failure.from_outside, key] >= TRIAL_FAULTS:
                self._tried |= {key}
                if not failure.from_outside:
                    text = f"on other inputs: {failure.text}"
                    self._end_ok(failure.status, text, runs[key].cell.variant)
        return bool(tried)

    def _judge(self, failure: WorkerFailure) -> None:
        """End the culprit; after too many failures without a running cell, end all open cells."""
        culprit = self._suspects.accuse(self._asked, failure) if failure.running else None
        if culprit is not None:
            log.error("%s: %s: %s", culprit, failure.status, failure.text)
            self._blame(culprit, failure)
        elif not failure.running and self._suspects.lost(len(self._left()), failure):
            log.error("%s, while no cell ran", failure.text)
            if failure.preparing:
                self._end_open(failure.status, failure.text, failure.preparing)
            else:
                self._end_open(Status.LOST_DEVICE, failure.text)
        else:
            log.error("%s; what it had not ended is measured again", failure.text)
            log.info("while these ran: %s", ", ".join(failure.running) or "none")

    def _report(self, share: float) -> None:
        self._share = share
        self._on_progress(len(self.result.runs) - len(self._left()), share)

    def _blame(self, key: str, failure: WorkerFailure) -> None:
        """End the cell, and its variant if too many of its cells that ran have failed."""
        often = ", each time that it measured this cell alone" if failure.from_outside else ""
        text = failure.text + often
        self.result.runs[key].end(failure.status, text)
        variant = self.result.runs[key].cell.variant
        self._faults[variant] += 1
        faults = self._faults[variant]
        ran = sum(self.result.runs[k].cell.variant == variant for k in self._survived)
        if faults >= FAULTS_PER_VARIANT and faults > FAULTY_SHARE * ran:
            alike = [k for k in self._left() if self.result.runs[k].cell.variant == variant]
            text = f"not tried: {faults} cells before it: {text}"
            self._end_open(failure.status, text, tuple(alike))
