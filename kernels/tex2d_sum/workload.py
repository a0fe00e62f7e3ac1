"""Sweep the second document's texture shmoo: every texel is fetched once and summed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import (
    Access,
    Array,
    BufferRef,
    Launch,
    NullRef,
    TextureRef,
    Workload,
    uniform,
)
from texel_mapping import AXES, MAPPINGS, CoveringMap, grid_of, refused_waves, texels_of, waves_of

# Mappings that also have a twin, which loads from a buffer instead of fetching.
PLAIN = "plain"
TWINS = ("block", "row")
FILTERS = {"point": "CLK_FILTER_NEAREST", "linear": "CLK_FILTER_LINEAR"}
ADDRESSES = {
    "clamp": "CLK_ADDRESS_CLAMP_TO_EDGE",
    "border": "CLK_ADDRESS_CLAMP",
    "wrap": "CLK_ADDRESS_REPEAT",
    "mirror": "CLK_ADDRESS_MIRRORED_REPEAT",
}
# NumPy's modes to continue an array beyond its first row and column in these modes.
PADDING: Mapping[str, Any] = {
    "clamp": "edge",
    "border": "constant",
    "wrap": "wrap",
    "mirror": "symmetric",
}
# Sums that fit in a block's memory: those of the largest shape of the default axes.
MAX_REDUCED = 64 * 64


@dataclass(frozen=True)
class Variant:
    """A variant's name in its parts: ``mapping-filter-address[-sums]``, or ``mapping-plain``.

    `sums` is ``written``, ``reduced`` (one per block), or empty if a timed launch stores none.
    """

    mapping: str
    filter: str
    address: str = ""
    sums: str = ""

    @classmethod
    def of(cls, name: str) -> Variant:
        """Parse the name of a variant, such as ``tile8-linear-wrap-written``."""
        return cls(*name.split("-"))

    @property
    def name(self) -> str:
        """The variant's name in the configuration."""
        parts = (self.mapping, self.filter, self.address, self.sums)
        return "-".join(filter(None, parts))

    @property
    def normalised(self) -> bool:
        """Whether coordinates run from 0 to 1 over the image: only these wrap or mirror."""
        return self.address in ("wrap", "mirror")


