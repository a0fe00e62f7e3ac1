"""``python -m gpushmoo.measuring.worker FD WORDS``: opens the device and runs kernels.

It is a process of its own so that a kernel that faults, hangs or takes the runtime down with it
costs one cell: the caller (`process`, `supervise`) replaces it. Messages are pickled dataclasses
over the socket FD, first a Job, then answers to what the caller says; after one Job may come
another of the same device. WORDS is the descriptor of memory that tells what of the user's runs
(see `last_words`).
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from types import FrameType
from typing import Any

from ..core.errors import DeviceError, DeviceLostError, WorkloadError
from ..core.paths import ROOT
from ..core.process import end_with_parent
from ..core.space import space_of
from ..core.text import MOST_SENTENCE, one_line
from ..devices.base import Device, steady_room
from ..devices.builds import KernelBuild, read_build
from ..devices.select import open_for_job
from ..storage.wholefile import DamagedFileError
from ..workloads.loader import KernelFolder, load_kernel
from ..workloads.user_code import share
from ..workloads.versions import misfit, versions_of
from .builds import plan_cells, programs_for
from .events import (
    Candidates,
    Crashed,
    Finished,
    Job,
    Locked,
    Lost,
    Measure,
    Message,
    Opened,
    PairJob,
    Refused,
    Worked,
)
from .rounds import ShardRun
from .searching import NOTHING_RECORDED, recorded_launches
from .settings import settings_of

# Seconds of suspension under which the two clocks were merely not read at the same moment.
_NOISE_S = 0.05


def suspended_s() -> float:
    """Seconds that this machine was suspended since it started (Linux; 0 elsewhere).

    By them the clock that goes on during suspension is ahead of the one that times samples.
    """
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class StandstillWatch:
    """Whether the process was stopped and continued, or the machine suspended, since last asked.

    It costs nothing while nothing happens: the system itself tells a process that it is continued.
    Must be made in the main thread, where samples are taken.
    """

    def __init__(self, suspended: Callable[[], float] = suspended_s) -> None:
        """`suspended` tells the seconds of suspension so far."""
        self._suspended, self._before_s = suspended, suspended()
        self._continued = False
        signal.signal(signal.SIGCONT, self._on_continue)
        # What a runtime waits for in the system goes on.
        signal.siginterrupt(signal.SIGCONT, False)

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        self._continued = True

    def __call__(self) -> bool:
        """Whether anything stood still since the last call, or since this was made."""
        continued, self._continued = self._continued, False
        before_s, self._before_s = self._before_s, self._suspended()
        return continued or self._before_s - before_s > _NOISE_S


log = logging.getLogger(__name__)

# Seconds between two tellings of how far the work is.
_TELL_EVERY_S = 0.5


# Does a job on the device that is open, or opens one, and returns it.
Serve = Callable[[Any, Device | None, Callable[[], Any], Callable[[Message], None]], Device]


def main(fd: int, serve: Serve) -> None:
    """Do the jobs that come on the socket `fd`; the caller's end of the socket closing ends it."""
    end_with_parent()
    # An interrupt ends it at once, as other signals do, and not as an error in a program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    connection: Connection[Any, Any] = Connection(fd)
    device: Device | None = None
    try:
        while True:
            caller = Caller(connection)
            device = serve(caller.receive_job(), device, caller.receive, caller.send)
            # A reference cycle may hold buffers.
            gc.collect()
            caller.release()
            connection.send(Finished())
    except (EOFError, BrokenPipeError):
        return
    except DeviceLostError as err:
        connection.send(Lost(str(err)))
    except (DeviceError, DamagedFileError) as err:
        connection.send(Refused(str(err)))
    except Exception as err:
        traceback.print_exc()
        connection.send(Crashed(one_line(f"{type(err).__name__}: {err}", MOST_SENTENCE)))


