"""The third document's dot product: host arrays through streams, the host's share meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.devices.base import LaunchRefusedError
from gpushmoo.dtypes import DTYPES
from gpushmoo.host_dot import BLOCK, host_dot
from gpushmoo.pipeline import Piece, Pipeline, cuts, share_of_host
from gpushmoo.space import Cell, Problem
from gpushmoo.summation import (
    Reference,
    agrees,
    blocked_depth,
    pairwise_depth,
    reference_dot,
    sequential_depth,
    tolerance,
)
from gpushmoo.workload import Access, Array, BufferRef, HostFedWorkload, Launch, ceil_div

# Elements that a thread takes at a time.
LANES = 4
# A block keeps a sum of each of its threads. A CPU's OpenCL would let more of them begin.
MOST_THREADS = 1024


@dataclass(frozen=True)
class Variant:
    """What a variant's name says: ``memory-mode``.

    Memory is ``pinned`` or ``pageable``; streams and device memory are ``pooled``, or ``fresh`` for
    each run and made within the time, as published.
    """

    pinned: bool
    pooled: bool

    @classmethod
    def of(cls, name: str) -> Variant:
        """The inverse of the name."""
        memory, mode = name.split("-")
        return cls(memory == "pinned", mode == "pooled")


class DotStreamed(HostFedWorkload):
    """x · y of n elements; the throughput counts both arrays, 2 n elements, as in the document."""

    name = "dot_streamed"
    title = "Streamed dot product"
    pattern = "host arrays in pieces over streams; a tree over each block; partial sums on the host"
    dtypes = ("float", "double")
    variants = ("pinned-pooled", "pinned-fresh", "pageable-pooled", "pageable-fresh")
    default_variants = ("pinned-pooled", "pinned-fresh")
    sizes = (2**16, 2**20, 2**24)
    zero_axes = frozenset({"chunk", "host_percent"})
    most: ClassVar = {"host_percent": 100}
    # What the document chose, beside others.
    axes: ClassVar = {
        "streams": [1, 4, 64],
        "min_per_stream": 2**12,
        "blocks_per_stream": 32,
        "threads": 1024,
        "chunk": 0,
        "host_percent": 0,
    }

    def problem(self, size: int) -> Problem:
        """`size` elements in one row."""
        return Problem(1, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """None."""
        return {}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """``x`` and ``y``: uniform from 0 to 1, so that a piece left out is far from the truth."""
        n, scalar = problem.height * problem.width, DTYPES[dtype].scalar
        return {"x": rng.random(n, dtype=scalar), "y": rng.random(n, dtype=scalar)}

    def launch(self, cell: Cell) -> Launch:
        """Block and grid of a piece that is long enough for all its blocks."""
        grid = (cell["blocks_per_stream"], 1, 1)
        return Launch("dot_piece", grid, (cell["threads"], 1, 1), (), tiles=1)

    def pipeline(self, cell: Cell) -> Pipeline:
        """The last elements are the host's, as in the document.

        Raises LaunchRefusedError for blocks of more threads than the kernel has room for.
        """
        if cell["threads"] > MOST_THREADS:
            raise LaunchRefusedError(
                f"{cell['threads']} threads a block; this kernel takes {MOST_THREADS}."
            )
        n, v = cell.problem.height * cell.problem.width, Variant.of(cell.variant)
        here = n - share_of_host(n, cell["host_percent"])
        pieces, first = [], 0
        for cut in cuts(here, cell["streams"], cell["min_per_stream"], cell["chunk"]):
            blocks = _blocks(cell, cut.end - cut.begin)
            args = (
                BufferRef("x"),
                BufferRef("y"),
                BufferRef("partials"),
                np.uint64(cut.end - cut.begin),
                np.uint64(first),
            )
            launch = Launch("dot_piece", (blocks, 1, 1), (cell["threads"], 1, 1), args, tiles=1)
            pieces.append(Piece(cut.stream, cut.begin, cut.end, launch))
            first += blocks
        streams = 1 + max((p.stream for p in pieces), default=0)
        return Pipeline(streams, tuple(pieces), first, here, n, v.pinned, v.pooled)

    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> float:
        """BLAS, by all cores."""
        return host_dot(arrays["x"], arrays["y"])

    def total(self, partials: Array, host_part: float) -> float:
        """Pairwise in double, whatever the type: that costs nothing and loses nothing."""
        return float(partials.sum(dtype=np.float64)) + host_part

    def known(self, inputs: Mapping[str, Array]) -> Reference:
        """The dot product to more digits than a double has."""
        return reference_dot(inputs["x"], inputs["y"])

    def fault(self, value: float, cell: Cell, known: Reference) -> str | None:
        """Further away than rounding in the cell's order of summation can be."""
        bound = tolerance(known, self.depth(cell), DTYPES[cell.dtype].scalar)
        if agrees(value, known, bound):
            return None
        within = f"{known.value!r} ± {bound.absolute:.3g}"
        return f"{value!r} is not {within}, the bound of this order of summation"

    def depth(self, cell: Cell) -> int:
        """Roundings on the longest way of a product into the result."""
        pipeline = self.pipeline(cell)
        depths = [0]
        for piece in pipeline.pieces:
            assert piece.launch is not None
            taken = piece.launch.blocks * piece.launch.threads
            # A group of LANES after the other, and perhaps one element of what is left over.
            terms = LANES * (ceil_div(ceil_div(piece.end - piece.begin, LANES), taken) + 1)
            depths.append(blocked_depth(terms, piece.launch.threads, LANES, 1))
        if (mine := pipeline.host_end - pipeline.host_begin) > 0:
            # A block one after the other, and then the blocks.
            depths.append(sequential_depth(min(BLOCK, mine) + ceil_div(mine, BLOCK)))
        # NumPy adds up to 128 one after another, then pairwise.
        return max(depths) + pairwise_depth(pipeline.partials, 128) + 1

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Groups of LANES of both arrays, in the widest loads, in the loop; the block's sum."""
        loads = 2 * LANES * DTYPES[dtype].itemsize // 16
        return (
            Access("load", "global", 16, loads, in_loop=True),
            Access("store", "global", DTYPES[dtype].itemsize),
        )

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Both arrays once."""
        return 2 * problem.height * problem.width * DTYPES[dtype].itemsize

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """One of the arrays."""
        return self.bytes_read(problem, dtype) // 2


def _blocks(cell: Cell, n: int) -> int:
    """Blocks for a piece of `n` elements: no more than have work, and at least one."""
    wanted = ceil_div(ceil_div(n, LANES), cell["threads"])
    return max(1, min(cell["blocks_per_stream"], wanted))


WORKLOAD = DotStreamed()
