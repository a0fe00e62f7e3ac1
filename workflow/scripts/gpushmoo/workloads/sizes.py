"""Sizes that follow the device: from a multiple of the last cache level to a problem."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..core.dtypes import DTYPES
from ..core.errors import SizeError, WorkloadError
from ..core.space import Problem, RelativeSize, ShardSpace, Size
from .contract import Workload
from .loader import misfit, refusal

# Kernels are asked for sides of at most 2 to the power of this.
_LARGEST_POWER = 40
# Sides that a kernel may refuse, one after another: up to the second next power of two.
_TRIED = 16


def _sides() -> list[int]:
    """Sides that blocks of any usual shape divide: powers of two, from 256 on with steps between.

    A step is an eighth of the power of two below it, but at least 64.
    """
    sides = [2**power for power in range(8)]
    for power in range(8, _LARGEST_POWER):
        sides += range(2**power, 2 ** (power + 1), max(64, 2 ** (power - 3)))
    return sides


SIDES = _sides()


@dataclass(frozen=True)
class Room:
    """What a device holds, in bytes: its last `cache` level (0: it does not report one).

    `memory` is that of the device, `allocation` that of one buffer.
    """

    cache: int
    is_cpu: bool
    memory: int
    allocation: int


def deciding_dtype(of_cache: float, dtypes: Iterable[str]) -> str:
    """The type whose working set has the factor; all types of a sweep have the same size.

    That is the smallest of a factor of 1 or more, the largest of a smaller one: so every type's
    data are that far outside of the cache, or that far inside.
    """
    ordered = sorted(dtypes, key=lambda dtype: (DTYPES[dtype].itemsize, dtype))
    return ordered[0 if of_cache >= 1.0 else -1]


def working_set(workload: Workload, problem: Problem, dtype: str) -> int:
    """Bytes of all data that a launch reads or writes. Raises WorkloadError."""
    return workload.bytes_read(problem, dtype) + workload.bytes_written(problem, dtype)


def resolved(space: ShardSpace, workload: Workload, room: Room) -> ShardSpace:
    """The space with the sizes that it has on the device. Raises SizeError.

    Equal sizes count once. Raises SizeError as well if a problem can never fit the device.
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
    except WorkloadError:  # which ends the problem's cells later
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
            "report; give on_cpu, the size there, or write sizes in elements"
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
            f"{size.label} asks for {wanted:,.0f} bytes, and no size of {workload.name} comes near "
            "them; write sizes in elements"
        )
    return next(filter(_taken_by(size, space, workload), problems), problems[0])


def _taken_by(
    size: RelativeSize, space: ShardSpace, workload: Workload
) -> Callable[[Problem], bool]:
    """Whether the kernel allows a cell of the problem, of the deciding type.

    So the answer is the same for all types of a sweep, and all parts.
    """

    def is_taken(problem: Problem) -> bool:
        whole = ShardSpace(
            size.dtype, space.variants, [problem], space.cache_states[:1], space.axes, 0, 1
        )
        return refusal(workload, whole) is None

    return is_taken
