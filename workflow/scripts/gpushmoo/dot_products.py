"""What kernels of dot products share: inputs, the exact result, and how data go over streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .devices.base import LaunchRefusedError
from .dtypes import DTYPES
from .host_dot import host_dot, host_dot_depth, prepare
from .pipeline import Piece, Pipeline, count_cuts, cuts, share_of_host
from .space import Cell, Problem
from .summation import (
    Reference,
    agrees,
    blocked_depth,
    pairwise_depth,
    reference_dot,
    sequential_depth,
    tolerance,
)
from .workload import (
    Access,
    Argument,
    Array,
    BufferRef,
    HostFedWorkload,
    Launch,
    ReducingWorkload,
    ceil_div,
)

# Elements that a thread of a streamed kernel takes at a time.
LANES = 4
# A block keeps a sum of each of its threads. A CPU's OpenCL would let more of them begin.
MOST_THREADS = 1024
# Copies and launches of a cell, which the host holds all at once, some hundred bytes each.
MOST_PIECES = 65_536


class DotProduct(ReducingWorkload):
    """Σ x_i · y_i of vectors of n elements, or Σ x_i² where there is but one of the `operands`.

    The throughput counts each operand once.
    """

    dtypes = ("float", "double")
    operands: ClassVar[tuple[str, ...]] = ("x", "y")

    @abstractmethod
    def depth(self, cell: Cell) -> int:
        """Roundings on the longest way of a product into the result, at most."""

    def factors(self, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        """The two vectors that are multiplied."""
        return arrays[self.operands[0]], arrays[self.operands[-1]]

    def problem(self, size: int) -> Problem:
        """`size` elements in one row."""
        return Problem(1, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """None."""
        return {}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Uniform from 0 to 1, so that a piece left out is far from the truth."""
        n, scalar = problem.height * problem.width, DTYPES[dtype].scalar
        return {name: rng.random(n, dtype=scalar) for name in self.operands}

    def known(self, inputs: Mapping[str, Array]) -> Reference:
        """The dot product to more digits than a double has."""
        return reference_dot(*self.factors(inputs))

    def fault(self, value: float, cell: Cell, known: Reference) -> str | None:
        """Further away than rounding in the cell's order of summation can be."""
        bound = tolerance(known, self.depth(cell), DTYPES[cell.dtype].scalar)
        if agrees(value, known, bound):
            return None
        within = f"{known.value!r} ± {bound.absolute:.3g}"
        return f"{value!r} is not {within}, the bound of this order of summation"

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Each operand once."""
        n = problem.height * problem.width
        return len(self.operands) * n * DTYPES[dtype].itemsize

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """One of the operands."""
        return problem.height * problem.width * DTYPES[dtype].itemsize


@dataclass(frozen=True)
class Feeding:
    """What a variant of a streamed kernel says: ``memory-mode``.

    Memory is ``pinned`` or ``pageable``; streams and device memory are ``pooled``, or ``fresh`` for
    each run and made within the time, as published.
    """

    pinned: bool
    pooled: bool

    @classmethod
    def of(cls, variant: str) -> Feeding:
        """The inverse of the name."""
        memory, mode = variant.split("-")
        return cls(memory == "pinned", mode == "pooled")


class StreamedDot(DotProduct, HostFedWorkload):
    """The third document's way: host arrays in pieces over streams, the host's share meanwhile.

    The kernel `dot_piece` takes the operands, the partial sums, the number of elements of the piece
    and the place of its first partial sum; each block leaves one.
    """

    pattern = "host arrays in pieces over streams; a tree over each block; partial sums on the host"
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

    def launch(self, cell: Cell) -> Launch:
        """Block and grid of a piece that is long enough for all its blocks."""
        grid = (cell["blocks_per_stream"], 1, 1)
        return Launch("dot_piece", grid, (cell["threads"], 1, 1), (), tiles=1)

    def pipeline(self, cell: Cell) -> Pipeline:
        """The last elements are the host's, as in the document.

        Raises LaunchRefusedError for blocks of more threads than the kernel has room for, and for
        more pieces than MOST_PIECES.
        """
        if cell["threads"] > MOST_THREADS:
            raise LaunchRefusedError(
                f"{cell['threads']} threads a block; this kernel takes {MOST_THREADS}."
            )
        n, feeding = cell.problem.height * cell.problem.width, Feeding.of(cell.variant)
        here = n - share_of_host(n, cell["host_percent"])
        if here < n:
            prepare(np.dtype(DTYPES[cell.dtype].scalar))
        asked = (here, cell["streams"], cell["min_per_stream"], cell["chunk"])
        if count_cuts(*asked) > MOST_PIECES:
            raise LaunchRefusedError(
                f"{here} elements in {count_cuts(*asked)} pieces; at most {MOST_PIECES} are queued."
            )
        pieces, first = [], 0
        for cut in cuts(*asked):
            blocks = _blocks(cell, cut.end - cut.begin)
            args: tuple[Argument, ...] = (
                *(BufferRef(name) for name in self.operands),
                BufferRef("partials"),
                np.uint64(cut.end - cut.begin),
                np.uint64(first),
            )
            launch = Launch("dot_piece", (blocks, 1, 1), (cell["threads"], 1, 1), args, tiles=1)
            pieces.append(Piece(cut.stream, cut.begin, cut.end, launch))
            first += blocks
        streams = 1 + max((p.stream for p in pieces), default=0)
        return Pipeline(streams, tuple(pieces), first, here, n, feeding.pinned, feeding.pooled)

    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> float:
        """By all cores."""
        return host_dot(*self.factors(arrays))

    def total(self, partials: Array, host_part: float) -> float:
        """Pairwise in double, whatever the type: that costs nothing and loses nothing."""
        return float(partials.sum(dtype=np.float64)) + host_part

    def depth(self, cell: Cell) -> int:
        """Of the longest piece and of the host's part, then over the partial sums."""
        pipeline = self.pipeline(cell)
        depths = [host_dot_depth(pipeline.host_end - pipeline.host_begin)]
        for piece in pipeline.pieces:
            assert piece.launch is not None
            taken = piece.launch.blocks * piece.launch.threads
            depths.append(thread_depth(piece.end - piece.begin, taken, piece.launch.threads))
        # NumPy adds up to 128 one after another, then pairwise.
        return max(depths) + pairwise_depth(pipeline.partials, 128) + 1

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Groups of LANES of the operands, in the widest loads, in the loop; the block's sum."""
        loads = len(self.operands) * LANES * DTYPES[dtype].itemsize // 16
        return (
            Access("load", "global", 16, loads, in_loop=True),
            Access("store", "global", DTYPES[dtype].itemsize),
        )


