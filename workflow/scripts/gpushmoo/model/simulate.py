"""The simulation stage: a device file in, simulated cells and the published figures out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..dtypes import DTYPES
from ..schema import SIMULATION_SCHEMA
from ..space import Residency, expand_axis
from ..store import write_parquet
from .gantt import Workload
from .machine import Machine, load_machine
from .published import published_checks
from .traffic import simulate_fast

# The kernel's tiles are one partition wide, which float3 cannot be.
SIMULATED_DTYPES = ("float", "double")


def simulate_device(
    device_file: Path, sizes: Sequence[int], num_partition: Any, cells: Path, checks: Path
) -> None:
    """Simulate block_eq_partition on a device for float and double.

    Writes `cells` (SIMULATION_SCHEMA) for every size and number of blocks (an axis
    specification), and `checks`: the published quantities recomputed.
    """
    machine = load_machine(device_file)
    per_sm = machine.max_threads_per_sm // 512
    blocks = expand_axis(num_partition, Residency(machine.n_sm, max(1, per_sm)))
    rows = [
        _row(machine, dtype, size, n)
        for size in sizes
        for dtype in SIMULATED_DTYPES
        for n in blocks
    ]
    write_parquet(pa.Table.from_pylist(rows, schema=SIMULATION_SCHEMA), cells, {})
    found = [asdict(check) for check in published_checks(machine)]
    checks.write_text(json.dumps(found, indent=1) + "\n")


def _row(machine: Machine, dtype: str, size: int, blocks: int) -> dict[str, Any]:
    workload = Workload.square(machine, size, DTYPES[dtype].itemsize)
    run = simulate_fast(machine, workload, blocks, writes=True)
    return {
        "device": machine.name,
        "assumptions": "half-warp round robin, fixed latency, one bus",
        "dtype": dtype,
        "height": size,
        "width": size,
        "num_partition": blocks,
        "tiles": workload.n_tiles,
        "critical_path_tiles": run.critical_path_tiles,
        "makespan_cycles": float(run.drained_cycles),
        "bus_busy_share": float(run.bus_busy_cycles / run.drained_cycles),
        # Until the last write has crossed the bus, as a device's event would time it.
        "bandwidth_gbs": run.drained_bandwidth_gbs,
    }
