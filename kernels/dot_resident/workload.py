"""Sweep the dot product of vectors that are on the device already."""

from __future__ import annotations

from dot_products.resident import ResidentSum
from dot_products.summation import blocked_depth
from dot_products.workloads import thread_depth
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import Access, ceil_div


class DotResident(ResidentSum):
    """x · y of n elements, by one launch of `grid` blocks."""

    name = "dot_resident"
    title = "Dot product on the device"
    pattern = (
        "grid-stride loop over 16-byte packs, unroll a thread; the last block adds the sums up"
    )
    variants = ("packs",)
    entry = "dot"

    def depth(self, cell: Cell) -> int:
        """Return the roundings in a thread, in its block, and in the last block, which adds up."""
        n = cell.problem.height * cell.problem.width
        blocks = cell["grid"]
        threads = cell["threads"]
        # The remaining packs follow the groups of `unroll`: in the worst case, as sequential ones.
        lanes = 16 // DTYPES[cell.dtype].itemsize
        ours = thread_depth(n, blocks * threads, threads, lanes)
        return ours + blocked_depth(ceil_div(blocks, threads), threads, 1, 1)

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return a 16-byte load of each pack of both vectors in the loop, and a store."""
        packs = 2 * int(entry.rsplit("_", 1)[1])
        return (
            Access("load", "global", 16, packs, in_loop=True),
            Access("store", "global", DTYPES[dtype].itemsize),
        )


WORKLOAD = DotResident()
