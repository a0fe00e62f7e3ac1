"""The memory of the study: coalescing of a half-warp, partitions of tiles, reads of one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from .simulation.machine import (
    Banks,
    Machine,
    MachineError,
    Tiling,
    exact,
    partition_of,
)
from .simulation.reference import TileCopy, simulate

WORD_BYTES = (4, 8, 16)
SEGMENT_BYTES = 128
SHORTEST_BYTES = 32
HALF_WARP = 16


@dataclass(frozen=True)
class Transaction:
    """One transfer: `n_bytes` (32, 64 or 128) from `address`, a multiple of `n_bytes`."""

    address: int
    n_bytes: int


@dataclass(frozen=True)
class Load:
    """One load instruction of a half-warp: thread i reads `word_bytes` from `addresses[i]`."""

    word_bytes: int
    addresses: tuple[int, ...]
    transactions: tuple[Transaction, ...]


def transactions(addresses: Sequence[int], word_bytes: int) -> tuple[Transaction, ...]:
    """The transactions that serve one word of `word_bytes` at each thread's address.

    `addresses[i]` is the byte address of active thread i, a multiple of the word's 4, 8 or 16.
    Segments are served in the order of their lowest thread.
    """
    by_segment: dict[int, list[int]] = {}
    for address in addresses:
        by_segment.setdefault(address // SEGMENT_BYTES, []).append(address)
    return tuple(_shortest(min(s), max(s) + word_bytes - 1) for s in by_segment.values())


def whole_accesses(itemsize: int, threads: int = HALF_WARP) -> tuple[Transaction, ...]:
    """Transactions if consecutive elements of any size were read by one access, as in the document.

    The access covers `threads` × `itemsize` bytes; each 128-byte segment of them takes one
    transaction.
    """
    end = threads * itemsize
    firsts = range(0, end, SEGMENT_BYTES)
    return tuple(_shortest(first, min(end, first + SEGMENT_BYTES) - 1) for first in firsts)


def compiled_loads(itemsize: int, threads: int = HALF_WARP) -> tuple[Load, ...]:
    """The loads that a compiler emits for consecutive elements, one element for each thread.

    A load's word may be no longer than the element's alignment, so 12 bytes of float3, a struct of
    three floats, become three loads of 4 bytes at a stride of 12.
    """
    word = next(w for w in reversed(WORD_BYTES) if itemsize % w == 0)
    loads = []
    for offset in range(0, itemsize, word):
        addresses = tuple(t * itemsize + offset for t in range(threads))
        loads.append(Load(word, addresses, transactions(addresses, word)))
    return tuple(loads)


def _shortest(first: int, last: int) -> Transaction:
    """The transaction of bytes `first` to `last` of one segment: halved while one half is idle."""
    n_bytes = SEGMENT_BYTES
    while n_bytes > SHORTEST_BYTES and first // (n_bytes // 2) == last // (n_bytes // 2):
        n_bytes //= 2
    return Transaction(first // n_bytes * n_bytes, n_bytes)


@dataclass(frozen=True)
class Stretch:
    """Consecutive bytes of one array row in one partition; `start` counts from the row's begin."""

    start: int
    n_bytes: int
    partition: int


@dataclass(frozen=True)
class SmLoad:
    """The blocks of one SM in the order in which it gets them; `tiles[i]` are those of block i."""

    sm: int
    blocks: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]

    @property
    def n_tiles(self) -> int:
        """Tiles that this multiprocessor copies with all of its blocks."""
        return sum(len(tiles) for tiles in self.tiles)


def row_stretches(machine: Machine, tiling: Tiling, row: int) -> tuple[Stretch, ...]:
    """One row of the array (counted from 0), cut where its partition changes."""
    row_bytes = tiling.width * tiling.itemsize
    return _stretches(machine, row * row_bytes, 0, row_bytes)


def tile_row_stretches(
    machine: Machine, tiling: Tiling, tile: int, row: int = 0
) -> tuple[Stretch, ...]:
    """Row `row` of a tile (from the tile's upper edge), cut where its partition changes.

    `start` counts from the begin of the array's row.
    """
    tile_y, tile_x = divmod(tile, tiling.tiles_x)
    width = tiling.tile_width * tiling.itemsize
    y = tile_y * tiling.tile_height + row
    return _stretches(machine, y * tiling.width * tiling.itemsize, tile_x * width, width)


def tile_partitions(machine: Machine, tiling: Tiling, tile: int) -> tuple[int, ...]:
    """All partitions that hold bytes of a tile, in ascending order."""
    rows = range(tiling.tile_height)
    return tuple(
        sorted({s.partition for r in rows for s in tile_row_stretches(machine, tiling, tile, r)})
    )


def partitions_by_step(
    machine: Machine, tiling: Tiling, num_partition: int
) -> tuple[frozenset[int], ...]:
    """For each step, the partitions that hold bytes of the tiles that blocks copy in it.

    Block b takes tiles b, b + `num_partition`, …: a step is `num_partition` tiles, one of each.
    """
    tiles = range(tiling.n_tiles)
    steps = (tiles[first : first + num_partition] for first in tiles[::num_partition])
    return tuple(
        frozenset(p for tile in step for p in tile_partitions(machine, tiling, tile))
        for step in steps
    )


