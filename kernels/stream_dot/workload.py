"""Sweep the launch of BabelStream's Dot, on arrays that are on the device already."""

from __future__ import annotations

from dot_products.resident import ResidentSum
from gpushmoo.workloads.contract import WorkingSet


class StreamDot(ResidentSum):
    """x · y of n elements. With `unroll` 1, a thread loads as in BabelStream."""

    name = "stream_dot"
    title = "Stream dot"
    pattern = "blocks take pieces in turn, in packs of up to 16 bytes, unroll elements a thread"
    variants = ("packs",)
    views = (WorkingSet(),)
    entry = "dot"


WORKLOAD = StreamDot()
