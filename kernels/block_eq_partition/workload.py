"""Sweep the first document's persistent-block copy, with tiles as wide as a memory partition."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import (
    BufferRef,
    CopyWorkload,
    Curve,
    Launch,
    ceil_div,
    tile_elements,
)

PARTITION_BYTES = 256
THREADS = 512


def reciprocal(tiles_x: int) -> np.float32:
    """Return the document's factor 1/tiles_x, raised by 10⁻⁶ so that truncation is never short."""
    return np.float32((1.0 + np.float64(np.float32(1.0e-6))) / tiles_x)


class BlockEqPartition(CopyWorkload):
    """``exact``: integer division. ``reciprocal``: the document's float trick, wrong past ~10⁶."""

    name = "block_eq_partition"
    title = "Persistent blocks, tile width = one partition"
    pattern = (
        "NUM_PARTITION blocks of 512 threads share out tiles with rows of 256 (float3: 768) bytes"
    )
    dtypes = ("float", "double", "float3", "float4")
    variants = ("exact", "reciprocal")
    axes: ClassVar = {"num_partition": [{"from": 1, "to": 32}, {"to_resident": 2.0, "points": 32}]}
    views = (Curve("num_partition", unit="blocks"),)
    persistent_axis = "num_partition"

    def tile(self, dtype: str) -> tuple[int, int]:
        """Return tile width and height in elements: float 64 × 8, double 32 × 16, float4 16 × 32.

        A row is the smallest number of whole partitions with whole elements: one for these types,
        three (64 × 8) for the 12-byte float3.
        """
        size = DTYPES[dtype].itemsize
        width = math.lcm(PARTITION_BYTES, size) // size
        return width, THREADS // width

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define ``TILE_X`` and ``TILE_Y``: width and height of a tile in elements."""
        tile_x, tile_y = self.tile(dtype)
        return {"TILE_X": str(tile_x), "TILE_Y": str(tile_y)}

    def launch(self, cell: Cell) -> Launch:
        """Launch NUM_PARTITION blocks of one tile's threads."""
        tile_x, tile_y = self.tile(cell.dtype)
        tiles_x = ceil_div(cell.problem.width, tile_x)
        tiles = tiles_x * ceil_div(cell.problem.height, tile_y)
        args: tuple[BufferRef | np.generic, ...] = (
            BufferRef("dst"),
            BufferRef("src"),
            self.index(cell.problem, cell.problem.width),
            self.index(cell.problem, cell.problem.height),
            np.uint32(tiles_x),
            np.uint32(tiles),
        )
        if cell.variant == "reciprocal":
            args += (reciprocal(tiles_x),)
        return Launch(
            entry=f"copy_{cell.variant}",
            grid=(cell["num_partition"], 1, 1),
            block=(tile_x, tile_y, 1),
            args=args,
            tiles=tiles,
        )

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return a tile's elements, one per thread."""
        return tile_elements(self.tile(cell.dtype), block)


WORKLOAD = BlockEqPartition()
