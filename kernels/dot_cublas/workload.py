"""Time NVIDIA's own dot product, for comparison with `dot_resident`."""

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
        """Return a placeholder of one thread: the result comes from cuBLAS, see `library`."""
        return Launch("none", (1, 1, 1), (1, 1, 1), (), tiles=1)

    def library(self, cell: Cell) -> LibraryCall:
        """Return the call of cublasSdot or cublasDdot on both operands.

        Its result is in ``dst``.
        """
        return LibraryCall("dot", self.operands, "dst", cell.dtype)

    def depth(self, cell: Cell) -> int:
        """Return the depth of sequential addition, because cuBLAS does not document its order."""
        return sequential_depth(cell.problem.height * cell.problem.width)


WORKLOAD = DotCublas()
