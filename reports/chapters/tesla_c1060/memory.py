"""The memory of the study: coalescing of a half-warp, partitions of tiles, reads of one device."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from .simulation.machine import Banks, Machine, MachineError, Tiling, exact, partition_of

WORD_BYTES = (4, 8, 16)
SEGMENT_BYTES = 128
SHORTEST_BYTES = 32
HALF_WARP = 16


@dataclass(frozen=True)
class Transaction:
    """One transfer: `n_bytes` (32, 64 or 128) from `address`, a multiple of `n_bytes`.

    `threads` are the half-warp's threads with bytes in it, in ascending order.
    """

    address: int
    n_bytes: int
    threads: tuple[int, ...]


@dataclass(frozen=True)
class Load:
    """One load instruction of a half-warp: thread i reads `word_bytes` from `addresses[i]`."""

    word_bytes: int
    addresses: tuple[int, ...]
    transactions: tuple[Transaction, ...]


def transactions(addresses: Sequence[int], word_bytes: int) -> tuple[Transaction, ...]:
    """The transactions that serve one word of `word_bytes` at each thread's address.

    `addresses[i]` is the byte address of active thread i. Raises ValueError for no addresses, a
    word that is not of 4, 8 or 16 bytes, and addresses that are not multiples of the word.
    """
    if not addresses:
        raise ValueError("a half-warp needs at least one address.")
    if word_bytes not in WORD_BYTES:
        raise ValueError(f"a word has 4, 8 or 16 bytes, not {word_bytes}.")
    for thread, address in enumerate(addresses):
        if address < 0 or address % word_bytes:
            raise ValueError(
                f"address {address} of thread {thread} is no multiple of {word_bytes} bytes."
            )
    waiting = list(range(len(addresses)))
    issued = []
    while waiting:
        segment = addresses[waiting[0]] // SEGMENT_BYTES
        served = [t for t in waiting if addresses[t] // SEGMENT_BYTES == segment]
        waiting = [t for t in waiting if addresses[t] // SEGMENT_BYTES != segment]
        first = min(addresses[t] for t in served)
        last = max(addresses[t] for t in served) + word_bytes - 1
        issued.append(_shortest(first, last, served))
    return tuple(issued)


def whole_accesses(
    itemsize: int, first_byte: int = 0, threads: int = HALF_WARP
) -> tuple[Transaction, ...]:
    """Transactions if consecutive elements of any size were read by one access, as in the document.

    The access covers `threads` × `itemsize` bytes from `first_byte`; each 128-byte segment of them
    takes one transaction. A thread whose element lies across two segments is in both.
    """
    if itemsize < 1 or threads < 1 or first_byte < 0:
        raise ValueError(
            f"itemsize and threads must be at least 1 and first_byte at least 0, not {itemsize}, "
            f"{threads} and {first_byte}."
        )
    end = first_byte + threads * itemsize
    issued = []
    for segment in range(first_byte // SEGMENT_BYTES, (end - 1) // SEGMENT_BYTES + 1):
        first = max(first_byte, segment * SEGMENT_BYTES)
        last = min(end, (segment + 1) * SEGMENT_BYTES) - 1
        touching = range((first - first_byte) // itemsize, (last - first_byte) // itemsize + 1)
        issued.append(_shortest(first, last, list(touching)))
    return tuple(issued)


def compiled_loads(
    itemsize: int, first_byte: int = 0, threads: int = HALF_WARP
) -> tuple[Load, ...]:
    """The loads that a compiler emits for consecutive elements, one element for each thread.

    A load's word may be no longer than the element's alignment, so 12 bytes of float3, a struct of
    three floats, become three loads of 4 bytes at a stride of 12. Raises ValueError for elements
    whose size is no multiple of 4 bytes.
    """
    word = next((w for w in reversed(WORD_BYTES) if itemsize > 0 and itemsize % w == 0), None)
    if word is None:
        raise ValueError(f"elements must be of a multiple of 4 bytes, not of {itemsize}.")
    loads = []
    for offset in range(0, itemsize, word):
        addresses = tuple(first_byte + t * itemsize + offset for t in range(threads))
        loads.append(Load(word, addresses, transactions(addresses, word)))
    return tuple(loads)


def _shortest(first: int, last: int, threads: Sequence[int]) -> Transaction:
    """The transaction of bytes `first` to `last` of one segment: halved while one half is idle."""
    n_bytes = SEGMENT_BYTES
    while n_bytes > SHORTEST_BYTES and first // (n_bytes // 2) == last // (n_bytes // 2):
        n_bytes //= 2
    return Transaction(first // n_bytes * n_bytes, n_bytes, tuple(threads))


@dataclass(frozen=True)
class Stretch:
    """Consecutive bytes of one array row in one partition; `start` counts from the row's begin."""

    start: int
    n_bytes: int
    partition: int


