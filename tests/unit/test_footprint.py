"""What blocks of threads touch: by hand, and as it must be for any shape."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from gpushmoo.analysis.models.footprint import (
    LAYOUTS,
    POSITIONS,
    WARP,
    BlockFootprint,
    Known,
    footprint,
)
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.loader import load_kernel
from hypothesis import given
from hypothesis import strategies as st

WORKLOADS = {n: load_kernel(ROOT / "kernels" / n).workload for n in ("surf2d_memset", "tex2d_sum")}
LARGE = Problem(4096, 4096)
MAPPINGS = ("block", "row", "tile8", "morton")


def cell_of(
    mapping: str, x: int, y: int, dtype: str = "float", problem: Problem = LARGE
) -> tuple[Any, Cell]:
    """A workload that has `dtype`, and its cell of one mapping and block shape."""
    workload = WORKLOADS["tex2d_sum" if dtype == "unorm8" else "surf2d_memset"]
    variant = workload.mappings[MAPPINGS.index(mapping)]
    assert variant.startswith(mapping)
    return workload, Cell(workload.name, dtype, variant, problem, (("block_x", x), ("block_y", y)))


def found(
    mapping: str, x: int, y: int, dtype: str = "float", problem: Problem = LARGE
) -> BlockFootprint:
    return footprint(*cell_of(mapping, x, y, dtype, problem))


def per_warp(touched: BlockFootprint, layout: str) -> tuple[float, float]:
    return touched.traffic[layout].sectors_per_warp, touched.traffic[layout].lines_per_warp


def per_block(touched: BlockFootprint, layout: str) -> tuple[float, float]:
    return touched.traffic[layout].sectors_per_block, touched.traffic[layout].lines_per_block


# By hand


@pytest.mark.parametrize(
    ("mapping", "x", "y", "dtype", "tiled", "rows"),
    [
        # A warp takes 64 bytes of 2 rows.
        ("block", 16, 16, "float", (4, 2), (4, 2)),
        ("block", 16, 16, "unorm8x4", (4, 2), (4, 2)),
        # 32 bytes of 4 rows, one line; the same in any order.
        ("block", 8, 8, "float", (4, 1), (4, 4)),
        ("tile8", 32, 1, "float", (4, 1), (4, 4)),
        ("morton", 32, 1, "float", (4, 1), (4, 4)),
        # 128 bytes of one row: half of each tiled sector, a quarter of each tiled line.
        ("block", 32, 4, "float", (8, 4), (4, 1)),
        ("row", 32, 1, "float", (8, 4), (4, 1)),
        ("row", 16, 16, "float", (8, 4), (4, 1)),
        # A texel of 16 bytes is one row of a sector, or half of a row's.
        ("block", 16, 16, "float4", (16, 8), (16, 4)),
        ("row", 32, 1, "float4", (32, 16), (16, 4)),
        ("tile8", 32, 1, "float4", (16, 4), (16, 4)),
        ("block", 16, 16, "float2", (8, 4), (8, 2)),
        # Texels of a byte: 16 bytes of 2 rows, which are half a sector of a row each.
        ("block", 16, 16, "unorm8", (1, 1), (2, 2)),
        ("row", 32, 1, "unorm8", (2, 1), (1, 1)),
    ],
)
def test_sectors_and_lines_of_a_warp(
    mapping: str,
    x: int,
    y: int,
    dtype: str,
    tiled: tuple[float, float],
    rows: tuple[float, float],
) -> None:
    touched = found(mapping, x, y, dtype)
    assert per_warp(touched, "tiled") == tiled
    assert per_warp(touched, "rows") == rows


def test_a_block_counts_what_its_warps_touch_once() -> None:
    touched = found("block", 16, 16)
    assert (touched.threads, touched.warps) == (256, 8)
    # 64 bytes × 16 rows; two warps share each tiled line.
    assert per_block(touched, "tiled") == (32, 8)
    assert per_block(touched, "rows") == (32, 16)
    # Four warps of one row each share sectors and lines in the tiled layout alone.
    assert per_block(found("block", 32, 4), "tiled") == (16, 4)
    assert per_block(found("block", 32, 4), "rows") == (16, 4)
    # The last warp counts whole.
    touched = found("row", 11, 3)
    assert (touched.threads, touched.warps) == (33, 2)
    # What lies outside of the image is not touched.
    touched = found("block", 16, 16, problem=Problem(8, 8))
    assert (touched.threads, touched.warps) == (256, 8)
    assert per_block(touched, "tiled") == (8, 2)
    assert per_block(touched, "rows") == (8, 8)
    # Blocks that lie askew count by their mean:
    # 28 bytes that begin at 0, 28, … 196: in pieces of 16 that is 2, 3, 3, 2, 2, 3, 3, 2 of them,
    # times 2 for 4 rows; in pieces of 32 it is 1, 2, 2, 2, 2, 2, 2, 1 in each of the rows.
    touched = found("block", 7, 4)
    assert per_block(touched, "tiled")[0] == 2.5 * 2
    assert per_block(touched, "rows")[0] == 1.75 * 4


def test_a_kernel_that_tells_no_texels_has_no_footprint() -> None:
    workload = load_kernel(ROOT / "kernels/gather_stride").workload
    params = tuple((n, 4) for n in sorted(workload.axes))
    cell = Cell(workload.name, "float", workload.variants[0], LARGE, params)
    assert footprint(workload, cell) is None


def test_tiled_extents_are_those_of_the_documented_addresses() -> None:
    x, y = np.meshgrid(np.arange(64), np.arange(8))
    address = x // 32 * 256 + y // 2 * 64 + x % 32 // 16 * 32 + y % 2 * 16 + x % 16
    assert sorted(address.ravel()) == list(range(512))
    layout = LAYOUTS["tiled"]
    for size, (width, height) in ((32, layout.sector), (128, layout.line)):
        assert width * height == size
        pieces = np.stack([address // size, x // width, y // height]).reshape(3, -1)
        assert np.unique(pieces, axis=1).shape == (3, 512 // size)


# For any shape

SHAPES = st.tuples(st.integers(1, 64), st.integers(1, 64)).filter(lambda s: s[0] * s[1] <= 1024)
ANY_MAPPING = st.sampled_from(MAPPINGS)
ANY_DTYPE = st.sampled_from(("float", "float2", "float4", "unorm8", "unorm8x4"))


@given(mapping=ANY_MAPPING, shape=SHAPES, dtype=ANY_DTYPE)
def test_bounds_that_no_shape_escapes(mapping: str, shape: tuple[int, int], dtype: str) -> None:
    touched = found(mapping, *shape, dtype)
    needed = touched.threads * DTYPES[dtype].itemsize
    assert touched.warps == -(-touched.threads // WARP)
    for layout, t in touched.traffic.items():
        assert t.sectors_per_block * 32 >= needed, layout
        assert t.lines_per_block * 128 >= needed
        assert t.sectors_per_block <= t.sectors_per_warp * touched.warps
        assert t.lines_per_block <= t.lines_per_warp * touched.warps
        assert t.lines_per_block <= t.sectors_per_block <= 4 * t.lines_per_block
        assert 1 <= t.lines_per_warp <= t.sectors_per_warp <= WARP


@given(mapping=ANY_MAPPING, shape=SHAPES, dtype=ANY_DTYPE)
def test_counts_are_those_of_sets(mapping: str, shape: tuple[int, int], dtype: str) -> None:
    workload, cell = cell_of(mapping, *shape, dtype)
    size = DTYPES[dtype].itemsize
    grid = workload.launch(cell).grid
    places = {(x % (grid[0] - 1), y % (grid[1] - 1)) for x, y in POSITIONS}
    touched = found(mapping, *shape, dtype)
    for name, layout in LAYOUTS.items():
        width, height = layout.sector
        blocks, warps = set(), set()
        for place in places:
            for thread, (col, row) in enumerate(workload.texels(cell, place)):
                piece = (place, col * size // width, row // height)
                blocks.add(piece)
                warps.add((thread // WARP, *piece))
        assert per_block(touched, name)[0] * len(places) == pytest.approx(len(blocks))
        assert per_warp(touched, name)[0] * len(places) * touched.warps == pytest.approx(len(warps))


@pytest.mark.parametrize("kernel", WORKLOADS)
@given(
    mapping=ANY_MAPPING,
    shape=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    problem=st.builds(Problem, st.integers(1, 40), st.integers(1, 40)),
)
def test_the_grid_takes_every_texel_of_the_image_once(
    kernel: str, mapping: str, shape: tuple[int, int], problem: Problem
) -> None:
    workload = WORKLOADS[kernel]
    variant = workload.mappings[MAPPINGS.index(mapping)]
    params = (("block_x", shape[0]), ("block_y", shape[1]))
    cell = Cell(kernel, "float", variant, problem, params)
    grid = workload.launch(cell).grid
    taken: Counter[tuple[int, int]] = Counter()
    for place in itertools.product(range(grid[0]), range(grid[1])):
        texels = workload.texels(cell, place)
        assert texels.shape == (shape[0] * shape[1], 2)
        taken.update(map(tuple, texels.tolist()))
    inside = {t: n for t, n in taken.items() if t[0] < problem.width and t[1] < problem.height}
    assert len(inside) == problem.width * problem.height
    assert set(inside.values()) == {1}


def test_the_same_texels_are_counted_once() -> None:
    known: Known = {}
    once = [footprint(*cell_of("tile8", 16, 8), known)]
    once.append(footprint(*cell_of("tile8", 16, 8, problem=Problem(8192, 8192)), known))
    assert len(known) == 1
    # A wider element touches other sectors, and a smaller image leaves texels out.
    once.append(footprint(*cell_of("tile8", 16, 8, "float4"), known))
    once.append(footprint(*cell_of("tile8", 16, 8, problem=Problem(60, 60)), known))
    assert len(known) == 3
    apart = [
        footprint(*cell_of("tile8", 16, 8, dtype, problem))
        for dtype, problem in (
            ("float", LARGE),
            ("float", Problem(8192, 8192)),
            ("float4", LARGE),
            ("float", Problem(60, 60)),
        )
    ]
    assert once == apart
