"""Blocks that do nothing: what it costs to start and to end them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Access, Array, BufferRef, Launch, Workload

# What the last block of a proof stores, as in the kernels.
DONE = 0x600DB10C


class Dispatch(Workload):
    """`grid` blocks of `block_x` threads, of which each tests one argument and ends.

    The one word that a proof writes counts as the bytes of a launch, since there are no others.
    """

    name = "dispatch"
    title = "Dispatch of blocks"
    pattern = "blocks that do nothing; nothing is read or written"
    dtypes = ("float",)
    variants = ("empty",)
    # No launch of it is one to use.
    controls = variants
    sizes = (1,)
    axes: ClassVar = {"grid": [1, 1000, 10_000, 100_000], "block_x": [32, 64, 128, 256, 512, 1024]}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """None."""
        return {}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """What the last block of a proof stores."""
        return np.array([DONE], np.uint32)

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """One 32-bit word."""
        return (1,), np.dtype(np.uint32)

    def launch(self, cell: Cell) -> Launch:
        """A grid of so many blocks, which store nothing."""
        args = (BufferRef("dst"), np.uint32(0))
        grid = cell["grid"]
        return Launch("dispatch", (grid, 1, 1), (cell["block_x"], 1, 1), args, tiles=grid)

    def proof(self, cell: Cell) -> Launch:
        """The timed launch, with the argument set that has its blocks count themselves."""
        return replace(self.launch(cell), args=(BufferRef("dst"), np.uint32(1)))

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


WORKLOAD = Dispatch()
