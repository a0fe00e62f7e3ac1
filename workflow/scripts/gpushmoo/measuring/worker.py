"""Open the device and run kernels: ``python -m gpushmoo.measuring.worker FD``.

It is a separate process, so that a kernel that faults, hangs or crashes the runtime affects only
one cell: the job (`process`, `supervise`) replaces the process. Messages are pickled dataclasses
over the socket FD: optionally a Prepare, optionally an Open, an Assignment, then requests and
answers. Another Assignment of the same device may follow.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

import numpy as np

from ..core.backends import BACKENDS
from ..core.display import MAX_SENTENCE, one_line
from ..core.errors import (
    CompilerSlowError,
    DamagedFileError,
    DeviceError,
    DeviceLostError,
    TypedError,
    WorkerCrashedError,
)
from ..core.shard_job import ShardJob
from ..core.space import Cell, ShardSpace, Version, needs_device
from ..devices.base import Device, DeviceInfo, functions_of
from ..devices.build_file import KernelBuild, read_build
from ..devices.building import compile_ahead
from ..devices.isolated import PATIENCE
from ..devices.select import open_device, open_for_job
from ..storage.joblog import end_with_parent
from ..workloads.combinations import Combinations
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder, load_kernel, versions_of
from .events import (
    Against,
    Assignment,
    Candidates,
    Finished,
    Locked,
    MeasureCells,
    Message,
    Open,
    Opened,
    PairsOpened,
    Prepare,
    Ready,
    Working,
    planned,
)
from .host_data import HostData
from .paired import PairedRun, matched
from .programs import Builds, axis_values, plan_cells, programs_for, space_here
from .rounds import ShardRun
from .sampling import Sampling
from .trial import Trial, first_seed
from .verify import CellSteps

log = logging.getLogger(__name__)

# Seconds between two looks at a compiler.
_LOOK_S = 0.1
# Seconds between two reports of progress.
_TELL_EVERY_S = 0.5


def main(fd: int) -> None:
    """Do the jobs that arrive on the socket `fd` until its other end closes."""
    end_with_parent()
    # An interrupt ends it at once, not as an error in a program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    connection: Connection[Any, Any] = Connection(fd)
    device: Device | None = None
    try:
        while True:
            caller = Caller(connection)
            request = caller.receive()
            if isinstance(request, Prepare):
                _prepare(request)
                continue
            if isinstance(request, Open):
                device = _open(request, caller)
                continue
            device = _serve(request, caller, device)
            # A reference cycle may hold buffers.
            gc.collect()
            caller.release()
            connection.send(Finished())
    except (EOFError, ConnectionError):
        return
    except DeviceLostError as err:
        connection.send(DeviceLostError(str(err)))
    except (DeviceError, DamagedFileError) as err:
        connection.send(DeviceError(str(err)))
    except Exception as err:
        traceback.print_exc()
        text = one_line(f"{type(err).__name__}: {err}", MAX_SENTENCE)
        connection.send(WorkerCrashedError(text))


class Caller:
    """Connection of the measuring process to the job that it measures for.

    The job sends requests, and the measuring process sends answers. A `Caller` also keeps the
    descriptor of the device's lock, once the job has sent it.

    Parameters
    ----------
    connection
        The socket to the job.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock: int | None = None
        # When a clause, and when a share was sent. The first one is sent at once.
        self._sent_s: dict[bool, float] = {}

    def receive(self) -> Any:
        """Return the next message. With `Locked`, also keep the descriptor of the device's lock."""
        message = self._connection.recv()
        if isinstance(message, Locked):
            self._lock = recv_handle(self._connection)
        return message

    def send(self, message: Message | CompilerSlowError) -> None:
        """Send a message. A message on the progress is dropped if the last one is too recent."""
        if isinstance(message, Working):
            is_clause = message.clause is not None
            now = time.monotonic()
            if now - self._sent_s.get(is_clause, -math.inf) < _TELL_EVERY_S:
                return
            self._sent_s[is_clause] = now
        self._connection.send(message)

    def lock_one(self, devices: Sequence[tuple[int, str]]) -> int:
        """Offer devices to the job, and return the index of the one that it has locked.

        Parameters
        ----------
        devices
            Index and UUID of each device.
        """
        self.send(Candidates(tuple(devices)))
        locked: Locked = self.receive()
        return locked.index

    def release(self) -> None:
        """Close the descriptor of the device's lock, if there is one."""
        if self._lock is not None:
            os.close(self._lock)


def _print_into(log_file: Path) -> None:
    """Append everything that this process prints to the file, including kernels and libraries."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    with log_file.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _prepare(request: Prepare) -> None:
    """Import the backend's modules and start its runtime."""
    # The job that follows does the same, and says what is missing.
    with suppress(Exception):
        functions_of(BACKENDS[request.backend]).list_devices(None)


