"""Measure the cost to start and to end blocks that do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import BufferRef, Launch
from nothing_moved import NothingMovedWorkload

# Word that the last block of a proof stores, as in the kernels.
DONE = 0x600DB10C


class Dispatch(NothingMovedWorkload):
    """`grid` blocks of `block_x` threads, each of which tests one argument and ends."""

    name = "dispatch"
    title = "Dispatch of blocks"
    pattern = "blocks that do nothing; nothing is read or written"
    dtypes = ("float",)
    variants = ("empty",)
    done = DONE
    # None of its launches is ever recommended.
    controls = variants
    sizes = (1,)
    axes: ClassVar = {"grid": [1, 1000, 10_000, 100_000], "block_x": [32, 64, 128, 256, 512, 1024]}

    def launch(self, cell: Cell) -> Launch:
        """Launch `grid` blocks, which store nothing."""
        args = (BufferRef("dst"), np.uint32(0))
        grid = cell["grid"]
        return Launch("dispatch", (grid, 1, 1), (cell["block_x"], 1, 1), args, tiles=grid)

    def proof(self, cell: Cell) -> Launch:
        """Return the timed launch with the argument that makes its blocks count themselves."""
        return replace(self.launch(cell), args=(BufferRef("dst"), np.uint32(1)))


WORKLOAD = Dispatch()
