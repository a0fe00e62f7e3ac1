"""The host's share of a dot product: BLAS on blocks, by as many threads as there are cores."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Elements that one call of BLAS adds up. BLAS does not say in which order it adds, so that the
# bound of its error is that of one after the other: blocks, added in double, keep it small.
BLOCK = 2**14


def host_dot(x: Array, y: Array) -> float:
    """x · y of flat arrays of one length and type; BLAS releases the interpreter's lock."""
    cores = len(os.sched_getaffinity(0))
    # A block for each core is the least that is worth sharing.
    if x.size <= BLOCK * cores:
        return _blocks(x, y, 0, x.size)
    bounds = [x.size * i // cores // BLOCK * BLOCK for i in range(cores)] + [x.size]
    parts = _workers(cores).map(lambda i: _blocks(x, y, bounds[i], bounds[i + 1]), range(cores))
    return float(sum(parts))


def _blocks(x: Array, y: Array, begin: int, end: int) -> float:
    return float(
        sum(
            float(np.dot(x[i : min(i + BLOCK, end)], y[i : min(i + BLOCK, end)]))
            for i in range(begin, end, BLOCK)
        )
    )


@cache
def _workers(cores: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, thread_name_prefix="host-dot")
