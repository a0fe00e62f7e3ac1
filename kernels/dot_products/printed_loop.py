"""Run the third document's loop as printed: each stream is created, fed and freed in turn.

Names in capitals are the document's parameters: MAX_STREAMS is the axis ``streams``,
MIN_N_PER_STREAM_SIZE ``min_per_stream``, MAX_BLOCKS_PER_STREAM ``blocks_per_stream``,
THREADS_PER_BLOCK ``threads``.
"""

from __future__ import annotations

import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import Access, Argument, Array, BufferRef, Launch, ceil_div
from gpushmoo.workloads.host_fed import Piece, Pipeline

from . import summation
from .host_dot import prepare
from .in_turn import bind_in_turn

ENTRY = "dot_published"
# Elements of a vector, four of which a thread sums separately; a block leaves one vector.
LANES = 4


def pipeline(cell: Cell, operands: tuple[str, ...]) -> Pipeline:
    """Split the elements evenly over the streams of the printed formula; the host has the rest.

    Raises LaunchConfigError for parameters that the loop lacks, for threads that are not a power of
    two, and for 1 to 3 elements per stream, for which it would launch an empty grid.
    """
    _refuse(cell)
    n = cell.problem.height * cell.problem.width
    most = cell["streams"]
    if n == 0:
        return Pipeline(0, (), 0, 0, 0, True, bind_in_turn)
    power = _power_of_two(n)
    streams = min(ceil_div(power, cell["min_per_stream"]), most)
    share = _power_of_two(power // streams)
    vectors = share // LANES
    if vectors == 0:
        raise LaunchConfigError(
            f"{share} elements a stream; the printed program launches no block for fewer than "
            f"{LANES}."
        )
    if streams * share < n:
        prepare(np.dtype(DTYPES[cell.dtype].scalar))
    blocks = min(ceil_div(vectors, cell["threads"]), cell["blocks_per_stream"])
    # The sum of squares passes the one array twice.
    inputs = tuple(BufferRef(name) for name in (operands[0], operands[-1]))
    pieces = []
    for i in range(streams):
        numbers = (np.uint64(share), np.uint64(i * blocks))
        args: tuple[Argument, ...] = (*inputs, BufferRef("partials"), *numbers)
        launch = Launch(ENTRY, (blocks, 1, 1), (cell["threads"], 1, 1), args, tiles=1)
        pieces.append(Piece(i, i * share, (i + 1) * share, launch))
    partials = LANES * blocks * streams
    end = streams * share
    return Pipeline(streams, tuple(pieces), partials, end, n, True, bind_in_turn)


def _refuse(cell: Cell) -> None:
    for axis in ("chunk", "host_percent"):
        if cell[axis]:
            raise LaunchConfigError(
                f"{axis} is {cell[axis]}; the printed program does not have it."
            )
    if cell["threads"] & (cell["threads"] - 1):
        raise LaunchConfigError(
            f"{cell['threads']} threads a block; the printed program takes powers of two."
        )


def _power_of_two(n: int) -> int:
    """Return the largest power of two up to `n`, which is at least 1."""
    return 1 << (n.bit_length() - 1)


def total(partials: Array, host_part: float) -> float:
    """Add each vector's four sums to the host's part, one after another, in their own type."""
    first = partials.dtype.type(host_part)
    if not partials.size:
        return float(first)
    lanes = partials.reshape(-1, LANES).T
    sums = ((lanes[0] + lanes[1]) + lanes[2]) + lanes[3]
    sums[0] = first + sums[0]
    return float(np.add.accumulate(sums)[-1])


def depth(pipeline: Pipeline) -> int:
    """Return the roundings on a product's longest way into the result; see `pipeline`, `total`."""
    host = summation.sequential_depth(pipeline.host_end - pipeline.host_begin)
    deepest = 0
    for piece in pipeline.pieces[:1]:
        assert piece.launch is not None
        launch = piece.launch
        terms = LANES * ceil_div(
            ceil_div(piece.end - piece.begin, LANES), launch.blocks * launch.threads
        )
        deepest = summation.blocked_depth(terms, launch.threads, LANES, 1)
    return max(host, deepest) + pipeline.partials // LANES


def accesses(dtype: str) -> tuple[Access, ...]:
    """Return a 16-byte load of a vector of each operand in the loop, and a store of one vector."""
    words = LANES * DTYPES[dtype].itemsize // 16
    return (
        Access("load", "global", 16, 2 * words, in_loop=True),
        Access("store", "global", 16, words),
    )
