"""The copy, mul, add and triad of the STREAM benchmark, with their launch parameters swept."""

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

# A power of two, so that the product is exact and `triad` is the same bit by bit whether or not a
# compiler fuses it. BabelStream has 0.4, which keeps its values in range over a hundred passes.
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
        """Arrays of `size` elements each."""
        return Problem(1, size)

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        """What is computed: the name of the variant, in capitals."""
        return {variant.upper(): "1"}

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """``x`` and ``y``: uniform random elements from 0 to 1."""
        kind = DTYPES[dtype]
        shape = kind.shape(problem.height, problem.width)
        return {name: uniform(rng, shape, kind.scalar) for name in ("x", "y")}

    def result_of(self, variant: str) -> str:
        """Each variant computes something else."""
        return variant

    def expected(self, inputs: Mapping[str, Array], variant: str) -> Array:
        """Compute the variant's operation by NumPy, rounded as on any device."""
        return RESULTS[variant](inputs["x"], inputs["y"])

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Nothing: there is no result but that of a variant."""
        raise NotImplementedError

    def launch(self, cell: Cell) -> Launch:
        """A block takes threads · unroll consecutive elements."""
        n = cell.problem.height * cell.problem.width
        blocks = ceil_div(n, cell["threads"] * cell["unroll"])
        args = (*(BufferRef(name) for name in ("dst", "x", "y")), self.index(cell.problem, n))
        grid, block = (blocks, 1, 1), (cell["threads"], 1, 1)
        return Launch(f"stream_{cell['unroll']}", grid, block, args, tiles=blocks)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """The bytes of both operands, which are on the device whatever the variant."""
        return 2 * self.bytes_written(problem, dtype)

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """The bytes of one array: each element is written once."""
        return problem.height * problem.width * DTYPES[dtype].itemsize

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """Each operand of the variant read once, and the result written once."""
        array = self.bytes_written(cell.problem, cell.dtype)
        return (2 * array if cell.variant in TWO_OPERANDS else array), array

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """The runtime's copy of one array: a peer of `copy` and `mul`, a measure for the others."""
        return 2 * self.bytes_written(problem, dtype)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """The bytes of one array; all are equally long."""
        return self.bytes_written(problem, dtype)

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """A thread's elements, in accesses of up to 16 bytes, of each operand and of the result."""
        total = int(entry.rsplit("_", 1)[1]) * DTYPES[dtype].itemsize
        width = min(16, total)
        operands = 2 if variant in TWO_OPERANDS else 1
        return (
            Access("load", "global", width, operands * total // width),
            Access("store", "global", width, total // width),
        )


WORKLOAD = Stream()