class Caller:
    """The other end of the socket, for one job."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self.send: Callable[[Message], None] = connection.send
        self._lock: int | None = None

    def receive_job(self) -> Any:
        """The job; what this process prints goes from now on where the job says."""
        job = self._connection.recv()
        prints = recv_handle(self._connection)
        _print_into(prints)
        os.close(prints)
        return job

    def receive(self) -> Any:
        """A message; of a locked device also the lock, which this process then holds.

        The device is free when the job is done, or this process has ended.
        """
        message = self._connection.recv()
        if isinstance(message, Locked):
            self._lock = recv_handle(self._connection)
        return message

    def release(self) -> None:
        """Hold nothing of the job any more: neither the lock nor its log."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        _print_into(nowhere)
        os.close(nowhere)
        if self._lock is not None:
            os.close(self._lock)


def _print_into(descriptor: int) -> None:
    sys.stdout.flush()
    # What kernels and libraries print, too.
    ctypes.CDLL(None).fflush(None)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _serve(
    job: Job, device: Device | None, receive: Callable[[], Any], send: Callable[[Message], None]
) -> Device:
    params = job.params
    build = None if job.build is None else read_build(job.build)
    device = open_locked(job, build, receive, send, device)
    log.info("device %s (%s), %s", device.info.name, device.info.uuid, device.info.runtime)
    folder = load_kernel(ROOT / params["folder"])
    space = space_of(params)
    refuse_misfits(device, folder, params)
    versions = versions_of(folder.workload, space)
    ready = programs_for(device, folder, space.dtype, versions, build, params["kernel_digest"])
    builds = ready.builds
    cells = plan_cells(device, folder, builds, versions, space)
    options = {v: p.options for v, p in builds.programs.items()}
    failures = {v: str(err) for v, err in builds.failures.items()}
    log.info("%d cells, built: %s", len(cells), ", ".join(builds.programs) or "nothing")
    codes = ready.codes
    send(
        Opened(
            device.info, options, failures, ready.machine_code, ready.compiled_here, cells, codes
        )
    )
    do: Measure = receive()
    settings = settings_of(params)
    recorded = NOTHING_RECORDED
    if settings.searches and settings.transfer is not None:
        recorded = recorded_launches(ROOT / settings.transfer, folder.name)
    run = ShardRun(
        device,
        folder,
        builds,
        settings,
        Throttled(send),
        time.monotonic,
        job.started,
        do.together,
        do.launches,
        StandstillWatch(),
        recorded,
    )
    run.measure([c for c in cells if do.keys is None or c.key in do.keys])
    device.close()
    return device


def open_locked(
    job: Job | PairJob,
    build: KernelBuild | None,
    receive: Callable[[], Any],
    send: Callable[[Message], None],
    kept: Device | None = None,
) -> Device:
    """Offer the devices that may measure, open the one that the caller has locked.

    Where one is `kept` open from a job before, it is offered alone.
    """

    def lock(devices: Sequence[tuple[int, str]]) -> int:
        send(Candidates(tuple(devices)))
        locked: Locked = receive()
        return locked.index

    if kept is not None:
        lock([(0, kept.info.uuid)])
        return kept
    return open_for_job(job.params, job.cache, lock, {} if build is None else build.own_kernels)


def refuse_misfits(device: Device, folder: KernelFolder, params: Mapping[str, Any]) -> None:
    """Raise DeviceError where a problem cannot fit the device, at no moment of a run."""
    memory, allocation = steady_room(device.info)
    for problem in space_of(params).problems:
        try:
            reason = misfit(folder.workload, problem, params["dtype"], memory, allocation)
        except WorkloadError:  # which the problem's cells will tell
            continue
        if reason is not None:
            raise DeviceError(f"kernels.{folder.name}.sizes: {reason}; choose a smaller size.")


class Throttled:
    """Passes events on, but says how far the work is only every half second."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send, self._told = send, time.monotonic()

    def __call__(self, event: Message) -> None:
        """Pass it on, or not."""
        if isinstance(event, Worked):
            if time.monotonic() - self._told < _TELL_EVERY_S:
                return
            self._told = time.monotonic()
        self._send(event)


if __name__ == "__main__":
    share(int(sys.argv[2]))
    main(int(sys.argv[1]), _serve)
