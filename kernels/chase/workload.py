"""Measure the latency of dependent loads, by the amount of memory that they visit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Access, Array, BufferRef, Launch, Workload

# Words of a place, as in the kernels: 128 bytes, one line of NVIDIA's caches and two of a CPU's.
# Wider places would leave a part of the lines out, and a cache would seem larger than it is.
LINE = 32
# Output words start as all ones, and the kernels combine them by XOR.
POISON = np.uint32(0xFFFFFFFF)


class Chase(Workload):
    """`chains` single threads follow one chain in random order through the array, `hops` each.

    They start at evenly spaced places of the chain, so a launch visits chains · hops places, or all
    of them if that is more. The seconds per hop are the launch's seconds divided by `hops`.
    """

    name = "chase"
    title = "Pointer chase"
    pattern = "single threads follow a chain in random order, 128 bytes a place; each load waits"
    dtypes = ("float",)
    variants = ("random",)
    # None of its launches is ever recommended.
    controls = variants
    cache_states = ("warm", "flushed")
    sizes = (2**20,)
    reads_poison = True
    axes: ClassVar = {"chains": [1], "hops": [4096]}

    def problem(self, size: int) -> Problem:
        """Return an array of `size` elements of 4 bytes."""
        return Problem(1, size)

    def valid(self, cell: Cell) -> str | None:
        """Reject an array that is too small: a chain needs at least one place of 128 bytes."""
        return None if _places(cell.problem) else f"a place has {LINE} elements"

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``src``: word 0 of a place is the next place, word 1 the chain's i-th place."""
        places = _places(problem)
        src = rng.integers(0, 2**32, problem.height * problem.width, dtype=np.uint32)
        order = rng.permutation(np.arange(places, dtype=np.uint32)) * np.uint32(LINE)
        lines = src[: places * LINE].reshape(places, LINE)
        lines[order // LINE, 0] = np.roll(order, -1)
        lines[:, 1] = order
        return {"src": src}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the end of every launch, the chain's beginning, combined with the word before."""
        return inputs["src"][1:2] ^ POISON

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the form of one word of 32 bits: the ends of all chains, joined by XOR."""
        return (1,), np.dtype(np.uint32)

    def launch(self, cell: Cell) -> Launch:
        """Start as many places before the chain's beginning as all blocks go."""
        places = _places(cell.problem)
        hops = cell["chains"] * cell["hops"]
        numbers = map(np.uint32, (places, -hops % places, cell["hops"]))
        args = (BufferRef("dst"), BufferRef("src"), *numbers)
        return Launch("chase", (cell["chains"], 1, 1), (1, 1, 1), args, tiles=hops)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the whole array; `bytes_moved` returns those that a launch reads."""
        return problem.height * problem.width * 4

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return 0: one word for each chain is negligible beside its hops."""
        return 0

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """Return 4 bytes read for each hop, which is all that a launch reads of the array."""
        return 4 * cell["chains"] * cell["hops"], 0

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the array; the output and its expected value are one word each."""
        return self.bytes_read(problem, dtype) + 8

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return a load of one word in the loop."""
        return (Access("load", "global", 4, in_loop=True),)


def _places(problem: Problem) -> int:
    return problem.height * problem.width // LINE


WORKLOAD = Chase()
