"""Supervise the process that measures cells or pairs, and replace it when it fails.

A kernel that reads outside its buffers leaves a broken context. A kernel that never returns ends
only with its process. `Suspects` finds the cell to blame. Other processes measure the rest.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Generic

from ..core.errors import (
    DeviceError,
    DeviceLostError,
    WorkerCrashedError,
    WorkerExitedError,
    WorkerKilledError,
    WorkerTimeoutError,
)
from ..core.schema import Status
from .events import CellsStarted, Finished, MeasureCells, Preparing, Run, ShardResult, Working
from .process import IDLE_LIMIT_S, WorkerProcess
from .sampling import TOGETHER
from .suspects import Attempt, Suspects, Turn, WorkerFailure

log = logging.getLogger(__name__)

# Added to the configured time limit of a launch, for the host's work around it.
LAUNCH_GRACE_S = 0.3
# A first launch that takes longer is tried again after all others. It may also take WAIT_FACTOR
# times as long as the longest wait so far. The limit doubles while no first launch keeps it.
FIRST_LAUNCH_S, WAIT_FACTOR = 0.3, 4.0
# On a CPU a first launch may compile, and another process starts sooner than on a GPU.
FIRST_LAUNCH_ON_CPU_S = 1.5
# A version is blamed after this number of faults of a process that tried the same cell of it.
TRIAL_FAULTS = 2
# The default of the key max_faults.
MAX_FAULTS = 64
# A cell that ended so may have damaged others in its process.
HARMFUL = frozenset({Status.WRONG_RESULT, Status.LAUNCH_FAILED, Status.TIMEOUT})


@dataclass(frozen=True)
class FaultLimits:
    """Limits on the time of a launch and on the faults of a version.

    Attributes
    ----------
    cell_timeout_s
        Largest time of a launch, in seconds.
    max_faults
        Number of faulty cells of a version after which its other cells are skipped, if none of its
        cells has been right, or None for no limit.
    first_launch_s
        Cells whose first launch takes longer, in seconds, are tried again after all others.
    """

    cell_timeout_s: float
    max_faults: int | None = MAX_FAULTS
    first_launch_s: float = FIRST_LAUNCH_S


class FirstLaunches:
    """Time limit of first launches, which adapts to the waits so far.

    Parameters
    ----------
    least_s
        Smallest limit in seconds.
    """

    def __init__(self, least_s: float = FIRST_LAUNCH_S) -> None:
        self._longest_wait_s = 0.0
        self._least_s = least_s
        self._limit_s = least_s

    @property
    def limit_s(self) -> float:
        """Time in seconds that first launches may take before they are postponed."""
        return max(self._limit_s, WAIT_FACTOR * self._longest_wait_s)

    def ended(self, wait_s: float) -> None:
        """Record a wait of `wait_s` seconds in which the launches ended."""
        self._longest_wait_s = max(self._longest_wait_s, wait_s)
        self._limit_s = self._least_s

    def put_off(self) -> None:
        """Record that launches did not end in time, which doubles the limit."""
        self._limit_s *= 2


class Supervisor(Generic[Run]):
    """Collects the messages of measuring processes until every cell has a status.

    Parameters
    ----------
    runs
        Cells or pairs to measure.
    start
        Starts a process that works on a request.
    limits
        Limits on launches and faults.
    on_progress
        Called with the number of ended cells and the finished share of the work, from 0 to 1.
    request
        Request that the first process works on.
    version_of
        Returns the version of the code that a cell launches, by default its variant.
    notify
        Shows a sentence to the user.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        start: Callable[[MeasureCells], WorkerProcess],
        limits: FaultLimits,
        on_progress: Callable[[int, float], None],
        request: MeasureCells | None = None,
        version_of: Callable[[Run], str] | None = None,
        notify: Callable[[str], None] = log.info,
    ) -> None:
        """Assign all cells to the first process."""
        own: dict[str, Run] = {run.cell.key: run for run in runs}
        self._request = request or MeasureCells(None, TOGETHER, {})
        self.result: ShardResult[Run] = ShardResult(own, launches=dict(self._request.launches))
        self._start, self._on_progress, self._notify = start, on_progress, notify
        self._limits = limits
        name: Callable[[Run], str] = version_of or (lambda run: run.cell.variant)
        self._versions: dict[str, str] = {key: name(run) for key, run in own.items()}
        self._faults: Counter[str] = Counter()
        # Versions of which a cell has been right.
        self._right: set[str] = set()
        self._suspects = Suspects()
        self._first_launches = FirstLaunches(limits.first_launch_s)
        self._has_put_off = False
        # Failures on trial, by a signal from outside or not, and the key.
        self._trials: Counter[tuple[bool, str]] = Counter()
        # An earlier job may have left traces in the first process.
        self._attempt = Attempt(Turn(frozenset(own)), is_fresh=False)
        # The share of all cells that had ended before the present process.
        self._before = 0.0
        # The reported share of the work never falls, although a new process repeats a part.
        self._share = 0.0

    def measure(self, first: WorkerProcess) -> ShardResult[Run]:
        """Measure all cells, with as many processes as their faults require.

        Parameters
        ----------
        first
            Process that works on all cells. Further processes replace it if it fails.
        """
        worker: WorkerProcess | None = first
        while worker is not None:
            worker = self._finish(worker)
        return self.result

    def _finish(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Follow a process to its end, and return the next process, or None if no cell is left."""
        goes_on = False
        try:
            failure = self._follow(worker)
        except WorkerCrashedError as err:
            # A program's error, not the device's; finished cells are kept.
            worker.stop()
            if len(self._left()) == len(self.result.runs):
                raise
            self._end_open(Status.LAUNCH_FAILED, f"a program failed: {err}")
            return None
        except BaseException:
            worker.stop()
            raise
        if failure is None:
            worker.done()
            left_out = self._attempt.turn.keys & self._left()
            self._end_open(Status.DEVICE_LOST, "the measuring process left it out", left_out)
        else:
            worker.stop()
            goes_on = self._judge_trial(failure)
            if not goes_on:
                self._judge(failure)
            self._report(self._share if self._left() else 1.0)
        left = self._left()
        return self._next(left) if left or goes_on else None

    def _next(self, left: frozenset[str]) -> WorkerProcess | None:
        """Start a process for the cells that are `left`, or for the rest of a trial."""
        self._before = 1.0 - len(left) / len(self.result.runs)
        turn = self._suspects.next(left) if left else Turn(left)
        self._attempt = Attempt(turn)
        try:
            return self._start(self._request_for(turn))
        except (DeviceError, WorkerExitedError, WorkerTimeoutError, WorkerCrashedError) as err:
            self._end_open(Status.DEVICE_LOST, f"the device did not come back: {err}")
            return None

    def _request_for(self, turn: Turn) -> MeasureCells:
        ended: list[Any] = [r for r in self.result.runs.values() if r.status is Status.OK]
        launched = self.result.timed_s.keys()
        return replace(
            self._request,
            keys=turn.keys,
            together=turn.together,
            first=turn.first,
            unlaunched=turn.keys - launched if turn.is_careful else frozenset(),
            launches=self.result.launches,
            ended=ended,
            tried=frozenset(self.result.tried),
        )

    def _left(self) -> frozenset[str]:
        return frozenset(key for key, run in self.result.runs.items() if run.status is None)

    def _end_open(
        self, status: Status, message: str, keys: frozenset[str] | tuple[str, ...] | None = None
    ) -> None:
        """End the cells with these keys, by default all open cells."""
        for key in self._left() if keys is None else keys:
            self.result.runs[key].end(status, message)

    def _follow(self, worker: WorkerProcess) -> WorkerFailure | None:
        """Collect messages until the process fails, or until it is done (None).

        Raises DeviceError and WorkerCrashedError, for which no cell is to blame.
        """
        doing: CellsStarted | Preparing | None = None
        while True:
            began_s = monotonic()
            limit_s = self._limit_s(doing)
            try:
                message = worker.hear(limit_s)
            except (WorkerTimeoutError, WorkerExitedError, DeviceLostError) as err:
                return self._failure(doing, err, limit_s)
            if isinstance(doing, CellsStarted) and doing.launches:
                self._first_launches.ended(monotonic() - began_s)
            if isinstance(message, Finished):
                return None
            if isinstance(message, CellsStarted | Preparing):
                doing = message
            elif isinstance(message, ShardResult) and message.runs:
                doing = None
            self._collect(message)

    def _limit_s(self, doing: CellsStarted | Preparing | None) -> float:
        """Return the time in seconds in which the process must send its next message."""
        if not isinstance(doing, CellsStarted) or not doing.launches:
            return IDLE_LIMIT_S
        whole_s = self._limits.cell_timeout_s + LAUNCH_GRACE_S
        if self._attempt.turn.is_patient or all(map(self._is_launched, doing.keys)):
            return whole_s
        return min(whole_s, self._first_launches.limit_s)

    def _is_launched(self, key: str) -> bool:
        """Return whether the cell was launched before, by this job or an earlier one."""
        return key in self.result.timed_s or self.result.runs[key].status is not None

    def _failure(
        self, doing: CellsStarted | Preparing | None, err: Exception, limit_s: float
    ) -> WorkerFailure:
        """Describe the failure of a process that was `doing` something when it ended by `err`."""
        text = str(err)
        is_killed = isinstance(err, WorkerKilledError)
        status = Status.LAUNCH_FAILED
        if isinstance(doing, CellsStarted):
            if isinstance(err, WorkerTimeoutError):
                status = Status.TIMEOUT
                waited_s = min(limit_s, self._limits.cell_timeout_s)
                text = f"a launch did not end within {waited_s:g} s; its process was ended"
            elif text.endswith(("SIGSEGV", "SIGBUS")):
                text += (
                    ", as by a kernel that reaches outside of its buffers: look at its indices and "
                    "at the order of its arguments"
                )
            text = f"{doing.who}: {text}" if doing.who else text
            had_whole_time = limit_s >= self._limits.cell_timeout_s
            return WorkerFailure(doing.keys, status, text, is_killed, had_whole_time=had_whole_time)
        if isinstance(err, DeviceLostError) or doing is None or not doing.variants:
            return WorkerFailure((), status, text, is_killed)
        keys = tuple(
            key
            for key in self._left()
            if (cell := self.result.runs[key].cell).problem == doing.problem
            and cell.variant in doing.variants
        )
        text += f" while workload.py made the data of {doing.problem.label}"
        return WorkerFailure((), Status.WORKLOAD_FAILED, text, is_killed, keys)

    def _collect(self, message: Any) -> None:
        result = self.result
        match message:
            case CellsStarted(keys):
                self._attempt.ran.update(keys)
            case ShardResult():
                result.add(message)
                self._right.update(self._versions[key] for key in message.timed_s)
                for run in message.runs.values():
                    self._note_end(run)
            case Working(share=float(share)):
                asked = len(self._attempt.turn.keys)
                of_all = self._before + share * asked / len(result.runs)
                self._report(max(self._share, min(1.0, of_all)))

    def _note_end(self, run: Any) -> None:
        """Record that a version has a right cell, or that the process may be damaged."""
        if run.status is Status.OK:
            self._right.add(self._versions[run.cell.key])
        elif run.status in HARMFUL:
            self._attempt.is_clean = False

    def _judge_trial(self, failure: WorkerFailure) -> bool:
        """Return whether the process failed in a trial, which a new one may repeat or continue."""
        runs = self.result.runs
        tried = [key for key in failure.running if runs[key].status is Status.OK]
        for key in tried:
            log.error("%s: %s, on trial", key, failure.text)
            self._trials[failure.from_outside, key] += 1
            if self._trials[failure.from_outside, key] >= TRIAL_FAULTS:
                self.result.tried.add(key)
                if not failure.from_outside:
                    self._end_version(key, failure.status, f"on other inputs: {failure.text}")
        return bool(tried)

    def _end_version(self, key: str, status: Status, message: str) -> None:
        """Change the status of all measured cells of a cell's variant."""
        variant = self.result.runs[key].cell.variant
        for run in self.result.runs.values():
            if run.status is Status.OK and run.cell.variant == variant:
                run.end(status, message)

    def _judge(self, failure: WorkerFailure) -> None:
        """End the cell to blame, if it is known. Otherwise cells are measured again."""
        if not failure.running:
            self._judge_unattributed(failure)
            return
        launched = self.result.timed_s.keys()
        culprit = self._suspects.assign_blame(self._attempt, failure, launched)
        if culprit is not None:
            log.error("%s: %s: %s", culprit, failure.status, failure.text)
            self._blame(culprit, failure)
            return
        log.error("%s; cells that had not ended are measured again", failure.text)
        log.info("while these ran: %s", ", ".join(failure.running))
        if failure.status is Status.TIMEOUT and not failure.had_whole_time:
            self._put_off()

    def _put_off(self) -> None:
        """Record a launch that did not end in time. Inform the user of the first one."""
        self._first_launches.put_off()
        if not self._has_put_off:
            self._notify(
                "a launch does not end: the others are measured first, then each such launch may "
                f"take {self._limits.cell_timeout_s:g} s (cell_timeout_s)"
            )
        self._has_put_off = True

    def _judge_unattributed(self, failure: WorkerFailure) -> None:
        """Record a failure without a running cell. After too many of them, end the open cells."""
        if not self._suspects.is_lost(len(self._left()), failure):
            log.error("%s; cells that had not ended are measured again", failure.text)
            return
        log.error("%s, while no cell ran", failure.text)
        if failure.preparing:
            self._end_open(failure.status, failure.text, failure.preparing)
        else:
            self._end_open(Status.DEVICE_LOST, failure.text)

    def _report(self, share: float) -> None:
        self._share = share
        self._on_progress(len(self.result.runs) - len(self._left()), share)

    def _blame(self, key: str, failure: WorkerFailure) -> None:
        """End the cell. Skip the rest of its version if that has many faults and no right cell."""
        often = ", each time that it measured this cell alone" if failure.from_outside else ""
        self.result.runs[key].end(failure.status, failure.text + often)
        version = self._versions[key]
        most = self._limits.max_faults
        self._faults[version] += 1
        if most is None or self._faults[version] < most or version in self._right:
            return
        rest = frozenset(k for k in self._left() if self._versions[k] == version)
        self._end_open(
            Status.SKIPPED,
            f"skipped, because {most} cells of its code failed and none was right, the last with: "
            f"{failure.text}; raise max_faults (or set it to null) to try this one",
            rest,
        )
