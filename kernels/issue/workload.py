"""Measure how fast a multiprocessor issues independent instructions."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import BufferRef, Launch, ceil_div
from nothing_moved import NothingMovedWorkload

# As in the kernels: the word that a proof's last thread stores, and the multiply-adds of a step.
DONE = 0x600D1550
ACCUMULATORS = 8
REPEATED = 32
WARP = 32


class Issue(NothingMovedWorkload):
    """`grid` blocks of `block_x` threads; `steps` times 256 multiply-adds, each two operations.

    The pieces of work are instructions of whole warps. Instructions that count the steps, about one
    in a hundred, are not included.
    """

    name = "issue"
    title = "Issue of instructions"
    pattern = "independent multiply-adds from registers to registers; nothing is read or written"
    dtypes = ("float", "double")
    variants = ("fma",)
    done = DONE
    # None of its launches is ever recommended.
    controls = variants
    peak = "work"
    sizes = (1,)
    axes: ClassVar = {
        "grid": {"to_resident": 1, "points": 1},
        "block_x": [256, 1024],
        "steps": [64, 256],
    }
    # Sums of all accumulators stay below 2²⁴, up to which floats represent whole numbers exactly.
    most: ClassVar = {"steps": 2**15}

    def work(self, cell: Cell) -> float:
        """Return two operations for each multiply-add of each thread."""
        return 2.0 * cell["grid"] * cell["block_x"] * cell["steps"] * ACCUMULATORS * REPEATED

    def launch(self, cell: Cell) -> Launch:
        """Launch a grid with an expected sum that no thread has."""
        grid, block, steps = cell["grid"], cell["block_x"], cell["steps"]
        number = DTYPES[cell.dtype].scalar.type
        args = (BufferRef("dst"), number(1), number(1), number(-1), np.uint32(steps))
        instructions = grid * ceil_div(block, WARP) * steps * ACCUMULATORS * REPEATED
        return Launch("issue", (grid, 1, 1), (block, 1, 1), args, tiles=instructions)

    def proof(self, cell: Cell) -> Launch:
        """Return the timed launch with the sum of every thread: k + 32 · steps in the k-th."""
        launch = self.launch(cell)
        total = sum(k + REPEATED * cell["steps"] for k in range(ACCUMULATORS))
        args = (*launch.args[:3], type(launch.args[1])(total), launch.args[4])
        return replace(launch, args=args)


WORKLOAD = Issue()
