"""Cells of simulated devices: kernel, tiles, blocks and level of detail, and what a run gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.schema import Float64, Int64, Meaning, String, Table
from gpushmoo.storage.store import write_parquet

from . import dram_controller as c
from .event_loop import PHASES, Memory, SMProgram, execute
from .machine import Banks, Level, Machine, Tiling, exact, residency, transfer_beats
from .reference import Event

Ints = npt.NDArray[np.int64]

# Both arrays begin at multiples of this, as the runtime allots them.
ALIGNMENT = 256
# Requests that a partition's queue first has room for; it grows.
QUEUE_SIZE = 256


@dataclass(frozen=True)
class Watch:
    """What a run keeps beside its sums.

    `bars` of a chart over time and `commands` to the banks at most; sums of `bins` stretches of
    `bin_cycles` core cycles for each partition.
    """

    bars: int = 0
    commands: int = 0
    bins: int = 0
    bin_cycles: int = 1


@dataclass(frozen=True)
class FastRun:
    """Result of one simulation: as of `reference.Run`, without what grows with the problem.

    A core cycle has `ticks`, in which `profile` counts. `ends_of_sms` are core cycles at which each
    SM's last block left it, 0 for one without blocks. `events` counts what a chart without end
    would show as bars (`reference.Event`): four for each half-warp and access, two without writes;
    at partitions a request that is in several of them counts once for each. `requests` and
    `row_openings` are those of each partition, `waited_cycles` core cycles from a request's arrival
    there to its data, added up; `longest_queue` the most requests of one. `commands` are rows of
    (time in core cycles, partition, bank, command, row or bursts), `profile` is (bins, partitions,
    controller.PROFILE_COLUMNS); both see `Watch`.
    """

    makespan_cycles: Fraction
    drained_cycles: Fraction
    bus_busy_cycles: Fraction
    bytes_moved: int
    core_clock_ghz: float
    ticks: int = field(compare=False)
    tiles_per_sm: tuple[int, ...]
    ends_of_sms: tuple[Fraction, ...]
    events: int
    bars: tuple[Event, ...]
    requests: tuple[int, ...] = ()
    row_openings: tuple[int, ...] = ()
    waited_cycles: float = 0.0
    longest_queue: int = 0
    commands: tuple[tuple[float, int, int, int, int], ...] = ()
    profile: Ints = field(default_factory=lambda: np.zeros((0, 0, 0), np.int64), compare=False)

    @property
    def critical_path_tiles(self) -> int:
        """Tiles that the busiest multiprocessor copies, one after the other."""
        return max(self.tiles_per_sm)

    @property
    def lonely_share(self) -> float:
        """Share of the time in which fewer than half of the SMs that had work still have some."""
        ends = sorted(end for end in self.ends_of_sms if end)
        return float((ends[-1] - ends[len(ends) // 2]) / ends[-1])

    @property
    def drained_bandwidth_gbs(self) -> float:
        """Bytes over the time until the last posted write has crossed the bus, GB/s of 10⁹."""
        return float(self.bytes_moved / self.drained_cycles * exact(self.core_clock_ghz))

    @property
    def row_hit_share(self) -> float:
        """Requests that found their row open; NaN where there are no rows."""
        total = sum(self.requests)
        return 1 - sum(self.row_openings) / total if self.row_openings else math.nan

    @property
    def mean_wait_cycles(self) -> float:
        """Core cycles from a request's arrival at its partition to its data, in the mean."""
        return self.waited_cycles / sum(self.requests) if self.requests else math.nan


