"""Make the data of problems on the host, if possible while another job measures on the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import TypedError
from ..core.space import Problem
from ..workloads.contract import ReducingWorkload, Workload

# Bytes on the device of the problems whose data are made ahead.
AHEAD_BYTES = 2**31


class HostData:
    """Inputs and expected outputs of a workload on the host, which are the same for every shard.

    Data that `make_ahead` has made is returned only once, to free its memory.

    Parameters
    ----------
    workload
        The kernel.
    dtype
        Name of the element type.
    seed
        Seed of the inputs.
    """

    def __init__(self, workload: Workload, dtype: str, seed: int) -> None:
        self._workload, self._dtype, self.seed = workload, dtype, seed
        self._inputs: dict[Problem, Mapping[str, npt.NDArray[Any]]] = {}
        # By problem and result: expected outputs, or facts of the inputs.
        self._results: dict[tuple[Problem, str], Any] = {}

    def make_ahead(self, problems: Iterable[Problem], variants: Sequence[str]) -> None:
        """Make the data of the first problems, up to AHEAD_BYTES of device memory.

        Errors are suppressed. They occur again in the call that needs the data.

        Parameters
        ----------
        problems
            Problem sizes, the first one first.
        variants
            Variants whose expected outputs are made.
        """
        room = AHEAD_BYTES
        with suppress(TypedError, MemoryError):
            for problem in problems:
                room -= self._workload.footprint(problem, self._dtype)
                if room < 0:
                    return
                inputs = self._made(problem)
                self._inputs[problem] = inputs
                for variant in variants:
                    key = self._key(problem, variant)
                    if key not in self._results:
                        self._results[key] = self._result(inputs, variant)

    def inputs(self, problem: Problem) -> Mapping[str, npt.NDArray[Any]]:
        """Return the inputs of a problem by name.

        Inputs that were made ahead are kept as long as another variant needs them.
        """
        if problem not in self._inputs:
            return self._made(problem)
        if any(of == problem for of, _ in self._results):
            return self._inputs[problem]
        return self._inputs.pop(problem)

    def result(self, problem: Problem, variant: str) -> Any | None:
        """Return expected outputs that were made ahead, or None if they were not.

        For a workload whose result is one number, these are the quantities that its check requires.
        """
        return self._results.pop(self._key(problem, variant), None)

    def _made(self, problem: Problem) -> Mapping[str, npt.NDArray[Any]]:
        rng = np.random.default_rng([self.seed, problem.height, problem.width])
        return self._workload.inputs(problem, self._dtype, rng)

    def _key(self, problem: Problem, variant: str) -> tuple[Problem, str]:
        return problem, self._workload.result_of(variant)

    def _result(self, inputs: Mapping[str, npt.NDArray[Any]], variant: str) -> Any:
        if isinstance(self._workload, ReducingWorkload):
            return self._workload.known(inputs)
        return self._workload.outputs(inputs, variant)
