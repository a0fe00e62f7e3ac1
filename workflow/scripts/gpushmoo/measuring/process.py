"""Start, keep and replace measuring processes on a locked device, for the job that uses them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, TextIO

from ..core.backends import BACKENDS
from ..core.errors import (
    DeviceError,
    DeviceLostError,
    HostError,
    NoDeviceError,
    OpenError,
    WorkerExitedError,
    WorkerKilledError,
    WorkerTimeoutError,
)
from ..core.news import News, heartbeat
from ..core.paths import child_environment
from ..devices.base import DeviceInfo
from ..devices.select import PROBE_TIMEOUT_S
from ..storage.room import obstacle
from .core_waits import core_waits_s, longest_wait_s
from .events import (
    Assignment,
    Candidates,
    Locked,
    MeasureCells,
    Message,
    Open,
    Opened,
    PairsOpened,
    Prepare,
    Ready,
    Working,
)
from .locks import DeviceLock, HeldClocks, lock_one
from .starting import PROGRAM, StartedProgram, early, start

log = logging.getLogger(__name__)

# Allowed seconds of silence while no cell runs: gigabytes of input are made, or OpenCL builds.
IDLE_LIMIT_S = 600.0
# Opening a device seldom takes longer, unless there are very many combinations.
_OPENING_S = 20.0
# Seconds between two looks at a silent process.
POLL_INTERVAL_S = 0.05
# Silence counts by at least this share, however long the process waits for a core.
MIN_COUNTED_SHARE = 0.2
# Number of processes in a row that ended while no cell ran, after which the device counts as lost:
# by a fault, and by a signal from outside.
MAX_UNATTRIBUTED_CRASHES = 2
MAX_UNATTRIBUTED_KILLS = 10

# The signals of a process's own faults; all others come from outside.
_FAULTS = "SIGABRT SIGBUS SIGFPE SIGILL SIGSEGV SIGSYS SIGTRAP"
FAULT_SIGNALS = frozenset(signal.Signals[name] for name in _FAULTS.split())


def end_of(status: int) -> WorkerExitedError:
    """Return the error that describes the end of a measuring process.

    Parameters
    ----------
    status
        Exit status, or the negative number of the signal that ended it.
    """
    if status >= 0:
        return WorkerExitedError(f"the measuring process ended with status {status}")
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = f"signal {-status}"
    text = f"the measuring process was ended by {name}"
    return WorkerExitedError(text) if -status in FAULT_SIGNALS else WorkerKilledError(text)


def _fields(pid: int) -> list[str]:
    """Return the system's statistics of a process from its state on, or none without /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # The name before them, in brackets, may hold anything.
    return stat.rpartition(")")[2].split()


def is_stopped(pid: int) -> bool:
    """Return whether a signal or a debugger has stopped the process, or False without /proc."""
    return bool(fields := _fields(pid)) and fields[0] in "Tt"


