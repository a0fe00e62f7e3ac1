"""Share code between the kernels `global_store`, `store_columns` and `surf2d_memset`."""

from __future__ import annotations

from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Problem
from gpushmoo.workloads.contract import Workload


class OnlyStoresWorkload(Workload):
    """Kernel that reads nothing and stores each element once.

    Its input is the expected content. The kernel computes it and does not receive it.
    """

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return 0: a launch reads nothing from memory."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of all elements, each of which is written once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the output, of the expected output, and of the input."""
        return 3 * self.bytes_written(problem, dtype)
