"""What launches ask of a device: lines and sectors of a block, instructions, and of which cells."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from conftest import ROOT
from described import FACTS, cells, code_paths, described, part, workloads
from gpushmoo.core.code_path import CodePath
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.schema import GROUP
from gpushmoo.core.space import Cell, Problem
from gpushmoo.model import launches
from gpushmoo.model.launches import (
    COLUMNS,
    POSITIONS,
    Asked,
    BlockTraffic,
    Describer,
    block_traffic,
    device_facts,
    wavefronts,
)
from gpushmoo.storage.dataset import as_frame
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.contract import Workload, tile_elements
from gpushmoo.workloads.loader import load_kernel
from hypothesis import given
from hypothesis import strategies as st
from synthetic import GPU, write_shard

LARGE = Problem(4096, 4096)
NOTHING = Asked()


@cache
def workload_of(kernel: str) -> Workload:
    return load_kernel(ROOT / "kernels" / kernel).workload


def cell_of(
    kernel: str, variant: str, dtype: str = "float", problem: Problem = LARGE, **axes: int
) -> Cell:
    return Cell(kernel, dtype, variant, problem, tuple(sorted(axes.items())))


def traffic(cell: Cell) -> BlockTraffic:
    found = block_traffic(workload_of(cell.kernel), cell, {})
    assert found is not None
    return found


def of_block(x: int, y: int, dtype: str) -> BlockTraffic:
    """Of blocks of a copy that takes an element a thread."""
    return traffic(cell_of("copy2d_coalesced", "element", dtype, block_x=x, block_y=y))


def four(asked: Asked) -> tuple[float, float, float, float]:
    return asked.lines, asked.warp_sectors, asked.block_sectors, asked.part_bytes


@pytest.mark.parametrize(
    ("x", "y", "dtype", "asked"),
    [
        # A row of 384 bytes, 3 lines, each asked for by all 3 instructions.
        (32, 8, "float3", (8 * 9, 8 * 12, 8 * 12, 0)),
        # 4 rows of a sector each.
        (8, 8, "float", (8, 8, 8, 0)),
        # 96 bytes a row, where every other block's cross the end of a line.
        (8, 8, "float3", (3 * 8 * 1.5, 24, 24, 0)),
        # Half a sector a row.
        (4, 64, "float", (64, 64, 64, 64 * 16)),
        # 48 bytes, a sector and a half; 2 of 8 blocks cross the end of a line.
        (4, 64, "float3", (3 * 64 * 1.25, 128, 128, 64 * 16)),
    ],
)
def test_blocks_of_an_array_by_hand(x: int, y: int, dtype: str, asked: tuple[float, ...]) -> None:
    found = of_block(x, y, dtype)
    assert four(found.load) == asked
    assert found.store == found.load
    assert (found.image_loads, found.image_stores) == (False, False)


def test_loads_of_stencils_and_textures() -> None:
    """Blocks of 32 × 4, of which one of eight is at the left and upper edge."""
    asked = {v: traffic(cell_of("stencil5", v, block_x=32, block_y=4)) for v in ("global", "tiled")}
    assert four(asked["tiled"].load) == four(asked["tiled"].store) == (4, 16, 16, 0)
    load = asked["global"].load
    assert load.bytes == 4 * asked["tiled"].load.bytes
    # A warp and instruction: 1 line above, 1 below, 2 on the left (but 1 at the edge), 2 on the
    # right.
    assert load.lines == 4 * (1 + 1 + 2 + 2) - 4 / 8
    # A warp in all: 1 above, 1 below, its own, 1 on either side; the edge's have none on the left,
    # and the first of them has its own for that above.
    assert load.first_lines == 4 * 5 - 5 / 8
    # A row or column more on each side, without corners; none above and on the left at the edge.
    assert load.distinct_bytes == 4 * (34 * 6 - 4 - (32 + 4) / 8)
    found = traffic(cell_of("tex2d_sum", "block-point-clamp", block_x=16, block_y=16))
    assert four(found.load) == (16, 32, 32, 0)
    assert found.store == NOTHING
    assert (found.image_loads, found.image_stores) == (True, False)


@pytest.mark.parametrize(
    ("mapping", "x", "y", "dtype", "asked"),
    [
        # A warp's two rows fill their sectors of 16 bytes by 2 rows.
        ("block", 16, 16, "float", (16, 32, 32)),
        ("block", 16, 16, "float4", (64, 128, 128)),
        # A warp is one row, half of each sector; another warp of the block has the other half.
        ("block", 32, 4, "float", (16, 32, 16)),
        ("block", 32, 4, "float4", (64, 128, 64)),
        ("block", 8, 8, "float", (2, 8, 8)),
        # Along a row nobody fills the other half.
        ("row", 16, 16, "float", (32, 64, 64)),
        ("row", 32, 4, "float", (16, 32, 32)),
        # Squares of 8 × 8, half a square a warp.
        ("tile8", 32, 4, "float", (4, 16, 16)),
        ("tile8", 16, 16, "float4", (32, 128, 128)),
    ],
)
def test_blocks_of_an_image_by_hand(
    mapping: str, x: int, y: int, dtype: str, asked: tuple[int, int, int]
) -> None:
    found = traffic(cell_of("surf2d_memset", f"{mapping}-one", dtype, block_x=x, block_y=y))
    half = found.store.bytes if asked[1] * 32 > found.store.bytes else 0
    assert four(found.store) == (*asked, half)
    assert found.load == NOTHING
    assert (found.image_loads, found.image_stores) == (False, True)


def one_by_one(elements: Sequence[npt.NDArray[np.int64]], itemsize: int) -> tuple[int, ...]:
    """Lines, lines once a warp, sectors of warps and of the block, each byte for itself."""
    piece = itemsize if itemsize & (itemsize - 1) == 0 else 4
    lines, first, sectors = set(), set(), set()
    for instruction, taken in enumerate(elements):
        for thread, (column, row) in enumerate(taken.tolist()):
            for byte in range(column * itemsize, (column + 1) * itemsize):
                part = (instruction, byte % itemsize // piece)
                lines.add((thread // 32, part, row, byte // 128))
                first.add((thread // 32, row, byte // 128))
                sectors.add((thread // 32, row, byte // 32))
    of_block = {sector[1:] for sector in sectors}
    return len(lines), len(first), len(sectors), len(of_block)


@given(
    st.integers(1, 40),
    st.integers(1, 8),
    st.sampled_from(["float", "double", "float3"]),
    st.sampled_from([1, 10]),
)
def test_blocks_are_counted_as_one_by_one(x: int, y: int, dtype: str, blocks: int) -> None:
    """Of an array that is one block wide all begin at its left edge, of another where they may."""
    problem = Problem(10 * y, blocks * x)
    cell = cell_of("copy2d_coalesced", "element", dtype, problem, block_x=x, block_y=y)
    load = traffic(cell).load
    places = [(i % max(1, blocks - 1), j) for i, j in POSITIONS]
    itemsize = DTYPES[dtype].itemsize
    counted = [one_by_one([tile_elements((x, y), place)], itemsize) for place in places]
    found = load.lines, load.first_lines, load.warp_sectors, load.block_sectors
    assert found == tuple(np.mean(counted, axis=0))


KEY = ("block_eq_partition", "float", "exact", "copy_exact")


def asked(cell: Cell, path: CodePath | None = None, resident: int = 4) -> Mapping[str, float]:
    """What `cell` asks, of a kernel whose machine code is `path`."""
    codes = {key: path or own for key, own in code_paths().items()}
    told = Describer(workloads(), codes, FACTS).launch(cell, resident, 20)
    assert not isinstance(told, str), told
    return told


def of_kernel(cell: Cell, path: CodePath) -> Mapping[str, float]:
    """What a cell of any of the project's kernels asks."""
    workload = workload_of(cell.kernel)
    key = cell.kernel, cell.dtype, workload.version(cell).name, workload.launch(cell).entry
    told = Describer({cell.kernel: workload}, {key: path}, FACTS).launch(cell, 4, 20)
    assert not isinstance(told, str), told
    return told


