"""Instructions that wait for nothing: how fast a multiprocessor issues them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Access, Array, BufferRef, Launch, Workload, ceil_div

# As in the kernels: what the last thread of a proof stores, and the multiply-adds of a step.
DONE = 0x600D1550
ACCUMULATORS = 8
REPEATED = 32
WARP = 32


class Issue(Workload):
    """`grid` blocks of `block_x` threads; `steps` times 256 multiply-adds of single precision.

    The pieces of work are instructions of whole warps; those that count the steps, about one in a
    hundred, are not among them. The one word that a proof writes counts as the bytes of a launch,
    since there are no others.
    """

    name = "issue"
    title = "Issue of instructions"
    pattern = "independent multiply-adds from registers to registers; nothing is read or written"
    dtypes = ("float",)
    variants = ("fma",)
    # No launch of it is one to use.
    controls = variants
    sizes = (1,)
    axes: ClassVar = {
        "grid": {"to_resident": 1, "points": 1},
        "block_x": [256, 1024],
        "steps": [64, 256],
    }
    # Sums of all accumulators stay below 2²⁴, up to where whole numbers are exact.
    most: ClassVar = {"steps": 2**15}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """None."""
        return {}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """What the last thread of a proof stores."""
        return np.array([DONE], np.uint32)

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """One 32-bit word."""
        return (1,), np.dtype(np.uint32)

    def launch(self, cell: Cell) -> Launch:
        """A grid in which no thread has the sum that is expected."""
        grid, block, steps = cell["grid"], cell["block_x"], cell["steps"]
        one = np.float32(1)
        args = (BufferRef("dst"), one, one, np.float32(-1), np.uint32(steps))
        instructions = grid * ceil_div(block, WARP) * steps * ACCUMULATORS * REPEATED
        return Launch("issue", (grid, 1, 1), (block, 1, 1), args, tiles=instructions)

    def proof(self, cell: Cell) -> Launch:
        """The timed launch, with the sum that every thread has: k + 32 · steps in the k-th."""
        launch = self.launch(cell)
        total = sum(k + REPEATED * cell["steps"] for k in range(ACCUMULATORS))
        args = (*launch.args[:3], np.float32(total), launch.args[4])
        return replace(launch, args=args)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """0: nothing is read."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """The word of a proof."""
        return 4

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """0: no copy is a peer of this."""
        return 0

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """The store of a proof."""
        return (Access("store", "global", 4),)


WORKLOAD = Issue()
