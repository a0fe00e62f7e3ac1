"""Write an array down its columns: stores to parts of sectors, without loads."""

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
    HeatMap,
    Launch,
    ceil_div,
    tile_elements,
)
from only_stores import OnlyStoresWorkload


class StoreColumns(OnlyStoresWorkload):
    """Shows the cost of stores to parts of sectors by the number of rows that blocks write at once.

    The naive transpose stores like this. Here nothing is loaded, so the time is that of the stores.
    """

    name = "store_columns"
    title = "Stores down columns"
    pattern = "neighbouring threads write to different rows, block_y elements of a row at a time"
    dtypes = ("float", "double")
    variants = ("all",)
    axes: ClassVar = {
        "block_x": [8, 16, 32],
        "block_y": [1, 2, 4, 8, 16, 32],
        "passes": [1, 4, 16],
    }
    views = (HeatMap("block_x", "block_y"),)

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``indices``: the elements that must be stored.

        The kernel computes them and does not receive them.
        """
        indices = np.arange(problem.height * problem.width, dtype=np.uint64)
        return {"indices": indices.astype(DTYPES[dtype].scalar)}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the indices of `inputs`."""
        return inputs["indices"]

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the form of all elements in one dimension."""
        return (problem.height * problem.width,), DTYPES[dtype].scalar

    def launch(self, cell: Cell) -> Launch:
        """Launch a block for block_x rows and block_y · passes columns."""
        height, width = cell.problem.height, cell.problem.width
        block = (cell["block_x"], cell["block_y"], 1)
        grid = (ceil_div(height, block[0]), ceil_div(width, block[1] * cell["passes"]), 1)
        sides = (self.index(cell.problem, height), self.index(cell.problem, width))
        args = (BufferRef("dst"), *sides, np.uint32(cell["passes"]))
        return Launch("columns", grid, block, args, tiles=grid[0] * grid[1])

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return the store of a thread, as wide as the element, in the loop over passes."""
        return (Access("store", "global", DTYPES[dtype].itemsize, in_loop=True),)

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return the elements of the first pass, down the columns."""
        first = np.array([block[1] * cell["block_y"] * cell["passes"], block[0] * cell["block_x"]])
        return tile_elements((cell["block_x"], cell["block_y"]), (0, 0))[:, ::-1] + first


WORKLOAD = StoreColumns()