def simulate_tiles(
    machine: Machine,
    tiling: Tiling,
    num_blocks: int,
    level: Level,
    *,
    commands: int = 1,
    output_offset: int | None = None,
    n_tiles: int | None = None,
    watch: Watch | None = None,
) -> FastRun:
    """Copy an array tile by tile: block b takes tiles b, b + num_blocks, ….

    Of its tiles only the first `n_tiles` are copied, by default all. A half-warp's access consists
    of `commands` commands that each touch all its bytes. The output begins `output_offset` bytes
    after the input, by default right after it. `level` is one of the machine's. Raises MachineError
    for tiles across which half-warps do not fit.
    """
    watch = watch or Watch()
    fit = residency(machine, tiling)
    span = machine.half_warp * tiling.itemsize
    n_tiles = tiling.n_tiles if n_tiles is None else n_tiles
    beats = commands * transfer_beats(machine, span)
    banks = machine.banks if level is Level.BANKS else None
    ticks = _ticks(machine, span, beats, banks)
    lead = (banks.t_rcd_cycles + banks.t_cl_cycles) * machine.memory_cycle if banks else 0
    program = SMProgram(
        n_sm=machine.n_sm,
        slots=fit.blocks,
        half_warps=fit.half_warps,
        n_tiles=n_tiles,
        n_blocks=_at_least_one(num_blocks),
        items=tiling.items,
        first=machine.index_cycles * ticks,
        step=machine.step_cycles * ticks,
        hold=machine.command_cycles * ticks,
        commands=commands,
        sm_per_port=machine.sm_per_port,
        port=int(commands * _port_cycles(machine, span) * ticks),
        latency=int((machine.latency_cycles - lead) * ticks),
        transfer=int(beats * machine.beat_cycles * ticks),
        writes=True,
        writes_awaited=machine.writes_awaited,
    )
    if output_offset is None:
        output_offset = -(-tiling.extent_bytes // ALIGNMENT) * ALIGNMENT
    memory = None
    if level is not Level.BUS:
        memory = _memory(machine, banks, tiling, ticks, output_offset, watch)
    moved = 2 * n_tiles * tiling.tile_bytes
    return _run(machine, program, memory, ticks, moved, watch)


def _at_least_one(num_blocks: int) -> int:
    if num_blocks < 1:
        raise ValueError(f"num_partition must be at least 1, not {num_blocks}")
    return num_blocks


def _burst_cycles(machine: Machine, n_bytes: int) -> Fraction:
    """Core cycles in which one partition, with its part of the bus, moves `n_bytes`."""
    return Fraction(n_bytes * machine.partitions, machine.bus_bytes) * machine.beat_cycles


def _burst_bytes(banks: Banks | None) -> int:
    # Without banks what a request has in bytes is what it takes.
    return banks.burst_bytes if banks else 1


def _port_cycles(machine: Machine, n_bytes: int) -> Fraction:
    """Core cycles for which a command's bytes hold its SM's port."""
    return Fraction(n_bytes, machine.port_bytes) if machine.port_bytes else Fraction(0)


def _ticks(machine: Machine, span: int, beats: Fraction, banks: Banks | None) -> int:
    """Ticks of a core cycle: all durations are whole ones."""
    durations = [beats * machine.beat_cycles, _burst_cycles(machine, _burst_bytes(banks))]
    durations.append(_port_cycles(machine, span))
    if banks:
        durations.append(machine.memory_cycle)
    return math.lcm(*(d.denominator for d in durations))


def _memory(
    machine: Machine,
    banks: Banks | None,
    tiling: Tiling,
    ticks: int,
    output_offset: int,
    watch: Watch,
) -> Memory:
    parameters = np.zeros(c.N_PARAMETERS, np.int64)
    parameters[c.PARTITIONS] = machine.partitions
    parameters[c.STRIPE_BYTES] = machine.partition_bytes
    parameters[c.HASHED] = machine.hashed_partitions
    parameters[c.BURST_BYTES] = _burst_bytes(banks)
    parameters[c.TICKS_PER_BURST] = int(_burst_cycles(machine, _burst_bytes(banks)) * ticks)
    if banks:
        parameters[c.BANKS], parameters[c.PAGE_BYTES] = banks.count, banks.page_bytes
        parameters[c.CHOOSE_FROM], parameters[c.OPEN_AHEAD] = banks.choose_from, banks.open_ahead
        for column, cycles in _timings(machine, banks).items():
            parameters[column] = int(cycles * machine.memory_cycle * ticks)
    return Memory(
        parameters=parameters,
        state=c.fresh_state(machine.partitions, banks.count if banks else 0),
        layout=layout_of(machine, tiling, output_offset),
        queue_size=QUEUE_SIZE,
        # The first row of the log counts the others.
        log=np.zeros((watch.commands + 1, c.LOG_COLUMNS), np.int64),
        profile=np.zeros((watch.bins, machine.partitions, c.PROFILE_COLUMNS), np.int64),
        bin_ticks=watch.bin_cycles * ticks,
    )


def layout_of(machine: Machine, tiling: Tiling, output_offset: int) -> Ints:
    """Return the layout of half-warps' bytes, as `dram_controller.byte_address` takes it."""
    layout = np.zeros(7, np.int64)
    layout[c.PITCH] = tiling.pitch_bytes
    layout[c.TILE_PITCH] = tiling.tile_width * tiling.itemsize
    layout[c.SPAN] = machine.half_warp * tiling.itemsize
    layout[c.TILE_ROWS] = tiling.tile_height
    layout[c.ITEM_ROWS] = tiling.tile_height // tiling.items
    layout[c.TILES_X] = tiling.tiles_x
    layout[c.OUT] = output_offset
    return layout


def _timings(machine: Machine, banks: Banks) -> dict[int, int]:
    """Memory cycles of each timing parameter of a controller."""
    return {
        c.T_RCD: banks.t_rcd_cycles,
        c.T_RP: machine.t_rp_cycles,
        c.T_RAS: machine.t_ras_cycles,
        c.T_RC: machine.t_ras_cycles + machine.t_rp_cycles,
        c.T_RRD: banks.t_rrd_cycles,
        c.T_CL: banks.t_cl_cycles,
        c.T_WL: banks.t_wl_cycles,
        c.T_WR: banks.t_wr_cycles,
        c.T_CDLR: banks.t_cdlr_cycles,
    }


def _run(
    machine: Machine,
    program: SMProgram,
    memory: Memory | None,
    ticks: int,
    moved: int,
    watch: Watch,
) -> FastRun:
    tiles = np.zeros(machine.n_sm, np.int64)
    bars = np.zeros((watch.bars, 6), np.int64)
    ends = np.zeros(machine.n_sm, np.int64)
    counts = execute(program, memory, tiles, ends, bars)
    shown = bars[: min(counts.events, watch.bars)].tolist()
    return FastRun(
        makespan_cycles=Fraction(counts.makespan, ticks),
        drained_cycles=Fraction(counts.drained, ticks),
        bus_busy_cycles=Fraction(counts.transfers * program.transfer, ticks),
        bytes_moved=moved,
        core_clock_ghz=machine.core_clock_ghz,
        ticks=ticks,
        tiles_per_sm=tuple(tiles.tolist()),
        ends_of_sms=tuple(Fraction(end, ticks) for end in ends.tolist()),
        events=counts.events,
        bars=tuple(
            Event(sm, block, half_warp, PHASES[phase], Fraction(start, ticks), Fraction(end, ticks))
            for sm, block, half_warp, phase, start, end in shown
        ),
        **(_of_memory(memory, ticks) if memory else {}),
    )


def _of_memory(memory: Memory, ticks: int) -> dict[str, Any]:
    state, log = memory.state, memory.log
    banks = bool(memory.parameters[c.BANKS])
    return {
        "requests": tuple(state[:, c.REQUESTS].tolist()),
        "row_openings": tuple(state[:, c.OPENINGS].tolist()) if banks else (),
        "waited_cycles": float(state[:, c.WAITED].sum() / ticks),
        "longest_queue": int(state[:, c.LONGEST].max()),
        "commands": tuple(
            (time / ticks, p, bank, command, row)
            for time, p, bank, command, row in log[1 : log[0, 0] + 1].tolist()
        ),
        "profile": memory.profile,
    }


# The machine just as its file describes it.
AS_DESCRIBED = "as described"
BLOCK_EQ, COALESCED = "block_eq_partition", "copy2d_coalesced"
# The kernel's tiles are one partition wide, which float3 cannot be.
SIMULATED_DTYPES = ("float", "double")
# Compiled code for a structure of three floats loads and stores it by three commands.
COMPILED_COMMANDS = {"float3": 3}


class Simulated(Table):
    """A simulated launch; what a level of detail does not know is null."""

    device: Annotated[String, Meaning("name of the simulated device")]
    variant: Annotated[String, Meaning("which simulated machine, of several that differ a little")]
    level: Annotated[String, Meaning("level of detail: bus, partitions or banks")]
    kernel: String
    dtype: String
    commands: Annotated[
        Int64, Meaning("loads, and as many stores, by which a thread moves one element")
    ]
    height: Int64
    width: Int64
    num_partition: Annotated[Int64, Meaning("blocks that share out all tiles")]
    tiles: Annotated[Int64, Meaning("tiles of the array")]
    row_bytes: Annotated[Int64, Meaning("a row of a tile", "bytes")]
    pad_bytes: Annotated[Int64, Meaning("padding after each row of the array", "bytes")]
    critical_path_tiles: Annotated[Int64, Meaning("tiles that the busiest multiprocessor copies")]
    makespan_cycles: Annotated[
        Float64, Meaning("until the last write has crossed the bus", "cycles of the core clock")
    ]
    bus_busy_share: Annotated[
        Float64, Meaning("share of that time in which the bus is busy", "0 to 1")
    ]
    lonely_share: Annotated[
        Float64, Meaning("share in which fewer than half of the units have work left", "0 to 1")
    ]
    row_hit_share: Annotated[
        Float64 | None, Meaning("requests that found their row of memory open", "0 to 1")
    ]
    mean_wait_cycles: Annotated[
        Float64 | None,
        Meaning("a request's mean time at its partition", "cycles of the core clock"),
    ]
    longest_queue: Annotated[Int64 | None, Meaning("requests that waited at one partition at most")]
    busiest_partition: Annotated[
        Float64 | None, Meaning("requests of the busiest partition over the mean of all")
    ]
    bandwidth_gbs: Annotated[Float64, Meaning("bytes read and written over the makespan", "GB/s")]


class Profile(Table):
    """What a partition did in a stretch of time."""

    dtype: String
    commands: Int64
    partition: Annotated[Int64, Meaning("which partition of memory, from zero")]
    from_cycle: Annotated[Float64, Meaning("the stretch begins", "cycles of the core clock")]
    to_cycle: Annotated[Float64, Meaning("the stretch ends", "cycles of the core clock")]
    bursts: Annotated[Int64, Meaning("bursts that the partition's memory moved")]
    requests: Annotated[Int64, Meaning("requests that came to the partition")]
    row_openings: Annotated[Int64, Meaning("rows that its banks opened")]
    waiting: Annotated[Float64, Meaning("requests that waited there in the mean")]


class SameMachine(Table):
    """Measured and simulated bandwidth of one point."""

    device: String
    level: String
    dtype: String
    num_partition: Int64
    measured_gbs: Float64
    simulated_gbs: Annotated[Float64, Meaning("bandwidth that the simulation says", "GB/s")]
    error: Annotated[Float64, Meaning("simulated over measured bandwidth, minus one")]


SIMULATION_SCHEMA, PROFILE_SCHEMA = Simulated.schema(), Profile.schema()
SAME_MACHINE_SCHEMA = SameMachine.schema()


@dataclass(frozen=True)
class Case:
    """One cell of a simulated device.

    The copy of `side`² elements by `kernel`: block_eq_partition with `num_partition` blocks, or
    copy2d_coalesced with a block for each tile (`num_partition` 0). `commands` load or store one
    element. `variant` names the machine. A tile of block_eq_partition has rows of `row_bytes`,
    0: as wide as a partition; `pad_bytes` are between the array's rows.
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
