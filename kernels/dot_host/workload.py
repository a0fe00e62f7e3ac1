"""The dot product on the host alone: what a device must beat that gets its data over a bus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from dot_products.host_dot import host_dot, host_dot_depth
from dot_products.workloads import HostDot
from gpushmoo.core.space import Cell
from gpushmoo.workloads.contract import Array
from threadpoolctl import ThreadpoolController

CORES = len(os.sched_getaffinity(0))
# Looked up once: finding the libraries takes longer than a short dot product.
_BLAS = ThreadpoolController()


def naive(x: Array, y: Array) -> Any:
    """The products added up one after the other in the arrays' type: the document's loop."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@cache
def compiled() -> Any:
    """`naive` by Numba, which takes a second to import: only where it is run."""
    from numba import njit

    return njit(naive)


class DotHost(HostDot):
    """NumPy's BLAS with one thread and with all, a compiled loop, and the hybrid's blocks."""

    name = "dot_host"
    title = "Dot product on the host"
    pattern = "both arrays read once from the host's memory by its own cores; no device"
    variants = ("blas-all", "blas-one", "naive", "blocks-all")
    sizes = (2**16, 2**20, 2**24)

    def result_of(self, variant: str) -> str:
        """Its own name: no two variants are measured in turns.

        The threads of a BLAS go on spinning for tens of milliseconds after a call. Others that are
        started meanwhile wait for cores: what takes 0.1 ms alone then takes 1 to 20 ms.
        """
        return variant

    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> float:
        """The whole dot product, computed the way that the cell's variant names."""
        x, y = self.factors(arrays)
        if cell.variant == "naive":
            return float(compiled()(x, y))
        if cell.variant == "blocks-all":
            return host_dot(x, y)
        # Of the controller's own context manager a short dot product would see little else.
        for library in _BLAS.lib_controllers:
            library.set_num_threads(1 if cell.variant == "blas-one" else CORES)
        return float(np.dot(x, y))

    def depth(self, cell: Cell) -> int:
        """Known for ``blocks-all``; for the others the bound of sequential addition."""
        if cell.variant == "blocks-all":
            return host_dot_depth(cell.problem.height * cell.problem.width)
        return super().depth(cell)


WORKLOAD = DotHost()
