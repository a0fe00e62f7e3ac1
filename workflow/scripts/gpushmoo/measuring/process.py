"""How much of a process's silence counts: only the time in which both sides could run."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core.errors import DeviceError
from ..core.paths import IMPORTED
from ..workloads.user_code import LastWords
from . import worker
from .events import Candidates, Crashed, Job, Locked, Lost, Message, PairJob, Refused
from .locks import DeviceLock

# What anything else may take: making gigabytes of input, an OpenCL build.
IDLE_LIMIT_S = 600.0
# Seconds that one look at the other side waits for a word of it.
SLICE_S = 0.25
# States of a process that a signal or a debugger has stopped (proc_pid_stat(5)).
_STOPPED = frozenset("Tt")


@dataclass(frozen=True)
class Standing:
    """What Linux tells of a process: whether it is stopped, and what its threads have had so far.

    `ran_s` are the seconds of all its threads on a core, `waited_s` those in which they were ready
    to run and had none.
    """

    stopped: bool
    ran_s: float
    waited_s: float


def standing(pid: int, proc: Path = Path("/proc")) -> Standing | None:
    """The standing of process `pid`; None where nothing tells (no Linux, or it has ended)."""
    folder = proc / str(pid)
    try:
        # The name, in brackets, may hold anything; the state is the first field behind it.
        state = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        threads = [p.read_text(encoding="utf-8").split() for p in folder.glob("task/*/schedstat")]
    except (OSError, IndexError):
        return None
    ran_ns, waited_ns = (sum(int(t[i]) for t in threads if len(t) == 3) for i in (0, 1))
    return Standing(state in _STOPPED, ran_ns * 1e-9, waited_ns * 1e-9)


class Silence:
    """Adds up slices of waiting in vain until they are as long as the limit.

    A slice counts as SLICE_S at most: where more time went by, the waiting side itself did not run
    (stopped, suspended, preempted, or a clock jumped). It does not count at all while the other
    side is stopped, and not as far as that was ready to run, had no core and used none. Silence of
    a process that sleeps or computes counts in full.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._before: Standing | None = None
        self.counted_s = 0.0

    @property
    def too_long(self) -> bool:
        """Whether the silence that counts has reached the limit."""
        return self.counted_s >= self._limit_s

    def add(self, elapsed_s: float, now: Standing | None) -> None:
        """A slice of `elapsed_s` seconds has passed; the other side now stands so."""
        before, self._before = self._before, now
        if now is not None and now.stopped:
            return
        starved_s = 0.0
        if now is not None and before is not None:
            # Threads that have ended take their seconds along.
            ran_s = max(0.0, now.ran_s - before.ran_s)
            waited_s = max(0.0, now.waited_s - before.waited_s)
            starved_s = min(waited_s, max(0.0, elapsed_s - ran_s))
        self.counted_s += min(SLICE_S, max(0.0, elapsed_s - starved_s))


log = logging.getLogger(__name__)

# Signals by which the system ends a process for what it did itself; all others come from outside.
_FAULTS = "SIGABRT SIGBUS SIGFPE SIGILL SIGSEGV SIGSYS SIGTRAP"
FAULT_SIGNALS = frozenset(signal.Signals[name] for name in _FAULTS.split())


class _WorkerError(Exception):
    """The process said nothing more; `in_workload` where something of the user's ran."""

    def __init__(self, text: str = "", in_workload: bool = False) -> None:
        super().__init__(text)
        self.in_workload = in_workload


class WorkerSilentError(_WorkerError):
    """The process said nothing for as long as it may."""


class WorkerGoneError(_WorkerError):
    """The process ended without a word; the sentence says how."""


class WorkerKilledError(WorkerGoneError):
    """It was ended by a signal that no kernel causes: a person's, or a system's short of memory."""


class WorkerCrashedError(RuntimeError):
    """An error in a program inside the process, not in the device; its log has the traceback."""


def end_of(status: int) -> WorkerGoneError:
    """How a process ended that has this exit status, negative for a signal."""
    if status >= 0:
        return WorkerGoneError(f"the measuring process ended with status {status}")
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = f"signal {-status}"
    text = f"the measuring process was ended by {name}"
    return WorkerGoneError(text) if -status in FAULT_SIGNALS else WorkerKilledError(text)


