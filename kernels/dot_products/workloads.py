"""Share the workload of dot products: inputs, the exact result, and the way over streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import (
    Access,
    Argument,
    Array,
    BufferRef,
    Launch,
    ReducingWorkload,
    ceil_div,
    uniform,
)
from gpushmoo.workloads.host_fed import (
    HostFedWorkload,
    Pipeline,
    StreamSetup,
    count_cuts,
    cuts,
    share_of_host,
)

from . import printed_loop, summation
from .host_dot import host_dot, host_dot_depth, one_core_dot, prepare

# Elements that a thread of a streamed kernel processes at a time.
LANES = 4
# A block keeps a sum for each of its threads. A CPU's OpenCL would allow more of them.
MAX_THREADS = 1024
# Copies and launches of a cell, which the host keeps in memory together, some hundred bytes each.
MAX_PIECES = 65_536


class DotProduct(ReducingWorkload):
    """Σ x_i · y_i of vectors of n elements, or Σ x_i² if there is one of the `operands`.

    The throughput counts each operand once.
    """

    dtypes = ("float", "double")
    operands: ClassVar[tuple[str, ...]] = ("x", "y")

    @abstractmethod
    def depth(self, cell: Cell) -> int:
        """Return the most roundings of any product on its way into the result."""

    def factors(self, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return the two vectors that are multiplied."""
        return arrays[self.operands[0]], arrays[self.operands[-1]]

    def problem(self, size: int) -> Problem:
        """Return a problem of one row of `size` elements."""
        return Problem(1, size)

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the operands by name, each of height · width random elements from 0 to 1.

        All are positive, so that a missing piece changes the result clearly.
        """
        n = problem.height * problem.width
        scalar = DTYPES[dtype].scalar
        return {name: uniform(rng, (n,), scalar) for name in self.operands}

    def known(self, inputs: Mapping[str, Array]) -> summation.Reference:
        """Return the dot product with more digits than a double has."""
        return summation.reference_dot(*self.factors(inputs))

    def fault(self, value: float, cell: Cell, known: summation.Reference) -> str | None:
        """Return why `value` is farther off than rounding in the cell's order of summation."""
        bound = summation.tolerance(known, self.depth(cell), DTYPES[cell.dtype].scalar)
        if summation.agrees(value, known, bound):
            return None
        within = f"{known.value!r} ± {bound.absolute:.3g}"
        return f"{value!r} is not {within}, the bound of this order of summation"

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of all operands, each of which is read once."""
        n = problem.height * problem.width
        return len(self.operands) * n * DTYPES[dtype].itemsize

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of one operand; all have the same length."""
        return problem.height * problem.width * DTYPES[dtype].itemsize


PUBLISHED = "published"
# Modes of variants ``memory-mode``; ``pooled`` keeps streams and device memory from run to run.
SETUPS = {"pooled": StreamSetup.BEFORE, "fresh": StreamSetup.WITHIN}


