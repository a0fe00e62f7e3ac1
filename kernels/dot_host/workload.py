"""Time the dot product on the host alone, which a device on a bus must beat."""

from __future__ import annotations

from collections.abc import Mapping

from dot_products.host_dot import host_dot_depth
from dot_products.host_ways import WAYS, dot_by
from dot_products.workloads import HostDot
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import Array


class DotHost(HostDot):
    """NumPy's BLAS with one thread and with all, a compiled loop, and the hybrid's blocks."""

    name = "dot_host"
    title = "Dot product on the host"
    pattern = "both arrays read once from the host's memory by its own cores; no device"
    variants = WAYS
    sizes = (2**16, 2**20, 2**24)

    def result_of(self, variant: str) -> str:
        """Return the variant's own name, so that variants are not measured alternately.

        The threads of a BLAS continue to spin after a call. Other threads that start meanwhile wait
        for cores: a call of 0.1 ms then takes 1 to 20 ms.
        """
        return variant

    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> float:
        """Return the whole dot product, computed as the cell's variant names."""
        return dot_by(cell.variant, *self.factors(arrays))

    def depth(self, cell: Cell) -> int:
        """Return the depth of ``blocks-all``; for others the bound of sequential addition."""
        if cell.variant == "blocks-all":
            return host_dot_depth(cell.problem.height * cell.problem.width)
        return super().depth(cell)


WORKLOAD = DotHost()
