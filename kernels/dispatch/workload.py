"""Blocks that do nothing: what it costs to start and to end them."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import BufferRef, Launch
from nothing_moved import NothingMovedWorkload

# What the last block of a proof stores, as in the kernels.
DONE = 0x600DB10C


class Dispatch(NothingMovedWorkload):
    """`grid` blocks of `block_x` threads, of which each tests one argument and ends."""

    name = "dispatch"
    title = "Dispatch of blocks"
    pattern = "blocks that do nothing; nothing is read or written"
    dtypes = ("float",)
    variants = ("empty",)
    done = DONE
    # No launch of it is one to use.
    controls = variants
    sizes = (1,)
    axes: ClassVar = {"grid": [1, 1000, 10_000, 100_000], "block_x": [32, 64, 128, 256, 512, 1024]}

    def launch(self, cell: Cell) -> Launch:
        """A grid of so many blocks, which store nothing."""
        args = (BufferRef("dst"), np.uint32(0))
        grid = cell["grid"]
        return Launch("dispatch", (grid, 1, 1), (cell["block_x"], 1, 1), args, tiles=grid)

    def proof(self, cell: Cell) -> Launch:
        """The timed launch, with the argument set that has its blocks count themselves."""
        return replace(self.launch(cell), args=(BufferRef("dst"), np.uint32(1)))


WORKLOAD = Dispatch()