def partitions(num: int, width: int = 64 * 40, height: int = 8) -> Cell:
    """Persistent blocks that share out width / 64 tiles of 8 rows."""
    params = (("num_partition", num),)
    return Cell("block_eq_partition", "float", "exact", Problem(height, width), params)


def test_blocks_take_all_bytes_and_no_more() -> None:
    table = described()
    moved = table[["bytes_read", "bytes_written"]].max(axis=1)
    taken = table["blocks"] * table["block_bytes"]
    persistent = table["persistent"] > 0
    tile = 4 * 512
    assert np.all(taken[~persistent] == moved[~persistent])
    # The one that takes most speaks for all persistent blocks.
    assert np.all(taken[persistent] >= moved[persistent])
    assert np.all((taken - moved)[persistent] < (table["blocks"] * tile)[persistent])


def test_what_is_told_of_a_launch() -> None:
    like = next(c for c in cells() if c.kernel == "global_copy" and c.cache_state == "flushed")
    axes = (("block_x", 512), ("passes", 4), ("unroll", 8))
    cell = replace(like, params=axes, problem=Problem(2048, 2048))
    told = asked(cell, resident=3)
    assert (told["blocks"], told["warps"], told["resident"]) == (256, 16, 3)
    assert (told["turns"], told["waits"], told["loads_a_wait"]) == (4, 4, 8)
    assert (told["load_lines"], told["store_lines"]) == (16 * 32, 16 * 32)
    assert (told["bytes_read"], told["bytes_written"]) == (2**24, 2**24)
    assert (told["in_a_sample"], told["flushed"]) == (1, 1)
    warm = asked(replace(cell, cache_state="warm"), resident=3)
    assert (warm["in_a_sample"], warm["flushed"]) == (20, 0)
    assert set(told) == set(COLUMNS)
    plain = CodePath(part(25), part(20, 1, 1, 1))
    assert [asked(partitions(n), plain)["turns"] for n in (1, 3, 39, 40, 41)] == [40, 14, 2, 1, 1]
    workload = load_kernel(ROOT / "kernels" / "gather_stride").workload
    axes = (("stride", 2), ("threads", 128))
    cell = Cell(workload.name, "float", workload.variants[0], Problem(64, 64), axes)
    key = cell.kernel, cell.dtype, workload.version(cell).name, workload.launch(cell).entry
    codes = {key: CodePath(part(20, 1, 1, 1), part(0))}
    told = Describer({workload.name: workload}, codes, FACTS).launch(cell, 4, 20)
    assert told == "its workload.py does not declare the elements that a thread accesses"


