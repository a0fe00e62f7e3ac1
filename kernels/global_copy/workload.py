"""Sweep a fast one-dimensional copy, for comparison with the runtime's own copy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import (
    Access,
    BufferRef,
    CopyWorkload,
    Launch,
    WorkingSet,
    ceil_div,
    tile_elements,
)


class GlobalCopy(CopyWorkload):
    """``plain``: as the compiler chooses. ``streaming``: marked as used once (ld.cs, st.cs)."""

    name = "global_copy"
    title = "Peak copy"
    pattern = "consecutive threads copy consecutive elements, unroll loads a thread; all bytes once"
    dtypes = ("float", "double", "float4")
    variants = ("plain", "streaming")
    cache_states = ("warm", "flushed")
    axes: ClassVar = {
        "block_x": [128, 256, 512, 1024],
        "unroll": [1, 2, 4, 8],
        "passes": [1, 4, 16],
    }
    views = (WorkingSet(),)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define whether accesses are marked as used once."""
        return {"STREAMING": "1"} if variant == "streaming" else {}

    def launch(self, cell: Cell) -> Launch:
        """Launch blocks of `passes` pieces of block_x · unroll elements, one after the other."""
        n = cell.problem.height * cell.problem.width
        blocks = ceil_div(n, cell["block_x"] * cell["unroll"] * cell["passes"])
        args = (
            BufferRef("dst"),
            BufferRef("src"),
            self.index(cell.problem, n),
            np.uint32(cell["passes"]),
        )
        return Launch(
            f"copy_{cell['unroll']}", (blocks, 1, 1), (cell["block_x"], 1, 1), args, tiles=blocks
        )

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return all loads and stores of a whole piece, as wide as the element, in its loop."""
        width = DTYPES[dtype].itemsize
        unroll = int(entry.rsplit("_", 1)[1])
        return (
            Access("load", "global", width, unroll, in_loop=True),
            Access("store", "global", width, unroll, in_loop=True),
        )

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return consecutive elements; the array counts as one row."""
        return tile_elements((cell["block_x"], 1), (block[0], 0))


WORKLOAD = GlobalCopy()
