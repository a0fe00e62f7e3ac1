"""Loops of dot products that Numba compiles, once for all processes.

The module imports Numba, so it is itself imported only where a loop runs. Numba keeps what it
compiled beside this file or, where that folder cannot be written, in the user's cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit, prange

Array = npt.NDArray[Any]


@njit(cache=True)
def naive(x: Array, y: Array) -> Any:
    """Add the products sequentially in the arrays' type: a scalar loop."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


# Sums may be reordered, which wide vectors need; NaN and infinities count as usual.
@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def block(x: Array, y: Array) -> Any:
    """Add the products in the arrays' type, in an order that the compiler chooses."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@njit(cache=True, parallel=True)
def share(x: Array, y: Array, parts: Array, length: int) -> None:
    """Compute a sum for each of the `parts`, one per core: in double, of blocks of `length`."""
    for k in prange(parts.size):
        end = x.size * (k + 1) // parts.size
        total = 0.0
        for i in range(x.size * k // parts.size, end, length):
            j = min(i + length, end)
            total += block(x[i:j], y[i:j])
        parts[k] = total


@njit(cache=True, parallel=True)
def _share_bins(x: Array, y: Array, bins: npt.NDArray[np.int64], least: int) -> None:
    parts = bins.shape[0]
    negative = bins.shape[2] // 2
    mask = 2**18 - 1
    for part in prange(parts):
        for i in range(x.size * part // parts, x.size * (part + 1) // parts):
            a, b = np.float64(x[i]), np.float64(y[i])
            u, a_exponent = math.frexp(abs(a))
            v, b_exponent = math.frexp(abs(b))
            # Three digits of each, as integers, the most significant first.
            p, q = np.int64(u * 2.0**54), np.int64(v * 2.0**54)
            p0 = p >> 36
            p1 = p >> 18 & mask
            p2 = p & mask
            q0 = q >> 36
            q1 = q >> 18 & mask
            q2 = q & mask
            where = a_exponent + b_exponent - least
            # A product of zeros adds nothing wherever it goes.
            if (a < 0) != (b < 0):
                where += negative
            bins[part, 0, where] += p0 * q0
            bins[part, 1, where] += p0 * q1 + p1 * q0
            bins[part, 2, where] += p0 * q2 + p1 * q1 + p2 * q0
            bins[part, 3, where] += p1 * q2 + p2 * q1
            bins[part, 4, where] += p2 * q2


def binned(x: Array, y: Array, shape: tuple[int, int], least: int) -> npt.NDArray[np.int64]:
    """Compute `summation.binned` on all cores, each with separate bins: the digits are the same."""
    bins = np.zeros((get_num_threads(), *shape), np.int64)
    _share_bins(x, y, bins, least)
    return np.asarray(bins.sum(axis=0))
