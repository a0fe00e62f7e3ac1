"""Resolve sizes that depend on the device: from a multiple of the last cache level to a problem."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..core.dtypes import DTYPES
from ..core.errors import SizeError, WorkloadError
from ..core.space import Problem, RelativeSize, ShardSpace, Size
from .contract import Workload
from .loader import misfit, refusal

# Kernels are tried with sides of at most 2 to the power of this.
_LARGEST_POWER = 40
# A kernel may reject this many sides in a row: up to the second next power of two.
_TRIED = 16


def _sides() -> list[int]:
    """Return sides that common blocks divide: powers of two, and steps between from 256 on.

    A step is an eighth of the power of two below it, but at least 64.
    """
    sides = [2**power for power in range(8)]
    for power in range(8, _LARGEST_POWER):
        sides += range(2**power, 2 ** (power + 1), max(64, 2 ** (power - 3)))
    return sides


SIDES = _sides()


@dataclass(frozen=True)
class Room:
    """Capacities of a device in bytes: its last `cache` level (0 if it does not report one).

    `memory` is that of the device, `allocation` that of one buffer.
    """

    cache: int
    is_cpu: bool
    memory: int
    allocation: int


def deciding_dtype(of_cache: float, dtypes: Iterable[str]) -> str:
    """Return the type whose working set has the factor; all types of a sweep share one size.

    For a factor of 1 or more it is the smallest type, otherwise the largest. So every type's data
    are at least that far outside the cache, or inside it.
    """
    ordered = sorted(dtypes, key=lambda dtype: (DTYPES[dtype].itemsize, dtype))
    return ordered[0 if of_cache >= 1.0 else -1]


def working_set(workload: Workload, problem: Problem, dtype: str) -> int:
    """Return the bytes of all data that a launch reads or writes; raise WorkloadError."""
    return workload.bytes_read(problem, dtype) + workload.bytes_written(problem, dtype)


def resolved(space: ShardSpace, workload: Workload, room: Room) -> ShardSpace:
    """Return the space with the sizes that it has on the device.

    Equal sizes count once.

    Parameters
    ----------
    space
        Space of a shard.
    workload
        The kernel.
    room
        Capacities of the device.

    Raises
    ------
    SizeError
        If the device does not report the size of its cache, if no size of the kernel is near, or if
        a problem can never fit on the device.
    """
    problems = []
    for size in space.sizes:
        problem = size
        if isinstance(size, RelativeSize):
            problem = _problem(size, space, workload, room)
        assert isinstance(problem, Problem)
        problems.append(problem)
        if reason := _misfit(size, problem, workload, space.dtype, room):
            raise SizeError(reason)
    return space.at(list(dict.fromkeys(problems)))


def _misfit(size: Size, problem: Problem, workload: Workload, dtype: str, room: Room) -> str | None:
    try:
        reason = misfit(workload, problem, dtype, room.memory, room.allocation)
    except WorkloadError:  # This error ends the problem's cells later.
        return None
    if reason is None:
        return None
    if isinstance(size, Problem):
        return f"{reason}; choose a smaller size"
    return f"{size.label} makes {reason}; choose a smaller factor"


def _problem(size: RelativeSize, space: ShardSpace, workload: Workload, room: Room) -> Problem:
    if size.on_cpu is not None and (room.is_cpu or room.cache <= 0):
        return size.on_cpu
    if room.cache <= 0:
        raise SizeError(
            f"{size.label} needs the size of the last cache level, which the device does not "
            "report; set on_cpu, the size for such devices, or write sizes in elements"
        )
    wanted = size.of_cache * room.cache

    def bytes_of(side: int) -> int:
        return working_set(workload, workload.problem(side), size.dtype)

    try:
        if size.of_cache >= 1.0:
            tried = SIDES[bisect_left(SIDES, wanted, key=bytes_of) :]
        else:
            tried = SIDES[: bisect_right(SIDES, wanted, key=bytes_of)][::-1]
        problems = [workload.problem(side) for side in tried[:_TRIED]]
    except WorkloadError as err:
        raise SizeError(f"{size.label}: {err}") from err
    if not problems:
        raise SizeError(
            f"{size.label} needs {wanted:,.0f} bytes, and no size of {workload.name} comes near "
            "them; write sizes in elements"
        )
    return next(filter(_taken_by(size, space, workload), problems), problems[0])


def _taken_by(
    size: RelativeSize, space: ShardSpace, workload: Workload
) -> Callable[[Problem], bool]:
    """Return a function: whether the kernel allows a cell of a problem, of the deciding type.

    So the answer is the same for all types and parts of a sweep.
    """

    def is_taken(problem: Problem) -> bool:
        whole = ShardSpace(
            size.dtype, space.variants, [problem], space.cache_states[:1], space.axes, 0, 1
        )
        return refusal(workload, whole) is None

    return is_taken
