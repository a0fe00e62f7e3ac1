"""The measuring job: opens and locks the device, measures a shard, writes its file."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from filelock import Timeout

from .devices.base import DeviceError
from .devices.select import DeviceChoice, open_device
from .kernels import load_kernel
from .locks import device_lock
from .measure import ShardRun, build_variants, plan_cells
from .plan import ROOT, problems_of, settings_of
from .progress import Progress
from .provenance import provenance
from .rows import cell_table
from .store import write_parquet
from .workload import misfit

log = logging.getLogger(__name__)


def run_shard(
    params: Mapping[str, Any], place: tuple[int, int], cache: Path, out: Path, terminal: TextIO
) -> None:
    """Measure the shard of `params` (see plan.shard_params) and write its Parquet file to `out`.

    `place` says which of how many shards this is, to the person who watches `terminal`; device
    runtimes keep their caches in `cache`. Raises DeviceError when there is no device or a problem
    does not fit it.
    """
    choice = DeviceChoice(params["backend"], params["device"], params["opencl_runtime"], cache)
    folder = load_kernel(ROOT / params["folder"])
    device = open_device(choice)
    log.info("device %s (%s), %s", device.info.name, device.info.uuid, device.info.runtime)
    for problem in problems_of(params):
        memory, allocation = device.info.global_memory, device.info.max_allocation
        reason = misfit(folder.workload, problem, params["dtype"], memory, allocation)
        if reason is not None:
            raise DeviceError(f"kernels.{folder.name}.sizes: {reason}; choose a smaller size.")
    number, total = place
    label = f"shard {number}/{total} {folder.name} {params['dtype']}"
    lock = device_lock(device.info.uuid)
    try:
        lock.acquire(timeout=0.05)
    except Timeout:
        terminal.write(f"{label}: waiting for the device, another run is measuring on it\n")
        terminal.flush()
        lock.acquire()
    with lock:
        variants, problems = params["variants"], problems_of(params)
        builds = build_variants(device, folder, params["dtype"], variants)
        index, count = params["shard"]
        cells = plan_cells(
            device,
            folder,
            builds,
            params["dtype"],
            variants,
            problems,
            params["axes"],
            (index, count),
        )
        progress = Progress(label, len(cells), terminal)
        progress.announce()
        shard_run = ShardRun(device, folder, builds, settings_of(params), progress.update)
        runs = shard_run.measure(cells)
    statuses = Counter(str(r.status) for r in runs)
    summary = ", ".join(f"{n} {s}" for s, n in sorted(statuses.items())) or "no cells"
    options = {v: p.options for v, p in builds.programs.items()}
    metadata = {
        **provenance(device.info, params["kernel_digest"], options),
        "axes": sorted(params["axes"]),
        "build_failures": builds.failures,
        "params": dict(params),
        "readings": [{"at_s": at, **asdict(reading)} for at, reading in shard_run.readings],
    }
    write_parquet(cell_table(runs, folder.workload, device.info, params["axes"]), out, metadata)
    progress.finish(summary)
    log.info("%s: %s", label, summary)
    device.close()