@pytest.mark.parametrize(
    ("pitch", "itemsize", "served"),
    [
        *((0, 4, 1), (1, 4, 1), (2, 4, 2), (32, 4, 32), (33, 4, 1), (48, 4, 16)),
        *((0, 8, 2), (1, 8, 2), (32, 8, 32), (33, 8, 2)),
        *((0, 16, 4), (1, 16, 4), (32, 16, 32)),
    ],
)
def test_banks_serve_different_words_one_after_the_other(
    pitch: int, itemsize: int, served: int
) -> None:
    warp = pitch * np.arange(32)
    assert wavefronts(warp, itemsize) == served
    assert wavefronts(np.concatenate([warp, warp[:16]]), itemsize) <= 2 * served
    assert wavefronts(np.tile(warp, 3), itemsize) == 3 * served
    assert wavefronts(np.arange(32), 12) == 3  # three words each, 12 bytes apart: no conflict


def test_a_block_with_a_tile_and_one_with_a_tree() -> None:
    tile = replace(part(40, 1, 1, 1), shared_waits=1)
    path = CodePath(replace(part(20), barriers=1), tile, around=part(10))
    for pad, served in ((0, 2 + 16), (1, 2 + 2)):
        axes = {"TILE": 32, "ROWS": 8, "PAD": pad, "block_x": 16}
        told = of_kernel(cell_of("transpose", "tile", **axes), path)
        # 16 turns, of 2 warps that take half of two rows.
        assert (told["turns"], told["warps"], told["barriers"]) == (16, 2, 1)
        assert told["shared_waits"] == 16
        assert told["instructions"] == 20 + 16 * 40 + 7 * 10
        assert told["turn_instructions"] == 40 + 7 * 10 / 16
        assert told["shared_waves"] == 16 * 2 * served
    step = replace(part(13), barriers=1, shared_waits=1)
    path = CodePath(part(66, 0, 1), part(11, 1, 0, 1), step)
    sums = cell_of("tex2d_sum", "block-point-clamp-reduced", block_x=24, block_y=8)
    told = of_kernel(replace(sums, params=(*sums.params, ("waves", 0))), path)
    # 192 threads add up in 8 steps.
    assert (told["barriers"], told["shared_waits"]) == (8, 8)
    assert told["instructions"] == 66 + 11 + 8 * 13


@pytest.mark.parametrize(
    ("rows", "width", "lines", "sectors"),
    [
        # 8 rows of 32 threads, which store one pass after the other to the tile's 32 columns.
        (4, 32, 32, 32 * 32 * 4 / 32),
        # The inner loop goes along half of the columns.
        (4, 16, 32, 32 * 32 * 4 / 32),
        # One pass.
        (1, 32, 0, 0),
    ],
)
def test_lines_that_a_naive_transpose_stores_to_again_and_again(
    rows: int, width: int, lines: float, sectors: float
) -> None:
    path = CodePath(part(20), part(40, 1, 1, 1))
    axes = {"TILE": 32, "ROWS": rows, "PAD": 0, "block_x": width}
    told = of_kernel(cell_of("transpose", "naive", **axes), path)
    assert (told["open_lines"], told["open_sectors"]) == (lines, sectors)
    # Along a row, no sector is stored in parts.
    told = of_kernel(cell_of("transpose", "tile", **axes), path)
    assert told["open_sectors"] == 0


