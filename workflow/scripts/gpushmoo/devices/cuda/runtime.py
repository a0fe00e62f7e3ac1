"""CuPy's runtime: finding it and its devices, their facts, its errors in the protocol's words."""

from __future__ import annotations

import re
from typing import Any

from ...core.errors import (
    DeviceLostError,
    LaunchFailedError,
    LaunchRefusedError,
    NoDeviceError,
    OutOfDeviceMemoryError,
)
from ..base import DeviceInfo

_INSTALL = "install the extra 'cuda13' (or 'cuda12' for an older driver), e.g. by 'make cuda13'"


# After these the context answers every call with the same error. CuPy tells the driver's names
# (CUDA_ERROR_ILLEGAL_ADDRESS) or the runtime's (cudaErrorIllegalAddress).
_STICKY = (
    "ILLEGAL|LAUNCH_?FAIL|LAUNCH_?TIMEOUT|ASSERT|MISALIGNED|ECC|INVALID_?PC|INVALID_?ADDRESS"
    "|STACK_?ERROR|CONTAINED|DEVICE_?UNAVAILABLE|NO_?DEVICE"
)


def load_cupy() -> Any:
    """The module cupy, with at least one device that answers.

    Raises NoDeviceError: without CuPy, without a device, or with a driver older than CuPy's CUDA.
    """
    try:
        import cupy
    except ImportError as err:
        raise NoDeviceError(f"CuPy is missing ({err}); {_INSTALL}.") from err
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as err:
        if "InsufficientDriver" in str(err):
            raise NoDeviceError(_driver_sentence(runtime)) from err
        raise NoDeviceError(
            f"No CUDA device answers ({err}); this needs an NVIDIA GPU and its driver."
        ) from err
    if count == 0:
        raise NoDeviceError("No CUDA device is visible; see CUDA_VISIBLE_DEVICES.")
    return cupy


def _driver_sentence(runtime: Any) -> str:
    try:
        has = f"supports CUDA {version(runtime.driverGetVersion())}"
    except runtime.CUDARuntimeError:
        has = "is missing or does not answer"
    needs = version(runtime.runtimeGetVersion())
    return (
        f"The NVIDIA driver {has}, but this CuPy is built for CUDA {needs}; install a newer driver "
        "or, for a driver of CUDA 12, the extra 'cuda12' by 'make cuda12'."
    )


def candidates(wanted: int | None) -> tuple[tuple[int, str], ...]:
    """Index and UUID of every visible device, or of device `wanted`; makes no context.

    Raises NoDeviceError.
    """
    runtime = load_cupy().cuda.runtime
    count = runtime.getDeviceCount()
    if wanted is not None and wanted >= count:
        are = "is 1 CUDA device" if count == 1 else f"are {count} CUDA devices"
        raise NoDeviceError(f"There {are}, so there is no device {wanted}.")
    indices = range(count) if wanted is None else (wanted,)
    return tuple((i, uuid_of(runtime, i)) for i in indices)


def uuid_of(runtime: Any, index: int) -> str:
    """``GPU-`` and 32 hex digits; where CuPy has fewer, these and the device's place on the bus.

    CuPy hands the UUID over as a string of C, which ends at the first zero byte.
    """
    found = bytes(runtime.getDeviceProperties(index)["uuid"][:16])
    place = "" if len(found) == 16 else f"-{runtime.deviceGetPCIBusId(index)}"
    return f"GPU-{found.hex()}{place}"


class Translate:
    """Context manager that turns CuPy's errors into the protocol's."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, err: Any, trace: Any) -> None:
        if err is None:
            return
        cuda = self._cupy.cuda
        if isinstance(err, cuda.memory.OutOfMemoryError):
            raise OutOfDeviceMemoryError(f"The buffer does not fit ({err}).") from err
        if not isinstance(err, cuda.driver.CUDADriverError | cuda.runtime.CUDARuntimeError):
            return
        text = str(err)
        if "MEMORY_ALLOCATION" in text or "OUT_OF_MEMORY" in text or "MemoryAllocation" in text:
            raise OutOfDeviceMemoryError(f"The buffer does not fit ({text}).") from err
        refused = ("INVALID_VALUE", "OUT_OF_RESOURCES", "InvalidValue", "OutOfResources")
        if any(word in text for word in refused):
            raise LaunchRefusedError(text) from err
        if re.search(_STICKY, text, re.IGNORECASE):
            raise DeviceLostError(text) from err
        raise LaunchFailedError(text) from err


def describe(cupy: Any, index: int) -> DeviceInfo:
    """What CUDA tells about device `index`."""
    runtime = cupy.cuda.runtime
    p = runtime.getDeviceProperties(index)
    grid, block = p["maxGridSize"], p["maxThreadsDim"]
    _, total = cupy.cuda.Device(index).mem_info
    attributes = cupy.cuda.Device(index).attributes
    return DeviceInfo(
        backend="cuda",
        name=p["name"].decode(),
        uuid=uuid_of(runtime, index),
        kind="gpu",
        driver=version(runtime.driverGetVersion()),
        runtime=f"CUDA {version(runtime.runtimeGetVersion())}, CuPy {cupy.__version__}",
        units=int(p["multiProcessorCount"]),
        max_threads_per_block=int(p["maxThreadsPerBlock"]),
        max_block=(int(block[0]), int(block[1]), int(block[2])),
        max_grid=(int(grid[0]), int(grid[1]), int(grid[2])),
        global_memory=int(total),
        max_allocation=int(total),
        cache=int(p["l2CacheSize"]),
        core_clock_mhz=int(attributes["ClockRate"]) // 1000,
        extra={
            "compute_capability": f"{p['major']}.{p['minor']}",
            "ecc": str(bool(p["ECCEnabled"])),
            "memory_clock_mhz": str(int(attributes["MemoryClockRate"]) // 1000),
            "memory_bus_bits": str(p["memoryBusWidth"]),
            "threads_per_multiprocessor": str(p["maxThreadsPerMultiProcessor"]),
        },
        max_image=(
            min(int(attributes["MaxTexture2DWidth"]), int(attributes["MaxSurface2DWidth"])),
            min(int(attributes["MaxTexture2DHeight"]), int(attributes["MaxSurface2DHeight"])),
        ),
    )


def architecture(info: DeviceInfo) -> str:
    """The device's architecture as compilers name it, such as ``sm_90``."""
    return "sm_" + info.extra["compute_capability"].replace(".", "")


def version(number: int) -> str:
    """1000 · major + 10 · minor, as CUDA encodes versions."""
    return f"{number // 1000}.{number % 1000 // 10}"
