"""Base of kernels that time what a device does besides moving data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..core.space import Problem
from .contract import Access, Array, Workload


class NothingMovedWorkload(Workload):
    """A kernel without data: a timed launch stores nothing, a proof one known word.

    That word counts as the bytes of a launch, since there are no others. `done` is what the proof
    stores, as the kernel's text has it.
    """

    done: ClassVar[int]

    def inputs(
        self, problem: Problem, dtype: str, rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """No buffer: there is nothing to read."""
        return {}

    def reference(self, inputs: Mapping[str, Array]) -> Array:
        """The word that a proof stores once all of its threads did what is timed."""
        return np.array([self.done], np.uint32)

    def output_form(self, problem: Problem, dtype: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """One word of 32 bits, whatever the problem and the element type."""
        return (1,), np.dtype(np.uint32)

    def bytes_read(self, problem: Problem, dtype: str) -> int:
        """0: nothing is read."""
        return 0

    def bytes_written(self, problem: Problem, dtype: str) -> int:
        """4: the word of a proof."""
        return 4

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """0: no copy is a peer of a kernel that moves nothing."""
        return 0

    def accesses(self, entry: str, dtype: str, variant: str) -> tuple[Access, ...]:
        """The store of a proof."""
        return (Access("store", "global", 4),)
