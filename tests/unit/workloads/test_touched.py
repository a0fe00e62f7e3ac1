"""The elements that threads say they take, against the launches: each element exactly once."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from conftest import ROOT
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Touched, Workload
from gpushmoo.workloads.loader import find_kernels, load_kernel

WORKLOADS = {
    path.name: load_kernel(path).workload for path in find_kernels([ROOT / "kernels"]).values()
}
# Columns and rows from a block's first pass to each of its passes.
Steps = list[tuple[int, int]]
# Neither a multiple of any block.
ODD = Problem(75, 101)
SHAPES = ((32, 8), (4, 64), (33, 5))


def steps(columns: range = range(1), rows: range = range(1)) -> Steps:
    return list(itertools.product(columns, rows))


ONCE = steps()


def cell_of(kernel: str, variant: str, problem: Problem = ODD, **axes: int) -> Cell:
    dtype = WORKLOADS[kernel].dtypes[0]
    return Cell(kernel, dtype, variant, problem, tuple(sorted(axes.items())))


def cells() -> Iterator[tuple[Cell, Steps, Steps]]:
    """Cells of every kernel that says it, with the steps of its loads and of its stores."""
    for x, y in SHAPES:
        yield cell_of("copy2d_coalesced", "element", block_x=x, block_y=y), ONCE, ONCE
        yield cell_of("stencil5", "tiled", block_x=x, block_y=y), ONCE, ONCE
    for kernel, end in (("surf2d_memset", "-one"), ("tex2d_sum", "-point-clamp")):
        for x, y in SHAPES:
            for mapping in ("block", "row"):
                yield cell_of(kernel, mapping + end, block_x=x, block_y=y), ONCE, ONCE
        for mapping in ("tile8", "morton"):
            yield cell_of(kernel, mapping + end, block_x=32, block_y=4), ONCE, ONCE
    tile = cell_of("copy2d_coalesced", "tile32", block_x=32, block_y=32)
    yield tile, ONCE, ONCE
    for rows in (1, 8, 32):
        down = steps(rows=range(0, 32, rows))
        yield cell_of("copy2d_document", "published", block_rows=rows), down, down
    for variant, along in (("naive", False), ("tile", True), ("tile-diagonal", True)):
        for side, rows, x in ((32, 1, 32), (64, 4, 16)):
            across, down = range(0, side, x), range(0, side, side // rows)
            cell = cell_of("transpose", variant, TILE=side, ROWS=rows, PAD=0, block_x=x)
            stored = steps(across, down) if along else steps(down, across)
            yield cell, steps(across, down), stored
    for x, y, passes in ((8, 4, 3), (32, 8, 1), (33, 5, 2)):
        axes = {"block_x": x, "block_y": y, "passes": passes}
        along = steps(range(0, passes * y, y))
        yield cell_of("store_columns", "all", **axes), along, along
    for kernel in ("global_copy", "global_load", "global_store"):
        yield cell_of(kernel, "plain", block_x=128, unroll=1, passes=1), ONCE, ONCE
    # One row of tiles, 64 elements wide each, which 3 blocks share out.
    row = cell_of("block_eq_partition", "exact", Problem(5, 1000), num_partition=3)
    shared = steps(range(0, 1024, 3 * 64))
    yield row, shared, shared


CELLS = [
    pytest.param(*case, id=f"{case[0].kernel}-{case[0].variant}-{i}")
    for i, case in enumerate(cells())
]


def counts(cell: Cell, kind: str, moved: Steps) -> npt.NDArray[np.int64]:
    """How often each element is taken; what hangs over an edge is masked in the kernels."""
    workload = WORKLOADS[cell.kernel]
    grid = workload.launch(cell).grid
    taken = [
        access.elements
        for block in itertools.product(range(grid[0]), range(grid[1]))
        for access in said(workload, cell, block)
        if access.kind == kind
    ]
    extent = extent_of(cell, kind)
    found = np.zeros(extent, dtype=np.int64)
    for elements, step in itertools.product(taken, moved):
        places = elements + step
        inside = places[(places < extent).all(axis=1)]
        np.add.at(found, tuple(inside.T), 1)
    return found


def said(workload: Workload, cell: Cell, block: tuple[int, int]) -> tuple[Touched, ...]:
    touched = workload.touched(cell, block)
    assert touched is not None
    return touched


def extent_of(cell: Cell, kind: str) -> tuple[int, int]:
    """Columns and rows of what is loaded or stored."""
    height, width = cell.problem.height, cell.problem.width
    if cell.kernel.startswith("global_"):
        return height * width, 1
    return (height, width) if (cell.kernel, kind) == ("transpose", "store") else (width, height)


@pytest.mark.parametrize(("cell", "loaded", "stored"), CELLS)
def test_every_element_is_taken_once(cell: Cell, loaded: Steps, stored: Steps) -> None:
    read, written = WORKLOADS[cell.kernel].bytes_moved(cell)
    for kind, n_bytes, moved in (("load", read, loaded), ("store", written, stored)):
        assert np.all(counts(cell, kind, moved) == bool(n_bytes)), kind


def test_stencils_take_neighbours_and_every_telling_kernel_is_tried() -> None:
    cell = cell_of("stencil5", "global", block_x=32, block_y=8)
    assert np.all(counts(cell, "store", ONCE) == 1)
    assert np.all(counts(cell, "load", ONCE)[1:-1, 1:-1] == 4)
    silent = Workload.touched, Workload.texels
    telling = {
        name
        for name, workload in WORKLOADS.items()
        if (type(workload).touched, type(workload).texels) != silent
    }
    assert telling == {case.values[0].kernel for case in CELLS}
