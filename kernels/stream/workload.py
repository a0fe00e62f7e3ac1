"""Sweep the launches of copy, mul, add and triad of the STREAM benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import (
    Access,
    Array,
    BufferRef,
    HeatMap,
    Launch,
    Workload,
    ceil_div,
    uniform,
)

# A power of two makes the product exact, so `triad` is the same bit by bit with and without a fused
# multiply-add. BabelStream has 0.4, which keeps its values in range over a hundred passes.
SCALAR = np.float32(0.5)
RESULTS: Mapping[str, Callable[[Array, Array], Array]] = {
    "copy": lambda x, y: x,
    "mul": lambda x, y: SCALAR * x,
    "add": lambda x, y: x + y,
    "triad": lambda x, y: x + SCALAR * y,
}
TWO_OPERANDS = ("add", "triad")


class Stream(Workload):
    """``copy``: dst = x. ``mul``: dst = s·x. ``add``: dst = x + y. ``triad``: dst = x + s·y."""

    name = "stream"
    title = "Stream"
    pattern = "threads side by side take packs of up to 16 bytes, unroll elements each"
    dtypes = ("float", "double")
    variants = tuple(RESULTS)
    sizes = (2**20, 2**24)
    axes: ClassVar = {"threads": [128, 256, 512, 1024], "unroll": [1, 2, 4, 8]}
    most: ClassVar = {"unroll": 8}
    views = (HeatMap("threads", "unroll", y_unit="elements"),)

    def problem(self, size: int) -> Problem:
        """Return arrays of `size` elements each."""
        return Problem(1, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """Define the operation: the name of the variant, in capitals."""
        return {variant.upper(): "1"}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``x`` and ``y``: uniform random elements from 0 to 1."""
        kind = DTYPES[dtype]
        shape = kind.shape(problem.height, problem.width)
        return {name: uniform(rng, shape, kind.scalar) for name in ("x", "y")}

    def result_of(self, variant: str) -> str:
        """Return the variant, because each computes something different."""
        return variant

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """Compute the variant's operation by NumPy, rounded as on any device."""
        return RESULTS[variant](inputs["x"], inputs["y"])

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Raise NotImplementedError, because only variants have a result."""
        raise NotImplementedError

    def launch(self, cell: Cell) -> Launch:
        """Launch blocks of threads · unroll consecutive elements."""
        n = cell.problem.height * cell.problem.width
        blocks = ceil_div(n, cell["threads"] * cell["unroll"])
        args = (*(BufferRef(name) for name in ("dst", "x", "y")), self.index(cell.problem, n))
        grid, block = (blocks, 1, 1), (cell["threads"], 1, 1)
        return Launch(f"stream_{cell['unroll']}", grid, block, args, tiles=blocks)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of both operands, which are on the device for every variant."""
        return 2 * self.bytes_written(problem, dtype)

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of one array: each element is written once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """Return the bytes of the variant's operands, read once, and of the result."""
        array = self.bytes_written(cell.problem, cell.dtype)
        return (2 * array if cell.variant in TWO_OPERANDS else array), array

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of copying one array, comparable with `copy` and `mul`."""
        return 2 * self.bytes_written(problem, dtype)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of one array; all have the same length."""
        return self.bytes_written(problem, dtype)

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return a thread's elements of each operand and of the result, in up to 16 bytes."""
        total = int(entry.rsplit("_", 1)[1]) * DTYPES[dtype].itemsize
        width = min(16, total)
        operands = 2 if variant in TWO_OPERANDS else 1
        return (
            Access("load", "global", width, operands * total // width),
            Access("store", "global", width, total // width),
        )


WORKLOAD = Stream()