def assign_blocks(machine: Machine, tiling: Tiling, num_partition: int) -> tuple[SmLoad, ...]:
    """The blocks and tiles of every SM, by SM, where the event simulation places them."""
    half_warps = tiling.threads // machine.half_warp
    load = TileCopy(tiling.n_tiles, half_warps, machine.half_warp * tiling.itemsize)
    sms = simulate(machine, load, num_partition).sm_of_block
    blocks = [tuple(b for b, of in enumerate(sms) if of == sm) for sm in range(machine.n_sm)]
    tiles = range(tiling.n_tiles)
    return tuple(
        SmLoad(sm, own, tuple(tuple(tiles[b::num_partition]) for b in own))
        for sm, own in enumerate(blocks)
    )


def critical_sms(loads: tuple[SmLoad, ...]) -> tuple[SmLoad, ...]:
    """The SMs with the most tiles: the run lasts as long as they do."""
    most = max(load.n_tiles for load in loads)
    return tuple(load for load in loads if load.n_tiles == most)


def _stretches(machine: Machine, row_start: int, start: int, n_bytes: int) -> tuple[Stretch, ...]:
    """`n_bytes` from byte `start` of the row that begins at address `row_start`, in stretches."""
    stretches = []
    end = start + n_bytes
    while start < end:
        address = row_start + start
        size = min(machine.partition_bytes - address % machine.partition_bytes, end - start)
        stretches.append(Stretch(start, size, partition_of(machine, address)))
        start += size
    return tuple(stretches)


class Stage(Enum):
    """What a part of a memory device is doing."""

    COMMAND = "command"
    ROW_ACCESS = "row access"
    COLUMN_READ = "column read"
    DATA_RESTORE = "data restore"
    PRECHARGE = "precharge"
    DATA_BURST = "data burst"


@dataclass(frozen=True)
class StageSpan:
    """`stage` of read `read` (counted from 0), from `start` to `end` in memory cycles."""

    read: int
    stage: Stage
    start: Fraction
    end: Fraction

    @property
    def cycles(self) -> Fraction:
        """How long it lasts, memory cycles."""
        return self.end - self.start


def banks_of(machine: Machine) -> Banks:
    """The machine's banks; MachineError where its file says nothing of them."""
    if machine.banks is None:
        raise MachineError(
            f"banks is missing: the file of {machine.name} says nothing of the memory's timing."
        )
    return machine.banks


def burst_beats(machine: Machine) -> Fraction:
    """Transfers over a partition's part of the bus in one burst: the burst length."""
    return Fraction(banks_of(machine).burst_bytes * machine.partitions, machine.bus_bytes)


def burst_duration(machine: Machine) -> Fraction:
    """Memory cycles for which one burst holds a partition's part of the bus."""
    per_cycle = exact(machine.memory_data_rate_mhz) / exact(machine.memory_clock_mhz)
    return burst_beats(machine) / per_cycle


def read_cycle(machine: Machine) -> tuple[StageSpan, ...]:
    """One read from a closed row until the bank is ready for another row, from cycle 0.

    The row's data reach the sense amplifiers in tRCD and are restored in the cells until tRAS,
    while the column is read in tCL; precharge then takes tRP.
    """
    banks = banks_of(machine)
    opened = Fraction(banks.t_rcd_cycles)
    restored = Fraction(machine.t_ras_cycles)
    at_pins = opened + banks.t_cl_cycles
    return (
        StageSpan(0, Stage.ROW_ACCESS, Fraction(0), opened),
        StageSpan(0, Stage.DATA_RESTORE, opened, restored),
        StageSpan(0, Stage.COLUMN_READ, opened, at_pins),
        StageSpan(0, Stage.DATA_BURST, at_pins, at_pins + burst_duration(machine)),
        StageSpan(0, Stage.PRECHARGE, restored, restored + machine.t_rp_cycles),
    )


def pipelined_reads(machine: Machine, reads: int) -> tuple[StageSpan, ...]:
    """Return `reads` reads, each from another closed bank, through the four parts of the device.

    The command coincides with the first cycle of tRCD. Rows open tRRD apart, or a burst apart if
    that is longer.
    """
    banks = banks_of(machine)
    interval = max(banks.t_rrd_cycles, math.ceil(burst_duration(machine)))
    spans = []
    for read in range(reads):
        times = [Fraction(read * interval)]
        column = Fraction(banks.t_rcd_cycles) + times[0]
        at_pins = column + banks.t_cl_cycles
        times += [times[0] + 1, column, at_pins, at_pins + burst_duration(machine)]
        stages = (Stage.COMMAND, Stage.ROW_ACCESS, Stage.COLUMN_READ, Stage.DATA_BURST)
        spans += [
            StageSpan(read, stage, start, end)
            for stage, start, end in zip(stages, times, times[1:], strict=False)
        ]
    return tuple(spans)


def consecutive_reads(machine: Machine, reads: int) -> tuple[StageSpan, ...]:
    """`reads` reads of one open row whose commands follow one another burst by burst.

    Commands begin on whole cycles, so bursts are without a gap where a burst lasts whole cycles.
    """
    banks = banks_of(machine)
    interval = math.ceil(burst_duration(machine))
    spans = []
    for read in range(reads):
        command = Fraction(read * interval)
        at_pins = command + banks.t_cl_cycles
        spans.append(StageSpan(read, Stage.COLUMN_READ, command, at_pins))
        spans.append(StageSpan(read, Stage.DATA_BURST, at_pins, at_pins + burst_duration(machine)))
    return tuple(spans)
