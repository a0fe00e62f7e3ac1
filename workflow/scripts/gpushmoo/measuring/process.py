"""The caller's end of measuring processes: talks with one, keeps it, replaces it on its device."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, TextIO

from ..core.errors import DeviceError, DeviceLostError
from ..core.paths import child_environment
from . import worker
from .events import Candidates, Job, Locked, Measure, Message
from .locks import DeviceLock, HeldClocks, lock_one
from .settings import settings_of

log = logging.getLogger(__name__)

# Seconds of silence while no cell runs: making gigabytes of input, an OpenCL build.
IDLE_LIMIT_S = 600.0
# Seconds between two looks at a process that says nothing.
BEAT_S = 0.25
# Processes that end in a row, while no cell ran and none ended, after which the device is lost:
# by a fault, and by a signal from outside.
FAULTS_OF_NOBODY = 2
STRIKES_OF_NOBODY = 10

# Signals by which the system ends a process for what it did itself; all others come from outside.
_FAULTS = "SIGABRT SIGBUS SIGFPE SIGILL SIGSEGV SIGSYS SIGTRAP"
FAULT_SIGNALS = frozenset(signal.Signals[name] for name in _FAULTS.split())


class WorkerSilentError(Exception):
    """The process said nothing for as long as it may."""


class WorkerGoneError(Exception):
    """The process ended without a word; the sentence says how."""


class WorkerKilledError(WorkerGoneError):
    """It was ended by a signal that no kernel causes: a person's, or a system's short of memory."""


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


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped the process; False where nothing tells."""
    try:
        # The name, in brackets, may hold anything; the state is the first field behind it.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in "Tt"


class WorkerProcess:
    """A process that runs `worker`, and the talk with it."""

    def __init__(self, job: Job) -> None:
        own, theirs = socket.socketpair()
        # Has the process wait for another job; None where it ends with its first.
        self.keep: Callable[[], None] | None = None
        with theirs, open(job.log or os.devnull, "ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=None if job.log is None else log_file,
                stderr=subprocess.STDOUT,
                env=child_environment(),
            )
        self._connection: Connection[Any, Any] = Connection(own.detach())
        self.say(job)

    def say(self, message: object) -> None:
        """Send `message`; a process that is gone is found by the next `hear`."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(message)

    def lend(self, index: int, lock: DeviceLock) -> None:
        """Have the process open the device `index` and hold its `lock` as well.

        So the device stays locked until both have ended: when the caller is killed, the process may
        still be in a kernel for a moment.
        """
        assert lock.descriptor is not None
        self.say(Locked(index))
        with suppress(BrokenPipeError, ConnectionResetError):
            send_handle(self._connection, lock.descriptor, self._process.pid)

    def hear(self, limit_s: float) -> Message:
        """The next message within `limit_s` seconds of silence.

        Raises WorkerSilentError, WorkerGoneError, and what the process sends as an error.
        """
        try:
            self._wait(limit_s)
            message: Message | Exception = self._connection.recv()
        except (EOFError, OSError) as err:  # OSError: it was ended in the middle of a message
            raise end_of(self._process.wait()) from err
        if isinstance(message, Exception):
            raise message
        return message

    def _wait(self, limit_s: float) -> None:
        """Wait for a message, and count beats.

        A beat is BEAT_S seconds of the limit however long it lasted: where that was more, this
        process was stopped or the machine suspended. None counts while the other one is stopped.
        """
        beats = 0
        while not self._connection.poll(BEAT_S):
            beats += not is_stopped(self._process.pid)
            if beats * BEAT_S >= limit_s:
                raise WorkerSilentError(f"the measuring process said nothing for {limit_s:g} s")

    def stop(self) -> None:
        """End the process at once, whatever it does."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def done(self) -> None:
        """The process has done its work: it is kept for another job, or its end is waited for."""
        (self.keep or self.join)()

    def join(self) -> None:
        """Wait for the end of a process that has nothing more to do."""
        self._connection.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.stop()