def _open(request: Open, caller: Caller) -> Device:
    """Open a device while a thread compiles. The compiled code stays in the compilers' cache."""
    _print_into(request.log)
    with ThreadPoolExecutor() as pool:
        compiled = [pool.submit(compile_ahead, request.choice, spec) for spec in request.builds]
        device = open_device(request.choice)
        caller.send(Ready(device.info))
        with _compiling(request.compile_s, caller):
            for future in compiled:
                # The job compiles again what failed, and says so.
                with suppress(TypedError):
                    future.result()
    return device


@contextmanager
def _compiling(limit_s: float | None, caller: Caller) -> Iterator[None]:
    """End this process if the code in this context takes too much time, and report that.

    The limit is `limit_s` seconds of processor time, or PATIENCE times as many of wall-clock time.
    A compiler cannot be ended otherwise.
    """
    if limit_s is None:
        yield
        return
    over, began, used = threading.Event(), time.monotonic(), time.process_time()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            waited_s, used_s = time.monotonic() - began, time.process_time() - used
            if used_s >= limit_s or waited_s >= PATIENCE * limit_s:
                caller.send(
                    CompilerSlowError(
                        f"The compiler has taken {used_s:.0f} s of a processor, {waited_s:.0f} s "
                        "in all; the key compile_timeout_s limits each version's part."
                    )
                )
                os._exit(0)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _serve(assignment: Assignment, caller: Caller, kept: Device | None) -> Device:
    """Do a job on the device that is `kept` open from the last job, or on a new one."""
    if assignment.log is not None:
        _print_into(assignment.log)
    build = None if assignment.build is None else read_build(assignment.build)
    shard = None if assignment.against is not None else _Shard.of(assignment)
    if kept is not None:
        if shard is not None:
            shard.make_ahead(kept.info)
        caller.lock_one([(0, kept.info.uuid)])
        device = kept
    else:
        device = open_for_job(assignment.job, assignment.cache, caller.lock_one)
    # Else each collection for a problem's memory also looks through all modules, while the device
    # waits. The last job's garbage is collected already.
    gc.freeze()
    log.info("device %s (%s), %s", device.info.name, device.info.uuid, device.info.runtime)
    if shard is not None:
        _measure_shard(shard, device, build, caller)
    elif assignment.against is not None:
        _measure_pairs(assignment, assignment.against, device, caller)
    device.close()
    return device


@dataclass(frozen=True)
class _Shard:
    """A job that measures a shard, its kernel, and the data on the host.

    `trial_data` is the data for the kernel's trial on new inputs, if it has one.
    """

    assignment: Assignment
    folder: KernelFolder
    data: HostData
    trial_data: HostData | None = None

    @classmethod
    def of(cls, assignment: Assignment) -> _Shard:
        job = assignment.job
        folder = load_kernel(job.kernel_folder)
        on_trial = None
        if Sampling.of(job).verifies_before:
            seed = first_seed(job.kernel_digest, job.seed)
            on_trial = HostData(folder.workload, job.dtype, seed)
        return cls(assignment, folder, HostData(folder.workload, job.dtype, job.seed), on_trial)

    def make_ahead(self, info: DeviceInfo) -> None:
        """Make data before the device is free.

        Nothing is made if the device is the host, or if the kernel needs the cores of the host.
        Such a job claims all cores, so it waits for no other job.
        """
        if info.kind == "cpu" or isinstance(self.folder.workload, HostFedWorkload):
            return
        try:
            space = space_here(info, self.folder, self.assignment.job)
        except DeviceError:  # which the job reports on the locked device
            return
        problems = sorted(space.problems)
        self.data.make_ahead(problems, space.variants)
        if self.trial_data is not None:
            # The largest one is tried, unless launches of several are long.
            self.trial_data.make_ahead(problems[-1:], space.variants)


def _measure_shard(
    shard: _Shard, device: Device, build: KernelBuild | None, caller: Caller
) -> None:
    assignment, folder = shard.assignment, shard.folder
    kernel = _Kernel(device, folder, assignment.job, assignment.found, caller)
    with _compiling(assignment.compile_s, caller):
        builds, cells, found = kernel.built(build)
    programs, failures = builds.programs, builds.failures
    log.info("%d cells, built: %s", len(cells), ", ".join(programs) or "nothing")
    caller.send(
        Opened(
            device.info,
            {name: program.options for name, program in programs.items()},
            {name: str(err) for name, err in failures.items()},
            builds.machine_code,
            builds.compiled_here,
            cells,
            builds.codes,
            found if found is not None and found.unlisted else None,
        )
    )
    do: MeasureCells = caller.receive()
    steps = _steps(assignment, device, folder, builds, caller, do)
    asked = [cell for cell in cells if do.keys is None or cell.key in do.keys]
    ended = ShardRun(steps, shard.data).measure(asked)
    if steps.sampling.verifies_before:
        digest = assignment.job.kernel_digest
        Trial(steps, digest, do.tried, shard.trial_data).hold([*do.ended, *ended])


