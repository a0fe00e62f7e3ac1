"""Who is next: a tree of times, each with the number of its actor behind it.

Leaves are from 2^bits on, a node's children at twice its number and one more. Every node is the
least below it, so that the root, at 1, is the next time and actor; of equal times the first actor.
A change costs `bits` comparisons, where looking through all actors costs as many as there are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]


@njit(inline="always")
def enter(coming: Ints, bits: int, actor: int, time: int) -> None:
    """Have the next event of `actor` at `time`, which must be under 2^(63 - bits)."""
    node = (1 << bits) + actor
    least = time << bits | actor
    coming[node] = least
    while node > 1:
        least = min(least, coming[node ^ 1])
        node >>= 1
        coming[node] = least