class WorkerProcess:
    """A process that runs `worker`, and the connection to it.

    Parameters
    ----------
    program
        The started process.
    """

    def __init__(self, program: StartedProgram) -> None:
        # Keeps the process for another job; None if it ends with its first.
        self.keep: Callable[[], None] | None = None
        self.environment = program.environment
        self._process = program.process
        self._connection: Connection[Any, Any] = Connection(program.connection.detach())

    def say(self, message: object) -> None:
        """Send `message`. If the process has ended, only the next call of `hear` reports that."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(message)

    def lease(self, index: int, lock: DeviceLock) -> None:
        """Make the measuring process open a locked device, and share the device's lock with it.

        If the job is killed, the measuring process may still run a kernel for a moment. Because it
        holds the lock as well, no other job gets the device until it has ended.

        Parameters
        ----------
        index
            Index of the device.
        lock
            Lock of the device, which the job holds.
        """
        assert lock.descriptor is not None
        self.say(Locked(index))
        with suppress(BrokenPipeError, ConnectionResetError):
            send_handle(self._connection, lock.descriptor, self._process.pid)

    def hear(self, limit_s: float) -> Message:
        """Return the next message of the process.

        Parameters
        ----------
        limit_s
            Allowed time without a message, in seconds. Time in which the process cannot run does
            not count.

        Raises
        ------
        WorkerTimeoutError
            If the process sends nothing in this time.
        WorkerExitedError
            If the process has ended.
        Exception
            An error that the process sends.
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
        """Wait for a message, or raise WorkerTimeoutError after `limit_s` seconds of silence.

        Only time in which the process could run counts. It cannot run while it is stopped, while
        its threads wait for a core (of which MIN_COUNTED_SHARE counts nevertheless), or while this
        process is stopped or the machine is suspended. Therefore each poll counts at most
        POLL_INTERVAL_S, and the first one nothing.
        """
        # Most messages come at once, and a look at all threads takes milliseconds on some hosts.
        if self._connection.poll(POLL_INTERVAL_S):
            return
        silent_s = 0.0
        pid = self._process.pid
        waits_s = core_waits_s(pid)
        while not self._connection.poll(POLL_INTERVAL_S):
            before_s = waits_s
            waits_s = core_waits_s(pid)
            if not is_stopped(pid):
                ran_s = POLL_INTERVAL_S - longest_wait_s(before_s, waits_s)
                silent_s += max(MIN_COUNTED_SHARE * POLL_INTERVAL_S, ran_s)
            if silent_s >= limit_s:
                raise WorkerTimeoutError(f"the measuring process said nothing for {limit_s:g} s")

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the process. A thread that waits for its message gets a WorkerKilledError."""
        self._process.kill()

    def stop(self) -> None:
        """End the process at once and wait for its end."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def done(self) -> None:
        """Keep a process without work for another job, or wait for its end if it is not kept."""
        (self.keep or self.join)()

    def join(self) -> None:
        """Close the connection, on which the process ends, and wait for its end."""
        self._connection.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.stop()


