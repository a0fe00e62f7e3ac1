"""The functions of the CUDA backend: devices without opening one, and the compiler."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ...core.dtypes import DTYPES
from ...core.errors import NoDeviceError
from ...core.schema import Status
from ...core.space import Version
from ...workloads.loader import KernelFolder
from ..base import Device
from ..builds import BuildRequest, CompiledCode, VersionBuild, kernel_source
from ..machine_code.cubins import build_options, cached_cubin, disassembled, nvrtc_version
from ..machine_code.sass import EntryCode, failed_check
from .device import CudaDevice
from .runtime import free_clocks, list_devices, load_cupy, lock_clocks

__all__ = [
    "compile_version",
    "count_devices",
    "free_clocks",
    "list_devices",
    "lock_clocks",
    "open_device",
    "recorded",
    "targets",
]


def open_device(index: int, runtime: str, cache: Path) -> Device:
    """Open CUDA device `index` by CuPy. Raises NoDeviceError."""
    return CudaDevice(index, cache)


# The driver's own list of devices, with a folder for each.
_DRIVER_LISTS = Path("/proc/driver/nvidia/gpus")


def count_devices() -> int:
    """The visible devices, without initialising the driver; 0 without CuPy, 1 on WSL."""
    if find_spec("cupy") is None:
        return 0
    try:
        listed = sum(1 for _ in _DRIVER_LISTS.iterdir())
    except OSError:
        listed = int(_driver() is not None)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed if named is None else min(listed, len(list(filter(None, named.split(",")))))


def _driver() -> ctypes.CDLL | None:
    """The driver's library."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


def _visible_archs() -> list[str]:
    """Architecture (``sm_90``) of every visible device, from the driver: no CuPy, no context.

    This initialises the driver: the process must not be forked afterwards.
    """
    cuda = _driver()
    count, device, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda is None or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    archs = []
    for index in range(count.value):
        cuda.cuDeviceGet(ctypes.byref(device), index)
        digits = ""
        for attribute in (_MAJOR, _MINOR):
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            digits += str(value.value)
        archs.append(f"sm_{digits}")
    return archs


@contextmanager
def recorded() -> Iterator[None]:
    """Between cudaProfilerStart and cudaProfilerStop. Raises NoDeviceError."""
    runtime = load_cupy().cuda.runtime
    runtime.profilerStart()
    try:
        yield
    finally:
        runtime.profilerStop()


def targets(request: BuildRequest) -> tuple[str, ...]:
    """The named architecture, else those of the visible devices. Raises NoDeviceError."""
    if request.cuda_arch is not None:
        return (request.cuda_arch,)
    archs = _visible_archs()
    if request.device != "all":
        archs = archs[int(request.device) :][:1]
    if not archs:
        raise NoDeviceError(
            "No CUDA device answers; this needs an NVIDIA GPU and its driver (or cuda_arch in the "
            "configuration, to compile without one)."
        )
    return tuple(sorted(set(archs)))


def compile_version(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
) -> VersionBuild:
    """Compile `version` for the architecture `target`, and check its machine code."""
    options = build_options(DTYPES[dtype], folder.workload.macros(dtype, version))
    options += request.options
    made, codes = _compiled(folder.path, options, target, request.cache)
    failure = failed_check(folder, dtype, version.variant, codes.values())
    return VersionBuild(
        f"NVRTC {nvrtc_version()}",
        " ".join(options),
        made.log,
        None if failure is None else Status.BUILD_FAILED,
        failure,
        code=made.code,
        entries=[asdict(codes[name]) for name in sorted(codes)],
    )


@cache
def _compiled(
    folder: Path, options: tuple[str, ...], arch: str, kept: Path
) -> tuple[CompiledCode, dict[str, EntryCode]]:
    """Machine code and its contents, shared by versions that differ in launches only."""
    made = cached_cubin(kernel_source(folder, ".cu"), folder.name, options, arch, kept)
    return made, disassembled(made.code, kept)
