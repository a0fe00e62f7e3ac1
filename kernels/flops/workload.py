"""The device's peak of floating-point work: multiply-adds in registers, and nothing else."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import BufferRef, Launch, NothingMovedWorkload

# As in the kernels: what the last thread of a proof stores, and the multiply-adds of a step.
DONE = 0x600D0F10
ACCUMULATORS = 8
REPEATED = 32


class Flops(NothingMovedWorkload):
    """`grid` blocks of `block_x` threads; `steps` times 256 multiply-adds, each two operations."""

    name = "flops"
    title = "Peak of floating-point work"
    pattern = "independent fused multiply-adds from registers to registers; nothing is read"
    dtypes = ("float", "double")
    variants = ("fma",)
    done = DONE
    # No launch of it is one to use.
    controls = variants
    peak = "work"
    sizes = (1,)
    axes: ClassVar = {
        "grid": {"to_resident": 1, "points": 1},
        # One size of block, for which the device tells how many it holds.
        "block_x": [256],
        "steps": [64, 256],
    }
    # Sums of all accumulators stay below 2²⁴, up to where whole numbers are exact.
    most: ClassVar = {"steps": 2**15}

    def work(self, cell: Cell) -> float:
        """Two operations for each multiply-add of each thread."""
        return 2.0 * cell["grid"] * cell["block_x"] * cell["steps"] * ACCUMULATORS * REPEATED

    def launch(self, cell: Cell) -> Launch:
        """A grid in which no thread has the sum that is expected."""
        return self._expecting(cell, -1)

    def proof(self, cell: Cell) -> Launch:
        """The timed launch, with the sum that every thread has: k + 32 · steps in the k-th."""
        return self._expecting(cell, sum(k + REPEATED * cell["steps"] for k in range(ACCUMULATORS)))

    def _expecting(self, cell: Cell, total: int) -> Launch:
        number = DTYPES[cell.dtype].scalar.type
        args = (BufferRef("dst"), number(1), number(1), number(total), np.uint32(cell["steps"]))
        grid = cell["grid"]
        return Launch("flops", (grid, 1, 1), (cell["block_x"], 1, 1), args, tiles=grid)


WORKLOAD = Flops()
