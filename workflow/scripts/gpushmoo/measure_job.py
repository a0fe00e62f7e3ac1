"""The measuring job: locks a device, has a shard measured, writes its file."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from filelock import BaseFileLock

from .devices.base import DeviceError, DeviceInfo
from .events import CellRun, ShardResult
from .job_params import ROOT
from .kernels import load_kernel
from .locks import lock_one
from .measure import TOGETHER
from .messages import Candidates, Job, Lost, Measure, Opened
from .process import WorkerGoneError, WorkerProcess, WorkerSilentError
from .progress import Progress
from .provenance import provenance
from .rows import cell_table
from .store import write_result
from .supervise import IDLE_LIMIT_S, Supervisor

log = logging.getLogger(__name__)


def run_shard(
    params: Mapping[str, Any], place: tuple[int, int], cache: Path, out: Path, terminal: TextIO
) -> None:
    """Measure the shard of `params` (see plan.shard_params) and write its Parquet file to `out`.

    `place` says which of how many shards this is, to the person who watches `terminal`; device
    runtimes keep their caches in `cache`. Raises DeviceError when there is no device or a problem
    does not fit it.
    """
    log.info("shard %s", params["shard"])
    folder = load_kernel(ROOT / params["folder"])
    number, total = place
    label = f"shard {number}/{total} {folder.name} {params['dtype']}"
    session = _Session(Job(params, cache, time.monotonic()), label, terminal)
    try:
        worker = session.start(None, TOGETHER)
    except (WorkerGoneError, WorkerSilentError) as err:
        reason = str(err) or "the measuring process said nothing"
        raise DeviceError(f"The device was not opened: {reason}.") from err
    assert session.opened is not None
    opened = session.opened
    progress = Progress(label, len(opened.cells), terminal)
    progress.announce()
    runs = [CellRun(cell, folder.workload.launch(cell)) for cell in opened.cells]
    timeout_s = params["measure"]["timeout_s"]
    supervisor = Supervisor(runs, session.start, timeout_s, progress.update)
    result = supervisor.measure(worker)
    log.info("measured")
    session.release()
    table = cell_table(result, folder.workload, opened.info, params["axes"])
    write_result(table, out, _metadata(params, opened, result), terminal)
    log.info("wrote %s", out)
    statuses = Counter(str(r.status) for r in result.runs.values())
    progress.finish(", ".join(f"{n} {s}" for s, n in sorted(statuses.items())) or "no cells")


def _metadata(params: Mapping[str, Any], opened: Opened, result: ShardResult) -> dict[str, Any]:
    info: DeviceInfo = opened.info
    return {
        **provenance(info, params["kernel_digest"], opened.options),
        "axes": sorted(params["axes"]),
        "build_failures": opened.failures,
        "machine_code": opened.machine_code,
        "params": dict(params),
        "readings": [{"at_s": at, **asdict(reading)} for at, reading in result.readings],
    }


class _Session:
    """Starts measuring processes on one device, which it locks with the first."""

    def __init__(self, job: Job, label: str, terminal: TextIO) -> None:
        self._job, self._label, self._terminal = job, label, terminal
        self._index: int | None = None
        self._lock: BaseFileLock | None = None
        self.opened: Opened | None = None

    def start(self, keys: frozenset[str] | None, together: int) -> WorkerProcess:
        """A process that is at work on the cells with these keys, or on all for None.

        It samples at most `together` of them without waiting between them.

        Raises DeviceError, WorkerGoneError, WorkerSilentError.
        """
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
        worker.say(Measure(keys, together))
        return worker

    def release(self) -> None:
        """Let others measure on the device."""
        if self._lock is not None:
            self._lock.release()

    def _say_waiting(self) -> None:
        self._terminal.write(f"{self._label}: ready, waiting until a device is free\n")
        self._terminal.flush()