class Workers:
    """Starts measuring processes for jobs, and may keep them from each job to the next.

    A process is kept for jobs of its own device and repeat: what another repeat shall tell is how
    far times lie apart between processes.
    """

    def __init__(self, keep: bool = False) -> None:
        self._keeps = keep
        self._kept: dict[object, WorkerProcess] = {}

    def take(self, job: Job) -> WorkerProcess:
        """The process that is kept for jobs like this, or a new one; at work on the job."""
        worker = self._kept.pop(job.process_key, None)
        if worker is not None:
            worker.say(job)
            return worker
        worker = WorkerProcess(job)
        if self._keeps:
            worker.keep = lambda: self._kept.update({job.process_key: worker})
        return worker

    def drop(self, job: Job) -> None:
        """End the process that is kept for jobs like this, if there is one."""
        worker = self._kept.pop(job.process_key, None)
        if worker is not None:
            worker.join()


class Session:
    """Starts the measuring processes of a job on one device, which it locks with the first.

    Devices with a UUID that is `preferred` come first. `label` stands before what is said on
    `terminal`.
    """

    def __init__(
        self,
        job: Job,
        label: str,
        terminal: TextIO,
        workers: Workers,
        preferred: frozenset[str] = frozenset(),
    ) -> None:
        self._job, self._workers = job, workers
        self._label, self._terminal, self._preferred = label, terminal, preferred
        self._held: tuple[int, DeviceLock] | None = None
        self.clocks: HeldClocks | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        """Let others measure on the device, whose clocks are as they were."""
        if self.clocks is not None:
            self.clocks.free()
        if self._held is not None:
            self._held[1].release()

    def begin(self) -> tuple[WorkerProcess, Message]:
        """The first process, and what it has opened; to be told what to measure.

        Raises DeviceError, where no device can be opened as well.
        """
        try:
            return self._opened()
        except (WorkerGoneError, WorkerSilentError) as err:
            raise DeviceError(f"The device was not opened: {err}.") from err

    def start(self, do: Measure) -> WorkerProcess:
        """A fresh process, at work on what it is told to measure.

        Raises DeviceError, WorkerGoneError, WorkerSilentError.
        """
        self.drop()
        process, _ = self._opened()
        process.say(do)
        return process

    def drop(self) -> None:
        """Have the next job start with a fresh process."""
        self._workers.drop(self._job)

    def _opened(self) -> tuple[WorkerProcess, Message]:
        """A process with its device; one that ends before is replaced: no signal costs a cell."""
        ends: Counter[bool] = Counter()
        while True:
            process = self._workers.take(self._job)
            try:
                offered = process.hear(IDLE_LIMIT_S)
                assert isinstance(offered, Candidates)
                process.lend(*self._locked(offered.devices))
                return process, process.hear(IDLE_LIMIT_S)
            except WorkerGoneError as err:
                process.stop()
                struck = isinstance(err, WorkerKilledError)
                ends[struck] += 1
                if ends[struck] >= (STRIKES_OF_NOBODY if struck else FAULTS_OF_NOBODY):
                    raise
                log.error("%s while it started; another one is started", err)
            except DeviceLostError as err:
                process.stop()
                raise DeviceError(f"The device was lost while it was opened ({err}).") from err
            except BaseException:
                process.stop()
                raise

    def _locked(self, devices: Sequence[tuple[int, str]]) -> tuple[int, DeviceLock]:
        """The device that is locked: by the first process one of these, by later ones the same."""
        if self._held is None:
            some = [device for device in devices if device[1] in self._preferred] or devices
            self._held = lock_one(some, self._say_waiting)
            self._lock_clocks(dict(devices)[self._held[0]], self._held[1])
        return self._held

    def _lock_clocks(self, uuid: str, lock: DeviceLock) -> None:
        params = self._job.params
        asked = settings_of(params).lock_clocks
        if asked is None:
            return
        self.clocks = HeldClocks(params["backend"], uuid, asked, lock)
        if self.clocks.sentence is not None and (params["shard"][0], params["repeat"]) == (0, 1):
            self._terminal.write(f"{self._label}: {self.clocks.sentence}\n")

    def _say_waiting(self) -> None:
        self._terminal.write(f"{self._label}: ready, waiting until a device is free\n")
        self._terminal.flush()
