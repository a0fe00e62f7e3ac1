"""The host's share of a dot product: blocks added up by all cores, compiled by Numba."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .summation import sequential_depth

Array = npt.NDArray[Any]

# Elements added in their own type, in an order that the compiler chooses, so that its bound is that
# of one after the other. Sums of blocks are added in double.
BLOCK = 2**12
# Elements from which on waking the other cores pays.
SHARED = 2**16


def host_dot(x: Array, y: Array) -> float:
    """x · y of flat arrays of one length and type; all cores work where that is worth their start.

    The first call with elements may compile, which takes about a second (see `prepare`).
    """
    if x.size == 0:
        return 0.0
    cores = len(os.sched_getaffinity(0))
    parts = np.zeros(cores if x.size >= SHARED else 1)
    # Not BLAS on blocks from Python's threads: where NumPy's BLAS has threads of its own, these
    # wait for each other (on 16 cores 15 GB/s instead of 150), and how many it may use is a
    # setting for all.
    loops().share(x, y, parts, BLOCK)
    return float(parts.sum())


def one_core_dot(x: Array, y: Array) -> float:
    """Compute the dot product on the calling thread alone, in one block of the arrays' type."""
    return float(loops().block(x, y)) if x.size else 0.0


@cache
def loops() -> Any:
    """The compiled loops: with their module comes Numba, only where the host has a part."""
    from . import host_loops

    return host_loops


@cache
def prepare(dtype: np.dtype[Any]) -> None:
    """Have `host_dot` and `one_core_dot` compiled for `dtype`, so that no later call does that."""
    for dot in (host_dot, one_core_dot):
        dot(np.ones(1, dtype), np.ones(1, dtype))


def host_dot_depth(n: int) -> int:
    """Roundings on the longest way of one of `n` products into the result of `host_dot`."""
    if n == 0:
        return 0
    return sequential_depth(min(n, BLOCK)) + -(-n // BLOCK)
