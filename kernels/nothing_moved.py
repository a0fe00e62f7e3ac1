"""Share code between the kernels `dispatch` and `issue`, which move no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Problem
from gpushmoo.workloads.contract import Access, Array, Workload


class NothingMovedWorkload(Workload):
    """Kernel without data: a timed launch stores nothing, and a proof stores the word `done`.

    That word counts as the bytes of a launch, because there are no others.
    """

    done: ClassVar[int]
    reads_poison = True

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Return no buffers, so that a launch gets no pointer except that of its output."""
        return {}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """Return the word of a proof, stored after the work of all threads."""
        return np.array([self.done], np.uint32)

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the form of one uint32, which only proofs write.

        Timed launches keep its poison.
        """
        return (1,), np.dtype(np.uint32)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """Return 0: the time is that of the launch, or of arithmetic in registers."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """Return 4, so that a cell has a size; a bandwidth from it has no meaning."""
        return 4

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """Return 0: a copy of one word says nothing about launches or arithmetic."""
        return 0

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """Return the 4-byte store of a proof, which the machine code must still contain."""
        return (Access("store", "global", 4),)
