"""A copy with a planted slow-down: a given percentage of its tiles is copied twice."""

from typing import ClassVar

import numpy as np
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch, ceil_div

PERCENT = 0
UNROLL = 4


class CopyPlanted(CopyWorkload):
    """The bytes that it tells are those of the copy without what is planted."""

    name = "copy_planted"
    title = "Copy with a planted slow-down"
    pattern = "consecutive threads copy consecutive elements; some tiles are copied twice"
    dtypes = ("float", "float4")
    variants = ("plain",)
    axes: ClassVar = {"block_x": [64, 128, 256, 512, 1024]}

    def launch(self, cell: Cell) -> Launch:
        """A block takes a tile of block_x · UNROLL elements, and some take one more."""
        n = cell.problem.height * cell.problem.width
        blocks = ceil_div(n, cell["block_x"] * UNROLL)
        args = (BufferRef("dst"), BufferRef("src"), self.index(cell.problem, n), np.uint32(PERCENT))
        return Launch("copy_planted", (blocks, 1, 1), (cell["block_x"], 1, 1), args, tiles=blocks)


WORKLOAD = CopyPlanted()
