"""The sum of an array that is on the device already."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from dot_products.resident import ResidentSum
from gpushmoo.workloads.contract import Array, WorkingSet


class ReduceSum(ResidentSum):
    """The sum of one array of n elements: blocks add up parts, the last block adds these."""

    name = "reduce_sum"
    title = "Sum"
    pattern = "blocks take pieces in turn, in packs of up to 16 bytes, unroll elements a thread"
    variants = ("packs",)
    views = (WorkingSet(),)
    operands = ("x",)
    entry = "sum"

    def factors(self, arrays: Mapping[str, Array]) -> tuple[Array, Array]:
        """The array, and as many ones: a sum is its dot product with them."""
        x = arrays["x"]
        return x, np.broadcast_to(np.ones(1, x.dtype), x.shape)


WORKLOAD = ReduceSum()