class WorkerProcess:
    """Starts `module`, by default `worker`, and talks with it.

    What it prints is added to the file `log_file`, or goes where the caller's output goes.
    """

    def __init__(
        self, job: Job | PairJob, log_file: Path | None = None, module: ModuleType | None = None
    ) -> None:
        own, theirs = socket.socketpair()
        paths = [*map(str, IMPORTED), os.environ.get("PYTHONPATH", "")]
        self._last_words = LastWords()
        # Has the process wait for another job; None where it ends with its first.
        self.keep: Callable[[], None] | None = None
        descriptors = theirs.fileno(), self._last_words.descriptor
        with theirs, _prints(log_file) as prints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", (module or worker).__name__, *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=prints,
                stderr=prints,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self._connection: Connection[Any, Any] = Connection(own.detach())
        self.begin(job, log_file)

    def begin(self, job: Job | PairJob, log_file: Path | None = None) -> None:
        """Give the process a job; what it prints from now on goes where the class says."""
        self._kernel = job.kernel
        self.say(job)
        with _prints(log_file) as prints:
            self._hand_over(prints)

    def say(self, message: object) -> None:
        """Send `message`; a process that is gone is found by the next `hear`."""
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return

    def lend(self, index: int, lock: DeviceLock) -> None:
        """Have the process open the device `index` and hold its `lock` as well.

        So the device stays locked until both have ended: when the caller is killed, the process may
        still be in a kernel for a moment.
        """
        assert lock.descriptor is not None
        self.say(Locked(index))
        self._hand_over(lock.descriptor)

    def _hand_over(self, descriptor: int) -> None:
        try:
            send_handle(self._connection, descriptor, self._process.pid)
        except (BrokenPipeError, ConnectionResetError):
            return

    def hear(self, limit_s: float) -> Message:
        """The next message within `limit_s` seconds of silence that counts (see `Silence`).

        Raises WorkerSilentError, WorkerGoneError, WorkerCrashedError, or DeviceError with the
        sentence of a device that cannot be used.
        """
        try:
            self._wait(limit_s)
            message: Message = self._connection.recv()
        except (EOFError, OSError) as err:  # OSError: it was ended in the middle of a message
            ended = end_of(self._process.wait())
            raise type(ended)(*self._with_what_ran(str(ended))) from err
        if isinstance(message, Refused):
            raise DeviceError(message.message)
        if isinstance(message, Crashed):
            raise WorkerCrashedError(message.message)
        return message

    def _wait(self, limit_s: float) -> None:
        silence = Silence(limit_s)
        warned = False
        # A clock that stands still while the machine is suspended, and that nobody sets.
        before = time.monotonic()
        while not self._connection.poll(SLICE_S):
            now, stands = time.monotonic(), standing(self._process.pid)
            silence.add(now - before, stands)
            before = now
            if silence.too_long:
                text = f"the measuring process said nothing for {limit_s:g} s"
                raise WorkerSilentError(*self._with_what_ran(text))
            if stands is not None and stands.stopped and not warned:
                log.warning("the measuring process %d is stopped: waiting", self._process.pid)
                warned = True

    def _with_what_ran(self, text: str) -> tuple[str, bool]:
        """`text` in the user's terms where something of theirs runs, and whether it does."""
        ran = self._last_words.read()
        return (text, False) if ran is None else (f"{self._kernel}: {text} while {ran}", True)

    def stop(self) -> None:
        """End the process at once, whatever it does."""
        self._close()
        self._process.kill()
        self._process.wait()

    def done(self) -> None:
        """The process has done its work: it is kept for another job, or its end is waited for."""
        (self.keep or self.join)()

    def join(self) -> None:
        """Wait for the end of a process that has nothing more to do."""
        self._close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.stop()

    def _close(self) -> None:
        self._connection.close()
        self._last_words.close()


@contextmanager
def _prints(log_file: Path | None) -> Iterator[int]:
    """The descriptor into which a process prints: of `log_file`, or this process's output."""
    if log_file is None:
        yield 1
    else:
        with log_file.open("ab") as file:
            yield file.fileno()


class Workers:
    """Starts measuring processes for jobs, and may keep them from each job to the next.

    A process is kept for jobs of its own device and repeat: what another repeat shall tell is how
    far times lie apart between processes.
    """

    def __init__(self, keep: bool) -> None:
        self._keeps = keep
        self._kept: dict[object, WorkerProcess] = {}

    def take(self, job: Job, log_file: Path | None) -> WorkerProcess:
        """The process that is kept for jobs like this, or a new one; at work on the job."""
        worker = self._kept.pop(job.process_key, None)
        if worker is not None:
            worker.begin(job, log_file)
            return worker
        worker = WorkerProcess(job, log_file)
        if self._keeps:
            worker.keep = lambda: self._kept.update({job.process_key: worker})
        return worker

    def drop(self, job: Job) -> None:
        """End the process that is kept for jobs like this, if there is one."""
        worker = self._kept.pop(job.process_key, None)
        if worker is not None:
            worker.join()


Lock = Callable[[Sequence[tuple[int, str]]], tuple[int, DeviceLock]]


def opened_by(worker: WorkerProcess, lock: Lock) -> Message:
    """What the process tells once it has opened the device that `lock` has chosen and locked.

    Raises DeviceError, WorkerGoneError, WorkerSilentError; the process is to be stopped then.
    """
    offered = _heard(worker)
    assert isinstance(offered, Candidates)
    worker.lend(*lock(offered.devices))
    return _heard(worker)


def _heard(worker: WorkerProcess) -> Message:
    message = worker.hear(IDLE_LIMIT_S)
    if isinstance(message, Lost):
        raise DeviceError(f"The device was lost while it was opened ({message.message}).")
    return message
