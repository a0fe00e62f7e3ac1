"""A HIP device: the CUDA backend's buffers and timer, with HIP's programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DType
from gpushmoo.core.errors import BuildError, LaunchConfigError, OutOfDeviceMemoryError
from gpushmoo.devices.base import DeviceInfo, check_limits
from gpushmoo.devices.build_file import BuildRequest, EntryFacts, VersionBuild
from gpushmoo.devices.cuda.buffers import SOURCE, CudaBuffers
from gpushmoo.devices.cuda.runtime import Translate, version
from gpushmoo.devices.cuda.timing import SPIN_SOURCE, CudaLaunch, EventTimer
from gpushmoo.devices.machine_code.cubins import passed, stored_cubin
from gpushmoo.devices.memory import named
from gpushmoo.workloads.contract import Argument, BufferRef, Launch, NullRef

from .compiler import architecture, compiled, compiled_text, load_cupy, options_of


class HipTranslate(Translate):
    """Knows HIP's name of the one error that CUDA spells in another way."""

    def __exit__(self, kind: Any, err: Any, trace: Any) -> None:
        if "hipErrorOutOfMemory" in str(err):
            raise OutOfDeviceMemoryError(f"The buffer does not fit ({err}).") from err
        super().__exit__(kind, err, trace)


class HipLaunch(CudaLaunch):
    """CuPy captures no graph on ROCm: launches of a row are queued one by one."""

    def _graph(self, launches: int) -> Callable[[], None]:
        return self._one_by_one(launches)


class HipProgram:
    """A loaded code object; see `base.Program`."""

    def __init__(self, cupy: Any, code: bytes, options: str, log: str, cache: Path) -> None:
        self._cupy, self.options, self.log = cupy, options, log
        self.facts: Mapping[str, EntryFacts] = {}
        self._module = cupy.RawModule(path=str(stored_cubin(code, cache)))

    def function(self, entry: str) -> Any:
        """The kernel function `entry`. Raises BuildError."""
        try:
            return self._module.get_function(entry)
        except self._cupy.cuda.driver.CUDADriverError as err:
            raise BuildError(f"kernel.hip has no kernel '{entry}'.", self.log) from err

    def resident_blocks(self, launch: Launch) -> int:
        """By hipModuleOccupancyMaxActiveBlocksPerMultiprocessor."""
        held = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        pointer = self.function(launch.entry).kernel.ptr
        return max(1, int(held(pointer, launch.threads, launch.shared_bytes)))

    def registers(self, entry: str) -> int | None:
        """Vector registers of a thread."""
        return int(self.function(entry).num_regs)


class HipDevice(CudaBuffers):
    """One HIP device without images, streams, sensors and libraries."""

    def __init__(self, index: int, cache: Path) -> None:
        """Open device `index`; machine code is kept in `cache`. Raises NoDeviceError."""
        self.cupy = cupy = load_cupy()
        self._cache = cache
        self.info, self.target = _described(cupy, index), architecture(cupy, index)
        self.request = BuildRequest("hip", str(index), "auto", None, cache)
        cupy.cuda.Device(index).use()
        cupy.cuda.set_allocator(None)
        own = self._own_module(SPIN_SOURCE + SOURCE)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        spin = own.get_function("spin")
        self.timer = EventTimer(cupy, spin, self.stream, self.info, self.translated)
        self._load_own_kernels(own)

    def _own_module(self, source: str) -> Any:
        code = compiled_text(source, "gpushmoo.hip", (), self.target).code
        return self.cupy.RawModule(path=str(stored_cubin(code, self._cache)))

    def translated(self) -> HipTranslate:
        """Context manager that translates the backend's errors."""
        return HipTranslate(self.cupy)

    def build(
        self, folder: Path, dtype: DType, defines: Mapping[str, str], options: Sequence[str] = ()
    ) -> HipProgram:
        """Compile ``kernel.hip`` for this device. Raises BuildError."""
        options = options_of(dtype, defines, options)
        made = compiled(folder, options, self.target)
        return HipProgram(self.cupy, made.code, " ".join(options), made.log, self._cache)

    def load(self, build: VersionBuild) -> HipProgram:
        """The program of a code object. Raises BuildError."""
        if build.code is None:
            raise BuildError("The build file holds no machine code for the variant.", build.log)
        with self.translated():
            return HipProgram(self.cupy, build.code, build.options, build.log, self._cache)

    def bind(
        self,
        program: HipProgram,
        launch: Launch,
        buffers: Mapping[str, Any],
        renew: Callable[[], None] | None = None,
    ) -> HipLaunch:
        """Prepare `launch`. Raises LaunchConfigError or BuildError."""
        check_limits(launch, self.info)
        if launch.has_attributes:
            raise LaunchConfigError("HIP has no clusters or carve-outs.")
        function = program.function(launch.entry)
        args = tuple(_argument(a, buffers) for a in passed(launch))
        shared = launch.shared_bytes
        enqueue = partial(function, launch.grid, launch.block, args, shared_mem=shared)
        return HipLaunch(self.timer, enqueue, renew)

    def time(self, enqueue: Callable[[], None]) -> HipLaunch:
        """Make ready a command on the device's stream."""
        return HipLaunch(self.timer, enqueue)

    def copy(self, source: Any, target: Any) -> None:
        """Copy by hipMemcpyAsync."""
        target.data.copy_from_device_async(source.data, source.nbytes, self.stream)

    def fill(self, words: Any, byte: int, but: int) -> None:
        """Fill by hipMemsetAsync."""
        words.data.memset_async(byte, words.nbytes - but, self.stream)

    def wait(self) -> None:
        """Wait by hipStreamSynchronize."""
        self.stream.synchronize()


def _argument(argument: Argument, buffers: Mapping[str, Any]) -> Any:
    """CuPy's argument for a launch: an array or a number."""
    match argument:
        case BufferRef():
            return named(argument, buffers)
        case NullRef():
            return np.uint64(0)
        case np.generic():
            return argument
        case _:
            raise LaunchConfigError("The HIP backend has no images.")


def _described(cupy: Any, index: int) -> DeviceInfo:
    """The facts of device `index`."""
    runtime = cupy.cuda.runtime
    p = runtime.getDeviceProperties(index)
    block: npt.NDArray[Any] = np.array(p["maxThreadsDim"])
    grid: npt.NDArray[Any] = np.array(p["maxGridSize"])
    return DeviceInfo(
        backend="hip",
        name=p["name"].decode(),
        uuid=str(runtime.deviceGetPCIBusId(index)),
        kind="gpu",
        driver=version(runtime.driverGetVersion()),
        runtime=f"HIP {version(runtime.runtimeGetVersion())}, CuPy {cupy.__version__}",
        multiprocessors=int(p["multiProcessorCount"]),
        max_threads_per_block=int(p["maxThreadsPerBlock"]),
        max_block=(int(block[0]), int(block[1]), int(block[2])),
        max_grid=(int(grid[0]), int(grid[1]), int(grid[2])),
        global_memory=int(p["totalGlobalMem"]),
        max_allocation=int(p["totalGlobalMem"]),
        cache=int(p["l2CacheSize"]),
        core_clock_mhz=int(cupy.cuda.Device(index).attributes["ClockRate"]) // 1000,
    )
