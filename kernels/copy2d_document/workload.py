"""Sweep the first document's tile copy with its compiled shape: the cost of one word of source."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import (
    BufferRef,
    CopyWorkload,
    Curve,
    Launch,
    ceil_div,
    tile_elements,
)

TILE = 32


class Copy2DDocument(CopyWorkload):
    """``published``: pointers may overlap. ``distinct``: the compiler knows that they do not."""

    name = "copy2d_document"
    title = "The document's tile copy, with and without distinct pointers"
    pattern = "32 × 32 tiles, 32 threads wide, 32 / block_rows elements a thread; all bytes once"
    dtypes = ("float", "double", "float3", "float4")
    variants = ("published", "distinct")
    axes: ClassVar = {"block_rows": [1, 2, 4, 8, 16, 32]}
    views = (Curve("block_rows", unit="rows of threads"),)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define the tile's side, and whether the pointers may overlap."""
        alias = {"MAY_ALIAS": "1"} if variant == "published" else {}
        return {"TILE": str(TILE), **alias}

    def launch(self, cell: Cell) -> Launch:
        """Launch blocks of 32 × block_rows threads, one for each tile."""
        rows = cell["block_rows"]
        height, width = cell.problem.height, cell.problem.width
        grid = (ceil_div(width, TILE), ceil_div(height, TILE), 1)
        args = (
            BufferRef("dst"),
            BufferRef("src"),
            self.index(cell.problem, width),
            self.index(cell.problem, height),
        )
        return Launch(f"copy_rows_{rows}", grid, (TILE, rows, 1), args, tiles=grid[0] * grid[1])

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return the first row of a thread's column; the other rows follow every `block_rows`."""
        first = np.array([block[0] * TILE, block[1] * TILE])
        return tile_elements((TILE, cell["block_rows"]), (0, 0)) + first


WORKLOAD = Copy2DDocument()
