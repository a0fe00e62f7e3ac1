"""Sweep a 5-point stencil: every element becomes the mean of its four neighbors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import (
    Array,
    BufferRef,
    CopyWorkload,
    HeatMap,
    Launch,
    Roofline,
    Touched,
    ceil_div,
    tile_elements,
)

# Threads for which a block's tile has room: as many as OpenCL on a CPU allows.
MAX_THREADS = 64 * 64


class Stencil5(CopyWorkload):
    """``global``: neighbors come from global memory. ``tiled``: those in the block are shared."""

    name = "stencil5"
    title = "5-point stencil"
    pattern = "an element a thread; rows of the block and those around it, each byte counted once"
    dtypes = ("float", "double")
    variants = ("global", "tiled")
    axes: ClassVar = {"block_x": [16, 32, 64, 128, 256], "block_y": [1, 2, 4, 8, 16]}
    views = (HeatMap("block_x", "block_y"), Roofline())

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Add the four neighbors in the kernel's order; the border stays that of the input."""
        src = inputs["src"]
        result = src.copy()
        rows, columns = src[:, 1:-1], src[1:-1]
        sums = (rows[:-2] + rows[2:]) + (columns[:, :-2] + columns[:, 2:])
        result[1:-1, 1:-1] = np.float32(0.25) * sums
        return result

    def launch(self, cell: Cell) -> Launch:
        """Launch blocks of one element per thread; the kernel masks threads beyond the edge.

        Raises LaunchConfigError where a block is larger than its tile.
        """
        block = (cell["block_x"], cell["block_y"], 1)
        threads = block[0] * block[1]
        if cell.variant == "tiled" and threads > MAX_THREADS:
            raise LaunchConfigError(f"{threads} threads a block; a tile holds {MAX_THREADS}.")
        height, width = cell.problem.height, cell.problem.width
        grid = (ceil_div(width, block[0]), ceil_div(height, block[1]), 1)
        args = (
            BufferRef("dst"),
            BufferRef("src"),
            self.index(cell.problem, width),
            self.index(cell.problem, height),
        )
        return Launch(f"stencil_{cell.variant}", grid, block, args, tiles=grid[0] * grid[1])

    def work(self, cell: Cell) -> float | None:
        """Return three additions and a multiplication for each element inside the border."""
        inside = max(cell.problem.height - 2, 0) * max(cell.problem.width - 2, 0)
        return 4.0 * inside or None

    def touched(self, cell: Cell, block: tuple[int, int]) -> tuple[Touched, ...]:
        """Return loads of the neighbors, or (tiled) of the element alone, and its store."""
        own = tile_elements((cell["block_x"], cell["block_y"]), block)
        steps = [(0, -1), (0, 1), (-1, 0), (1, 0)] if cell.variant == "global" else [(0, 0)]
        loads = (Touched("load", np.maximum(own + np.array(step), 0)) for step in steps)
        return *loads, Touched("store", own)


WORKLOAD = Stencil5()
