"""Test tiles of any width and pitch on persistent blocks, to find the best width."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch, ceil_div

THREADS = 512


class BlockTiles(CopyWorkload):
    """``exact``: integer division finds the tile. A pitch divides the bytes into other rows."""

    name = "block_tiles"
    title = "Persistent blocks, tiles of any width"
    pattern = (
        "blocks of 512 threads share out tiles with rows of row_bytes; the array's rows are longer "
        "by pad_bytes than its width, and fewer"
    )
    dtypes = ("float", "double")
    variants = ("exact",)
    axes: ClassVar = {
        "row_bytes": [128, 256, 512, 1024, 2048],
        "pad_bytes": [0, 64, 128, 256, 512, 1024],
        "num_partition": [8, 30],
    }
    zero_axes = frozenset({"pad_bytes"})

    def launch(self, cell: Cell) -> Launch:
        """Launch NUM_PARTITION blocks of a tile's threads.

        Refuse tiles of a fraction of elements.
        """
        size = DTYPES[cell.dtype].itemsize
        width = cell["row_bytes"] // size
        if width < 1 or cell["row_bytes"] % size or cell["pad_bytes"] % size or THREADS % width:
            raise LaunchConfigError(
                f"no tile of {THREADS} elements of {size} bytes has rows of {cell['row_bytes']} "
                f"bytes in an array with {cell['pad_bytes']} more in each row"
            )
        elements = cell.problem.height * cell.problem.width
        pitch = cell.problem.width + cell["pad_bytes"] // size
        tiles_x = ceil_div(pitch, width)
        tiles = tiles_x * ceil_div(ceil_div(elements, pitch), THREADS // width)
        return Launch(
            entry="copy_tiles",
            grid=(cell["num_partition"], 1, 1),
            block=(width, THREADS // width, 1),
            args=(
                BufferRef("dst"),
                BufferRef("src"),
                self.index(cell.problem, elements),
                self.index(cell.problem, pitch),
                np.uint32(tiles_x),
                np.uint32(tiles),
            ),
            tiles=tiles,
        )


WORKLOAD = BlockTiles()
