"""Use CuPy's runtime and NVML: list and describe devices, lock clocks, and convert errors."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...core.errors import (
    ClocksNotLockedError,
    DeviceLostError,
    LaunchConfigError,
    LaunchFailedError,
    NoDeviceError,
    OutOfDeviceMemoryError,
)
from ...core.paths import install
from ..base import DeviceInfo
from ..capabilities import BASE, LockedClocks, Reading

_INSTALL = f"install the extra 'cuda13' (or 'cuda12' for an older driver): {install('cuda13')}"


# Errors that end the context, by the driver's name (CUDA_ERROR_ILLEGAL_ADDRESS) or the runtime's
# (cudaErrorIllegalAddress).
_STICKY = (
    "ILLEGAL|LAUNCH_?FAIL|LAUNCH_?TIMEOUT|ASSERT|MISALIGNED|ECC|INVALID_?PC|INVALID_?ADDRESS"
    "|STACK_?ERROR|CONTAINED|DEVICE_?UNAVAILABLE|NO_?DEVICE"
)


def load_cupy() -> Any:
    """Return the module CuPy, after checking that at least one device responds.

    Raises
    ------
    NoDeviceError
        If CuPy, the driver or a device is missing.
    """
    try:
        import cupy
    except ImportError as err:
        if not _has_driver():
            raise NoDeviceError(
                "CUDA needs an NVIDIA GPU and its driver, and this machine has no driver "
                f"(libcuda.so.1); once it has, {_INSTALL}."
            ) from err
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


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _driver_sentence(runtime: Any) -> str:
    try:
        supported = runtime.driverGetVersion()
    except runtime.CUDARuntimeError:
        supported = 0
    # The runtime's word for no driver.
    if supported == 0:
        return "No NVIDIA driver answers; this needs an NVIDIA GPU and its driver."
    needs = version(runtime.runtimeGetVersion())
    return (
        f"The NVIDIA driver supports CUDA {version(supported)}, but this CuPy is built for CUDA "
        f"{needs}; install a newer driver or, for a driver of CUDA 12, the extra 'cuda12': "
        f"{install('cuda12')}."
    )


def list_devices(wanted: int | None) -> tuple[tuple[int, str], ...]:
    """Return index and UUID of all visible devices or of device `wanted`. Create no context.

    Raises
    ------
    NoDeviceError
        If there is no such device.
    """
    runtime = load_cupy().cuda.runtime
    count = runtime.getDeviceCount()
    if wanted is not None and wanted >= count:
        are = "is 1 CUDA device" if count == 1 else f"are {count} CUDA devices"
        raise NoDeviceError(f"There {are}, so there is no device {wanted}.")
    indices = range(count) if wanted is None else (wanted,)
    return tuple((i, uuid_of(runtime, i)) for i in indices)


def uuid_of(runtime: Any, index: int) -> str:
    """Return the UUID of a device as ``GPU-`` and 32 hex digits.

    CuPy cuts the UUID at a zero byte. It is then followed by the PCI bus address.

    Parameters
    ----------
    runtime
        CuPy's module of the runtime.
    index
        Index of the device.
    """
    found = bytes(runtime.getDeviceProperties(index)["uuid"][:16])
    place = "" if len(found) == 16 else f"-{runtime.deviceGetPCIBusId(index)}"
    return f"GPU-{found.hex()}{place}"


class Translate:
    """Context manager that converts errors of CuPy to those of `core.errors`.

    Parameters
    ----------
    cupy
        The module CuPy.
    """

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
        refused = (
            "INVALID_VALUE",
            "OUT_OF_RESOURCES",
            "InvalidValue",
            "OutOfResources",
            "COOPERATIVE_LAUNCH_TOO_LARGE",
            "INVALID_CLUSTER_SIZE",
        )
        if any(word in text for word in refused):
            raise LaunchConfigError(text) from err
        if re.search(_STICKY, text, re.IGNORECASE):
            raise DeviceLostError(text) from err
        raise LaunchFailedError(text) from err


def describe(cupy: Any, index: int) -> DeviceInfo:
    """Return the properties of the device at `index`."""
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
        multiprocessors=int(p["multiProcessorCount"]),
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
    """Return the device's architecture as compilers name it, for example ``sm_90``."""
    return "sm_" + info.extra["compute_capability"].replace(".", "")


def version(number: int) -> str:
    """Return a version such as ``13.1``, which CUDA encodes as 1000 · major + 10 · minor."""
    return f"{number // 1000}.{number % 1000 // 10}"


_REASONS = {
    "gpu_idle": "nvmlClocksThrottleReasonGpuIdle",
    "applications_clocks": "nvmlClocksThrottleReasonApplicationsClocksSetting",
    "sw_power_cap": "nvmlClocksThrottleReasonSwPowerCap",
    "hw_slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "sync_boost": "nvmlClocksThrottleReasonSyncBoost",
    "sw_thermal_slowdown": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "hw_thermal_slowdown": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "hw_power_brake_slowdown": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
}