class StreamedDot(DotProduct, HostFedWorkload):
    """The third document's dot product: pieces of host arrays go over streams to the device.

    Meanwhile the host computes its own share. The kernel `dot_piece` takes the operands, the
    partial sums, the number of elements of the piece and the index of its first partial sum; each
    block writes one partial sum.

    Variants ``memory-mode`` divide the elements as `cuts` does. Host memory is ``pinned`` or
    ``pageable``, and the mode is one of SETUPS. The variant ``published`` is the printed loop, see
    `printed_loop`; its kernel is `dot_published`.
    """

    pattern = "host arrays in pieces over streams; a tree over each block; partial sums on the host"
    variants = ("pinned-pooled", "pinned-fresh", "pageable-pooled", "pageable-fresh", PUBLISHED)
    default_variants = ("pinned-pooled", PUBLISHED)
    sizes = (2**16, 2**20, 2**24)
    zero_axes = frozenset({"chunk", "host_percent"})
    most: ClassVar = {"host_percent": 100}
    # The document's choice, and others.
    axes: ClassVar = {
        "streams": [1, 4, 64],
        "min_per_stream": 2**12,
        "blocks_per_stream": 32,
        "threads": 1024,
        "chunk": [0],
        "host_percent": [0],
    }

    def launch(self, cell: Cell) -> Launch:
        """Return grid and block of a piece that is long enough for all its blocks.

        See `pipeline`.
        """
        grid = (cell["blocks_per_stream"], 1, 1)
        entry = printed_loop.ENTRY if cell.variant == PUBLISHED else "dot_piece"
        return Launch(entry, grid, (cell["threads"], 1, 1), (), tiles=1)

    def pipeline(self, cell: Cell) -> Pipeline:
        """Return the pieces of a run; the host's share are the last elements, as in the document.

        Raises LaunchConfigError for blocks of too many threads for the kernel, for more pieces than
        MAX_PIECES, and for parameters that the printed loop does not support.
        """
        if cell["threads"] > MAX_THREADS:
            raise LaunchConfigError(
                f"{cell['threads']} threads a block; this kernel takes {MAX_THREADS}."
            )
        if cell.variant == PUBLISHED:
            return printed_loop.pipeline(cell, self.operands)
        n = cell.problem.height * cell.problem.width
        (memory, mode) = cell.variant.split("-")
        n_device = n - share_of_host(n, cell["host_percent"])
        if n_device < n:
            prepare(np.dtype(DTYPES[cell.dtype].scalar))
        streams, fewest, chunk = cell["streams"], cell["min_per_stream"], cell["chunk"]
        n_pieces = count_cuts(n_device, streams, fewest, chunk)
        if n_pieces > MAX_PIECES:
            raise LaunchConfigError(
                f"{n_device} elements in {n_pieces} pieces; at most {MAX_PIECES} are queued."
            )
        pieces = []
        first = 0
        for cut in cuts(n_device, streams, fewest, chunk):
            blocks = _blocks(cell, cut.end - cut.begin)
            args: tuple[Argument, ...] = (
                *(BufferRef(name) for name in self.operands),
                BufferRef("partials"),
                np.uint64(cut.end - cut.begin),
                np.uint64(first),
            )
            launch = Launch("dot_piece", (blocks, 1, 1), (cell["threads"], 1, 1), args, tiles=1)
            pieces.append(replace(cut, launch=launch))
            first += blocks
        streams = 1 + max((p.stream for p in pieces), default=0)
        pinned = memory == "pinned"
        return Pipeline(streams, tuple(pieces), first, n_device, n, pinned, SETUPS[mode])

    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> float:
        """Return the dot product of the host's share, by all of its cores; printed: by one."""
        dot = one_core_dot if cell.variant == PUBLISHED else host_dot
        return dot(*self.factors(arrays))

    def total(self, cell: Cell, partials: Array, host_part: float) -> float:
        """Return the sum of all partial sums and the host's part, in double for any arrays' type.

        The printed loop adds in their own type.
        """
        if cell.variant == PUBLISHED:
            return printed_loop.total(partials, host_part)
        return float(partials.sum(dtype=np.float64)) + host_part

    def depth(self, cell: Cell) -> int:
        """Return the roundings of the longest piece or host part, and of adding partial sums."""
        pipeline = self.pipeline(cell)
        if cell.variant == PUBLISHED:
            return printed_loop.depth(pipeline)
        depths = [host_dot_depth(pipeline.host_end - pipeline.host_begin)]
        for piece in pipeline.pieces:
            assert piece.launch is not None
            taken = piece.launch.blocks * piece.launch.threads
            depths.append(thread_depth(piece.end - piece.begin, taken, piece.launch.threads))
        # NumPy adds up to 128 sequentially, and then pairwise.
        return max(depths) + summation.pairwise_depth(pipeline.partials, 128) + 1

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return the accesses that the machine code of the entry must contain.

        In the loop, LANES elements of each operand in 16-byte loads; then a store of the sum, or of
        LANES of them as printed.
        """
        if entry == printed_loop.ENTRY:
            return printed_loop.accesses(dtype)
        loads = len(self.operands) * LANES * DTYPES[dtype].itemsize // 16
        return (
            Access("load", "global", 16, loads, in_loop=True),
            Access("store", "global", DTYPES[dtype].itemsize),
        )


class HostDot(DotProduct, HostFedWorkload):
    """Dot product of the host alone: nothing is built, and no device is used."""

    device_code = False
    axes: ClassVar = {}

    def launch(self, cell: Cell) -> Launch:
        """Return a placeholder of one block of one thread: nothing is launched."""
        return Launch("none", (1, 1, 1), (1, 1, 1), (), tiles=1)

    def pipeline(self, cell: Cell) -> Pipeline:
        """Return a pipeline without streams or pieces: the host computes all elements."""
        n = cell.problem.height * cell.problem.width
        return Pipeline(0, (), 0, 0, n, False, StreamSetup.BEFORE)

    def total(self, cell: Cell, partials: Array, host_part: float) -> float:
        """Return the host's part unchanged: no device adds to it."""
        return host_part

    def depth(self, cell: Cell) -> int:
        """Return the depth of sequential addition, because a library does not document its order.

        For floats, this bound accepts any result from 2^24 elements on.
        """
        return summation.sequential_depth(cell.problem.height * cell.problem.width)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Return 0: nothing is allocated on a device."""
        return 0


def thread_depth(n: int, taken: int, threads: int, lanes: int = LANES) -> int:
    """Return the roundings of one of `n` products on its way into a block's sum.

    The products are distributed to `taken` threads, and `threads` of them make a block. A thread
    adds groups of `lanes` sequentially, and perhaps one remaining element.
    """
    terms = lanes * (ceil_div(ceil_div(n, lanes), taken) + 1)
    return summation.blocked_depth(terms, threads, lanes, 1)


def _blocks(cell: Cell, n: int) -> int:
    """Return the blocks for a piece of `n` elements: at least one, and none without work."""
    wanted = ceil_div(ceil_div(n, LANES), cell["threads"])
    return max(1, min(cell["blocks_per_stream"], wanted))
