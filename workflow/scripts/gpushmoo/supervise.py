"""Has a shard measured by a process that is replaced when a cell takes it down.

A kernel that reads outside its buffers leaves a context in which nothing works; one that never
returns leaves a process that nothing but a signal ends. Either costs its own cell: that one gets a
status, a fresh process measures the cells that have none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from .devices.base import DeviceError
from .events import Began, CellRun, Copied, Ended, Grouped, Preparing, Read, ShardResult, Worked
from .measure import TOGETHER
from .messages import Finished, Lost, Measure, Message
from .process import (
    WorkerCrashedError,
    WorkerGoneError,
    WorkerKilledError,
    WorkerSilentError,
)
from .schema import Status
from .space import CellGroup

log = logging.getLogger(__name__)

# What a launch may take beyond the configured time: the host's own work and OpenCL's compilers,
# which some runtimes start with the first launch of a shape.
LAUNCH_GRACE_S = 10.0
# What anything else may take: making gigabytes of input, an OpenCL build.
IDLE_LIMIT_S = 600.0
# Cells of one variant that may take a process down before the variant's other cells are not tried
# any more: each of them costs the start of a process.
FAULTS_PER_VARIANT = 8
# Times in a shard that a process is replaced after SIGKILL without blaming a cell: no kernel sends
# that, but a person, or the system short of memory. A cell that takes all memory is blamed then.
KILLS_FORGIVEN = 2


class Worker(Protocol):
    """The measuring process; see process.WorkerProcess."""

    def hear(self, limit_s: float) -> Message:
        """The next message; WorkerSilentError or WorkerGoneError when there is none."""

    def stop(self) -> None:
        """End it at once."""

    def join(self) -> None:
        """Wait for its end."""


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
        self._start, self._on_progress = start, on_progress
        self._launch_limit_s = cell_timeout_s + LAUNCH_GRACE_S
        self._timeout_s = cell_timeout_s
        self._faults: Counter[str] = Counter()
        self._kills = 0
        # Share of all work that had ended when the present process began, and what was last told:
        # what a process did for cells that had not ended is done again, but progress never falls.
        self._before = self._told = 0.0

    def measure(self, first: Worker) -> ShardResult:
        """Measure with `first`, a process that is at work on all cells, and its successors."""
        worker = first
        while True:
            try:
                running, fault = self._follow(worker)
            except WorkerCrashedError as err:
                # A program's error, not the device's; what was measured before it is kept.
                if len(self._open()) == len(self.result.runs):
                    raise
                self._end_open(Status.LAUNCH_FAILED, f"a program failed: {err}")
                return self.result
            if fault is None:
                worker.join()
                self._end_open(Status.LOST_DEVICE, "the measuring process left it out")
                return self.result
            worker.stop()
            status, text = fault
            if status is None:
                log.error("%s; what it had not ended is measured again", text)
            elif len(running) < 2:
                self._blame(running, status, text)
            else:
                log.error("one of %s: %s", running, text)
            left = frozenset(r.cell.key for r in self._open())
            # What was blamed has ended, and no process tells that.
            self._told = self._told if left else 1.0
            self._on_progress(len(self.result.runs) - len(left), self._told)
            if not left:
                return self.result
            self._before = 1.0 - len(left) / len(self.result.runs)
            try:
                # Among several it is found by taking them one by one.
                together = TOGETHER if len(running) < 2 else 1
                worker = self._start(Measure(left, together, self.result.launches))
            except (DeviceError, WorkerGoneError, WorkerSilentError, WorkerCrashedError) as err:
                self._end_open(Status.LOST_DEVICE, f"the device did not come back: {err}")
                return self.result

    def _open(self) -> list[CellRun]:
        return [r for r in self.result.runs.values() if r.status is None]

    def _end_open(self, status: Status, message: str) -> None:
        for run in self._open():
            run.end(status, message)

    def _follow(self, worker: Worker) -> tuple[tuple[str, ...], tuple[Status | None, str] | None]:
        """Collect until the end. The cells that ran last, and what they did to the process, if so.

        A process that was killed from outside has no status: no cell is to blame.
        Raises DeviceError and WorkerCrashedError, which no cell is to blame for.
        """
        running: tuple[str, ...] = ()
        while True:
            limit = self._launch_limit_s if running else IDLE_LIMIT_S
            try:
                message = worker.hear(limit)
            except WorkerSilentError:
                text = f"a launch did not end within {self._timeout_s:g} s; its process was ended"
                return running, (Status.TIMEOUT, text)
            except WorkerKilledError as err:
                self._kills += 1
                if self._kills <= KILLS_FORGIVEN:
                    return (), (None, str(err))
                return running, (Status.LAUNCH_FAILED, str(err))
            except WorkerGoneError as err:
                return running, (Status.LAUNCH_FAILED, str(err))
            if isinstance(message, Finished):
                return (), None
            if isinstance(message, Lost):
                return running, (Status.LAUNCH_FAILED, message.message)
            if isinstance(message, Began):
                running = message.keys
            elif isinstance(message, Preparing | Ended):
                running = ()
            self._collect(message)

    def _collect(self, message: Message) -> None:
        if isinstance(message, Ended):
            self.result.runs[message.run.cell.key] = message.run
        elif isinstance(message, Copied):
            key = (message.problem, message.cache_state)
            self.result.copies.setdefault(key, []).append((message.at_s, message.seconds))
        elif isinstance(message, Grouped):
            self.result.launches[message.group] = message.launches
        elif isinstance(message, Read):
            self.result.readings.append((message.at_s, message.reading))
        elif isinstance(message, Worked):
            done = len(self.result.runs) - len(self._open())
            share = self._before + (1.0 - self._before) * message.fraction
            self._told = max(self._told, share)
            self._on_progress(done, self._told)

    def _blame(self, running: tuple[str, ...], status: Status, text: str) -> None:
        """Give the cell its status; without a cell to blame, the process is lost to all."""
        log.error("%s: %s: %s", running, status, text)
        if not running:
            self._end_open(Status.LOST_DEVICE, text)
            return
        run = self.result.runs[running[0]]
        run.end(status, text)
        variant = run.cell.variant
        self._faults[variant] += 1
        if self._faults[variant] == FAULTS_PER_VARIANT:
            for other in self._open():
                if other.cell.variant == variant:
                    other.end(status, f"not tried: {FAULTS_PER_VARIANT} cells before it: {text}")
