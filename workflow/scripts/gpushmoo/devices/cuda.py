"""The CUDA backend (CuPy): RawModule kernels, device events, graphs for short launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from ..workload import BufferRef, Launch
from .base import (
    BuildError,
    DeviceInfo,
    DeviceLostError,
    LaunchFailedError,
    LaunchRefusedError,
    NoDeviceError,
    OutOfDeviceMemoryError,
    Reading,
    check_limits,
)
from .nvml import open_sensor

# CuPy's own reduction to a scalar runs in one block: half a second for what takes milliseconds.
_COMPARE = """
extern "C" __global__ void compare(const unsigned int *a, const unsigned int *b,
                                   unsigned long long n, unsigned long long *differing)
{
    unsigned long long mine = 0;
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += step)
        mine += a[i] != b[i];
    if (mine)
        atomicAdd(differing, mine);
}
"""

# One thread that keeps the stream busy while the host queues what is to be timed.
_SPIN = """
extern "C" __global__ void spin(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles)
        ;
}
"""
SPINS_US = (100, 1000, 10000)

_INSTALL = "install the extra 'cuda13' (or 'cuda12' for an older driver)"


class CudaProgram:
    """A compiled module and its functions."""

    def __init__(self, cupy: Any, module: Any, options: str, log: str) -> None:
        self._cupy, self._module = cupy, module
        self.options, self.log = options, log

    def function(self, entry: str) -> Any:
        """The kernel function `entry`. Raises BuildError when the source has none."""
        try:
            return self._module.get_function(entry)
        except self._cupy.cuda.driver.CUDADriverError as err:
            raise BuildError(f"kernel.cu has no kernel '{entry}' ({err}).", self.log) from err

    def resident_per_unit(self, entry: str, threads: int) -> int:
        """The driver's occupancy: blocks of `threads` threads per multiprocessor."""
        function = self.function(entry).kernel.ptr
        return max(
            1,
            int(
                self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    function, threads, 0
                )
            ),
        )

    def registers(self, entry: str) -> int | None:
        """Registers per thread."""
        return int(self.function(entry).num_regs)


class CudaBound:
    """A launch on one stream; several launches are captured in a graph once and replayed."""

    def __init__(self, device: CudaDevice, enqueue: Callable[[], None]) -> None:
        self._device, self.enqueue = device, enqueue
        self._graphs: dict[int, Callable[[], None]] = {}

    def run(self) -> None:
        """Launch once and wait. Raises LaunchFailedError or DeviceLostError."""
        with self._device.translated(), self._device.stream:
            self.enqueue()
            self._device.stream.synchronize()

    def sample(self, launches: int) -> float:
        """Seconds per launch between two events around the launches (a graph when several).

        The device first spins, so that events and launches are all queued behind the spin and
        follow each other without waiting for the host. Where the host was too slow all the same,
        the sample is taken again behind a longer spin.
        """
        device = self._device
        with device.translated(), device.stream:
            go = self.enqueue if launches == 1 else self._graph(launches)
            for spin_us in SPINS_US:
                device.spin(spin_us)
                device.start.record(device.stream)
                go()
                device.stop.record(device.stream)
                late = device.start.done
                device.stop.synchronize()
                if not late:
                    break
            elapsed_ms = device.cupy.cuda.get_elapsed_time(device.start, device.stop)
        return float(elapsed_ms) * 1e-3 / launches

    def _graph(self, launches: int) -> Callable[[], None]:
        """Replays `launches` launches; captured at the first call."""
        if launches not in self._graphs:
            stream = self._device.stream
            stream.begin_capture()
            for _ in range(launches):
                self.enqueue()
            graph = stream.end_capture()
            graph.launch(stream)  # the first replay uploads the graph
            stream.synchronize()
            self._graphs[launches] = partial(graph.launch, stream)
        return self._graphs[launches]


class _Translate:
    """Turns CuPy's errors into the protocol's."""

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
        if "MEMORY_ALLOCATION" in text or "OUT_OF_MEMORY" in text:
            raise OutOfDeviceMemoryError(f"The buffer does not fit ({text}).") from err
        if "INVALID_VALUE" in text or "OUT_OF_RESOURCES" in text or "InvalidValue" in text:
            raise LaunchRefusedError(text) from err
        # After these the context answers every call with the same error.
        sticky = ("ILLEGAL", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "ASSERT", "MISALIGNED", "ECC")
        if any(word in text.upper().replace("CUDAERROR", "") for word in sticky):
            raise DeviceLostError(text) from err
        raise LaunchFailedError(text) from err


