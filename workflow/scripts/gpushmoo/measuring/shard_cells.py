"""Which cells a shard has: the axes of a sweep resolved by the device that measures them."""

from __future__ import annotations

from ..core.errors import BuildError, WorkloadError
from ..core.space import Cell, Residency, ShardSpace, expand_axis
from ..devices.base import Device
from ..workloads.loader import KernelFolder
from .builds import Builds


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
    return space.cells(folder.name, values)
