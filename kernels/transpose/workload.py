"""Sweep a matrix transpose: naive, through a tile in shared memory, and in diagonal order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import (
    BufferRef,
    CopyWorkload,
    HeatMap,
    Ints,
    Launch,
    Touched,
    ceil_div,
    tile_elements,
)


class Transpose(CopyWorkload):
    """A block for each TILE × TILE tile, block_x threads wide, with ROWS rows of it per thread."""

    name = "transpose"
    title = "Matrix transpose"
    pattern = "rows are read along, columns written along (naive) or rows again (tile); once each"
    dtypes = ("float", "double")
    variants = ("naive", "tile", "tile-diagonal")
    axes: ClassVar = {
        "TILE": [16, 32, 64],
        "ROWS": [1, 2, 4, 8, 16],
        "PAD": [0, 1],
        "block_x": [16, 32, 64],
    }
    compile_axes = ("TILE", "ROWS", "PAD")
    zero_axes = frozenset({"PAD"})
    views = (HeatMap("TILE", "ROWS"),)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define whether blocks process tiles in diagonal order."""
        return {"DIAGONAL": "1"} if variant == "tile-diagonal" else {}

    def valid(self, cell: Cell) -> str | None:
        """Require the same number of elements for every thread, and padding only for a tile."""
        if cell["TILE"] % cell["ROWS"] or cell["TILE"] % cell["block_x"]:
            return "ROWS and block_x must divide TILE"
        if cell.variant == "naive" and cell["PAD"]:
            return "naive has no tile to pad"
        return None

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return a form that is as wide as the input is high."""
        return super().output_form(Problem(problem.width, problem.height), dtype)

    def reference(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the transpose: row x is column x of ``src``, shape (width, height)."""
        return np.ascontiguousarray(inputs["src"].T)

    def launch(self, cell: Cell) -> Launch:
        """Launch a block per tile, of block_x by TILE / ROWS threads."""
        height, width = cell.problem.height, cell.problem.width
        grid = (ceil_div(width, cell["TILE"]), ceil_div(height, cell["TILE"]), 1)
        args = (
            BufferRef("dst"),
            BufferRef("src"),
            self.index(cell.problem, width),
            self.index(cell.problem, height),
        )
        entry = "transpose_naive" if cell.variant == "naive" else "transpose_tile"
        block = (cell["block_x"], cell["TILE"] // cell["ROWS"], 1)
        return Launch(entry, grid, block, args, tiles=grid[0] * grid[1])

    def touched(self, cell: Cell, block: tuple[int, int]) -> tuple[Touched, ...]:
        """Return loads along a row of the tile; naive, the stores go down a column."""
        tile = cell["TILE"]
        inside = tile_elements((cell["block_x"], tile // cell["ROWS"]), (0, 0))
        first = np.array([block[0] * tile, block[1] * tile])
        stored = (inside + first)[:, ::-1] if cell.variant == "naive" else inside + first[::-1]
        return Touched("load", inside + first), Touched("store", stored)

    def outer_turns(self, cell: Cell) -> int:
        """Return the rows of a thread; the inner loop goes along each."""
        return cell["ROWS"]

    def shared(self, cell: Cell) -> tuple[Ints, ...]:
        """Return the store along a row of the tile, and the load down a column."""
        if cell.variant == "naive":
            return ()
        tile, pitch = cell["TILE"], cell["TILE"] + cell["PAD"]
        x, y = tile_elements((cell["block_x"], tile // cell["ROWS"]), (0, 0)).T
        return y * pitch + x, x * pitch + y


WORKLOAD = Transpose()