class Tex2dSum(Workload):
    """Texels are fetched at whole coordinates, as in the document.

    A point fetch returns the texel. A linear fetch is at the corner of four texels and returns
    their mean. At the left and upper edge, the address mode defines the missing ones. The twins,
    ``plain``, load texels from a buffer in the same loop.
    """

    name = "tex2d_sum"
    title = "Texture sum"
    pattern = "a thread fetches one texel; which one is the mapping; the sums are not stored"
    dtypes = ("float", "float2", "float4", "unorm8", "unorm8x4")
    variants = (
        *(
            Variant(*parts).name
            for sums in ("", "written")
            for parts in itertools.product(MAPPINGS, FILTERS, ADDRESSES, (sums,))
        ),
        # Only beside the document's own experiment: the obvious mapping, plain texels.
        "block-point-clamp-reduced",
        *(Variant(mapping, PLAIN).name for mapping in TWINS),
    )
    controls = tuple(n for n in variants if Variant.of(n).sums or Variant.of(n).filter == PLAIN)
    default_variants = tuple(f"{mapping}-point-clamp" for mapping in MAPPINGS)
    sizes = (4096,)
    axes: ClassVar = AXES
    zero_axes = frozenset({"waves"})
    views = (CoveringMap("block_x", "block_y"),)
    images = frozenset({"src"})

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define mapping, lanes, sampler, and the factor that makes sums whole."""
        v = Variant.of(variant)
        kind = DTYPES[dtype]
        macros = {f"MAP_{v.mapping.upper()}": "1", "FETCHED_LANES": str(kind.lanes)}
        if v.filter == PLAIN:
            return macros | {"PLAIN": "1", "SCALE": "1.0f"}
        # Normalised point coordinates are rounded, so they are those of the texel's center.
        centred = v.normalised and v.filter == "point"
        scale = (255 if kind.normalised else 1) * (4 if v.filter == "linear" else 1)
        macros |= {
            "ADDRESS": ADDRESSES[v.address],
            "FILTER": FILTERS[v.filter],
            "OFFSET": "0.5f" if centred else "0.0f",
            "SCALE": f"{scale}.0f",
        }
        macros |= {"NORMALISED": "1"} if v.normalised else {}
        return macros | ({v.sums.upper(): "1"} if v.sums else {})

    def images_of(self, variant: str) -> frozenset[str]:
        """Return ``src``; nothing for the plain twins, which load from an ordinary buffer."""
        return frozenset() if Variant.of(variant).filter == PLAIN else self.images

    def valid(self, cell: Cell) -> str | None:
        """Reject waves if sums are stored: a thread with several texels has no sum of each."""
        if waves_of(cell) and Variant.of(cell.variant).sums:
            return "a variant that stores its sums needs a grid that covers the image"
        return refused_waves(cell)

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``src``: random bytes, as floats for a float type, so that every sum is exact."""
        kind = DTYPES[dtype]
        texels = uniform(rng, kind.shape(problem.height, problem.width), np.dtype(np.uint8))
        return {"src": texels.astype(kind.scalar, copy=False)}

    def result_of(self, variant: str) -> str:
        """Return the filter, and for linear fetches the address mode.

        The mapping does not change a sum, and a point fetch is never outside the image.
        """
        v = Variant.of(variant)
        return f"linear-{v.address}" if v.filter == "linear" else v.filter

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the sum over the lanes of every texel, shape (height, width)."""
        src = inputs["src"]
        if src.ndim == 2:
            return src
        # Lane by lane is ten times faster than NumPy's sum over a short axis.
        sums = src[..., 0].astype(np.float32)
        for lane in range(1, src.shape[2]):
            sums += src[..., lane]
        return sums

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """Return the sums of `variant`, shape (height, width).

        With the linear filter, they are over each texel and its left, upper and upper left
        neighbors.
        """
        v = Variant.of(variant)
        sums = self.reference(inputs).astype(np.float32, copy=False)
        if v.filter != "linear":
            return sums
        padded = np.pad(sums, ((1, 0), (1, 0)), mode=PADDING[v.address])
        return padded[1:, 1:] + padded[:-1, 1:] + padded[1:, :-1] + padded[:-1, :-1]

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the form of one float32 for each texel, shape (height, width)."""
        return (problem.height, problem.width), np.dtype(np.float32)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of all texels, each counted once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return 0: a timed launch stores nothing, except in the controls (see `bytes_moved`)."""
        return 0

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """Return the bytes of all texels read, and of a float32 sum per texel or block, if any."""
        v = Variant.of(cell.variant)
        stored = 0
        if v.sums == "written":
            stored = cell.problem.height * cell.problem.width
        elif v.sums == "reduced":
            blocks = grid_of(v.mapping, cell.problem, cell["block_x"], cell["block_y"])
            stored = blocks[0] * blocks[1]
        return self.bytes_read(cell.problem, cell.dtype), 4 * stored

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the image or of the sums, whichever is larger."""
        return max(self.bytes_read(problem, dtype), 4 * problem.height * problem.width)

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the image, the copy that fills it, the sums and the expected sums."""
        return 2 * self.bytes_read(problem, dtype) + 8 * problem.height * problem.width

    def launch(self, cell: Cell) -> Launch:
        """Launch a grid that covers the image, or waves; without sums, their buffer is null.

        Raises LaunchConfigError where the threads of a block have no room to add up their sums.
        """
        v = Variant.of(cell.variant)
        block = (cell["block_x"], cell["block_y"], 1)
        if v.sums == "reduced" and block[0] * block[1] > MAX_REDUCED:
            raise LaunchConfigError(
                f"{block[0] * block[1]} threads a block; {cell.variant} takes {MAX_REDUCED}."
            )
        grid = grid_of(v.mapping, cell.problem, block[0], block[1])
        args = (
            BufferRef("dst") if v.sums else NullRef(),
            BufferRef("src")
            if v.filter == PLAIN
            else TextureRef("src", v.filter, v.address, v.normalised),
            self.index(cell.problem, cell.problem.width),
            self.index(cell.problem, cell.problem.height),
            np.float32(1 / cell.problem.width),
            np.float32(1 / cell.problem.height),
            *((np.uint32(0),) if v.sums == "reduced" else ()),
        )
        return Launch("sum_texels", grid, block, args, grid[0] * grid[1], waves_of(cell))

    def proof(self, cell: Cell) -> Launch:
        """Return the timed launch with a buffer for its sums.

        ``reduced`` gets an argument to prove.
        """
        launch = self.launch(cell)
        if Variant.of(cell.variant).sums == "reduced":
            return replace(launch, args=(*launch.args[:-1], np.uint32(1)))
        return replace(launch, args=(BufferRef("dst"), *launch.args[1:]))

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return a fetch (or the twins' load) of all lanes in the loop, once more in a proof.

        A store of the sum follows.
        """
        v = Variant.of(variant)
        kind = DTYPES[dtype]
        plain = v.filter == PLAIN
        times = 1 if v.sums else 2
        space, width = ("global", kind.itemsize) if plain else ("texture", 4 * kind.lanes)
        return Access("load", space, width, times, in_loop=True), Access("store", "global", 4)

    def texels(self, cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return column and row of the first texel of each thread of `block`.

        Shape (threads, 2).
        """
        return texels_of(cell, block)

    def filtered(self, cell: Cell) -> bool:
        """Return whether the filter is linear."""
        return Variant.of(cell.variant).filter == "linear"

    def steps(self, cell: Cell) -> int:
        """Return the steps of the tree that adds up the sums of a block, if it does."""
        if Variant.of(cell.variant).sums != "reduced":
            return 0
        return (cell["block_x"] * cell["block_y"] - 1).bit_length()


WORKLOAD = Tex2dSum()
