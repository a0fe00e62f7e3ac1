"""A launch on a device: its limits, and what depends on the compiled kernel."""

from __future__ import annotations

from dataclasses import replace

from ..core.errors import LaunchRefusedError
from ..workloads.contract import Launch, NullRef, SharedMemory
from .base import DeviceInfo, Program


def completed(launch: Launch, program: Program) -> Launch:
    """With the block and the arguments that the compiler of `program` chose, if it did."""
    facts = program.facts.get(launch.entry)
    if facts is None or facts.block is None or launch.block == facts.block:
        return launch
    args = [a for place, a in enumerate(launch.args) if place not in facts.left_out]
    args += [NullRef()] * facts.hidden
    args += [SharedMemory(facts.shared_bytes)] if facts.shared_bytes else []
    return replace(launch, block=facts.block, args=tuple(args))


def fitted(launch: Launch, program: Program, info: DeviceInfo) -> Launch:
    """Completed, its grid with as many waves of this device's blocks as it asks."""
    launch = completed(launch, program)
    if not launch.waves:
        return launch
    resident = program.resident_blocks(launch)
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