def test_persistent_blocks_do_not_come_back_to_their_lines() -> None:
    path = CodePath(part(20), part(10, stores=1))
    cell = cell_of("surf2d_memset", "block-one-plain", block_x=4, block_y=8, waves=1)
    told = of_kernel(cell, path)
    assert told["part_bytes"] > 0
    assert told["turns"] > 1
    assert (told["open_lines"], told["open_sectors"]) == (0, 0)


@pytest.mark.parametrize(
    ("path", "turns", "waits", "instructions"),
    [
        # 10 passes, one a turn.
        (CodePath(part(25), part(20, 1, 1, 1)), 10, 10, 25 + 10 * 20),
        # 4 a turn: two turns, and the two that are left outside of the loop.
        (CodePath(part(40, 2, 2, 1), part(60, 4, 4, 1)), 2, 2 + 1, 40 + 2 * 60),
        # Of four outside of the loop two are not run.
        (CodePath(part(80, 4, 4, 2), part(60, 4, 4, 1)), 2, 2 + 1, 80 - 2 * 15 + 2 * 60),
        # The rest in the same loop, as if it were a part of a turn.
        (CodePath(part(25), part(60, 4, 4, 1)), 2, 2 + 1, 25 + 2 * 60 + 2 * 15),
        # No loop: what the code says, however many passes there are.
        (CodePath(part(30, 1, 1, 1), part(0)), 0, 1, 30),
    ],
    ids=["plain", "unrolled", "half of a rest", "unrolled without a rest", "no loop"],
)
def test_turns_and_waits(path: CodePath, turns: int, waits: int, instructions: int) -> None:
    told = asked(partitions(4), path)
    assert (told["turns"], told["waits"]) == (turns, waits)
    assert told["instructions"] == pytest.approx(instructions)


def frame(path: Path, kernel: str, **options: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    table, provenance = read_shard(write_shard(path, kernel, "float", **options))
    return as_frame(table).copy(), provenance


COUNTS = {"num_partition": [1, 4]}


def test_only_verified_cells_are_told_by_the_paths_of_their_shards(tmp_path: Path) -> None:
    mine, provenance = frame(tmp_path / "a.parquet", KEY[0], axes=COUNTS, variants=("exact",))
    mine.loc[0, "status"] = "wrong_result"
    describer = Describer(workloads(), code_paths(), device_facts([provenance]))
    table, why = describer.table(mine)
    assert why == {}
    assert table["cell_key"].tolist() == mine["cell_key"].tolist()[1:]
    assert table["measured_s"].tolist() == mine["median_s"].tolist()[1:]
    assert list(table.columns) == [*GROUP, "cell_key", "measured_s", *COLUMNS]
    assert describer.device.clock_hz == GPU.core_clock_mhz * 1e6
    _, shard = frame(tmp_path / "a.parquet", KEY[0], axes=COUNTS, variants=("exact",))
    path = code_paths()[KEY]
    entries = [{"entry": "copy_exact", "path": asdict(path)}, {"entry": "old", "path": None}]
    newer = shard | {"machine_code": {"variants": {"exact": {"entries": entries}, "bad": {}}}}
    assert launches.code_paths([shard, newer]) == {KEY: path}


@pytest.mark.parametrize(
    ("change", "codes", "said"),
    [
        ({}, {}, "its machine code was not read"),
        (
            {"resident_blocks": None},
            code_paths(),
            "its device does not report how many blocks a multiprocessor holds",
        ),
        ({"kernel": "no_such"}, code_paths(), "its time includes the host"),
        ({"kernel": "dot_streamed"}, code_paths(), "its time includes the host"),
        ({"kernel": "dot_host"}, code_paths(), "its time includes the host"),
    ],
    ids=["no machine code", "no occupancy", "unknown", "host-fed", "on the host"],
)
def test_kernels_of_which_nothing_can_be_said_are_left_out_and_it_is_said_why(
    tmp_path: Path, change: Mapping[str, Any], codes: launches.Codes, said: str
) -> None:
    mine, _ = frame(tmp_path / "a.parquet", KEY[0], axes=COUNTS, variants=("exact",))
    mine = mine.assign(**change)
    others = {n: load_kernel(ROOT / "kernels" / n).workload for n in ("dot_streamed", "dot_host")}
    table, why = Describer({**workloads(), **others}, codes, FACTS).table(mine)
    assert table.empty
    assert why == {mine["kernel"].iloc[0]: said}
    assert list(table.columns) == [*GROUP, "cell_key", "measured_s", *COLUMNS]
