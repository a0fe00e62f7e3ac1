"""Arrays cut into tiles, and where the bytes of a tile lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tesla_c1060.simulation.machine import MachineError, Tiling, partition_of
from test_machine import C1060


def test_the_studys_tiles_are_one_partition_wide() -> None:
    floats = Tiling.partition_wide(C1060, 256, 4)
    doubles = Tiling.partition_wide(C1060, 256, 8)
    assert (floats.tile_width, floats.tile_height) == (64, 8)
    assert (doubles.tile_width, doubles.tile_height) == (32, 16)
    assert floats.n_tiles == doubles.n_tiles == 128
    assert floats.threads == doubles.threads == 512


def test_the_coalesced_copy_has_four_elements_of_a_thread() -> None:
    copy = Tiling.square_tiles(256, 12)
    assert (copy.n_tiles, copy.threads, copy.tile_bytes) == (64, 256, 32 * 32 * 12)
    assert copy.address(9, 1, 33) == ((32 + 8 + 1) * 256 + 32 + 1) * 12


@given(
    tiles=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    tile=st.tuples(st.integers(1, 6), st.integers(1, 4)),
    items=st.integers(1, 3),
    itemsize=st.sampled_from([4, 8, 12]),
)
def test_every_byte_is_of_one_thread_and_item(
    tiles: tuple[int, int], tile: tuple[int, int], items: int, itemsize: int
) -> None:
    height = tile[1] * items
    cut = Tiling(tiles[0] * tile[0], tiles[1] * height, itemsize, tile[0], height, items)
    addresses = [
        cut.address(t, item, thread)
        for t in range(cut.n_tiles)
        for item in range(items)
        for thread in range(cut.threads)
    ]
    assert sorted(addresses) == list(range(0, cut.n_bytes, itemsize))
    assert cut.n_tiles * cut.tile_bytes == cut.n_bytes


@pytest.mark.parametrize(
    ("tiling", "words"),
    [
        ((32, 32, 4, 64, 8), "tiles 64 elements wide do not divide an array 32 elements wide"),
        ((96, 32, 4, 64, 8), "tiles 64 elements wide do not divide an array 96 elements wide"),
        ((64, 4, 4, 64, 8), "tiles 8 elements high do not divide an array 4 elements high"),
        ((64, 8, 4, 0, 8), "tiles 0 elements wide"),
        ((64, 8, 4, 64, 8, 1, 63), "a pitch of 63 elements is less than a row of 64"),
        ((64, 8, 4, 64, 8, 3), "3 elements of a thread do not divide a tile 8 elements high"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(tiling: tuple[int, ...], words: str) -> None:
    with pytest.raises(MachineError, match=words):
        Tiling(*tiling)


def test_rows_apart_leave_what_is_between_them_alone() -> None:
    padded = Tiling.of_rows(64, 8, 128, 192)
    assert (padded.tile_width, padded.tile_height, padded.pitch_bytes) == (16, 32, 704)
    addresses = [padded.address(t, 0, n) for t in range(padded.n_tiles) for n in range(512)]
    assert sorted(addresses) == [704 * y + 8 * x for y in range(64) for x in range(64)]
    assert (padded.n_bytes, padded.extent_bytes) == (64 * 512, 64 * 704)
    for asked in ((64, 8, 4), (64, 8, 132), (64, 8, 128, 4), (64, 8, 8192)):
        with pytest.raises(MachineError, match="no tile of 512 elements of 8 bytes has rows of"):
            Tiling.of_rows(*asked)


def test_no_tile_of_float3_is_one_partition_wide() -> None:
    with pytest.raises(MachineError, match="no tile of 512 elements of 12 bytes is one partition"):
        Tiling.partition_wide(C1060, 256, 12)


def test_partitions_come_in_turn() -> None:
    assert [partition_of(C1060, 256 * i + 255) for i in range(10)] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