class NvmlSensor:
    """Sensors of the GPU at a PCI bus address. CUDA and NVML number devices differently.

    Parameters
    ----------
    nvml
        The module pynvml.
    bus_id
        PCI bus address.
    """

    def __init__(self, nvml: Any, bus_id: str) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())

    def read(self) -> Reading | None:
        """Return the present state of the GPU, or None if the driver does not respond."""
        n, handle = self._nvml, self._handle
        try:
            mask = n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            return Reading(
                sm_clock_mhz=n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM),
                memory_clock_mhz=n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_MEM),
                temperature_c=n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU),
                power_w=n.nvmlDeviceGetPowerUsage(handle) / 1000.0,
                reasons=tuple(name for name, bit in _REASONS.items() if mask & getattr(n, bit)),
            )
        except n.NVMLError:
            return None

    def energy_mj(self) -> int | None:
        """Return the energy used since the driver was loaded, in mJ, or None without a meter."""
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError:
            return None


def open_sensor(bus_id: str) -> NvmlSensor | None:
    """Return the sensor of the GPU at a PCI bus address.

    The result is None if nvidia-ml-py is missing, or if NVML does not respond.

    Parameters
    ----------
    bus_id
        PCI bus address.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return NvmlSensor(pynvml, bus_id)
    except pynvml.NVMLError:
        return None


class NvmlClocks:
    """Clocks of the GPU that `uuid_of` identifies, see `capabilities.Clocks`.

    Parameters
    ----------
    uuid
        UUID of the device.
    """

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def lock(self, asked: int | str) -> LockedClocks:
        """Lock the core and memory clocks with NVML, or raise ClocksNotLockedError."""
        nvml, handle = _opened(self._uuid)
        core = nvml.NVML_CLOCK_LIMIT_ID_TDP if asked == BASE else asked
        try:
            nvml.nvmlDeviceSetGpuLockedClocks(handle, core, core)
        except nvml.NVMLError as err:
            raise ClocksNotLockedError(_why(nvml, err)) from err
        # GPUs without a lock of the memory's clock seldom move it.
        memory = None
        with suppress(nvml.NVMLError):
            mhz = int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))
            nvml.nvmlDeviceSetMemoryLockedClocks(handle, mhz, mhz)
            memory = mhz
        return LockedClocks(asked, memory)

    def free(self) -> None:
        """Free both clocks, or raise ClocksNotLockedError if that fails."""
        nvml, handle = _opened(self._uuid)
        failed = []
        for reset in (nvml.nvmlDeviceResetGpuLockedClocks, nvml.nvmlDeviceResetMemoryLockedClocks):
            try:
                reset(handle)
            except nvml.NVMLError as err:
                failed.append(err)
        # A GPU without a lock of its memory's clock does not support freeing it either.
        if failed and not (len(failed) == 1 and isinstance(failed[0], nvml.NVMLError_NotSupported)):
            raise ClocksNotLockedError(_why(nvml, failed[0])) from failed[0]


class CudaCounters:
    """Counters that Nsight Compute reads, see `capabilities.Counters`.

    Parameters
    ----------
    runtime
        CuPy's module of the runtime.
    """

    def __init__(self, runtime: Any) -> None:
        """Keep the runtime, which starts and stops the profiler."""
        self._runtime = runtime

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record launches between cudaProfilerStart and cudaProfilerStop."""
        self._runtime.profilerStart()
        try:
            yield
        finally:
            self._runtime.profilerStop()


def _why(nvml: Any, err: Exception) -> str:
    """Return the reason of an NVML error, as the end of a sentence."""
    if isinstance(err, nvml.NVMLError_NoPermission):
        return "the driver lets only the administrator set clocks"
    if isinstance(err, nvml.NVMLError_NotSupported):
        return "this GPU has no clocks that can be locked"
    return f"NVML says: {err}"


def _opened(uuid: str) -> tuple[Any, Any]:
    """Return NVML and its handle of the device that `uuid_of` identifies."""
    try:
        import pynvml
    except ImportError as err:
        raise ClocksNotLockedError("nvidia-ml-py is not installed") from err
    try:
        pynvml.nvmlInit()
        return pynvml, _handle(pynvml, uuid)
    except pynvml.NVMLError as err:
        raise ClocksNotLockedError(f"NVML says: {err}") from err


def _handle(nvml: Any, uuid: str) -> Any:
    """Return NVML's handle by the UUID, or by the PCI bus address if the UUID is cut."""
    whole = re.fullmatch(r"GPU-([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})(.{12})", uuid)
    if whole is not None:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{'-'.join(whole.groups())}".encode())
    bus = uuid.removeprefix("GPU-").partition("-")[2]
    return nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
