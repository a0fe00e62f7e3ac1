"""Sweep two-dimensional copies by blocks of any shape.

This is not the first document's ``copy2D_Coalesced``, whose block is part of its code: for that,
see copy2d_document. Recorded data have this kernel's name in every cell, so it stays.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import (
    BufferRef,
    CopyWorkload,
    HeatMap,
    Launch,
    ceil_div,
    tile_elements,
)

TILE = 32


class Copy2DCoalesced(CopyWorkload):
    """``element``: one element per thread. ``tile32``: one 32 × 32 tile per block."""

    name = "copy2d_coalesced"
    title = "2D copy by blocks of any shape"
    pattern = "rows of the block read and write consecutive elements; every byte moves once"
    dtypes = ("float", "double", "float3", "float4")
    variants = ("element", "tile32")
    axes: ClassVar = {
        "block_x": {"from": 4, "to": 64, "step": 4},
        "block_y": {"from": 4, "to": 64, "step": 4},
    }
    views = (HeatMap("block_x", "block_y"),)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define ``TILE``: the side of the square tile in elements."""
        return {"TILE": str(TILE)}

    def launch(self, cell: Cell) -> Launch:
        """Tile the array with blocks; the kernel masks threads beyond the edge."""
        block = (cell["block_x"], cell["block_y"], 1)
        span = block[:2] if cell.variant == "element" else (TILE, TILE)
        grid = (ceil_div(cell.problem.width, span[0]), ceil_div(cell.problem.height, span[1]), 1)
        return Launch(
            entry="copy_element" if cell.variant == "element" else "copy_tile",
            grid=grid,
            block=block,
            args=(
                BufferRef("dst"),
                BufferRef("src"),
                self.index(cell.problem, cell.problem.width),
                self.index(cell.problem, cell.problem.height),
            ),
            tiles=grid[0] * grid[1],
        )

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return a thread's element, or its first one in the tile; idle threads are left out."""
        shape = cell["block_x"], cell["block_y"]
        if cell.variant == "element":
            return tile_elements(shape, block)
        inside = np.minimum(tile_elements(shape, (0, 0)), TILE - 1)
        return inside + TILE * np.array(block)


WORKLOAD = Copy2DCoalesced()