class Workers:
    """Starts measuring processes for jobs, and may keep them from one job to the next.

    A process serves only one device and one repeat, because repeats must show how times differ
    between processes.

    Parameters
    ----------
    keep
        Whether to keep processes.
    turn
        Index of the device that the first job tries first. A kept process keeps its device. Servers
        that all start with the same device would share it and leave the others idle.
    """

    def __init__(self, keep: bool = False, turn: int = 0) -> None:
        """Create an empty pool of processes."""
        self.keeps = keep
        self._owner = os.getpid()
        self._turn = turn
        # By the jobs' process_key.
        self._kept: dict[tuple[object, ...], WorkerProcess] = {}
        self._spare: WorkerProcess | None = None
        # All that have not ended: another thread may stop them.
        self._made: list[WorkerProcess] = []
        self._is_stopped = False
        self._making = threading.Lock()

    def by_turn(self, devices: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        """Return the devices in the order in which a job tries them."""
        first = self._turn % len(devices)
        return [*devices[first:], *devices[:first]]

    def prepare(self, backend: str | None = None) -> None:
        """Start a process for the first job, unless there is one, so that it imports in advance.

        Parameters
        ----------
        backend
            Name of the backend whose modules the process imports as well, if it is known.
        """
        if os.getpid() != self._owner:  # after a fork the processes are the parent's
            self._owner = os.getpid()
            self._kept = {}
            self._spare = None
            self._made = []
        if self._spare is None and not self._kept:
            self._spare = self._known(lambda: early(PROGRAM))
            if backend is not None:
                self._spare.say(Prepare(backend))

    def prepare_next(self, assignment: Assignment) -> None:
        """Start a process for the next repeat, which imports while a GPU measures this one.

        Each repeat has a separate process, and the GPU would wait for its start. If the device is
        the host itself, this would disturb the measurement, so nothing is started.

        Parameters
        ----------
        assignment
            The job that is being measured.
        """
        job = assignment.job
        backend = BACKENDS[job.backend]
        *where, _ = assignment.process_key
        there = (*where, job.repeat + 1) in self._kept or self._spare is not None
        if self.keeps and backend.claims_gpu and not (job.is_last_repeat or there):
            self._spare = self._known(lambda: start(PROGRAM, assignment.log))
            self._spare.say(Prepare(backend.name))

    def _known(self, program: Callable[[], StartedProgram]) -> WorkerProcess:
        """Return a new process, or raise KeyboardInterrupt after `stop`."""
        with self._making:
            if self._is_stopped:
                raise KeyboardInterrupt
            made = WorkerProcess(program())
            self._made = [*(other for other in self._made if not other.has_ended), made]
        return made

    def stop(self) -> None:
        """End all processes at once. A thread that uses one gets a KeyboardInterrupt."""
        with self._making:
            self._is_stopped = True
            for process in self._made:
                process.kill()

    def restart(self) -> None:
        """Allow new processes after `stop`.

        The caller ensures that no thread uses the stopped processes any more.
        """
        self._kept = {}
        self._spare = None
        self._made = []
        self._is_stopped = False

    def take(self, request: Assignment | Open) -> WorkerProcess:
        """Return a process that works on the request: a kept one that can do it, or a new one.

        Parameters
        ----------
        request
            The job, or the device to open.

        Raises
        ------
        KeyboardInterrupt
            If `stop` was called.
        """
        worker = self._kept.pop(request.process_key, None) or self._spare
        if worker is self._spare:
            self._spare = None
        if worker is not None and worker.environment != child_environment():
            worker.join()
            worker = None
        made = worker or self._known(lambda: start(PROGRAM, request.log))
        if self.keeps:
            made.keep = lambda: self._kept.update({request.process_key: made})
        made.say(request)
        return made

    def open(self, ask: Open, meanwhile: Callable[[], object]) -> DeviceInfo:
        """Open a device for later jobs, and return its properties.

        Parameters
        ----------
        ask
            The device, and versions to compile in advance.
        meanwhile
            Function that this process calls while the other one opens the device.

        Raises
        ------
        NoDeviceError
            If the device cannot be opened.
        """
        worker = self.take(ask)
        try:
            meanwhile()
            ready = worker.hear(PROBE_TIMEOUT_S)
        except DeviceError as err:
            worker.stop()
            raise NoDeviceError(str(err)) from err
        except (WorkerExitedError, WorkerTimeoutError) as err:
            worker.stop()
            raise NoDeviceError(
                f"The {ask.choice.backend} runtime does not answer: {err}."
            ) from err
        except BaseException:
            worker.stop()
            raise
        assert isinstance(ready, Ready)
        worker.done()
        return ready.info

    def end_repeat(self, repeat: int) -> None:
        """End the kept processes of a repeat that has no more jobs."""
        for key in [key for key in self._kept if key[-1] == repeat]:
            self._kept.pop(key).join()

    def drop(self, assignment: Assignment, at_once: bool = False) -> None:
        """End the kept process for jobs like `assignment`, if any, by a signal if `at_once`."""
        worker = self._kept.pop(assignment.process_key, None)
        if worker is not None:
            (worker.stop if at_once else worker.join)()


class Session:
    """Measuring processes of a job on one device, which stays locked from the first process on.

    Parameters
    ----------
    assignment
        The job.
    label
        Beginning of each line on the terminal.
    terminal
        Terminal for these lines.
    workers
        Starts the processes.
    preferred
        UUIDs of devices that are used if possible, because they have measured cells to reuse.
    """

    def __init__(
        self,
        assignment: Assignment,
        label: str,
        terminal: TextIO,
        workers: Workers,
        preferred: frozenset[str] = frozenset(),
    ) -> None:
        self._assignment, self._workers = assignment, workers
        self._label, self._terminal, self._preferred = label, terminal, preferred
        # The device's UUID and its lock.
        self._held: tuple[str, DeviceLock] | None = None
        # Has imported all that it needs, and waits for the device.
        self._spare: WorkerProcess | None = None
        self._has_gpu = False
        self.clocks: HeldClocks | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        """End the spare process, and free the clocks and the device."""
        if self._spare is not None:
            self._spare.stop()
        if self.clocks is not None:
            self.clocks.free()
        if self._held is not None:
            self._held[1].release()

    def begin(self) -> tuple[WorkerProcess, Message]:
        """Return the first process, and its message that the device is open.

        Raises
        ------
        DeviceError
            If no device can be opened.
        """
        try:
            process, opened = self._opened(self._taken())
            assert isinstance(opened, Opened | PairsOpened)
            self._has_gpu = opened.info.kind == "gpu"
            if isinstance(opened, Opened) and opened.found is not None:
                # Other processes need not look through all combinations again.
                self._assignment = replace(self._assignment, found=opened.found)
            return process, opened
        except (WorkerExitedError, WorkerTimeoutError) as err:
            if (why := obstacle(self._assignment.cache)) is not None:
                raise HostError(why) from err
            raise OpenError(f"The device was not opened: {err}.") from err

    def start(self, do: MeasureCells) -> WorkerProcess:
        """Return a new process that works on the request `do`.

        While a GPU's runtime starts, which is slow, another process already imports for the next
        call.

        Raises
        ------
        DeviceError, WorkerExitedError, WorkerTimeoutError
            If the device cannot be opened again.
        """
        self._workers.drop(self._assignment, at_once=True)
        process = self._taken()
        if self._has_gpu:
            self._spare = self._workers.take(self._assignment)
        process, _ = self._opened(process)
        process.say(do)
        return process

    def _taken(self) -> WorkerProcess:
        """Return the spare process, or another one, that works on the job."""
        process = self._spare or self._workers.take(self._assignment)
        self._spare = None
        return process

    def drop(self) -> None:
        """End the kept process, so that the next job starts with a new one."""
        self._workers.drop(self._assignment)

    def _opened(self, process: WorkerProcess) -> tuple[WorkerProcess, Message]:
        """Return a process with its open device. Replace processes that end before.

        So a signal to a starting process costs no cell.
        """
        ends: Counter[bool] = Counter()
        while True:
            try:
                offered = process.hear(IDLE_LIMIT_S)
                assert isinstance(offered, Candidates)
                process.lease(*self._locked(offered.devices))
                text = f"{self._label}: opening the device"
                with heartbeat(self._terminal, text, _OPENING_S):
                    message = process.hear(IDLE_LIMIT_S)
                news = News(self._terminal, in_place=False)
                while isinstance(message, Working):
                    news.show(message.clause or "")
                    message = process.hear(IDLE_LIMIT_S)
                return process, message
            except WorkerExitedError as err:
                process.stop()
                struck = isinstance(err, WorkerKilledError)
                ends[struck] += 1
                if ends[struck] >= (MAX_UNATTRIBUTED_KILLS if struck else MAX_UNATTRIBUTED_CRASHES):
                    raise
                log.error("%s while it started; another one is started", err)
                process = self._taken()
            except DeviceLostError as err:
                process.stop()
                raise DeviceError(f"The device was lost while it was opened ({err}).") from err
            except BaseException:
                process.stop()
                raise

    def _locked(self, devices: Sequence[tuple[int, str]]) -> tuple[int, DeviceLock]:
        """Return index and lock of the device, the same for all processes of the job.

        A process that has kept its device calls it number 0, so the UUID identifies the device.
        """
        if self._held is None:
            some = [device for device in devices if device[1] in self._preferred] or devices
            ordered = self._workers.by_turn(some)
            own = self._workers.keeps
            index, lock = lock_one(ordered, self._say_waiting, own)
            self._held = dict(devices)[index], lock
            self._lock_clocks(*self._held)
        uuid, lock = self._held
        for index, of_device in devices:
            if of_device == uuid:
                return index, lock
        raise DeviceError(f"The device {uuid} is gone.")

    def _lock_clocks(self, uuid: str, lock: DeviceLock) -> None:
        job = self._assignment.job
        if job.measure.lock_clocks is None:
            return
        self.clocks = HeldClocks(job.backend, uuid, job.measure.lock_clocks, lock)
        if self.clocks.sentence is not None and job.speaks_for_sweep:
            self._terminal.write(f"{self._label}: {self.clocks.sentence}\n")

    def _say_waiting(self) -> None:
        self._terminal.write(f"{self._label}: ready, waiting until a device is free\n")
        self._terminal.flush()
