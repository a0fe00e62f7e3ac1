"""Sweep the second document's surface shmoo: every texel is written once."""

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
    SurfaceRef,
)
from only_stores import OnlyStoresWorkload
from texel_mapping import (
    AXES,
    MAPPINGS,
    CoveringMap,
    grid_of,
    mapping_of,
    refused_waves,
    texels_of,
    waves_of,
)

# Knuth's multiplicative hash of a word's index: the words differ and do not compress.
FACTOR = np.uint32(2654435761)
# The one value, which also fits in a byte.
VALUE = 193.0
# Suffix of variants that store to a buffer.
PLAIN = "-plain"


class Surf2dMemset(OnlyStoresWorkload):
    """Writes every texel once; a variant is ``mapping-what``, or ``mapping-what-plain``.

    ``one`` writes the same value to all texels, ``place`` a value computed from the texel's
    position: a kernel argument and a computed value are not written at the same speed. The twins,
    ``plain``, store to a buffer in the same loop.
    """

    name = "surf2d_memset"
    title = "Surface memset"
    pattern = "a thread writes one texel; which one is the mapping; nothing is read"
    dtypes = ("float", "float2", "float4", "unorm8x4")
    default_variants = tuple(f"{m}-{what}" for what in ("one", "place") for m in MAPPINGS)
    controls = tuple(f"{mapping}-one{PLAIN}" for mapping in ("block", "row"))
    variants = default_variants + controls
    sizes = (4096,)
    axes: ClassVar = AXES
    zero_axes = frozenset({"waves"})
    views = (CoveringMap("block_x", "block_y"),)
    images = frozenset({"dst"})

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define the mapping, the written value, and the lanes of a texel and their width."""
        kind = DTYPES[dtype]
        mapping, what = variant.removesuffix(PLAIN).upper().split("-")
        macros = {f"MAP_{mapping}": "1", f"VALUE_{what}": "1", "LANES": str(kind.lanes)}
        macros |= {"PLAIN": "1"} if variant.endswith(PLAIN) else {}
        return macros | ({"BYTES": "1"} if kind.normalised else {})

    def images_of(self, variant: str) -> frozenset[str]:
        """Return ``dst``; nothing for the plain twins, whose output is an ordinary buffer."""
        return frozenset() if variant.endswith(PLAIN) else self.images

    def valid(self, cell: Cell) -> str | None:
        """Reject waves for strips of tiles, which need a grid that covers the image."""
        return refused_waves(cell)

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``pattern``: the texels that ``place`` must write.

        The kernel computes them from their position and does not receive them.
        """
        kind = DTYPES[dtype]
        shape = kind.shape(problem.height, problem.width)
        if kind.normalised:
            words = np.arange(problem.height * problem.width, dtype=np.uint32) * FACTOR
            return {"pattern": words.astype("<u4").view(np.uint8).reshape(shape)}
        words = np.arange(np.prod(shape), dtype=np.uint32) * FACTOR
        return {"pattern": (words >> np.uint32(8)).astype(np.float32).reshape(shape)}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the texels that ``place`` writes, shape (height, width[, lanes])."""
        return inputs["pattern"]

    def result_of(self, variant: str) -> str:
        """Return the variant without its mapping: ``one``, ``place`` or ``one-plain``."""
        return variant.split("-", 1)[1]

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """Return the image that `variant` must write: one value everywhere, or the pattern."""
        pattern = self.reference(inputs)
        return np.full_like(pattern, VALUE) if "-one" in variant else pattern

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the image, its copy as a buffer, expected texels, and pattern."""
        return 4 * self.bytes_written(problem, dtype)

    def launch(self, cell: Cell) -> Launch:
        """Launch a grid that covers the image once, or waves."""
        width, height = cell.problem.width, cell.problem.height
        block = (cell["block_x"], cell["block_y"], 1)
        grid = grid_of(mapping_of(cell.variant), cell.problem, block[0], block[1])
        args = (
            BufferRef("dst") if cell.variant.endswith(PLAIN) else SurfaceRef("dst"),
            np.float32(VALUE),
            self.index(cell.problem, width),
            self.index(cell.problem, height),
        )
        return Launch("set_texels", grid, block, args, grid[0] * grid[1], waves_of(cell))

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return one write or store in the loop, as wide as a whole texel."""
        space = "global" if variant.endswith(PLAIN) else "surface"
        return (Access("store", space, DTYPES[dtype].itemsize, in_loop=True),)

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return column and row of the first texel of each thread of `block`.

        Shape (threads, 2).
        """
        return texels_of(cell, block)


WORKLOAD = Surf2dMemset()
