"""Whether a kernel's buffers fit a device's memory."""

from __future__ import annotations

from ..core.space import Problem
from .contract import Workload


def misfit(
    workload: Workload, problem: Problem, dtype: str, memory: int, allocation: int
) -> str | None:
    """Why a verified run does not fit a device of `memory` bytes, `allocation` in one buffer.

    None when it fits; else a clause to put after the name of the culprit.
    """
    need = workload.footprint(problem, dtype)
    largest = workload.largest_buffer(problem, dtype)
    what = f"{problem.height} x {problem.width} {dtype} needs"
    if need > memory:
        return f"{what} {need / 2**30:,.2f} GiB, the device holds {memory / 2**30:,.2f} GiB"
    if largest > allocation:
        return (
            f"{what} a buffer of {largest / 2**30:,.2f} GiB, the device allows "
            f"{allocation / 2**30:,.2f} GiB in one buffer"
        )
    return None
