"""The measuring job: locks a device, has a shard measured, writes its file."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO, TypeVar

import pyarrow as pa

from ..core.backends import BACKENDS
from ..core.errors import DeviceError
from ..core.paths import ROOT
from ..core.run_plan import RunPlan, plain
from ..core.sampled import fully_sampled
from ..core.schema import FAULTS
from ..core.space import CellGroup, asks_the_device
from ..devices.base import DeviceInfo
from ..devices.building import failure_sentences
from ..storage.store import read_shard, write_result
from ..storage.wholefile import DamagedFileError, read_json
from ..workloads.loader import KernelFolder, load_kernel
from .builds import first_printf
from .events import Job, Measure, Opened, ShardResult, planned
from .locks import DeviceLock, HeldClocks, lock_one
from .process import (
    WorkerGoneError,
    WorkerKilledError,
    WorkerProcess,
    Workers,
    WorkerSilentError,
    opened_by,
)
from .progress import LiveFile, Progress, live_path
from .settings import TOGETHER, settings_of
from .shard_file import NOTHING, Earlier, Taken, cell_table, joined, launches_by_group, provenance
from .supervise import FAULTS_OF_NOBODY, STRIKES_OF_NOBODY, Supervisor


class OrphanError(Exception):
    """The job is no longer part of a run; one sentence."""


class Membership:
    """Whether this process is still a job of the run that started it."""

    def __init__(self, params: Mapping[str, Any], out: Path, plan_file: Path) -> None:
        """Remember who started this process, which measures `out` with `params`."""
        self._params, self._out, self._plan_file = params, out, plan_file
        self._parent = os.getppid()

    def check_parent(self) -> None:
        """Raise OrphanError when the process that started this one has ended."""
        if os.getppid() != self._parent:
            raise OrphanError(
                f"Snakemake, which had '{self._out}' measured, has ended; nothing was written, and "
                "the next start measures it."
            )

    def check(self) -> None:
        """The same, and raise OrphanError when the run is no longer to have this shard.

        Where the plan cannot be read (a job on another host, a damaged file) it says nothing: no
        result is lost for it, and `aggregate` compares the shard with the plan once more.
        """
        self.check_parent()
        try:
            plan = RunPlan.from_plain(read_json(self._plan_file))
            wanted = plan.shard_params(self._out)
        except (DamagedFileError, TypeError, KeyError, AttributeError):
            return
        if wanted != plain(self._params):
            raise OrphanError(
                f"The run has got another configuration since '{self._out}' was begun; nothing was "
                "written."
            )


log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class FirstRepeat:
    """What later repeats of a shard take over from the first, so that they measure alike.

    They measure the cells that are `fully_sampled` there, with as many launches a sample;
    `of_cells` has that number by the cell's key, `launches` by its group.
    """

    of_cells: Mapping[str, int]
    launches: Mapping[CellGroup, int]


def read_first(path: Path) -> FirstRepeat:
    """Of the file that the first repeat wrote. Raises BadParquetError."""
    table, metadata = read_shard(path)
    ok = table.filter(fully_sampled(table, metadata["params"]["measure"]))
    names = ("cell_key", "launches_per_sample")
    of_cells = zip(*(ok.column(name).to_pylist() for name in names), strict=True)
    return FirstRepeat(dict(of_cells), launches_by_group(ok))


@dataclass(frozen=True)
class ShardTask:
    """What a measuring job is to do, apart from where the result goes.

    `params` are those of `run_plan.RunPlan`; `place` says which of how many shards this is, to a
    person; device runtimes keep their caches in `cache`. `first` is what the first repeat wrote,
    None if this is the first; `build` the kernel's build file, without which the measuring process
    compiles, and `log_file` then has the compilers' messages. `earlier` is what may be taken over
    from jobs before this one. The measuring process prints into `worker_log`, or where this one
    does. `live` is the file for those who watch (see `live`), None for none. `workers` start the
    measuring processes.
    """

    params: Mapping[str, Any]
    place: tuple[int, int]
    cache: Path
    first: Path | None = None
    build: Path | None = None
    log_file: str = "the log"
    earlier: Earlier | None = None
    worker_log: Path | None = None
    live: Path | None = None
    workers: Workers = field(default_factory=lambda: Workers(keep=False))


@dataclass(frozen=True)
class MeasuredShard:
    """All cells of a shard in the schema of its axes, and their provenance."""

    table: pa.Table
    metadata: dict[str, Any]


def run_shard(task: ShardTask, out: Path, terminal: TextIO, plan_file: Path) -> None:
    """Measure a shard and write its Parquet file to `out`; `plan_file` is the run's plan.

    Raises DeviceError when there is no device or a problem does not fit it, OrphanError when the
    run no longer asks for the shard, NotWrittenError.
    """
    membership = Membership(task.params, out, plan_file)

    def write(shard: MeasuredShard) -> None:
        membership.check()
        write_result(shard.table, out, shard.metadata, terminal)
        log.info("wrote %s", out)
        if task.earlier is not None:
            task.earlier.keep(out, shard.table.column("cell_key").to_pylist())

    watched = replace(task, live=live_path(plan_file.parent, out))
    measure_shard(watched, terminal, membership.check_parent, write)


def measure_shard(
    task: ShardTask,
    terminal: TextIO,
    check: Callable[[], None],
    finish: Callable[[MeasuredShard], T],
) -> T:
    """Measure a shard; what `finish` gives of it, called while the device is still locked.

    So who waits for the device finds what was written. `check` is called on the way, and may
    raise. Raises DeviceError when there is no device or a problem does not fit it.
    """
    log.info("shard %s, repeat %d", task.params["shard"], task.params["repeat"])
    folder = load_kernel(ROOT / task.params["folder"])
    before = None if task.first is None else read_first(task.first)
    session = _Session(task, folder, before, terminal)
    try:
        return _measured(task, folder, session, terminal, check, finish)
    finally:
        # After a fault, too: the caller may be a program that goes on.
        session.release()


def _measured(
    task: ShardTask,
    folder: KernelFolder,
    session: _Session,
    terminal: TextIO,
    check: Callable[[], None],
    finish: Callable[[MeasuredShard], T],
) -> T:
    """`measure_shard` by the processes of `session`."""
    params = task.params
    try:
        worker = session.begin()
    except (WorkerGoneError, WorkerSilentError) as err:
        if err.in_workload:
            raise DeviceError(f"{err}.") from err
        reason = str(err) or "the measuring process said nothing"
        raise DeviceError(f"The device was not opened: {reason}.") from err
    opened, taken, do = session.opened, session.taken, session.do
    cells = [c for c in opened.cells if do.keys is None or c.key in do.keys]
    progress = Progress(session.label, len(cells), terminal)
    progress.announce()
    if taken.keys:
        terminal.write(f"{session.label}: {len(taken.keys)} cells were measured before\n")
    terminal.writelines(f"{session.label}: {why}\n" for why in taken.refused)
    if task.first is None:
        log_file = task.log_file if task.build is None else None
        _say_of_source(folder, params, opened, log_file, terminal)
    runs = [planned(folder.workload, cell) for cell in cells]
    live = LiveFile(task.live, folder.workload, session.label, len(cells), len(taken.keys))

    def on_progress(done: int, share: float) -> None:
        check()
        progress.update(done, share)
        live.tell(supervisor.result.runs, supervisor.timed_s, share)

    timeout_s = params["measure"]["timeout_s"]
    supervisor = Supervisor(runs, session.start, timeout_s, on_progress, do.launches)
    with closing(live):
        result = supervisor.measure(worker)
        log.info("measured")
        new = cell_table(result, folder.workload, opened.info, params["axes"])
        table = joined(new, taken.table)
        metadata = _metadata(params, opened, result, taken, session.clocks)
        finished = finish(MeasuredShard(table, metadata))
    session.release()
    statuses = Counter(table.column("status").to_pylist())
    if not statuses.keys().isdisjoint(FAULTS):
        # What a faulty kernel left in the process costs no other kernel's cells.
        session.drop()
    progress.finish(", ".join(f"{n} {s}" for s, n in sorted(statuses.items())) or "no cells")
    return finished


def _label(folder: KernelFolder, params: Mapping[str, Any], place: tuple[int, int]) -> str:
    number, total = place
    repeats = params["measure"]["repeats"]
    which = f", repeat {params['repeat']} of {repeats}" if repeats > 1 else ""
    return f"shard {number}/{total} {folder.name} {params['dtype']}{which}"


def _say_of_source(
    folder: KernelFolder,
    params: Mapping[str, Any],
    opened: Opened,
    log_file: str | None,
    terminal: TextIO,
) -> None:
    """What was compiled here and what prints, said once for all parts of a sweep and dtype.

    What does not compile is said with the name of the `log_file`, unless its build file's job has
    said it (None).
    """
    if params["shard"][0] != 0:
        return
    where = f"{params['folder']}, {params['dtype']}"
    for reason in dict.fromkeys(opened.compiled_here.values()):
        terminal.write(f"gpushmoo: {where}: compiled by the measuring job: {reason}\n")
    for sentence in failure_sentences(opened.failures) if log_file is not None else ():
        terminal.write(f"gpushmoo: {where}, {sentence} (whole message: {log_file})\n")
    printf = first_printf(folder, BACKENDS[params["backend"]].source_suffix)
    if printf is not None:
        terminal.write(f"gpushmoo: {where}: {printf}: the kernel prints; its times include that.\n")
    terminal.flush()


def _metadata(
    params: Mapping[str, Any],
    opened: Opened,
    result: ShardResult,
    taken: Taken,
    clocks: HeldClocks | None,
) -> dict[str, Any]:
    info: DeviceInfo = opened.info
    return {
        **provenance(info, params["kernel_digest"], opened.options),
        "axes": sorted(params["axes"]),
        **_resolved_axes(params, opened),
        **({} if clocks is None else {"clocks": clocks.provenance()}),
        "build_failures": opened.failures,
        "codes": opened.codes,
        **({"earlier": taken.told} if taken.keys else {}),
        **({"compiled_here": opened.compiled_here} if opened.compiled_here else {}),
        "controls": [
            {
                "height": problem.height,
                "width": problem.width,
                **met._asdict(),
                "at_s": [at for at, _ in copies],
                "seconds": [seconds for _, seconds in copies],
            }
            for (problem, met), copies in sorted(result.copies.items())
        ]
        + [control for source in taken.sources for control in source["controls"]],
        "machine_code": opened.machine_code,
        "params": dict(params),
        **({"searches": searches} if (searches := _searches(result)) else {}),
        "readings": [{"at_s": at, **asdict(reading)} for at, reading in result.readings],
    }


def _searches(result: ShardResult) -> list[dict[str, Any]]:
    """How the searches of groups ended, in plain values."""
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


def _resolved_axes(params: Mapping[str, Any], opened: Opened) -> dict[str, Any]:
    """The values of axes that depend on the device, where there are such axes."""
    asked = [axis for axis, spec in sorted(params["axes"].items()) if asks_the_device(spec)]
    values = {axis: sorted({cell[axis] for cell in opened.cells}) for axis in asked}
    return {"resolved_axes": values} if values else {}


class _Session:
    """Starts measuring processes on one device, which it locks with the first.

    Once that is open, `opened` is what it has told, `taken` what is taken over from earlier jobs,
    and `do` what is left to measure.
    """

    opened: Opened
    taken: Taken
    do: Measure

    def __init__(
        self, task: ShardTask, folder: KernelFolder, before: FirstRepeat | None, terminal: TextIO
    ) -> None:
        self.label = _label(folder, task.params, task.place)
        self._job = Job(task.params, task.cache, time.monotonic(), task.build)
        self._workers, self._worker_log = task.workers, task.worker_log
        self._earlier, self._workload = task.earlier, folder.workload
        self._before, self._terminal = before, terminal
        self._held: tuple[int, DeviceLock] | None = None
        self.clocks: HeldClocks | None = None

    def begin(self) -> WorkerProcess:
        """The first process, at work on all cells that are not taken over. Raises as `start`."""
        return self._started(self._first_work)

    def _first_work(self, opened: Opened) -> Measure:
        self.opened, before = opened, self._before
        of_cells = None if before is None else before.of_cells
        self.taken = NOTHING
        if self._earlier is not None:
            self.taken = self._earlier.taken(opened, self._workload, of_cells)
            if settings_of(self._job.params).searches:
                self.taken = self._earlier.taken_whole(opened, self.taken)
        keys = None if of_cells is None else frozenset(of_cells)
        if self.taken.keys:
            wanted = frozenset(c.key for c in opened.cells) if keys is None else keys
            keys = wanted - self.taken.keys
        launches = self.taken.launches if before is None else before.launches
        self.do = Measure(keys, TOGETHER, launches)
        return self.do

    def start(self, do: Measure) -> WorkerProcess:
        """A fresh process, at work on what it is told to measure; see `_started`."""
        self.drop()
        return self._started(lambda _: do)

    def drop(self) -> None:
        """Have the next job start with a fresh process."""
        self._workers.drop(self._job)

    def _started(self, work: Callable[[Opened], Measure]) -> WorkerProcess:
        """A process that is at work on what `work` makes of its device and cells.

        One that ends before it is at work is replaced, so that no cell is lost to a signal from
        outside. Raises DeviceError, WorkerGoneError, WorkerSilentError.
        """
        ends: Counter[bool] = Counter()
        while True:
            try:
                return self._start_once(work)
            except WorkerGoneError as err:
                struck = isinstance(err, WorkerKilledError)
                ends[struck] += 1
                if ends[struck] >= (STRIKES_OF_NOBODY if struck else FAULTS_OF_NOBODY):
                    raise
                log.error("%s while it started; another one is started", err)

    def _start_once(self, work: Callable[[Opened], Measure]) -> WorkerProcess:
        worker = self._workers.take(self._job, self._worker_log)
        try:
            opened = opened_by(worker, self._locked)
            assert isinstance(opened, Opened)
        except BaseException:
            worker.stop()
            raise
        worker.say(work(opened))
        return worker

    def _locked(self, devices: Sequence[tuple[int, str]]) -> tuple[int, DeviceLock]:
        """The device that is locked: by the first process one of these, by later ones the same."""
        if self._held is None:
            self._held = lock_one(self._preferred(devices), self._say_waiting)
            self._lock_clocks(dict(devices)[self._held[0]], self._held[1])
        return self._held

    def _preferred(self, devices: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        """Those of the devices that have measured cells of this shard before, if there are any."""
        uuids = frozenset() if self._earlier is None else self._earlier.uuids
        return [device for device in devices if device[1] in uuids] or devices

    def _lock_clocks(self, uuid: str, lock: DeviceLock) -> None:
        asked = settings_of(self._job.params).lock_clocks
        if asked is None:
            return
        self.clocks = HeldClocks(self._job.params["backend"], uuid, asked, lock)
        params = self._job.params
        if self.clocks.sentence is not None and (params["shard"][0], params["repeat"]) == (0, 1):
            self._terminal.write(f"{self.label}: {self.clocks.sentence}\n")

    def release(self) -> None:
        """Let others measure on the device, whose clocks are as they were."""
        if self.clocks is not None:
            self.clocks.free()
        if self._held is not None:
            self._held[1].release()

    def _say_waiting(self) -> None:
        self._terminal.write(f"{self.label}: ready, waiting until a device is free\n")
        self._terminal.flush()
