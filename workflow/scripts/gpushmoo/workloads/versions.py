"""Questions to a workload before a sweep: versions to compile, valid cells, memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..core.display import one_line
from ..core.errors import WorkloadError
from ..core.space import (
    TYPICAL,
    Cell,
    Problem,
    ShardSpace,
    Version,
    asks_the_device,
    expand_axis,
    indexed,
)
from .contract import Workload


def versions_of(workload: Workload, space: ShardSpace) -> list[Version]:
    """The versions for the cells of `space`, in a fixed order; asks no device.

    For a kernel with compile-time axes only versions with a valid cell, unless the values of
    another axis depend on the device.
    """
    values = [expand_axis(space.axes[axis], TYPICAL) for axis in workload.compile_axes]
    widths = sorted({workload.index_bits(problem) for problem in space.problems})
    versions = [
        indexed(Version(variant, tuple(zip(workload.compile_axes, point, strict=True))), bits)
        for variant in space.variants
        for point in itertools.product(*values)
        for bits in widths
    ]
    if not workload.compile_axes or any(map(asks_the_device, space.axes.values())):
        return versions
    return [v for v in versions if any(_is_valid(workload, c) for c in _cells(v, workload, space))]


def refusal(workload: Workload, space: ShardSpace) -> str | None:
    """Why a kernel's `valid` refuses all cells, as a clause; None if it does not, or may not."""
    if any(map(asks_the_device, space.axes.values())):
        return None
    first = None
    for variant in space.variants:
        for cell in _cells(Version(variant), workload, space):
            try:
                reason = workload.valid(cell)
            except WorkloadError as err:
                first = first or str(err)
                continue
            if reason is None:
                return None
            first = first or (
                f"valid in its workload.py refuses every cell (the first: {one_line(reason)}); "
                "sweep other values, or mend it"
            )
    return first


def _is_valid(workload: Workload, cell: Cell) -> bool:
    try:
        return workload.valid(cell) is None
    except WorkloadError:  # the cell's row will show it
        return False


def _cells(version: Version, workload: Workload, space: ShardSpace) -> Iterator[Cell]:
    """The cells of `version`."""
    fixed = {axis: [value] for axis, value in version.values}
    names = sorted(space.axes)
    values = [fixed.get(a) or expand_axis(space.axes[a], TYPICAL) for a in names]
    for problem, met in space.rounds:
        for point in itertools.product(*values):
            params = tuple(zip(names, point, strict=True))
            yield Cell(workload.name, space.dtype, version.variant, problem, params, *met)


def misfit(
    workload: Workload, problem: Problem, dtype: str, memory: int, allocation: int
) -> str | None:
    """Why a verified run does not fit a device, a clause after the kernel's name; or None."""
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