class CudaDevice:
    """One CUDA device with its own stream, a pair of events and no memory pool."""

    def __init__(self, index: int) -> None:
        """Open device `index`. Raises NoDeviceError with what to install."""
        try:
            import cupy
        except ImportError as err:
            raise NoDeviceError(f"CuPy is missing ({err}); {_INSTALL}.") from err
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as err:
            raise NoDeviceError(
                f"No CUDA device answers ({err}); this needs an NVIDIA GPU and its driver."
            ) from err
        if index >= count:
            raise NoDeviceError(f"There are {count} CUDA devices, so there is no device {index}.")
        self.cupy = cupy
        self._device = cupy.cuda.Device(index)
        self._device.use()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.start, self.stop = cupy.cuda.Event(), cupy.cuda.Event()
        # A pool would keep memory that the next problem needs.
        cupy.cuda.set_allocator(None)
        self._compare = cupy.RawKernel(_COMPARE, "compare")
        self._spin = cupy.RawKernel(_SPIN, "spin")
        self._count = cupy.zeros(1, dtype=np.uint64)
        self.info = _describe(cupy, index)
        self._sensor = open_sensor(cupy.cuda.runtime.deviceGetPCIBusId(index))

    def translated(self) -> _Translate:
        """Context manager that translates the backend's errors."""
        return _Translate(self.cupy)

    def spin(self, microseconds: int) -> None:
        """Queue a kernel that takes about so long at the highest clock."""
        cycles = np.int64(self.info.core_clock_mhz * microseconds)
        self._spin((1,), (1,), (cycles,))

    def build(self, folder: Path, dtype: DType, defines: Mapping[str, str]) -> CudaProgram:
        """Compile ``kernel.cu`` by NVRTC for this device, to machine code. Raises BuildError."""
        source = folder / "kernel.cu"
        if not source.is_file():
            raise BuildError(f"Kernel '{folder.name}' has no kernel.cu.", "")
        options = ["-std=c++17", f"-Delement_t={dtype.name}"]
        options += [f"-D{k}={v}" for k, v in sorted(defines.items())]
        module = self.cupy.RawModule(code=source.read_text(), options=tuple(options))
        try:
            module.compile()
        except self.cupy.cuda.compiler.CompileException as err:
            raise BuildError(f"kernel.cu of '{folder.name}' does not compile.", str(err)) from err
        return CudaProgram(self.cupy, module, " ".join(options), "")

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A flat buffer of 32-bit words that holds `array`. Raises OutOfDeviceMemoryError."""
        words = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
        with self.translated(), self.stream:
            buffer = self.cupy.asarray(words)
            self.stream.synchronize()
            return buffer

    def poison(self, buffer: Any) -> None:
        """Fill `buffer` with all-ones words, a NaN in every float type."""
        with self.translated(), self.stream:
            buffer.fill(0xFFFFFFFF)
            self.stream.synchronize()

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """Differing 32-bit words, counted on the device."""
        with self.translated(), self.stream:
            self._count.fill(0)
            args = (buffer, expected, np.uint64(buffer.size), self._count)
            self._compare((8 * self.info.units,), (512,), args)
            return int(self._count.get()[0])

    def bind(self, program: CudaProgram, launch: Launch, buffers: Mapping[str, Any]) -> CudaBound:
        """Prepare `launch`. Raises LaunchRefusedError or BuildError."""
        check_limits(launch, self.info)
        function = program.function(launch.entry)
        if launch.threads > function.max_threads_per_block:
            raise LaunchRefusedError(
                f"{launch.threads} threads a block; this kernel's registers allow "
                f"{function.max_threads_per_block}."
            )
        args = tuple(buffers[a.name] if isinstance(a, BufferRef) else a for a in launch.args)
        return CudaBound(self, lambda: function(launch.grid, launch.block, args))

    def bind_copy(self, source: Any, target: Any) -> CudaBound:
        """cudaMemcpyAsync, device to device, of the whole buffer."""
        return CudaBound(
            self,
            lambda: target.data.copy_from_device_async(source.data, source.nbytes, self.stream),
        )

    def reading(self) -> Reading | None:
        """What NVML tells; None without nvidia-ml-py."""
        return self._sensor.read() if self._sensor is not None else None

    def close(self) -> None:
        """Wait for the stream; the context goes with the process."""
        self.stream.synchronize()


def _describe(cupy: Any, index: int) -> DeviceInfo:
    runtime = cupy.cuda.runtime
    p = runtime.getDeviceProperties(index)
    grid, block = p["maxGridSize"], p["maxThreadsDim"]
    _, total = cupy.cuda.Device(index).mem_info
    attributes = cupy.cuda.Device(index).attributes
    return DeviceInfo(
        backend="cuda",
        name=p["name"].decode(),
        uuid="GPU-" + bytes(p["uuid"][:16]).hex(),
        kind="gpu",
        driver=_version(runtime.driverGetVersion()),
        runtime=f"CUDA {_version(runtime.runtimeGetVersion())}, CuPy {cupy.__version__}",
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
    )


def _version(number: int) -> str:
    """1000 · major + 10 · minor, as CUDA encodes versions."""
    return f"{number // 1000}.{number % 1000 // 10}"
