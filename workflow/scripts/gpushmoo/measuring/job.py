"""Do measuring jobs: measure a shard or pairs on a locked device, and write the shard's file.

``python -m gpushmoo.measuring.job FD PARENT JOBS TURN`` serves the clients (`client`) of the
listening socket FD until its parent ends. It keeps the measuring process with its open device from
one job of a repeat to the next, because a start takes longer than most shards. It ends the process
after the last of the repeat's JOBS. Without FD it does one job, which it reads from the standard
input.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO

import pyarrow as pa

from ..core.backends import BACKENDS
from ..core.errors import JobSignalledError
from ..core.schema import FAULTS, UNLISTED, Status
from ..core.shard_job import ShardJob, ShardRequest
from ..core.space import needs_device, plain_size
from ..devices.building import LOG_OF_A_CALL, failure_sentences
from ..search.planner import SearchMode
from ..storage.joblog import end_with_parent, job_log, raises_signals
from ..storage.store import write_parquet
from ..workloads.combinations import Combinations
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder, load_kernel
from .events import (
    Assignment,
    CellRun,
    MeasureCells,
    Opened,
    PairRun,
    PairsOpened,
    ShardResult,
    pair_of,
    planned,
)
from .locks import HeldClocks
from .process import Session, Workers
from .programs import first_printf, space_here
from .progress import LiveFile, Progress, live_path
from .requests import received_request
from .sampling import TOGETHER, Sampling
from .shard_file import Earlier, ReusedCells, cell_table, joined, provenance, read_first
from .supervise import FIRST_LAUNCH_ON_CPU_S, FIRST_LAUNCH_S, FaultLimits, Supervisor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardTask:
    """A measuring job with the files, processes and limits that `measure_shard` uses.

    Attributes
    ----------
    job
        The cells to measure.
    place
        Number of the shard, from 1, and number of all shards, for messages.
    cache
        Folder in which the device's runtime caches compiled code.
    first
        File of the first repeat of the shard, or None in the first repeat.
    build
        Build file of the kernel, or None if the measuring process compiles it.
    log_file
        Path of the compilers' messages, for the user.
    earlier
        Cells of earlier jobs, or None if none are reused.
    worker_log
        File to which the measuring process prints, or None for this process's output.
    live
        File of the progress (see `progress`), or None for no file.
    workers
        Start the measuring processes.
    seconds
        Time after which no cell gets more than the smallest number of samples, or None for no
        limit.
    compile_s, found
        See `Assignment`.
    in_place
        Whether lines of progress replace each other, because only this program writes to the
        terminal.
    brief
        Whether the job leaves no line on the terminal unless it takes long. Later repeats leave
        none.
    folder
        The kernel if it is already loaded. Loading changes the working directory, which threads
        share.
    """

    job: ShardJob
    place: tuple[int, int]
    cache: Path
    first: Path | None = None
    build: Path | None = None
    log_file: str = LOG_OF_A_CALL
    earlier: Earlier | None = None
    worker_log: Path | None = None
    live: Path | None = None
    workers: Workers = field(default_factory=Workers)
    seconds: float | None = None
    compile_s: float | None = None
    in_place: bool = False
    brief: bool = False
    folder: KernelFolder | None = None
    found: Combinations | None = None


@dataclass(frozen=True)
class MeasuredShard:
    """All cells of a shard as a table, and their provenance."""

    table: pa.Table
    metadata: dict[str, Any]


def run_shard(task: ShardTask, out: Path, terminal: TextIO) -> None:
    """Measure a shard and write its file.

    Parameters
    ----------
    task
        The job.
    out
        Path of the Parquet file.
    terminal
        Terminal for lines of progress.

    Raises
    ------
    DeviceError
        If there is no device, or if a problem does not fit on it.
    WriteError
        If the file cannot be written.
    """
    shard = measure_shard(task, terminal)
    write_parquet(shard.table, out, shard.metadata)
    log.info("wrote %s", out)
    if task.earlier is not None:
        task.earlier.keep(out, shard.table.column("cell_key").to_pylist())


def measure_shard(task: ShardTask, terminal: TextIO) -> MeasuredShard:
    """Measure a shard, but write no file.

    Parameters
    ----------
    task
        The job.
    terminal
        Terminal for lines of progress.

    Raises
    ------
    DeviceError
        If there is no device, or if a problem does not fit on it.
    """
    job, earlier = task.job, task.earlier
    log.info("shard %s, repeat %d", job.shard, job.repeat)
    folder = task.folder or load_kernel(job.kernel_folder)
    before = None if task.first is None else read_first(task.first)
    label = _label(folder, job, task.place)
    began = time.monotonic()
    log_file = task.worker_log
    assignment = Assignment(
        job,
        task.cache,
        began,
        build=task.build,
        log=log_file,
        compile_s=task.compile_s,
        found=task.found,
    )
    preferred = frozenset() if earlier is None else earlier.uuids
    with Session(assignment, label, terminal, task.workers, preferred) as session:
        worker, opened = session.begin()
        assert isinstance(opened, Opened)
        reused = ReusedCells()
        if earlier is not None:
            of_cells = None if before is None else before.of_cells
            whole = Sampling.of(job).search.mode == SearchMode.GUIDED
            reused = earlier.taken(opened, folder.workload, of_cells, whole)
        keys = None if before is None else frozenset(before.of_cells)
        if reused.keys:
            keys = (frozenset(c.key for c in opened.cells) if keys is None else keys) - reused.keys
        launches = reused.launches if before is None else before.launches
        began = time.monotonic()
        until = None if task.seconds is None else began + task.seconds
        mixed = frozenset(c.group for c in opened.cells if c.key in reused.keys)
        request = MeasureCells(keys, TOGETHER, launches, until, mixed)
        worker.say(request)
        if not isinstance(folder.workload, HostFedWorkload):
            # There the host is measured, too.
            task.workers.prepare_next(assignment)
        cells = [c for c in opened.cells if keys is None or c.key in keys]
        runs = [planned(folder.workload, cell) for cell in cells]
        # Nothing is to be done for invalid ones.
        valid = sum(run.status is not Status.INVALID for run in runs)
        brief = task.brief or before is not None
        progress = Progress(label, valid, terminal, task.in_place, brief)
        progress.announce()
        if reused.keys:
            terminal.write(f"{label}: {len(reused.keys)} cells were measured before\n")
        terminal.writelines(f"{label}: {why}\n" for why in reused.refused)
        _say_of_source(task, folder, opened, terminal)
        live = LiveFile(task.live, folder.workload, label, len(cells), len(reused.keys))

        def on_progress(_: int, share: float) -> None:
            progress.update(share)
            live.tell(supervisor.result.runs, supervisor.result.timed_s, share)

        supervisor = Supervisor(
            runs,
            session.start,
            fault_limits(job, opened.info.kind),
            on_progress,
            request,
            lambda run: folder.workload.version(run.cell).name,
            progress.note,
        )
        with closing(live), closing(progress):
            progress.update(0.0)
            result = supervisor.measure(worker)
        took_s = time.monotonic() - began
        log.info("measured")
    new = cell_table(result, folder.workload, opened.info, job.axes)
    metadata = _metadata(job, folder, opened, result, reused, session.clocks)
    metadata["measuring"] = {"seconds": took_s, "budget": task.seconds}
    shard = MeasuredShard(joined(new, reused.table), metadata)
    statuses = Counter(shard.table.column("status").to_pylist())
    if unlisted := metadata.get(UNLISTED):
        statuses[Status.INVALID] += unlisted
    if not statuses.keys().isdisjoint(FAULTS):
        # A faulty kernel may have left traces in the process.
        session.drop()
        progress.brief = False
    progress.finish(", ".join(f"{n} {s}" for s, n in sorted(statuses.items())) or "no cells")
    return shard


def fault_limits(job: ShardJob, kind: str) -> FaultLimits:
    """Return the limits on launches and faults of a job. `kind` of the device is cpu or gpu."""
    first_launch_s = FIRST_LAUNCH_ON_CPU_S if kind == "cpu" else FIRST_LAUNCH_S
    return FaultLimits(job.measure.cell_timeout_s, job.measure.max_faults, first_launch_s)


@dataclass(frozen=True)
class MeasuredPairs:
    """Message on the open device, and the measured pairs in their order."""

    opened: PairsOpened
    runs: Sequence[PairRun]


def measure_pairs(
    assignment: Assignment, label: str, terminal: TextIO, workers: Workers, in_place: bool = False
) -> MeasuredPairs:
    """Measure all pairs of cells of two versions of a kernel, for one element type.

    Parameters
    ----------
    assignment
        The job, with the version to compare with.
    label
        Beginning of each line of progress.
    terminal
        Terminal for these lines.
    workers
        Starts the measuring processes.
    in_place
        Whether these lines replace each other, see `ShardTask`.

    Raises
    ------
    DeviceError
        If there is no device, or if a problem does not fit on it.
    """
    with Session(assignment, label, terminal, workers) as session:
        worker, opened = session.begin()
        assert isinstance(opened, PairsOpened)
        worker.say(MeasureCells(None, TOGETHER, {}))
        runs = [pair_of(a, b) for a, b in opened.pairs]
        progress = Progress(label, len(runs), terminal, in_place)
        progress.announce()
        supervisor = Supervisor(
            runs,
            session.start,
            fault_limits(assignment.job, opened.info.kind),
            lambda _, share: progress.update(share),
            notify=progress.note,
        )
        with closing(progress):
            progress.update(0.0)
            result = supervisor.measure(worker)
    ended = list(result.runs.values())
    if not FAULTS.isdisjoint(run.status for run in ended):
        session.drop()
    progress.finish(f"{sum(run.status is Status.OK for run in ended)} pairs measured")
    return MeasuredPairs(opened, ended)


def _label(folder: KernelFolder, job: ShardJob, place: tuple[int, int]) -> str:
    number, total = place
    repeats = job.measure.repeats
    which = f", repeat {job.repeat} of {repeats}" if repeats > 1 else ""
    return f"shard {number}/{total} {folder.name} {job.dtype}{which}"


def _say_of_source(task: ShardTask, folder: KernelFolder, opened: Opened, terminal: TextIO) -> None:
    """Warn of versions that this job compiled and of a kernel that prints, once per sweep and type.

    Compile errors are printed unless the job that wrote the build file has printed them.
    """
    job = task.job
    if not job.speaks_for_sweep:
        return
    where = f"{folder.name}, {job.dtype}"
    for reason in dict.fromkeys(opened.compiled_here.values()):
        terminal.write(f"gpushmoo: {where}: compiled by the measuring job: {reason}\n")
    for sentence in failure_sentences(opened.failures) if task.build is None else ():
        terminal.write(f"gpushmoo: {where}, {sentence} (whole message: {task.log_file})\n")
    printf = first_printf(folder, BACKENDS[job.backend].source_suffix)
    if printf is not None:
        terminal.write(f"gpushmoo: {where}: {printf}: the kernel prints; its times include that.\n")
    terminal.flush()


def _metadata(
    job: ShardJob,
    folder: KernelFolder,
    opened: Opened,
    result: ShardResult[CellRun],
    reused: ReusedCells,
    clocks: HeldClocks | None,
) -> dict[str, Any]:
    info = opened.info
    return {
        **provenance(info, job.kernel_digest, opened.options),
        "axes": sorted(job.axes),
        **_resolved_axes(job, opened),
        **_resolved_sizes(job, folder, opened),
        **({UNLISTED: opened.found.unlisted} if opened.found is not None else {}),
        **({} if clocks is None else {"clocks": clocks.provenance()}),
        "build_failures": opened.failures,
        "codes": opened.codes,
        **({"host_fed": True} if isinstance(folder.workload, HostFedWorkload) else {}),
        **reused.provenance(),
        **({"compiled_here": opened.compiled_here} if opened.compiled_here else {}),
        "controls": [
            {
                "height": problem.height,
                "width": problem.width,
                **met._asdict(),
                "at_s": [copied.at_s for copied in copies],
                "seconds": [copied.seconds for copied in copies],
                "launches": copies[0].launches,
                "overhead_s": overhead.seconds if (overhead := copies[0].overhead) else None,
            }
            for (problem, met), copies in sorted(result.copies.items())
        ]
        + [control for source in reused.sources for control in source["controls"]],
        "machine_code": opened.machine_code,
        "params": job.plain,
        "waited_share": result.waited_share,
        **({"searches": searches} if (searches := _searches(result)) else {}),
        "readings": [{"at_s": at, **asdict(reading)} for at, reading in result.readings],
    }


def _searches(result: ShardResult[CellRun]) -> list[dict[str, Any]]:
    """Return the results of the searches of groups as plain values."""
    return [
        {
            "height": searched.group.problem.height,
            "width": searched.group.problem.width,
            **searched.group.condition._asdict(),
            "variant": searched.group.variant,
            **asdict(searched.verdict),
        }
        for searched in result.searches
    ]


def _resolved_axes(job: ShardJob, opened: Opened) -> dict[str, Any]:
    """Return the values of those axes that depend on the device, for the metadata."""
    asked = [axis for axis, spec in sorted(job.axes.items()) if needs_device(spec)]
    values = {axis: sorted({cell[axis] for cell in opened.cells}) for axis in asked}
    return {"resolved_axes": values} if values else {}


def _resolved_sizes(job: ShardJob, folder: KernelFolder, opened: Opened) -> dict[str, Any]:
    """Return all sizes of the sweep, for the metadata, if one depends on the device."""
    if not job.space.asks_for_sizes:
        return {}
    sizes = space_here(opened.info, folder, job).problems
    return {"resolved_sizes": [plain_size(problem) for problem in sizes]}


def measure(request: ShardRequest, workers: Workers, end: Callable[[int], NoReturn]) -> None:
    """Do a measuring job of a run.

    Parameters
    ----------
    request
        The job and its files.
    workers
        Starts the measuring processes.
    end
        Called with the exit status after an error, which is reported before.
    """
    with job_log(request.log, end) as terminal:
        earlier = Earlier(request.out, request.job, request.code)
        earlier.read(request.remeasure)
        task = ShardTask(
            request.job,
            request.place,
            request.cache,
            request.first,
            request.build,
            str(request.log),
            earlier,
            worker_log=request.log,
            live=live_path(request.plan.parent, request.out),
            workers=workers,
            seconds=request.seconds,
        )
        run_shard(task, request.out, terminal)


def serve(listening: socket.socket, jobs: Path, turn: int) -> None:
    """Do the jobs of all clients, one after the other, forever.

    Parameters
    ----------
    listening
        Listening socket.
    jobs
        JSON file with the paths that the run's jobs will write, by repeat, and the backend. If it
        names a backend, a process imports its modules while the run compiles.
    turn
        Number of this server among those of the run.
    """
    workers = Workers(keep=True, turn=turn)
    began = time.time()
    listed = json.loads(jobs.read_text(encoding="utf-8"))
    awaited = {int(repeat): list(map(Path, paths)) for repeat, paths in listed["outs"].items()}
    if listed["backend"] is not None:
        workers.prepare(listed["backend"])
    while True:
        client, _ = listening.accept()
        with client:
            _serve(client, workers)
        for repeat in _finished(awaited, began):
            workers.end_repeat(repeat)


def _finished(awaited: dict[int, list[Path]], began: float) -> list[int]:
    """Return the repeats whose files are all written, and remove them from `awaited`.

    Other servers may have written some of the files. A file from before `began` will be written
    again.
    """
    for paths in awaited.values():
        while paths and _was_written(paths[-1], began):
            paths.pop()
    finished = [repeat for repeat, paths in awaited.items() if not paths]
    for repeat in finished:
        del awaited[repeat]
    return finished


def _was_written(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except OSError:
        return False


def _serve(client: socket.socket, workers: Workers) -> None:
    received = received_request(client)
    if received is None:
        return
    request, output = received
    status = 0
    with _as_output(output):
        try:
            with raises_signals(), _signals_of(client):
                measure(ShardRequest.of_plain(json.loads(request)), workers, sys.exit)
        except SystemExit as end:
            status = int(end.code or 0)
        except JobSignalledError:  # while it had no log
            status = 1
    try:
        client.sendall(bytes([status]))
    except OSError:
        return


@contextmanager
def _as_output(descriptors: list[int]) -> Iterator[None]:
    """Replace the standard output and error of this process by these descriptors."""
    own = [os.dup(1), os.dup(2)]
    try:
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        yield
    finally:
        for number, descriptor in enumerate(own, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def _signals_of(client: socket.socket) -> Iterator[None]:
    """Send this process the signals that the client receives, and SIGTERM if the client ends."""
    lock = threading.Lock()
    over = False

    def listen() -> None:
        try:
            number = client.recv(1)
        except OSError:
            number = b""
        with lock:
            if not over:
                os.kill(os.getpid(), number[0] if number else signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            over = True


if __name__ == "__main__":
    end_with_parent(*map(int, sys.argv[2:3]))
    if len(sys.argv) > 1:
        serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        with raises_signals():
            measure(ShardRequest.of_plain(json.load(sys.stdin)), Workers(keep=False), os._exit)