@dataclass(frozen=True)
class Turn:
    """A tile's turn: `block` copies it as its `step`-th tile, counted from 0."""

    tile: int
    block: int
    step: int


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
    if not 0 <= row < tiling.height:
        raise MachineError(f"row {row} is not in an array of {tiling.height} rows.")
    return _stretches(machine, row * tiling.width * tiling.itemsize, 0, _row_bytes(tiling))


def tile_row_stretches(
    machine: Machine, tiling: Tiling, tile: int, row: int = 0
) -> tuple[Stretch, ...]:
    """Row `row` of a tile (from the tile's upper edge), cut where its partition changes.

    `start` counts from the begin of the array's row.
    """
    if not 0 <= row < tiling.tile_height:
        raise MachineError(f"row {row} is not in a tile of {tiling.tile_height} rows.")
    tile_y, tile_x = divmod(tile, tiling.tiles_x)
    width = tiling.tile_width * tiling.itemsize
    y = tile_y * tiling.tile_height + row
    return _stretches(machine, y * _row_bytes(tiling), tile_x * width, width)


def tile_partitions(machine: Machine, tiling: Tiling, tile: int) -> tuple[int, ...]:
    """All partitions that hold bytes of a tile, in ascending order."""
    rows = range(tiling.tile_height)
    return tuple(
        sorted({s.partition for r in rows for s in tile_row_stretches(machine, tiling, tile, r)})
    )


def execution_order(tiling: Tiling, num_partition: int) -> tuple[Turn, ...]:
    """The turn of every tile, by tile: block b takes tiles b, b + num_partition, …."""
    if num_partition < 1:
        raise MachineError(f"num_partition must be at least 1, not {num_partition}.")
    return tuple(
        Turn(tile, tile % num_partition, tile // num_partition) for tile in range(tiling.n_tiles)
    )


def partitions_by_step(
    machine: Machine, tiling: Tiling, num_partition: int
) -> tuple[frozenset[int], ...]:
    """For each step, the partitions that hold bytes of the tiles that blocks copy in it."""
    turns = execution_order(tiling, num_partition)
    used: list[set[int]] = [set() for _ in range(turns[-1].step + 1)]
    for turn in turns:
        used[turn.step].update(tile_partitions(machine, tiling, turn.tile))
    return tuple(map(frozenset, used))


def assign_blocks(machine: Machine, tiling: Tiling, num_partition: int) -> tuple[SmLoad, ...]:
    """The blocks and tiles of every SM, by SM.

    Blocks go to the SMs in turn. Those that find every SM full wait for the first block to end,
    where a block is taken to last as long as it has tiles.
    """
    slots = machine.max_threads_per_sm // tiling.threads
    if not slots:
        raise MachineError(
            f"a block of {tiling.threads} threads does not fit an SM of "
            f"{machine.max_threads_per_sm}."
        )
    tiles: list[list[int]] = [[] for _ in range(min(num_partition, tiling.n_tiles))]
    for turn in execution_order(tiling, num_partition):
        tiles[turn.block].append(turn.tile)
    blocks: list[list[int]] = [[] for _ in range(machine.n_sm)]
    free = [(0, slot, sm) for slot in range(slots) for sm in range(machine.n_sm)]
    for block, members in enumerate(tiles):
        time, slot, sm = heapq.heappop(free)
        blocks[sm].append(block)
        heapq.heappush(free, (time + len(members), slot, sm))
    return tuple(
        SmLoad(sm, tuple(members), tuple(tuple(tiles[b]) for b in members))
        for sm, members in enumerate(blocks)
    )


def critical_sms(loads: tuple[SmLoad, ...]) -> tuple[SmLoad, ...]:
    """The SMs with the most tiles: the run lasts as long as they do."""
    most = max(load.n_tiles for load in loads)
    return tuple(load for load in loads if load.n_tiles == most)


def _row_bytes(tiling: Tiling) -> int:
    return tiling.width * tiling.itemsize


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
    """`reads` reads, each from another closed bank, through the four parts of the device.

    The command is taken as the first cycle of tRCD. Rows open tRRD apart, or a burst apart where
    that is longer. Raises MachineError for more reads than banks.
    """
    banks = banks_of(machine)
    if not 1 <= reads <= banks.count:
        raise MachineError(f"reads of different banks are 1 to {banks.count}, not {reads}.")
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
    if reads < 1:
        raise MachineError(f"there must be at least 1 read, not {reads}.")
    interval = math.ceil(burst_duration(machine))
    spans = []
    for read in range(reads):
        command = Fraction(read * interval)
        at_pins = command + banks.t_cl_cycles
        spans.append(StageSpan(read, Stage.COLUMN_READ, command, at_pins))
        spans.append(StageSpan(read, Stage.DATA_BURST, at_pins, at_pins + burst_duration(machine)))
    return tuple(spans)
