"""What the kernels `dispatch` and `issue` share: they move no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Problem
from gpushmoo.workloads.contract import Access, Array, Workload


class NothingMovedWorkload(Workload):
    """A kernel without data: a timed launch stores nothing, a proof the word `done`.

    That word counts as the bytes of a launch, since there are no others.
    """

    done: ClassVar[int]
    reads_poison = True

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """No buffers, so that a launch gets no pointer but that of its output."""
        return {}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The word of a proof, stored after the work of all threads."""
        return np.array([self.done], np.uint32)

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """A single uint32, written by proofs only: a timed launch leaves its poison."""
        return (1,), np.dtype(np.uint32)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Zero: what is timed is the launch, or arithmetic in registers."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Four bytes, so that a cell has a size; no bandwidth is meant by them."""
        return 4

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """Zero: a copy of one word says nothing about launches or arithmetic."""
        return 0

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """The store of four bytes that a proof executes, which the machine code must still hold."""
        return (Access("store", "global", 4),)
