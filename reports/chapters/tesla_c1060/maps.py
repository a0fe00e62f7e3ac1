"""Which partitions tiles lie in, in which order blocks take tiles, which SM gets which blocks."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from .simulation.machine import Machine, MachineError
from .simulation.tiling import Tiling, partition_of


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
