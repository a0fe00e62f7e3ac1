"""CuPy as far as the backends look at it: it computes nothing, and all memory holds zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import numpy as np

# A device that is no real one, with the facts of both CUDA's and HIP's runtime.
FACTS = {
    "name": b"Made of nothing",
    "gcnArchName": b"gfx942:sramecc+:xnack-",
    "uuid": bytes(range(16)),
    "major": 9,
    "minor": 0,
    "ECCEnabled": 1,
    "memoryBusWidth": 6144,
    "multiProcessorCount": 132,
    "maxThreadsPerBlock": 1024,
    "maxThreadsDim": [1024] * 3,
    "maxGridSize": [65535] * 3,
    "maxThreadsPerMultiProcessor": 2048,
    "totalGlobalMem": 2**37,
    "l2CacheSize": 2**22,
}
ATTRIBUTES = {
    "ClockRate": 2100000,
    "MemoryClockRate": 3201000,
    "MultiProcessorCount": 132,
    "MaxSharedMemoryPerBlockOptin": 232448,
    **{
        f"Max{kind}2D{side}": 2**15
        for kind in ("Texture", "Surface")
        for side in ("Width", "Height")
    },
}
# A sample of all launches takes so long.
SAMPLE_MS = 6.0


class FakeCupyError(Exception):
    """Stand in for the errors of CuPy."""


def array(words: int) -> Any:
    """An array of words on the device."""

    def part(where: Any) -> Any:
        return array(len(range(words)[where])) if isinstance(where, slice) else array(1)

    found = MagicMock(size=words, nbytes=4 * words, dtype="float32")
    found.base.data.ptr = found.data.ptr = 4096
    found.__getitem__.side_effect = part
    found.get.side_effect = lambda **_: np.zeros(words, np.uint32)
    found.view.return_value = found.reshape.return_value = found
    return found


def rows(shape: tuple[int, int]) -> Any:
    """An array of rows of words."""

    def each() -> Iterator[Any]:
        return (array(shape[1]) for _ in range(shape[0]))

    found = MagicMock()
    found.__iter__.side_effect = each
    found.get.side_effect = lambda **_: np.zeros(shape, np.uint32)
    return found


def fake_cupy(is_hip: bool) -> Any:
    """The module, with two devices."""
    found = MagicMock(__version__="14.2.0")
    cuda = found.cuda
    for place in ("driver.CUDADriverError", "runtime.CUDARuntimeError", "nvrtc.NVRTCError"):
        kind, name = place.split(".")
        setattr(getattr(cuda, kind), name, type(name, (FakeCupyError,), {}))
    cuda.memory.OutOfMemoryError = type("OutOfMemoryError", (FakeCupyError,), {})
    cuda.runtime.is_hip, cuda.runtime.getDeviceCount.return_value = is_hip, 2
    cuda.runtime.getDeviceProperties.return_value = FACTS
    cuda.runtime.deviceGetPCIBusId.return_value = "0000:01:00.0"
    for name in ("driverGetVersion", "runtimeGetVersion"):
        getattr(cuda.runtime, name).return_value = 13000
    cuda.runtime.mallocAsync.return_value = 8192
    cuda.nvrtc.getPTX.return_value, cuda.nvrtc.getProgramLog.return_value = b"\x7fELF", ""
    cuda.Device.return_value.attributes = ATTRIBUTES
    cuda.Device.return_value.mem_info = (2**36, 2**37)
    cuda.Event.return_value.done = False
    cuda.get_elapsed_time.return_value = SAMPLE_MS
    cuda.get_current_stream.return_value.ptr = 5
    cuda.alloc_pinned_memory.side_effect = bytearray
    cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor.return_value = 4
    found.ndarray.side_effect = lambda shape, *_, **__: array(
        shape[0] if isinstance(shape, tuple) else shape
    )
    found.empty.side_effect = lambda words, **_: array(words)
    found.zeros.side_effect = lambda shape, **_: rows(shape)
    function = found.RawModule.return_value.get_function.return_value
    function.max_threads_per_block, function.num_regs, function.kernel.ptr = 1024, 32, 99
    function.shared_size_bytes, function.max_dynamic_shared_size_bytes = 0, 49152
    return found
