"""Launches with attributes (clusters, cooperative, shared memory's share) by the driver's own call.

CuPy has no such launch.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.errors import LaunchRefusedError
from ...workloads.contract import Launch

_COOPERATIVE, _CLUSTER, _CARVEOUT = 2, 4, 14  # CU_LAUNCH_ATTRIBUTE_…
_NON_PORTABLE = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
# Blocks of a cluster that every device with clusters has.
_PORTABLE = 8


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("value", ctypes.c_uint * 16),
    )


class _Config(ctypes.Structure):
    _fields_ = (
        *((f"{what}_{axis}", ctypes.c_uint) for what in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("n_attributes", ctypes.c_uint),
    )


def _config(launch: Launch) -> _Config:
    pairs: list[tuple[int, tuple[int, ...]]] = []
    if launch.cooperative:
        pairs.append((_COOPERATIVE, (1,)))
    if launch.cluster is not None:
        pairs.append((_CLUSTER, launch.cluster))
    if launch.carveout is not None:
        pairs.append((_CARVEOUT, (launch.carveout,)))
    found = [_Attribute(kind, 0, (ctypes.c_uint * 16)(*value)) for kind, value in pairs]
    geometry = (*launch.grid, *launch.block, launch.shared_bytes)
    return _Config(*geometry, None, (_Attribute * len(found))(*found), len(found))


def _allow(driver: Any, handle: Any, launch: Launch, check: Callable[[int], None]) -> None:
    """Allow a function clusters that not every device has."""
    if math.prod(launch.cluster or ()) > _PORTABLE:
        check(driver.cuFuncSetAttribute(handle, _NON_PORTABLE, 1))


def blocks_in_clusters(
    driver: Any, function: Any, launch: Launch, check: Callable[[int], None]
) -> int:
    """How many blocks of a launch in clusters the device holds at once."""
    handle, count, config = ctypes.c_void_p(function), ctypes.c_int(), _config(launch)
    _allow(driver, handle, launch, check)
    asked = ctypes.byref(count), handle, ctypes.byref(config)
    check(driver.cuOccupancyMaxActiveClusters(*asked))
    return count.value * math.prod(launch.cluster or ())


def extended(
    driver: Any,
    function: Any,
    launch: Launch,
    args: Sequence[Any],
    stream: Callable[[], int],
    check: Callable[[int], None],
) -> Callable[[], None]:
    """Queues `launch` of the driver's `function` in the current stream; `args` are CuPy's.

    `check` raises for the driver's codes. Raises LaunchRefusedError for blocks that make no
    clusters.
    """
    cluster = launch.cluster or (1, 1, 1)
    if any(n % size for n, size in zip(launch.grid, cluster, strict=True)):
        raise LaunchRefusedError(f"the grid {launch.grid} is not of whole clusters {cluster}.")
    handle = ctypes.c_void_p(function)
    _allow(driver, handle, launch, check)
    values = [np.frombuffer(_bytes(arg), np.uint8) for arg in args]
    places = (ctypes.c_void_p * len(values))(*(v.ctypes.data for v in values))
    config = _config(launch)

    def enqueue() -> None:
        config.stream = stream()
        assert len(values) == len(places)  # which point to them
        check(driver.cuLaunchKernelEx(ctypes.byref(config), handle, places, None))

    return enqueue


def _bytes(argument: Any) -> bytes:
    """What the driver takes: a number itself, the address of a buffer, or an image's handle."""
    if isinstance(argument, np.generic):
        return argument.tobytes()
    place = argument.data.ptr if hasattr(argument, "data") else argument.ptr
    return np.uint64(place).tobytes()
