"""The job's end of measuring processes: starts, keeps and replaces them on a locked device."""

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

# Allowed seconds of silence while no cell runs: gigabytes of input are made, or OpenCL builds.
IDLE_LIMIT_S = 600.0
# Seconds between two looks at a silent process.
BEAT_S = 0.25
# After so many processes in a row that ended while no cell ran, the device is lost: by a fault, and
# by a signal from outside.
FAULTS_OF_NOBODY = 2
STRIKES_OF_NOBODY = 10

# The signals of a process's own faults; all others come from outside.
_FAULTS = "SIGABRT SIGBUS SIGFPE SIGILL SIGSEGV SIGSYS SIGTRAP"
FAULT_SIGNALS = frozenset(signal.Signals[name] for name in _FAULTS.split())


class WorkerSilentError(Exception):
    """The process was silent for too long."""


class WorkerGoneError(Exception):
    """The process ended early; the sentence says how."""


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
    """Whether a signal or a debugger has stopped the process; False without /proc."""
    try:
        # The name, in brackets, may hold anything; the state is the next field.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in "Tt"


class WorkerProcess:
    """A process that runs `worker`, and the connection to it."""

    def __init__(self, job: Job) -> None:
        own, theirs = socket.socketpair()
        # Keeps the process for another job; None if it ends with its first.
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
        """Send `message`; the next `hear` finds a process that is gone."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(message)

    def lend(self, index: int, lock: DeviceLock) -> None:
        """Have the process open the device `index` and hold its `lock` as well.

        When this process is killed, the other one may be in a kernel for a moment longer.
        """
        assert lock.descriptor is not None
        self.say(Locked(index))
        with suppress(BrokenPipeError, ConnectionResetError):
            send_handle(self._connection, lock.descriptor, self._process.pid)

    def hear(self, limit_s: float) -> Message:
        """The next message within `limit_s` seconds of silence.

        Raises WorkerSilentError, WorkerGoneError, and an error that the process sends.
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
        """Wait for a message.

        Each look counts as BEAT_S seconds: a longer one means that this process was stopped or the
        machine suspended. None counts while the other process is stopped.
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
        """Keep a process that has done its work for another job, or wait for its end."""
        (self.keep or self.join)()

    def join(self) -> None:
        """Wait for the end of a process that has nothing more to do."""
        self._connection.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.stop()


class Workers:
    """Starts measuring processes for jobs, and may keep them from one job to the next.

    A process serves one device and repeat: repeats show how times differ between processes.
    """

    def __init__(self, keep: bool = False) -> None:
        self._keeps = keep
        self._kept: dict[object, WorkerProcess] = {}

    def take(self, job: Job) -> WorkerProcess:
        """The kept process for jobs like this, or a new one; at work on the job."""
        worker = self._kept.pop(job.process_key, None)
        if worker is not None:
            worker.say(job)
            return worker
        worker = WorkerProcess(job)
        if self._keeps:
            worker.keep = lambda: self._kept.update({job.process_key: worker})
        return worker

    def drop(self, job: Job) -> None:
        """End the kept process for jobs like this, if there is one."""
        worker = self._kept.pop(job.process_key, None)
        if worker is not None:
            worker.join()


class Session:
    """The measuring processes of a job on one device, which is locked from the first one on.

    Devices with a `preferred` UUID come first. `label` begins each line on `terminal`.
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
        """Free the clocks and the device."""
        if self.clocks is not None:
            self.clocks.free()
        if self._held is not None:
            self._held[1].release()

    def begin(self) -> tuple[WorkerProcess, Message]:
        """The first process, and its message on the open device. Raises DeviceError."""
        try:
            return self._opened()
        except (WorkerGoneError, WorkerSilentError) as err:
            raise DeviceError(f"The device was not opened: {err}.") from err

    def start(self, do: Measure) -> WorkerProcess:
        """A fresh process, at work. Raises DeviceError, WorkerGoneError, WorkerSilentError."""
        self.drop()
        process, _ = self._opened()
        process.say(do)
        return process

    def drop(self) -> None:
        """Have the next job start with a fresh process."""
        self._workers.drop(self._job)

    def _opened(self) -> tuple[WorkerProcess, Message]:
        """A process with its device. One that ends before is replaced: no signal costs a cell."""
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
        """The locked device: one of these for the first process, the same for later ones."""
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
