"""Measure the peak load bandwidth of the device: every element once, without stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import (
    Access,
    Array,
    BufferRef,
    CopyWorkload,
    Launch,
    WorkingSet,
    ceil_div,
    tile_elements,
)

# Elements whose index has the same remainder are folded into one word of the proof.
BINS = 32


class GlobalLoad(CopyWorkload):
    """Loads as the compiler chooses (``plain``) or marked as used once, ld.cs (``streaming``)."""

    name = "global_load"
    title = "Peak load"
    pattern = "consecutive threads read consecutive elements, unroll loads a thread; no write"
    dtypes = ("float", "double", "float4")
    variants = ("plain", "streaming")
    cache_states = ("warm", "flushed")
    axes: ClassVar = {
        "block_x": [128, 256, 512, 1024],
        "unroll": [1, 2, 4, 8],
        "passes": [1, 4, 16],
    }
    views = (WorkingSet(),)
    peak = "load"
    reads_poison = True

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define ``STREAMING`` if loads are to be marked as used once."""
        return {"STREAMING": "1"} if variant == "streaming" else {}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the fold of every bin, starting from all-ones words.

        Word k of an element is rotated left by 7 · k bits, and all words of a bin are joined by
        XOR.
        """
        src = inputs["src"]
        lanes = src.dtype.itemsize // 4 * (src.shape[2] if src.ndim == 3 else 1)
        words = src.reshape(-1).view(np.uint32).reshape(-1, lanes)
        folded = words[:, 0].copy()
        for k in range(1, lanes):
            folded ^= (words[:, k] << np.uint32(7 * k)) | (words[:, k] >> np.uint32(32 - 7 * k))
        whole = np.zeros(-(-len(folded) // BINS) * BINS, dtype=np.uint32)
        whole[: len(folded)] = folded
        return np.bitwise_xor.reduce(whole.reshape(-1, BINS), axis=0) ^ np.uint32(0xFFFFFFFF)

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the form of one 32-bit word for each of the BINS bins."""
        return (BINS,), np.dtype(np.uint32)

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return 0: a timed launch stores nothing."""
        return 0

    def launch(self, cell: Cell) -> Launch:
        """Launch blocks of `passes` pieces of block_x · unroll elements, one after the other."""
        n = cell.problem.height * cell.problem.width
        blocks = ceil_div(n, cell["block_x"] * cell["unroll"] * cell["passes"])
        args = (
            BufferRef("dst"),
            BufferRef("src"),
            self.index(cell.problem, n),
            np.uint32(cell["passes"]),
            np.uint32(0),
        )
        return Launch(
            f"load_{cell['unroll']}", (blocks, 1, 1), (cell["block_x"], 1, 1), args, tiles=blocks
        )

    def proof(self, cell: Cell) -> Launch:
        """Return the timed launch with the argument that makes it store its folds.

        Blocks are whole multiples of BINS threads.
        """
        launch = self.launch(cell)
        return replace(launch, args=(*launch.args[:-1], np.uint32(1)))

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return all loads of a whole piece, as wide as the element, in the loop over pieces."""
        width = DTYPES[dtype].itemsize
        unroll = int(entry.rsplit("_", 1)[1])
        return (Access("load", "global", width, unroll, in_loop=True),)

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return consecutive elements; the array counts as one row."""
        return tile_elements((cell["block_x"], 1), (block[0], 0))


WORKLOAD = GlobalLoad()
