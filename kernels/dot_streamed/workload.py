"""Sweep the third document's dot product of two vectors."""

from dot_products.workloads import StreamedDot


class DotStreamed(StreamedDot):
    """x · y of n elements; the throughput counts both arrays, 2 n elements, as in the document."""

    name = "dot_streamed"
    title = "Streamed dot product"


WORKLOAD = DotStreamed()
