"""Locks the clocks of an NVIDIA GPU, and frees them, through NVML; opens no device."""

from __future__ import annotations

import re
from typing import Any

from ..clock_lock import BASE, ClocksNotLockedError, LockedClocks


class NvmlClockLock:
    """The clocks of one GPU, which are held until `free`."""

    def __init__(self, nvml: Any, handle: Any, asked: int | str) -> None:
        """Lock them. Raises ClocksNotLockedError, with nothing changed."""
        self._nvml, self._handle = nvml, handle
        core = nvml.NVML_CLOCK_LIMIT_ID_TDP if asked == BASE else asked
        try:
            nvml.nvmlDeviceSetGpuLockedClocks(handle, core, core)
        except nvml.NVMLError as err:
            raise ClocksNotLockedError(_why(nvml, err)) from err
        self.told = LockedClocks(asked, self._lock_memory())

    def _lock_memory(self) -> int | None:
        """At its highest clock; None of GPUs that have no such lock, whose memory seldom moves."""
        n = self._nvml
        try:
            mhz = int(n.nvmlDeviceGetMaxClockInfo(self._handle, n.NVML_CLOCK_MEM))
            n.nvmlDeviceSetMemoryLockedClocks(self._handle, mhz, mhz)
        except n.NVMLError:
            return None
        return mhz

    def free(self) -> None:
        """Both clocks, as far as they were locked. Raises ClocksNotLockedError."""
        free(self._nvml, self._handle, self.told.memory_mhz is not None)


def free(nvml: Any, handle: Any, memory: bool) -> None:
    """Free the core's clock and with `memory` the memory's. Raises ClocksNotLockedError."""
    failed: Exception | None = None
    for reset, asked in (
        (nvml.nvmlDeviceResetGpuLockedClocks, True),
        (nvml.nvmlDeviceResetMemoryLockedClocks, memory),
    ):
        try:
            if asked:
                reset(handle)
        except nvml.NVMLError as err:
            failed = failed or err
    if failed is not None:
        raise ClocksNotLockedError(_why(nvml, failed)) from failed


def _why(nvml: Any, err: Exception) -> str:
    """Why NVML does not do it, as the end of a sentence."""
    if isinstance(err, nvml.NVMLError_NoPermission):
        return "the driver lets only the administrator set clocks"
    if isinstance(err, nvml.NVMLError_NotSupported):
        return "this GPU has no clocks that can be locked"
    return f"NVML says: {err}"


def _opened(uuid: str) -> tuple[Any, Any]:
    """NVML and its handle of a device, by the UUID of `runtime.uuid_of`.

    Raises ClocksNotLockedError.
    """
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
    """By the place on the bus where the UUID ends with one (it is not whole then)."""
    whole = re.fullmatch(r"GPU-([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})(.{12})", uuid)
    if whole is not None:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{'-'.join(whole.groups())}".encode())
    bus = uuid.removeprefix("GPU-").partition("-")[2]
    return nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())


def lock_clocks(uuid: str, asked: int | str) -> NvmlClockLock:
    """Of the GPU `uuid`: see `devices.functions`."""
    return NvmlClockLock(*_opened(uuid), asked)


def free_clocks(uuid: str) -> None:
    """Free both clocks of the GPU `uuid`. Raises ClocksNotLockedError."""
    nvml, handle = _opened(uuid)
    free(nvml, handle, memory=False)
    try:
        nvml.nvmlDeviceResetMemoryLockedClocks(handle)
    except nvml.NVMLError:
        # Whether they were locked is not known here, and not every GPU has such a lock.
        return