class HostDot(DotProduct, HostFedWorkload):
    """A dot product of the host alone: nothing is built, and no device is fed."""

    device_code = False
    axes: ClassVar = {}

    def launch(self, cell: Cell) -> Launch:
        """None; a block of one thread stands for it."""
        return Launch("none", (1, 1, 1), (1, 1, 1), (), tiles=1)

    def pipeline(self, cell: Cell) -> Pipeline:
        """All is the host's."""
        n = cell.problem.height * cell.problem.width
        return Pipeline(0, (), 0, 0, n, pinned=False, pooled=True)

    def total(self, partials: Array, host_part: float) -> float:
        """The host's part."""
        return host_part

    def depth(self, cell: Cell) -> int:
        """One after the other: a library does not say how it adds.

        For floats this bound tells nothing from 2^24 elements on.
        """
        return sequential_depth(cell.problem.height * cell.problem.width)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Nothing is on a device."""
        return 0


def thread_depth(n: int, taken: int, threads: int, lanes: int = LANES) -> int:
    """Roundings of one of `n` products into a block's sum, where `taken` threads share them.

    A thread takes groups of `lanes` one after the other and perhaps one element of what is left.
    """
    terms = lanes * (ceil_div(ceil_div(n, lanes), taken) + 1)
    return blocked_depth(terms, threads, lanes, 1)


def _blocks(cell: Cell, n: int) -> int:
    """Blocks for a piece of `n` elements: no more than have work, and at least one."""
    wanted = ceil_div(ceil_div(n, LANES), cell["threads"])
    return max(1, min(cell["blocks_per_stream"], wanted))
