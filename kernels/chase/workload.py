"""Loads that wait for each other: what one costs, by how much memory they go through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import Access, Array, BufferRef, Launch, Workload

# Words of a place, as in the kernels: 128 bytes, the line of NVIDIA's caches and two of a CPU's.
# With wider places a part of the lines would stay out, and a cache would seem larger than it is.
LINE = 32
# Output words begin as all ones, to which the kernels add by XOR.
POISON = np.uint32(0xFFFFFFFF)


class Chase(Workload):
    """`chains` single threads follow one chain in random order through the array, `hops` each.

    They share it out one after another, so that a launch goes through chains · hops places, or
    through all of them if that is more. Seconds per hop are the launch's over `hops`.
    """

    name = "chase"
    title = "Pointer chase"
    pattern = "single threads follow a chain in random order, 128 bytes a place; each load waits"
    dtypes = ("float",)
    variants = ("random",)
    # No launch of it is one to use.
    controls = variants
    cache_states = ("warm", "flushed")
    sizes = (2**20,)
    reads_poison = True
    axes: ClassVar = {"chains": [1], "hops": [4096]}

    def problem(self, size: int) -> Problem:
        """An array of `size` elements of 4 bytes."""
        return Problem(1, size)

    def valid(self, cell: Cell) -> str | None:
        """Why the array is too small: a chain needs at least one place of 128 bytes."""
        return None if _places(cell.problem) else f"a place has {LINE} elements"

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """``src``: words, in each place the index of the next and of the place so far along."""
        places = _places(problem)
        src = rng.integers(0, 2**32, problem.height * problem.width, dtype=np.uint32)
        order = rng.permutation(np.arange(places, dtype=np.uint32)) * np.uint32(LINE)
        lines = src[: places * LINE].reshape(places, LINE)
        lines[order // LINE, 0] = np.roll(order, -1)
        lines[:, 1] = order
        return {"src": src}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Where every launch ends, which is the chain's beginning, over the word before."""
        return inputs["src"][1:2] ^ POISON

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """One word of 32 bits: where all chains end, joined by XOR."""
        return (1,), np.dtype(np.uint32)

    def launch(self, cell: Cell) -> Launch:
        """Begins as many places before the chain's beginning as all blocks go."""
        places = _places(cell.problem)
        hops = cell["chains"] * cell["hops"]
        numbers = map(np.uint32, (places, -hops % places, cell["hops"]))
        args = (BufferRef("dst"), BufferRef("src"), *numbers)
        return Launch("chase", (cell["chains"], 1, 1), (1, 1, 1), args, tiles=hops)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """The bytes of the whole array; what a launch reads of it is in `bytes_moved`."""
        return problem.height * problem.width * 4

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """0: one word for each chain, which counts for nothing beside its hops."""
        return 0

    def bytes_moved(self, cell: Cell) -> tuple[int, int]:
        """4 bytes read for each hop, which is all that a launch reads of the array."""
        return 4 * cell["chains"] * cell["hops"], 0

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Bytes of the array; the output and what is expected of it are a word each."""
        return self.bytes_read(problem, dtype) + 8

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """A load of one word in the loop."""
        return (Access("load", "global", 4, in_loop=True),)


def _places(problem: Problem) -> int:
    return problem.height * problem.width // LINE


WORKLOAD = Chase()
