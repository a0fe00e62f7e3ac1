"""Sum vectors that are on the device, in one launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Access, Argument, BufferRef, Launch, ceil_div

from .summation import blocked_depth
from .workloads import DotProduct

# Most blocks of a launch: the buffer of partial sums has room for this number.
MAX_BLOCKS = 2**16


class ResidentSum(DotProduct):
    """Sum by one launch of `grid` blocks; the last block to end adds the others' partial sums.

    The names of its kernels are `entry` and the axis `unroll`, as in ``dot_4``. They take the
    operands, the result, the partial sums, a count of finished blocks and the number of elements.
    """

    entry: ClassVar[str]
    axes: ClassVar = {
        "threads": [128, 256, 512, 1024],
        "grid": {"to_resident": 2, "points": 4},
        "unroll": [1, 2, 4, 8],
    }
    sizes = (2**20, 2**24)
    most: ClassVar = {"threads": 1024, "grid": MAX_BLOCKS, "unroll": 8}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the vectors, and ``done``: a count of finished blocks that launches reset to 0."""
        return super().inputs(problem, dtype, rng) | {"done": np.zeros(1, np.uint32)}

    def scratch(self, problem: Problem, dtype: str) -> Mapping[str, int]:
        """Return ``partials``: room for one partial sum of each of at most MAX_BLOCKS blocks."""
        return {"partials": MAX_BLOCKS * DTYPES[dtype].itemsize}

    def launch(self, cell: Cell) -> Launch:
        """Launch a grid of blocks that stride over the vectors and leave the result in ``dst``."""
        args: tuple[Argument, ...] = (
            *(BufferRef(name) for name in (*self.operands, "dst", "partials", "done")),
            np.uint64(cell.problem.height * cell.problem.width),
        )
        grid, block = (cell["grid"], 1, 1), (cell["threads"], 1, 1)
        return Launch(f"{self.entry}_{cell['unroll']}", grid, block, args, tiles=cell["grid"])

    def depth(self, cell: Cell) -> int:
        """Return the roundings of sequential addition within a thread, a bound for any order.

        A thread adds `unroll` elements at a time. Its block and the block that ends last follow.
        """
        n = cell.problem.height * cell.problem.width
        blocks = cell["grid"]
        threads = cell["threads"]
        elements = cell["unroll"] * ceil_div(n, blocks * threads * cell["unroll"])
        ours = blocked_depth(elements, threads, 1, 1)
        return ours + blocked_depth(ceil_div(blocks, threads), threads, 1, 1)

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return loads in the loop, of `unroll` elements in up to 16 bytes each, and a store."""
        size = DTYPES[dtype].itemsize
        total = int(entry.rsplit("_", 1)[1]) * size
        loads = len(self.operands) * total // min(16, total)
        return (
            Access("load", "global", min(16, total), loads, in_loop=True),
            Access("store", "global", size),
        )
