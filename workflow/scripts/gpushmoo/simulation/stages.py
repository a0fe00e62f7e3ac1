"""The simulation stage: a device file in, simulated cells out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.space import Residency, expand_axis
from .cases import AS_DESCRIBED as VARIANT
from .cases import BLOCK_EQ, Case, write_cases
from .machine import Level, load_machine

# The kernel's tiles are one partition wide, which float3 cannot be.
SIMULATED_DTYPES = ("float", "double")


def simulate_device(
    device_file: Path,
    levels: Sequence[str],
    sizes: Sequence[int],
    num_partition: Any,
    cells: Path,
    threads: int,
) -> None:
    """Simulate block_eq_partition for float and double: every level, size and number of blocks.

    `num_partition` is an axis specification; `cells` get SIMULATION_SCHEMA.
    """
    machine = load_machine(device_file)
    per_sm = max(1, machine.max_threads_per_sm // 512)
    blocks = expand_axis(num_partition, Residency(machine.n_sm, per_sm))
    cases = [
        Case(BLOCK_EQ, dtype, size, n, Level(level))
        for level in levels
        for size in sizes
        for dtype in SIMULATED_DTYPES
        for n in blocks
    ]
    write_cases({VARIANT: machine}, cases, cells, threads)
