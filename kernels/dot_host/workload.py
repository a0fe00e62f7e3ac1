"""The dot product on the host alone: what a device must beat that gets its data over a bus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.dtypes import DTYPES
from gpushmoo.pipeline import Pipeline
from gpushmoo.space import Cell, Problem
from gpushmoo.summation import Reference, agrees, reference_dot, sequential_depth, tolerance
from gpushmoo.workload import Array, HostFedWorkload, Launch
from threadpoolctl import ThreadpoolController

CORES = len(os.sched_getaffinity(0))
# Looked up once: finding the libraries takes longer than a short dot product.
_BLAS = ThreadpoolController()


def naive(x: Array, y: Array) -> Any:
    """One after the other, in the arrays' own type, as the document's loop."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@cache
def compiled() -> Any:
    """`naive` by Numba, which takes a second to import: only where it is run."""
    from numba import njit

    return njit(naive)


class DotHost(HostFedWorkload):
    """NumPy's BLAS with one thread and with all, and a compiled loop."""

    name = "dot_host"
    title = "Dot product on the host"
    pattern = "both arrays read once from the host's memory by its own cores; no device"
    dtypes = ("float", "double")
    variants = ("blas-all", "blas-one", "naive")
    sizes = (2**16, 2**20, 2**24)
    axes: ClassVar = {}
    device_code = False

    def problem(self, size: int) -> Problem:
        """`size` elements in one row."""
        return Problem(1, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """None: nothing is built."""
        return {}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """``x`` and ``y``, uniform from 0 to 1: those of `dot_streamed`."""
        n, scalar = problem.height * problem.width, DTYPES[dtype].scalar
        return {"x": rng.random(n, dtype=scalar), "y": rng.random(n, dtype=scalar)}

    def launch(self, cell: Cell) -> Launch:
        """None; a block of one thread stands for it."""
        return Launch("none", (1, 1, 1), (1, 1, 1), (), tiles=1)

    def pipeline(self, cell: Cell) -> Pipeline:
        """All is the host's."""
        n = cell.problem.height * cell.problem.width
        return Pipeline(0, (), 0, 0, n, pinned=False, pooled=True)

    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> float:
        """The whole dot product."""
        x, y = arrays["x"], arrays["y"]
        if cell.variant == "naive":
            return float(compiled()(x, y))
        # Of the controller's own context manager a short dot product would see little else.
        for library in _BLAS.lib_controllers:
            library.set_num_threads(1 if cell.variant == "blas-one" else CORES)
        return float(np.dot(x, y))

    def total(self, partials: Array, host_part: float) -> float:
        """The host's part."""
        return host_part

    def known(self, inputs: Mapping[str, Array]) -> Reference:
        """The dot product, rounded once."""
        return reference_dot(inputs["x"], inputs["y"])

    def fault(self, value: float, cell: Cell, known: Reference) -> str | None:
        """Further away than adding one after the other can be: BLAS does not say how it adds.

        For floats this bound tells nothing from 2^24 elements on.
        """
        depth = sequential_depth(known.terms)
        bound = tolerance(known, depth, DTYPES[cell.dtype].scalar)
        if agrees(value, known, bound):
            return None
        return f"{value!r} is not {known.value!r} ± {bound.absolute:.3g}"

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Both arrays once."""
        return 2 * problem.height * problem.width * DTYPES[dtype].itemsize


WORKLOAD = DotHost()
