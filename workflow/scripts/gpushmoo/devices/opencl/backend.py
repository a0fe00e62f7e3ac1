"""The functions of the OpenCL backend that the registry's record stands for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..base import Device
from .building import compile_version, own_kernels, targets

__all__ = ["compile_version", "list_devices", "open_device", "own_kernels", "targets"]


def open_device(index: int, runtime: str, cache: Path, own_kernels: Mapping[str, bytes]) -> Device:
    """Open device `index` of an OpenCL runtime by pyopencl. Raises NoDeviceError."""
    from .device import OpenCLDevice

    return OpenCLDevice(runtime, index, cache)


def list_devices(wanted: int | None) -> None:
    """None: OpenCL tells a device's identity only once it is open."""
