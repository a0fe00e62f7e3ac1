"""Cells of simulated devices: which kernel, tiles and blocks, at which level of detail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from gpushmoo.core.dictionary import Number, Table, Text, Whole
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.storage.store import write_parquet

from .machine import Level, Machine
from .run import FastRun, Watch, simulate_tiles
from .tiling import Tiling

# The machine just as its file describes it.
AS_DESCRIBED = "as described"
BLOCK_EQ, COALESCED = "block_eq_partition", "copy2d_coalesced"
# The kernel's tiles are one partition wide, which float3 cannot be.
SIMULATED_DTYPES = ("float", "double")
# Compiled code for a structure of three floats loads and stores it by three commands.
COMPILED_COMMANDS = {"float3": 3}


class Simulated(Table):
    """A simulated launch; what a level of detail does not know is null."""

    device: Text  # name of the simulated device
    variant: Text  # which simulated machine, of several that differ a little
    level: Text  # level of detail: bus, partitions or banks
    kernel: Text
    dtype: Text
    commands: Whole  # loads, and as many stores, by which a thread moves one element
    height: Whole
    width: Whole
    num_partition: Whole  # blocks that share out all tiles
    tiles: Whole  # tiles of the array
    row_bytes: Whole  # [bytes] a row of a tile
    pad_bytes: Whole  # [bytes] padding after each row of the array
    critical_path_tiles: Whole  # tiles that the busiest multiprocessor copies
    makespan_cycles: Number  # [cycles of the core clock] until the last write has crossed the bus
    bus_busy_share: Number  # [0 to 1] share of that time in which the bus is busy
    lonely_share: Number  # [0 to 1] share in which fewer than half of the units have work left
    row_hit_share: Number | None  # [0 to 1] requests that found their row of memory open
    mean_wait_cycles: Number | None  # [cycles of the core clock] a request's mean time at its
    # partition
    longest_queue: Whole | None  # requests that waited at one partition at most
    busiest_partition: Number | None  # requests of the busiest partition over the mean of all
    bandwidth_gbs: Number  # [GB/s] bytes read and written over the makespan


class Profile(Table):
    """What a partition did in a stretch of time."""

    dtype: Text
    commands: Whole
    partition: Whole  # which partition of memory, from zero
    from_cycle: Number  # [cycles of the core clock] the stretch begins
    to_cycle: Number  # [cycles of the core clock] the stretch ends
    bursts: Whole  # bursts that the partition's memory moved
    requests: Whole  # requests that came to the partition
    row_openings: Whole  # rows that its banks opened
    waiting: Number  # requests that waited there in the mean


class SameMachine(Table):
    """Measured and simulated bandwidth of one point."""

    device: Text
    level: Text
    dtype: Text
    num_partition: Whole
    measured_gbs: Number
    simulated_gbs: Number  # [GB/s] bandwidth that the simulation says
    error: Number  # simulated over measured bandwidth, minus one


SIMULATION_SCHEMA, PROFILE_SCHEMA = Simulated.schema(), Profile.schema()
SAME_MACHINE_SCHEMA = SameMachine.schema()


@dataclass(frozen=True)
class Case:
    """One cell of a simulated device.

    The copy of `side`² elements by `kernel`: block_eq_partition with `num_partition` blocks, or
    copy2d_coalesced with a block for each tile (`num_partition` 0). `commands` load or store one
    element. `variant` names the machine. A tile of block_eq_partition has rows of `row_bytes`,
    0: as wide as a partition; `pad_bytes` lie between the array's rows.
    """

    kernel: str
    dtype: str
    side: int
    num_partition: int
    level: Level
    commands: int = 1
    variant: str = AS_DESCRIBED
    row_bytes: int = 0
    pad_bytes: int = 0

    def tiling(self, machine: Machine) -> Tiling:
        """The kernel's tiles; MachineError where they do not fit the array or a partition."""
        itemsize = DTYPES[self.dtype].itemsize
        if self.kernel == COALESCED:
            return Tiling.square_tiles(self.side, itemsize)
        row_bytes = self.row_bytes or machine.partition_bytes
        return Tiling.of_rows(self.side, itemsize, row_bytes, self.pad_bytes)


def run_case(machine: Machine, case: Case, watch: Watch | None = None) -> FastRun:
    """Simulate one cell; MachineError where its tiles do not fit. `watch` says what is recorded."""
    tiling = case.tiling(machine)
    return simulate_tiles(
        machine,
        tiling,
        case.num_partition or tiling.n_tiles,
        case.level,
        commands=case.commands,
        watch=watch or Watch(),
    )


def write_cases(
    machines: Mapping[str, Machine], cases: Iterable[Case], out: Path, threads: int
) -> None:
    """Simulate `cases` on the machines of their variants and write them (SIMULATION_SCHEMA).

    The compiled loop leaves the interpreter's lock, so that `threads` of them run at once.
    """

    def row(case: Case) -> dict[str, Any]:
        machine = machines[case.variant]
        return _row(machine, case, run_case(machine, case))

    wanted = list(cases)
    # The first of each level compiles; the others then find it compiled.
    first = [next(i for i, c in enumerate(wanted) if c.level is level) for level in _levels(wanted)]
    done = {i: row(wanted[i]) for i in first}
    with ThreadPoolExecutor(max(1, threads)) as pool:
        rest = [i for i in range(len(wanted)) if i not in done]
        done.update(zip(rest, pool.map(row, [wanted[i] for i in rest]), strict=True))
    rows = [done[i] for i in range(len(wanted))]
    write_parquet(pa.Table.from_pylist(rows, schema=SIMULATION_SCHEMA), out, {})


def _levels(cases: Iterable[Case]) -> list[Level]:
    return list(dict.fromkeys(case.level for case in cases))


def _row(machine: Machine, case: Case, run: FastRun) -> dict[str, Any]:
    tiling = case.tiling(machine)
    banks = case.level is Level.BANKS
    queues = case.level is not Level.BUS
    return {
        "device": machine.name,
        "variant": case.variant,
        "level": case.level.value,
        "kernel": case.kernel,
        "dtype": case.dtype,
        "commands": case.commands,
        "height": case.side,
        "width": case.side,
        "num_partition": case.num_partition or tiling.n_tiles,
        "tiles": tiling.n_tiles,
        "row_bytes": tiling.tile_width * tiling.itemsize,
        "pad_bytes": tiling.pitch_bytes - tiling.width * tiling.itemsize,
        "critical_path_tiles": run.critical_path_tiles,
        "makespan_cycles": float(run.drained_cycles),
        "bus_busy_share": float(run.bus_busy_cycles / run.drained_cycles),
        "lonely_share": run.lonely_share,
        "row_hit_share": run.row_hit_share if banks else None,
        "mean_wait_cycles": run.mean_wait_cycles if queues else None,
        "longest_queue": run.longest_queue if queues else None,
        "busiest_partition": _busiest(run) if queues else None,
        # Until the last write has crossed the bus, as a device's event would time it.
        "bandwidth_gbs": run.drained_bandwidth_gbs,
    }


def _busiest(run: FastRun) -> float:
    """Requests of the busiest partition over the mean of all: 1 is even, 8 is all in one of 8."""
    total = math.fsum(run.requests)
    return max(run.requests) * len(run.requests) / total
