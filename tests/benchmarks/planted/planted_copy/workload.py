"""A copy that takes a known share longer than it has to: what a comparison must find.

The environment's PLANTED_PER_CENT (0 where it is missing) says how many more rows of blocks there
are than the array has; these copy the first rows once more. The kernel's code, the cells and the
bytes that they are counted with stay the same.
"""

import os

from gpushmoo import BufferRef, CopyWorkload, HeatMap, Launch, ceil_div


class PlantedCopy(CopyWorkload):
    """One element per thread; rows of blocks over the array's height begin again at its top."""

    name = "planted_copy"
    title = "2D copy with work planted in it"
    pattern = "every byte moves once, and those of the first rows again"
    dtypes = ("float", "double")
    variants = ("element",)
    axes = {"block_x": [32, 64, 128, 256], "block_y": [1, 2, 4]}  # noqa: RUF012
    views = (HeatMap("block_x", "block_y"),)

    def defines(self, dtype, variant):
        """None."""
        return {}

    def launch(self, cell):
        """Rows of blocks are rounded up to whole ones, also those that are planted."""
        block = (cell["block_x"], cell["block_y"], 1)
        rows = ceil_div(cell.problem.height, block[1])
        more = ceil_div(rows * int(os.environ.get("PLANTED_PER_CENT", "0")), 100)
        return Launch(
            "planted_copy",
            (ceil_div(cell.problem.width, block[0]), rows + more, 1),
            block,
            (
                BufferRef("dst"),
                BufferRef("src"),
                self.index(cell.problem, cell.problem.width),
                self.index(cell.problem, cell.problem.height),
            ),
            tiles=rows + more,
        )


WORKLOAD = PlantedCopy()
