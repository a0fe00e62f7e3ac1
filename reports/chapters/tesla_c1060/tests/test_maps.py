"""Partitions of tiles, the order in which blocks take them, and the SMs of the blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tesla_c1060.memory import (
    assign_blocks,
    critical_sms,
    execution_order,
    partitions_by_step,
    row_stretches,
    tile_partitions,
    tile_row_stretches,
)
from tesla_c1060.simulation.machine import Machine, MachineError, Tiling, partition_of
from tesla_c1060.simulation.reference import TileCopy, simulate
from test_machine import C1060

SEVEN = replace(C1060, partitions=7, bus_bytes=56)
DOUBLES = Tiling.partition_wide(C1060, 256, 8)

machines = st.sampled_from([C1060, SEVEN])


def by_bytes(machine: Machine, tiling: Tiling, tile: int, row: int) -> list[int]:
    """The partition of each byte of a tile's row."""
    tile_y, tile_x = divmod(tile, tiling.tiles_x)
    y = tile_y * tiling.tile_height + row
    start = (y * tiling.width + tile_x * tiling.tile_width) * tiling.itemsize
    return [partition_of(machine, start + b) for b in range(tiling.tile_width * tiling.itemsize)]


@given(machines, st.sampled_from([4, 8, 12]), st.integers(0, 63), st.integers(0, 31))
def test_a_tile_row_is_cut_as_its_bytes_lie(
    machine: Machine, itemsize: int, tile: int, row: int
) -> None:
    tiling = Tiling.square_tiles(256, itemsize)
    stretches = tile_row_stretches(machine, tiling, tile, row)
    spelled = [s.partition for s in stretches for _ in range(s.n_bytes)]
    assert spelled == by_bytes(machine, tiling, tile, row)
    ends = [s.start + s.n_bytes for s in stretches]
    assert [s.start for s in stretches[1:]] == ends[:-1]
    touched = {p for r in range(tiling.tile_height) for p in by_bytes(machine, tiling, tile, r)}
    assert tile_partitions(machine, tiling, tile) == tuple(sorted(touched))


@given(machines, st.sampled_from([4, 8, 12]), st.integers(0, 255))
def test_an_array_row_is_whole_and_its_neighbours_differ(
    machine: Machine, itemsize: int, row: int
) -> None:
    tiling = Tiling.square_tiles(256, itemsize)
    stretches = row_stretches(machine, tiling, row)
    assert sum(s.n_bytes for s in stretches) == 256 * itemsize
    for one, two in pairwise(stretches):
        assert two.partition == (one.partition + 1) % machine.partitions


def test_tiles_of_the_document() -> None:
    """A double tile lies in one partition; the rows of a float tile alternate between two."""
    found = [tile_partitions(C1060, Tiling.square_tiles(256, size), 2) for size in (8, 4, 12)]
    assert found == [(2,), (1, 5), (0, 3, 4, 7)]


@given(st.integers(1, 200))
def test_every_tile_has_one_turn(num_partition: int) -> None:
    turns = execution_order(DOUBLES, num_partition)
    assert [t.tile for t in turns] == list(range(128))
    assert len({(t.block, t.step) for t in turns}) == 128
    for turn in turns:
        assert turn.tile == turn.step * num_partition + turn.block
        assert turn.block < num_partition


@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
def test_partitions_in_use_at_once(blocks: int) -> None:
    used = partitions_by_step(C1060, DOUBLES, blocks)
    assert [len(partitions) for partitions in used] == [blocks] * (128 // blocks)
    # 8 stretches of a row do not come round with 7 partitions: each tile lies in all of them.
    assert {len(p) for p in partitions_by_step(SEVEN, DOUBLES, blocks)} == {7}


@pytest.mark.parametrize(
    ("blocks", "tiles", "sms"), [(32, 8, [0, 1]), (30, 5, list(range(8))), (16, 8, list(range(16)))]
)
def test_critical_paths_of_the_document(blocks: int, tiles: int, sms: list[int]) -> None:
    critical = critical_sms(assign_blocks(C1060, DOUBLES, blocks))
    assert [load.sm for load in critical] == sms
    assert {load.n_tiles for load in critical} == {tiles}


def test_blocks_of_the_first_sm() -> None:
    first = assign_blocks(C1060, DOUBLES, 32)[0]
    assert first.blocks == (0, 30)
    assert first.tiles == ((0, 32, 64, 96), (30, 62, 94, 126))


@given(st.integers(1, 200), st.sampled_from([5, 24, 30]), st.sampled_from([512, 1024]))
def test_all_tiles_are_assigned_once(blocks: int, n_sm: int, threads: int) -> None:
    machine = replace(C1060, n_sm=n_sm, max_threads_per_sm=threads)
    loads = assign_blocks(machine, DOUBLES, blocks)
    assert [load.sm for load in loads] == list(range(n_sm))
    assert sorted(t for load in loads for own in load.tiles for t in own) == list(range(128))
    assert sorted(b for load in loads for b in load.blocks) == list(range(min(blocks, 128)))


@pytest.mark.parametrize("blocks", [1, 8, 30, 32, 60])
def test_blocks_that_fit_go_where_the_simulation_places_them(blocks: int) -> None:
    run = simulate(C1060, TileCopy.square(C1060, 256, 8), blocks)
    loads = assign_blocks(C1060, DOUBLES, blocks)
    assert tuple(load.n_tiles for load in loads) == run.tiles_per_sm
    for load in loads:
        assert {run.sm_of_block[block] for block in load.blocks} <= {load.sm}


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(MachineError, match="row 256"):
        row_stretches(C1060, DOUBLES, 256)
    with pytest.raises(MachineError, match="row 16"):
        tile_row_stretches(C1060, DOUBLES, 0, 16)
    with pytest.raises(MachineError, match="num_partition"):
        execution_order(DOUBLES, 0)
    with pytest.raises(MachineError, match="512 threads does not fit"):
        assign_blocks(replace(C1060, max_threads_per_sm=256), DOUBLES, 1)
