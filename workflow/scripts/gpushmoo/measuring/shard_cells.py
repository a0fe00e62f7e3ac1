"""Which cells a shard has: the axes of a sweep resolved by the device that measures them."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import BuildError, LaunchRefusedError, WorkloadError
from ..core.space import Cell, Residency, ShardSpace, Version, expand_axis
from ..devices.base import Device
from ..workloads.loader import KernelFolder
from .builds import Builds


def plan_cells(
    device: Device,
    folder: KernelFolder,
    builds: Builds,
    versions: Sequence[Version],
    space: ShardSpace,
) -> list[Cell]:
    """The cells of a shard, with axes resolved by this device's occupancy.

    It is that of the first of `versions` that was built and can be launched.
    """
    lone = Residency(device.info.units, 1)
    first = {name: expand_axis(spec, lone)[0] for name, spec in space.axes.items()}
    per_unit = 1
    for version in (v for v in versions if v.name in builds.programs):
        params = tuple(sorted({**first, **dict(version.values)}.items()))
        cell = Cell(folder.name, space.dtype, version.variant, space.problems[0], params)
        try:
            launch = folder.workload.launch(cell)
            per_unit = builds.programs[version.name].resident_per_unit(
                launch.entry, launch.threads, launch.shared_bytes
            )
        except (BuildError, LaunchRefusedError, WorkloadError):
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
