"""Inputs of problems on the host, made while another job measures on the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import TypedError
from ..core.space import Problem
from ..workloads.contract import Workload

# Bytes on the device of the problems whose inputs are made ahead.
AHEAD_BYTES = 2**31


class HostInputs:
    """Makes a workload's inputs; every shard of a problem has the same data."""

    def __init__(self, workload: Workload, dtype: str, seed: int) -> None:
        self._workload, self._dtype, self._seed = workload, dtype, seed
        self._ahead: dict[Problem, Mapping[str, npt.NDArray[Any]]] = {}

    def make_ahead(self, problems: Iterable[Problem]) -> None:
        """Make the inputs of the first of these problems, up to AHEAD_BYTES.

        An error is left to the call that needs them.
        """
        room = AHEAD_BYTES
        with suppress(TypedError, MemoryError):
            for problem in problems:
                room -= self._workload.footprint(problem, self._dtype)
                if room < 0:
                    return
                self._ahead[problem] = self._made(problem)

    def make(self, problem: Problem) -> Mapping[str, npt.NDArray[Any]]:
        """The inputs by name. Those made ahead are given once, to free their memory."""
        ahead = self._ahead.pop(problem, None)
        return self._made(problem) if ahead is None else ahead

    def _made(self, problem: Problem) -> Mapping[str, npt.NDArray[Any]]:
        rng = np.random.default_rng([self._seed, problem.height, problem.width])
        return self._workload.inputs(problem, self._dtype, rng)
