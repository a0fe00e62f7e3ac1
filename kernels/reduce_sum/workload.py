"""Sweep the sum of an array that is on the device already."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from dot_products.resident import ResidentSum
from gpushmoo.workloads.contract import Array, WorkingSet


class ReduceSum(ResidentSum):
    """Sum of one array of n elements: blocks add parts, and the last block adds their sums."""

    name = "reduce_sum"
    title = "Sum"
    pattern = "blocks take pieces in turn, in packs of up to 16 bytes, unroll elements a thread"
    variants = ("packs",)
    views = (WorkingSet(),)
    operands = ("x",)
    entry = "sum"

    def factors(self, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return the array and an array of ones: a sum is its dot product with them."""
        x = arrays["x"]
        return x, np.broadcast_to(np.ones(1, x.dtype), x.shape)


WORKLOAD = ReduceSum()
