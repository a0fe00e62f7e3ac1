"""Which cells a shard has: the axes of a sweep resolved by the device that measures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .builds import Builds
from .contract import WorkloadError
from .devices.base import BuildError, Device
from .kernels import KernelFolder
from .space import Cell, Problem, Residency, enumerate_cells, expand_axis, shard_of


@dataclass(frozen=True)
class ShardSpace:
    """The cells of one shard: what is swept, and part `index` of `count` of it."""

    dtype: str
    variants: Sequence[str]
    problems: Sequence[Problem]
    cache_states: Sequence[str]
    axes: dict[str, Any]
    index: int
    count: int


def plan_cells(
    device: Device, folder: KernelFolder, builds: Builds, space: ShardSpace
) -> list[Cell]:
    """The cells of a shard, with axes resolved by this device's occupancy."""
    lone = Residency(device.info.units, 1)
    first = {name: expand_axis(spec, lone)[0] for name, spec in space.axes.items()}
    per_unit = 1
    for variant, program in builds.programs.items():
        params = tuple(sorted(first.items()))
        cell = Cell(folder.name, space.dtype, variant, space.problems[0], params)
        try:
            launch = folder.workload.launch(cell)
            per_unit = program.resident_per_unit(launch.entry, launch.threads)
        except (BuildError, WorkloadError):
            continue
        break
    residency = Residency(device.info.units, per_unit)
    most = folder.workload.most
    # Values that the configuration itself names were checked with it.
    values = {
        name: [v for v in expand_axis(spec, residency) if v <= most.get(name, v)]
        for name, spec in space.axes.items()
    }
    cells = enumerate_cells(
        folder.name, space.dtype, space.variants, space.problems, values, space.cache_states
    )
    whole = (space.problems, space.cache_states, space.count)
    return [c for c in cells if shard_of(c, *whole) == space.index]
