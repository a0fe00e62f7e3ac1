"""Compute the host's share of a dot product: all cores add blocks in loops compiled by Numba."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .summation import sequential_depth

Array = npt.NDArray[Any]

# Elements added in their own type, in an order that the compiler chooses, so the bound of
# sequential addition applies. Sums of blocks are added in double.
BLOCK = 2**12
# Number of elements from which it pays to wake the other cores.
SHARED = 2**16


def host_dot(x: Array, y: Array) -> float:
    """Return x · y of flat arrays of one length and type; use all cores if that pays.

    The first call with elements may compile, which takes about a second (see `prepare`).
    """
    if x.size == 0:
        return 0.0
    cores = len(os.sched_getaffinity(0))
    parts = np.zeros(cores if x.size >= SHARED else 1)
    # BLAS on blocks from Python's threads would be slower: if NumPy's BLAS has its own threads,
    # these wait for each other (on 16 cores 15 GB/s instead of 150), and their number is a global
    # setting.
    loops().share(x, y, parts, BLOCK)
    return float(parts.sum())


def one_core_dot(x: Array, y: Array) -> float:
    """Compute the dot product on the calling thread alone, in one block of the arrays' type."""
    return float(loops().block(x, y)) if x.size else 0.0


@cache
def loops() -> Any:
    """Return the compiled loops; their module imports Numba, which only a host part needs."""
    from . import host_loops

    return host_loops


@cache
def prepare(dtype: np.dtype[Any]) -> None:
    """Compile `host_dot` and `one_core_dot` for `dtype`, so that no later call compiles."""
    for dot in (host_dot, one_core_dot):
        dot(np.ones(1, dtype), np.ones(1, dtype))


def host_dot_depth(n: int) -> int:
    """Return the roundings on the longest way of one of `n` products into `host_dot`'s result."""
    if n == 0:
        return 0
    return sequential_depth(min(n, BLOCK)) + -(-n // BLOCK)
