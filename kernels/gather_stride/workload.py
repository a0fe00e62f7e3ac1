"""Read elements at a distance from each other: the useful part of a sector."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import Access, BufferRef, CopyWorkload, HeatMap, Launch, ceil_div

# Elements of a thread, as in the kernels.
EACH = 4


class GatherStride(CopyWorkload):
    """Reads every element once, in an order in which successive ones are `stride` apart.

    The bytes count the requested elements. A device fetches sectors of 32 bytes or more, so
    bandwidth falls as fewer bytes of a sector are requested at a time, unless a cache keeps it
    until the others are requested.
    """

    name = "gather_stride"
    title = "Gather"
    pattern = "elements a stride apart read by neighbouring threads, written side by side"
    dtypes = ("float", "double")
    variants = ("all",)
    axes: ClassVar = {
        "stride": [1, 2, 4, 8, 16, 32, 64],
        "threads": [128, 256, 512, 1024],
    }
    # Most blocks that a grid may have along its second dimension.
    most: ClassVar = {"stride": 65_535}
    views = (HeatMap("stride", "threads", x_unit="elements"),)

    def launch(self, cell: Cell) -> Launch:
        """Launch a row of blocks for each of the first `stride` elements; the others follow."""
        whole, rest = divmod(cell.problem.height * cell.problem.width, cell["stride"])
        numbers = (self.index(cell.problem, whole), *map(np.uint32, (rest, cell["stride"], 0)))
        blocks = ceil_div(whole + (rest > 0), cell["threads"] * EACH)
        grid, block = (blocks, cell["stride"], 1), (cell["threads"], 1, 1)
        args = (BufferRef("dst"), BufferRef("src"), *numbers)
        return Launch("gather", grid, block, args, tiles=blocks * cell["stride"])

    def proof(self, cell: Cell) -> Launch:
        """Return the timed launch with the argument that writes an element to its own place."""
        launch = self.launch(cell)
        return replace(launch, args=(*launch.args[:-1], np.uint32(1)))

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return all loads and stores of a thread, as wide as the element."""
        width = DTYPES[dtype].itemsize
        return (Access("load", "global", width, EACH), Access("store", "global", width, EACH))


WORKLOAD = GatherStride()
