"""NVIDIA's own dot product, the peer of `dot_resident`."""

from typing import ClassVar

from gpushmoo.dot_products import DotProduct
from gpushmoo.space import Cell
from gpushmoo.summation import sequential_depth
from gpushmoo.workload import Launch, LibraryCall


class DotCublas(DotProduct):
    """cublasSdot and cublasDdot of n elements on the device."""

    name = "dot_cublas"
    title = "Dot product by cuBLAS"
    pattern = "cublasSdot, cublasDdot; the result stays on the device"
    variants = ("library",)
    sizes = (2**20, 2**24)
    axes: ClassVar = {}
    device_code = False

    def launch(self, cell: Cell) -> Launch:
        """None of ours; a block of one thread stands for it."""
        return Launch("none", (1, 1, 1), (1, 1, 1), (), tiles=1)

    def library(self, cell: Cell) -> LibraryCall:
        """Of both vectors."""
        return LibraryCall("dot", self.operands, "dst", cell.dtype)

    def depth(self, cell: Cell) -> int:
        """One after the other: the library does not say how it adds."""
        return sequential_depth(cell.problem.height * cell.problem.width)


WORKLOAD = DotCublas()
