"""The third document's sum of squares."""

from typing import ClassVar

from dot_products.workloads import StreamedDot


class DotSquare(StreamedDot):
    """x · x of n elements: one array instead of two goes over the link; n elements are counted."""

    name = "dot_square"
    title = "Streamed sum of squares"
    operands: ClassVar = ("x",)


WORKLOAD = DotSquare()