def _measure_pairs(
    assignment: Assignment, against: Against, device: Device, caller: Caller
) -> None:
    sides = assignment.job, against.job
    # One folder is loaded once, so that a common workload is one object.
    loaded = {job.folder: load_kernel(job.kernel_folder) for job in sides}
    folders = [loaded[job.folder] for job in sides]
    found = assignment.found, against.found
    kernels = [
        _Kernel(device, folder, job, of_side, caller, options)
        for folder, job, of_side, options in zip(
            folders, sides, found, against.options, strict=True
        )
    ]
    cells_a, cells_b = (kernel.cells() for kernel in kernels)
    variants = list(zip(*(job.variants for job in sides), strict=True))
    pairs = matched((cells_a, cells_b), variants)
    alone = len(cells_a) - len(pairs), len(cells_b) - len(pairs)
    if against.most is not None:
        order = np.random.default_rng(assignment.job.seed).permutation(len(pairs))
        nothing = MeasureCells(None, 1, {})
        unbuilt = [_steps(assignment, device, f, Builds(), caller, nothing) for f in folders]
        tried = (i for i in order if any(map(_is_launchable, unbuilt, pairs[i])))
        # If nothing can be launched, the first pair reports that.
        pairs = [pairs[i] for i in sorted(islice(tried, against.most)) or [0]]

    def built(who: int) -> Builds:
        """Compile the versions that the pairs use."""
        versions = [*dict.fromkeys(folders[who].workload.version(pair[who]) for pair in pairs)]
        return kernels[who].programs(versions)

    with _compiling(assignment.compile_s, caller):
        builds_a, builds_b = built(0), built(1)
    caller.send(PairsOpened(device.info, pairs, alone, (builds_a.codes, builds_b.codes)))
    do: MeasureCells = caller.receive()
    a = _steps(assignment, device, folders[0], builds_a, caller, do)
    b = replace(a, folder=folders[1], builds=builds_b)
    run = PairedRun((a, b), against.blocks)
    run.measure([pair for pair in pairs if do.keys is None or pair[0].key in do.keys])


def _is_launchable(steps: CellSteps, cell: Cell) -> bool:
    run = planned(steps.folder.workload, cell)
    if run.status is None:
        steps.check_statically(run)
    return run.status is None


def _steps(
    assignment: Assignment,
    device: Device,
    folder: KernelFolder,
    builds: Builds,
    caller: Caller,
    do: MeasureCells,
) -> CellSteps:
    return CellSteps(
        device,
        folder,
        builds,
        Sampling.of(assignment.job),
        caller.send,
        time.monotonic,
        assignment.started,
        do.together,
        dict(do.launches),
        do.until,
        do.joined,
        do.first,
        do.unlaunched,
    )


@dataclass(frozen=True)
class _Kernel:
    """The part of a job that concerns one kernel. For `found`, see `Assignment`."""

    device: Device
    folder: KernelFolder
    job: ShardJob
    found: Combinations | None
    caller: Caller
    options: tuple[str, ...] = ()

    @cached_property
    def space(self) -> ShardSpace:
        """Cells to measure, with the sizes that they have on this device."""
        return space_here(self.device.info, self.folder, self.job)

    def built(
        self, build: KernelBuild | None = None
    ) -> tuple[Builds, list[Cell], Combinations | None]:
        """Return the programs, the cells that get rows, and the combinations if there is a rule.

        If the values of an axis depend on the occupancy, the kernel is compiled first.
        """
        planned = None if self._needs_device else self._planned(Builds(), ())
        found = None if planned is None else planned[1]
        versions = versions_of(self.folder.workload, self.space, found)
        builds = self.programs(versions, build)
        return builds, *(planned or self._planned(builds, versions))

    def cells(self) -> list[Cell]:
        """All cells of the job that get a row: valid ones, and invalid ones if these are few.

        The kernel is compiled if values of an axis depend on its occupancy.
        """
        return self.built()[1] if self._needs_device else self._planned(Builds(), ())[0]

    def programs(self, versions: Sequence[Version], build: KernelBuild | None = None) -> Builds:
        """Load or compile these versions."""
        return programs_for(
            self.device,
            self.folder,
            self.job.dtype,
            versions,
            build=build,
            kernel_digest=self.job.kernel_digest,
            options=self.options,
            tell=self._tell,
        )

    @property
    def _needs_device(self) -> bool:
        return any(map(needs_device, self.space.axes.values()))

    def _planned(
        self, builds: Builds, versions: Sequence[Version]
    ) -> tuple[list[Cell], Combinations | None]:
        values = axis_values(self.device, self.folder, builds, versions, self.space)
        return plan_cells(self.folder, self.space, values, self.found, self._tell)

    def _tell(self, what: str) -> None:
        self.caller.send(Working(what))


if __name__ == "__main__":
    main(int(sys.argv[1]))
