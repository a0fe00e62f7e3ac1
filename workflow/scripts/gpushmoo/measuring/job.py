"""The measuring job: locks a device, has a shard measured, writes its file."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from ..core.backends import BACKENDS
from ..core.errors import DeviceError
from ..core.paths import ROOT
from ..core.run_plan import PLAN_FILE
from ..core.schema import Status
from ..core.space import CellGroup, Problem, asks_the_device
from ..devices.base import DeviceInfo
from ..storage.store import read_shard, write_result
from ..workloads.loader import KernelFolder, load_kernel
from .builds import first_printf
from .events import ShardResult, planned
from .locks import DeviceLock, lock_one
from .orphans import Membership
from .progress import Progress
from .provenance import provenance
from .rounds import TOGETHER
from .rows import cell_table
from .worker.handle import WorkerGoneError, WorkerKilledError, WorkerProcess, WorkerSilentError
from .worker.protocol import Candidates, Job, Lost, Measure, Opened
from .worker.supervise import IDLE_LIMIT_S, Supervisor
from .worker.suspects import FAULTS_OF_NOBODY, STRIKES_OF_NOBODY

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FirstRepeat:
    """What later repeats of a shard take over from the first, so that they measure alike.

    They measure the cells that ended as ``ok`` there (`keys`), with as many launches a sample.
    """

    keys: frozenset[str]
    launches: Mapping[CellGroup, int]


def read_first(path: Path) -> FirstRepeat:
    """Of the file that the first repeat wrote. Raises BadParquetError."""
    table, _ = read_shard(path)
    keys: set[str] = set()
    launches: dict[CellGroup, int] = {}
    for row in table.to_pylist():
        if row["status"] != Status.OK:
            continue
        keys.add(row["cell_key"])
        problem = Problem(row["height"], row["width"])
        group = CellGroup(problem, row["cache_state"], row["variant"])
        # A cell that is too slow for its group's number has fewer.
        launches[group] = max(launches.get(group, 1), row["launches_per_sample"])
    return FirstRepeat(frozenset(keys), launches)


def run_shard(
    params: Mapping[str, Any],
    place: tuple[int, int],
    cache: Path,
    out: Path,
    terminal: TextIO,
    first: Path | None = None,
    log_file: str = "the log",
    plan_file: Path = Path(PLAN_FILE),
    build: Path | None = None,
) -> None:
    """Measure the shard of `params` (see run_plan.RunPlan) and write its Parquet file to `out`.

    `place` says which of how many shards this is, to the person who watches `terminal`; device
    runtimes keep their caches in `cache`. `first` is what the first repeat wrote, None if this is
    the first; `log_file` is where compilers' messages are, `plan_file` the run's plan, `build` the
    kernel's build file, without which the measuring process compiles. Raises DeviceError when there
    is no device or a problem does not fit it, OrphanError when the run no longer asks for the
    shard.
    """
    membership = Membership(params, out, plan_file)
    log.info("shard %s, repeat %d", params["shard"], params["repeat"])
    folder = load_kernel(ROOT / params["folder"])
    if first is None:
        do = Measure(None, TOGETHER, {})
    else:
        before = read_first(first)
        do = Measure(before.keys, TOGETHER, before.launches)
    label = _label(folder, params, place)
    session = _Session(Job(params, cache, time.monotonic(), build), label, terminal)
    try:
        worker = session.start(do)
    except (WorkerGoneError, WorkerSilentError) as err:
        if err.in_workload:
            raise DeviceError(f"{err}.") from err
        reason = str(err) or "the measuring process said nothing"
        raise DeviceError(f"The device was not opened: {reason}.") from err
    assert session.opened is not None
    opened = session.opened
    cells = [c for c in opened.cells if do.keys is None or c.key in do.keys]
    progress = Progress(label, len(cells), terminal)
    progress.announce()
    if first is None:
        _say_of_source(folder, params, opened, log_file if build is None else None, terminal)
    runs = [planned(folder.workload, cell) for cell in cells]
    timeout_s = params["measure"]["timeout_s"]

    def on_progress(done: int, share: float) -> None:
        membership.check_parent()
        progress.update(done, share)

    supervisor = Supervisor(runs, session.start, timeout_s, on_progress, do.launches)
    result = supervisor.measure(worker)
    log.info("measured")
    table = cell_table(result, folder.workload, opened.info, params["axes"])
    membership.check()
    write_result(table, out, _metadata(params, opened, result), terminal)
    log.info("wrote %s", out)
    # Not before: who waits for the device may be at work on the same file.
    session.release()
    statuses = Counter(str(r.status) for r in result.runs.values())
    progress.finish(", ".join(f"{n} {s}" for s, n in sorted(statuses.items())) or "no cells")


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
    for variant, reason in opened.failures.items() if log_file is not None else ():
        said = f"{where}, variant {variant}: {reason} (whole message: {log_file})"
        terminal.write(f"gpushmoo: {said}\n")
    printf = first_printf(folder, BACKENDS[params["backend"]].source_suffix)
    if printf is not None:
        terminal.write(f"gpushmoo: {where}: {printf}: the kernel prints; its times include that.\n")
    terminal.flush()


def _metadata(params: Mapping[str, Any], opened: Opened, result: ShardResult) -> dict[str, Any]:
    info: DeviceInfo = opened.info
    return {
        **provenance(info, params["kernel_digest"], opened.options),
        "axes": sorted(params["axes"]),
        **_resolved_axes(params, opened),
        "build_failures": opened.failures,
        **({"compiled_here": opened.compiled_here} if opened.compiled_here else {}),
        "controls": [
            {
                "height": problem.height,
                "width": problem.width,
                "cache_state": state,
                "at_s": [at for at, _ in copies],
                "seconds": [seconds for _, seconds in copies],
            }
            for (problem, state), copies in sorted(result.copies.items())
        ],
        "machine_code": opened.machine_code,
        "params": dict(params),
        "readings": [{"at_s": at, **asdict(reading)} for at, reading in result.readings],
    }


def _resolved_axes(params: Mapping[str, Any], opened: Opened) -> dict[str, Any]:
    """The values of axes that depend on the device, where there are such axes."""
    asked = [axis for axis, spec in sorted(params["axes"].items()) if asks_the_device(spec)]
    values = {axis: sorted({cell[axis] for cell in opened.cells}) for axis in asked}
    return {"resolved_axes": values} if values else {}


class _Session:
    """Starts measuring processes on one device, which it locks with the first."""

    def __init__(self, job: Job, label: str, terminal: TextIO) -> None:
        self._job, self._label, self._terminal = job, label, terminal
        self._index: int | None = None
        self._lock: DeviceLock | None = None
        self.opened: Opened | None = None

    def start(self, do: Measure) -> WorkerProcess:
        """A process that is at work on what it is told to measure.

        One that ends before it is at work is replaced, so that no cell is lost to a signal from
        outside. Raises DeviceError, WorkerGoneError, WorkerSilentError.
        """
        ends: Counter[bool] = Counter()
        while True:
            try:
                return self._start_once(do)
            except WorkerGoneError as err:
                struck = isinstance(err, WorkerKilledError)
                ends[struck] += 1
                if ends[struck] >= (STRIKES_OF_NOBODY if struck else FAULTS_OF_NOBODY):
                    raise
                log.error("%s while it started; another one is started", err)

    def _start_once(self, do: Measure) -> WorkerProcess:
        worker = WorkerProcess(self._job)
        try:
            offered = worker.hear(IDLE_LIMIT_S)
            if isinstance(offered, Lost):
                raise DeviceError(f"The device was lost while it was opened ({offered.message}).")
            assert isinstance(offered, Candidates)
            if self._index is None:
                self._index, self._lock = lock_one(offered.devices, self._say_waiting)
            assert self._lock is not None
            worker.lend(self._index, self._lock)
            opened = worker.hear(IDLE_LIMIT_S)
            if isinstance(opened, Lost):
                raise DeviceError(f"The device was lost while it was opened ({opened.message}).")
            assert isinstance(opened, Opened)
        except BaseException:
            worker.stop()
            raise
        self.opened = self.opened or opened
        worker.say(do)
        return worker

    def release(self) -> None:
        """Let others measure on the device."""
        if self._lock is not None:
            self._lock.release()

    def _say_waiting(self) -> None:
        self._terminal.write(f"{self._label}: ready, waiting until a device is free\n")
        self._terminal.flush()
