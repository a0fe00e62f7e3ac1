"""The dot product of vectors that are on the device already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from dot_products.summation import blocked_depth
from dot_products.workloads import DotProduct, thread_depth
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Access, BufferRef, Launch, ceil_div

# Blocks that one launch may have: so many partial sums have room.
MOST_BLOCKS = 2**16


class DotResident(DotProduct):
    """x · y of n elements, by one launch of `grid` blocks."""

    name = "dot_resident"
    title = "Dot product on the device"
    pattern = (
        "grid-stride loop over 16-byte packs, unroll a thread; the last block adds the sums up"
    )
    variants = ("packs",)
    sizes = (2**20, 2**24)
    axes: ClassVar = {
        "threads": [128, 256, 512, 1024],
        "grid": {"to_resident": 2, "points": 4},
        "unroll": [1, 2, 4, 8],
    }
    most: ClassVar = {"threads": 1024, "grid": MOST_BLOCKS, "unroll": 8}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """The vectors, and ``done``: a counter of finished blocks that every launch leaves at 0."""
        return super().inputs(problem, dtype, rng) | {"done": np.zeros(1, np.uint32)}

    def scratch(self, problem: Problem, dtype: str) -> Mapping[str, int]:
        """``partials``: room for one partial sum of each of at most MOST_BLOCKS blocks."""
        return {"partials": MOST_BLOCKS * DTYPES[dtype].itemsize}

    def launch(self, cell: Cell) -> Launch:
        """One grid of blocks that stride over both vectors and leave the result in ``dst``."""
        args = (
            *(BufferRef(name) for name in ("x", "y", "dst", "partials", "done")),
            np.uint64(cell.problem.height * cell.problem.width),
        )
        grid, block = (cell["grid"], 1, 1), (cell["threads"], 1, 1)
        return Launch(f"dot_{cell['unroll']}", grid, block, args, tiles=cell["grid"])

    def depth(self, cell: Cell) -> int:
        """Roundings within a thread, its block, and the last block, which adds the partial sums."""
        n, blocks = cell.problem.height * cell.problem.width, cell["grid"]
        threads = cell["threads"]
        # The left over packs come after `unroll` at a time: as many as one after the other.
        lanes = 16 // DTYPES[cell.dtype].itemsize
        ours = thread_depth(n, blocks * threads, threads, lanes)
        return ours + blocked_depth(ceil_div(blocks, threads), threads, 1, 1)

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """In the loop a 16-byte load of each pack of both vectors; then a store of the result."""
        packs = 2 * int(entry.rsplit("_", 1)[1])
        return (
            Access("load", "global", 16, packs, in_loop=True),
            Access("store", "global", DTYPES[dtype].itemsize),
        )


WORKLOAD = DotResident()
