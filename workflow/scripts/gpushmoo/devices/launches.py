"""A launch on a device: its limits, and what depends on the compiled kernel."""

from __future__ import annotations

from ..core.errors import LaunchRefusedError
from ..workloads.contract import Launch
from .base import DeviceInfo, Program


def fitted(launch: Launch, program: Program, info: DeviceInfo) -> Launch:
    """The launch of `program` whose grid has as many waves of this device's blocks as it asks."""
    if not launch.waves:
        return launch
    resident = program.resident_blocks(launch.entry, launch.threads, launch.shared_bytes)
    return launch.in_waves(info.multiprocessors * resident)


def check_limits(launch: Launch, info: DeviceInfo) -> None:
    """Raise LaunchRefusedError when block or grid exceed the device's limits."""
    if launch.threads > info.max_threads_per_block:
        raise LaunchRefusedError(
            f"{launch.threads} threads a block; the device takes {info.max_threads_per_block}."
        )
    sizes = (("block", launch.block, info.max_block), ("grid", launch.grid, info.max_grid))
    for what, given, most in sizes:
        for axis, size, limit in zip("xyz", given, most, strict=True):
            if size > limit:
                raise LaunchRefusedError(f"{what} {axis} is {size}; the device takes {limit}.")
