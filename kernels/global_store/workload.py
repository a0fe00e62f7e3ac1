"""Measure the peak store bandwidth of the device: every element once, without loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import (
    Access,
    Array,
    BufferRef,
    Launch,
    WorkingSet,
    ceil_div,
    tile_elements,
)
from only_stores import OnlyStoresWorkload

# Knuth's multiplicative hash of a word's index: the words differ and do not compress.
FACTOR = np.uint32(2654435761)


class GlobalStore(OnlyStoresWorkload):
    """Stores as the compiler chooses (``plain``) or marked as used once, st.cs (``streaming``)."""

    name = "global_store"
    title = "Peak store"
    pattern = (
        "consecutive threads write consecutive elements, unroll stores a thread; nothing is read"
    )
    dtypes = ("float", "double", "float4")
    variants = ("plain", "streaming")
    cache_states = ("warm", "flushed")
    axes: ClassVar = {
        "block_x": [128, 256, 512, 1024],
        "unroll": [1, 2, 4, 8],
        "passes": [1, 4, 16],
    }
    views = (WorkingSet(),)
    peak = "store"

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define ``STREAMING`` if stores are to be marked as used once."""
        return {"STREAMING": "1"} if variant == "streaming" else {}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``pattern``: the 32-bit words that must be stored.

        The kernel computes them from their index and does not receive them.
        """
        words = problem.height * problem.width * DTYPES[dtype].itemsize // 4
        return {"pattern": np.arange(words, dtype=np.uint32) * FACTOR}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the pattern of `inputs` itself."""
        return inputs["pattern"]

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the form of the 32-bit words of all elements in one dimension."""
        return (self.bytes_written(problem, dtype) // 4,), np.dtype(np.uint32)

    def launch(self, cell: Cell) -> Launch:
        """Launch blocks of `passes` pieces of block_x · unroll elements, one after the other."""
        n = cell.problem.height * cell.problem.width
        blocks = ceil_div(n, cell["block_x"] * cell["unroll"] * cell["passes"])
        args = (BufferRef("dst"), self.index(cell.problem, n), np.uint32(cell["passes"]))
        return Launch(
            f"store_{cell['unroll']}", (blocks, 1, 1), (cell["block_x"], 1, 1), args, tiles=blocks
        )

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return all stores of a whole piece, as wide as the element, in the loop over pieces."""
        width = DTYPES[dtype].itemsize
        unroll = int(entry.rsplit("_", 1)[1])
        return (Access("store", "global", width, unroll, in_loop=True),)

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return consecutive elements; the array counts as one row."""
        return tile_elements((cell["block_x"], 1), (block[0], 0))


WORKLOAD = GlobalStore()
