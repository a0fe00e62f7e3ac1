"""NVIDIA's own dot product, the peer of `dot_resident`."""

from typing import ClassVar

from dot_products.summation import sequential_depth
from dot_products.workloads import DotProduct
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import Launch, LibraryCall


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
        """A placeholder of one block of one thread: cuBLAS is called instead, see `library`."""
        return Launch("none", (1, 1, 1), (1, 1, 1), (), tiles=1)

    def library(self, cell: Cell) -> LibraryCall:
        """The call of cublasSdot or cublasDdot on both operands, with its result in ``dst``."""
        return LibraryCall("dot", self.operands, "dst", cell.dtype)

    def depth(self, cell: Cell) -> int:
        """Return the depth of sequential addition: the library does not say how it adds."""
        return sequential_depth(cell.problem.height * cell.problem.width)


WORKLOAD = DotCublas()
