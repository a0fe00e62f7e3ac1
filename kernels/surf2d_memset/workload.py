"""The second document's surface shmoo: every texel written once."""

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
    HeatMap,
    Launch,
    SurfaceRef,
    Workload,
    ceil_div,
)

MAPPINGS = ("block", "row", "tile8", "morton")
# Knuth's multiplicative hash of a word's index: words that differ and do not compress.
FACTOR = np.uint32(2654435761)
# The one value, which a byte holds, too.
VALUE = 193.0
TILE = 8


class Surf2dMemset(Workload):
    """Writes every texel once; a variant is ``mapping-what``.

    ``one`` writes the same value to all texels, ``place`` a value computed from the texel's place:
    a kernel argument and a computed value are not written at the same speed.
    """

    name = "surf2d_memset"
    title = "Surface memset"
    pattern = "a thread writes one texel; which one is the mapping; nothing is read"
    dtypes = ("float", "float2", "float4", "unorm8x4")
    variants = tuple(f"{mapping}-{what}" for what in ("one", "place") for mapping in MAPPINGS)
    sizes = (4096,)
    axes: ClassVar = {"block_x": {"from": 4, "to": 64}, "block_y": {"from": 4, "to": 64}}
    views = (HeatMap("block_x", "block_y"),)
    images = frozenset({"dst"})

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """The mapping, what is written, the lanes of a texel, and whether they are bytes."""
        kind = DTYPES[dtype]
        mapping, what = variant.upper().split("-")
        macros = {f"MAP_{mapping}": "1", f"VALUE_{what}": "1", "LANES": str(kind.lanes)}
        return macros | ({"BYTES": "1"} if kind.normalised else {})

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """``pattern``: the texels that ``place`` must write.

        The kernel computes them from their place and does not get these.
        """
        kind = DTYPES[dtype]
        shape = kind.shape(problem.height, problem.width)
        if kind.normalised:
            words = np.arange(problem.height * problem.width, dtype=np.uint32) * FACTOR
            return {"pattern": words.astype("<u4").view(np.uint8).reshape(shape)}
        words = np.arange(np.prod(shape), dtype=np.uint32) * FACTOR
        return {"pattern": (words >> np.uint32(8)).astype(np.float32).reshape(shape)}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The texels that ``place`` writes, shape (height, width[, lanes])."""
        return inputs["pattern"]

    def result_of(self, variant: str) -> str:
        """The second word of the variant: ``one`` or ``place``, whatever the mapping."""
        return variant.split("-")[1]

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """The image that `variant` must write: one value everywhere, or the pattern."""
        pattern = self.reference(inputs)
        return np.full_like(pattern, VALUE) if self.result_of(variant) == "one" else pattern

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """0: a launch reads nothing from memory."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Bytes of all texels, each of which is written once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Bytes of the image, its copy as a buffer, the expected texels, and the pattern."""
        return 4 * self.bytes_written(problem, dtype)

    def launch(self, cell: Cell) -> Launch:
        """A grid that covers the image once."""
        width, height = cell.problem.width, cell.problem.height
        block = (cell["block_x"], cell["block_y"], 1)
        threads = block[0] * block[1]
        mapping = cell.variant.split("-")[0]
        if mapping == "block":
            grid = ceil_div(width, block[0]), ceil_div(height, block[1]), 1
        elif mapping == "row":
            grid = ceil_div(width, threads), height, 1
        else:
            grid = ceil_div(ceil_div(width, TILE) * TILE**2, threads), ceil_div(height, TILE), 1
        args = (
            SurfaceRef("dst"),
            np.float32(VALUE),
            self.index(cell.problem, width),
            self.index(cell.problem, height),
        )
        return Launch("set_texels", grid, block, args, tiles=grid[0] * grid[1])

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """One surface write in the loop, as wide as a whole texel."""
        return (Access("store", "surface", DTYPES[dtype].itemsize, in_loop=True),)

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Column and row of the texel of each thread of `block` (x, y); shape (threads, 2).

        As the kernel's macros FIRST_COL and FIRST_ROW compute them.
        """
        mapping, block_x, block_y = cell.variant.split("-")[0], cell["block_x"], cell["block_y"]
        threads = block_x * block_y
        if mapping == "block":
            y, x = np.divmod(np.arange(threads), block_x)
            return np.stack([block[0] * block_x + x, block[1] * block_y + y], axis=1)
        i = block[0] * threads + np.arange(threads)
        if mapping == "row":
            return np.stack([i, np.full_like(i, block[1])], axis=1)
        if mapping == "tile8":
            x, y = i & 7, i >> 3 & 7
        else:
            x = i & 1 | i >> 1 & 2 | i >> 2 & 4
            y = i >> 1 & 1 | i >> 2 & 2 | i >> 3 & 4
        return np.stack([(i >> 6) * TILE + x, block[1] * TILE + y], axis=1)


WORKLOAD = Surf2dMemset()
