"""The functions of the CUDA backend that the registry's record stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ..base import Device
from .building import compile_version, own_kernels, targets
from .clocks import free_clocks, lock_clocks
from .runtime import candidates, load_cupy
from .visible import visible_devices

__all__ = [
    "compile_version",
    "count_devices",
    "free_clocks",
    "list_devices",
    "lock_clocks",
    "open_device",
    "own_kernels",
    "recorded",
    "targets",
]


def open_device(index: int, runtime: str, cache: Path, own_kernels: Mapping[str, bytes]) -> Device:
    """Open CUDA device `index` by CuPy. Raises NoDeviceError."""
    from .device import CudaDevice

    return CudaDevice(index, cache, own_kernels)


def list_devices(wanted: int | None) -> Sequence[tuple[int, str]]:
    """Index and UUID of the visible devices, or of device `wanted`. Raises NoDeviceError."""
    return candidates(wanted)


def count_devices() -> int:
    """The visible devices; 0 where CuPy is not installed."""
    return 0 if find_spec("cupy") is None else visible_devices()


@contextmanager
def recorded() -> Iterator[None]:
    """Between cudaProfilerStart and cudaProfilerStop. Raises NoDeviceError."""
    runtime = load_cupy().cuda.runtime
    runtime.profilerStart()
    try:
        yield
    finally:
        runtime.profilerStop()
