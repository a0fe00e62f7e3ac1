"""The CUDA backend (CuPy): device events, graphs for short launches, a cache of machine code."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from ..space import Problem
from ..workload import Argument, BufferRef, Launch, LibraryCall, NullRef, SurfaceRef, TextureRef
from .base import (
    BuildError,
    DeviceError,
    DeviceLostError,
    LaunchRefusedError,
    NoDeviceError,
    Reading,
    Sample,
    check_limits,
    check_sizes,
    flush_bytes,
    image_refusal,
    named_buffer,
    named_image,
)
from .cubins import cached_cubin
from .cuda_buffers import SOURCE, CudaBuffers
from .cuda_images import CudaImage, format_refusal
from .cuda_libraries import library_call
from .cuda_runtime import Translate, describe, load_cupy
from .cuda_streams import CudaStream, Enqueue
from .cuda_timing import CudaBound, CudaLibraryBound, Queued, Steps, steps_of
from .guards import Strays
from .nvml import open_sensor
from .nvrtc import build_options
from .parameters import parameter_sizes
from .sources import kernel_source

# One thread that keeps the stream busy while the host queues what is to be timed.
_SPIN = """
extern "C" __global__ void spin(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles)
        ;
}
"""
# Tried in turn while the host is too slow to queue a launch behind the spin.
SPINS_US = (50, 200, 1000, 10000)

log = logging.getLogger(__name__)


class CudaProgram:
    """A compiled module and its functions; `parameters` are the bytes that each of them takes."""

    log = ""

    def __init__(self, cupy: Any, cubin: Path, options: str) -> None:
        self._cupy, self._module = cupy, cupy.RawModule(path=str(cubin))
        self.options, self.parameters = options, parameter_sizes(cubin.read_bytes())

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


def _argument(argument: Argument, buffers: Mapping[str, Any]) -> Any:
    """What CuPy passes for it."""
    match argument:
        case BufferRef(name):
            return named_buffer(name, buffers, CudaImage)
        case NullRef():
            return np.uint64(0)
        case TextureRef(name):
            return named_image(name, buffers, CudaImage).texture(argument)
        case SurfaceRef(name):
            return named_image(name, buffers, CudaImage).surface()
        case _:
            return argument


class CudaDevice:
    """One CUDA device with its own stream and no memory pool."""

    def __init__(self, index: int, cache: Path) -> None:
        """Open device `index`; machine code is kept in `cache`.

        Raises NoDeviceError with what to install.
        """
        self.cupy = load_cupy()
        try:
            with self.translated():
                self._open(index, cache)
        except NoDeviceError:
            raise
        except DeviceError as err:
            raise NoDeviceError(f"CUDA device {index} cannot be opened ({err}).") from err

    def _open(self, index: int, cache: Path) -> None:
        cupy = self.cupy
        self.info = describe(cupy, index)
        self._arch = "sm_" + self.info.extra["compute_capability"].replace(".", "")
        self._cache = cache
        cupy.cuda.Device(index).use()
        own = cupy.RawModule(path=str(self._cubin(_SPIN + SOURCE, "gpushmoo", ())))
        self._spin = own.get_function("spin")
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._events: list[tuple[Any, Any]] = []
        # A pool would keep memory that the next problem needs.
        cupy.cuda.set_allocator(None)
        self._buffers = CudaBuffers(cupy, own, self.stream, self.info.units, self.translated)
        self._filler: Any = None
        self._sensor = open_sensor(cupy.cuda.runtime.deviceGetPCIBusId(index))

    def _cubin(self, source: str, name: str, options: tuple[str, ...]) -> Path:
        """The file with the machine code of `source`, compiled unless the cache has it.

        Raises BuildError, or NoDeviceError when the compiler does not know this device.
        """
        return cached_cubin(source, name, options, self._arch, self._cache)

    def translated(self) -> Translate:
        """Context manager that translates the backend's errors."""
        return Translate(self.cupy)

    def time(self, steps: Steps) -> float:
        """Seconds per launch, by events around what is timed.

        The device first spins, so that events and launches are all queued behind the spin and
        follow each other without waiting for the host. Where the host was too slow all the same,
        the sample is taken again behind a longer spin.
        """
        with self.translated(), self.stream:
            for spin_us in SPINS_US:
                self.spin(spin_us)
                queued = self._queue(steps, 0)
                self.stream.synchronize()
                if not queued.late:
                    return queued.seconds()
            log.warning("the host is too slow: a sample may hold %d us of its time", spin_us)
            return queued.seconds()

    def sample_all(self, samples: Sequence[Sample]) -> list[float | DeviceError]:
        """All behind one spin: while the device takes one sample, the host queues the next."""
        taken: list[float | DeviceError] = [math.nan] * len(samples)
        queued: dict[int, Queued] = {}
        plans = [steps_of(sample) for sample in samples]
        with self.translated(), self.stream:
            self.spin(SPINS_US[0])
            place = 0
            for i, steps in enumerate(plans):
                try:
                    with self.translated():
                        queued[i] = self._queue(steps, place)
                except DeviceLostError:
                    raise
                except DeviceError as err:
                    taken[i] = err
                place += steps.times
            self.stream.synchronize()
            for i, sample in queued.items():
                taken[i] = self.time(plans[i]) if sample.late else sample.seconds()
        return taken

    def spin(self, microseconds: int) -> None:
        """Queue a kernel that takes about so long at the highest clock."""
        self._spin((1,), (1,), (np.int64(self.info.core_clock_mhz * microseconds),))

    def _queue(self, steps: Steps, place: int) -> Queued:
        """Queue a sample that uses the pairs of events from `place` on."""
        events = self._event_pairs(place + steps.times)[place:]
        late = False
        for start, stop in events:
            steps.before()
            start.record(self.stream)
            steps.timed()
            stop.record(self.stream)
            late = late or start.done
        return Queued(self.cupy.cuda.get_elapsed_time, steps, events, late)

    def _event_pairs(self, n: int) -> list[tuple[Any, Any]]:
        event = self.cupy.cuda.Event
        while len(self._events) < n:
            self._events.append((event(), event()))
        return self._events[:n]

    def flush(self) -> None:
        """Queue writes that leave nothing else in the L2 cache."""
        if self._filler is None:
            words = flush_bytes(self.info) // 4
            self._filler = self.cupy.empty(words, dtype=np.uint32)
        self._filler.data.memset_async(0x5A, self._filler.nbytes, self.stream)

    def build(self, folder: Path, dtype: DType, defines: Mapping[str, str]) -> CudaProgram:
        """Compile ``kernel.cu`` for this device, to machine code. Raises BuildError."""
        source = kernel_source(folder, ".cu")
        options = build_options(dtype, defines)
        cubin = self._cubin(source, folder.name, options)
        return CudaProgram(self.cupy, cubin, " ".join(options))

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A flat buffer of 32-bit words that holds `array`. Raises OutOfDeviceMemoryError."""
        return self._buffers.upload(array)

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content. Raises OutOfDeviceMemoryError."""
        return self._buffers.allocate(nbytes)

    def guard(self, buffer: Any) -> None:
        """Paint the zones around `buffer` again."""
        self._buffers.guard(buffer)

    def strays(self, buffers: Sequence[Any]) -> list[Strays]:
        """Words written around each buffer, counted on the device."""
        return self._buffers.strays(buffers)

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """A number for each buffer's content, made on the device."""
        return self._buffers.checksums(buffers)

    def image_refusal(self, problem: Problem, dtype: DType) -> str | None:
        """Why there is no such image: its type, or its size."""
        return format_refusal(dtype) or image_refusal(self.info, problem)

    def upload_image(self, array: npt.NDArray[Any], dtype: DType) -> CudaImage:
        """A CUDA array that holds `array` of shape (height, width[, lanes])."""
        image = self.allocate_image(Problem(*array.shape[:2]), dtype)
        with self.translated(), self.stream:
            image.copy_from(self.cupy.asarray(np.ascontiguousarray(array)), self.stream)
            self.stream.synchronize()
        return image

    def allocate_image(self, problem: Problem, dtype: DType) -> CudaImage:
        """A CUDA array of undefined content. Raises LaunchRefusedError where there is none."""
        refusal = self.image_refusal(problem, dtype)
        if refusal is not None:
            raise LaunchRefusedError(f"There is no such image: {refusal}.")
        with self.translated():
            return CudaImage(self.cupy, problem, dtype)

    def poison(self, buffer: Any) -> None:
        """Fill `buffer` with all-ones words, a NaN in every float type."""
        with self.translated(), self.stream:
            words = buffer.linear() if isinstance(buffer, CudaImage) else buffer
            words.fill(0xFFFFFFFF)
            if isinstance(buffer, CudaImage):
                buffer.copy_from(words, self.stream)
            self.stream.synchronize()

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """Differing 32-bit words, counted on the device."""
        return self._buffers.mismatches(self._linear(buffer), expected)

    def words(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """`count` words from the word `begin` on, on the host."""
        return self._buffers.words(self._linear(buffer), begin, count)

    def _linear(self, buffer: Any) -> Any:
        """The buffer itself, or one with the texels of an image, once the stream is there."""
        if not isinstance(buffer, CudaImage):
            return buffer
        with self.translated(), self.stream:
            buffer.copy_to(buffer.linear(), self.stream)
        return buffer.linear()

    def bind(self, program: CudaProgram, launch: Launch, buffers: Mapping[str, Any]) -> CudaBound:
        """Prepare `launch`. Raises LaunchRefusedError or BuildError."""
        return CudaBound(self, self._prepare(program, launch, buffers))

    def _prepare(self, program: CudaProgram, launch: Launch, buffers: Mapping[str, Any]) -> Enqueue:
        check_limits(launch, self.info)
        function = program.function(launch.entry)
        if launch.threads > function.max_threads_per_block:
            raise LaunchRefusedError(
                f"{launch.threads} threads a block; this kernel's registers allow "
                f"{function.max_threads_per_block}."
            )
        if launch.entry in program.parameters:
            check_sizes(launch, program.parameters[launch.entry])
        args = tuple(_argument(a, buffers) for a in launch.args)
        return lambda: function(launch.grid, launch.block, args)

    def bind_library(self, call: LibraryCall, buffers: Mapping[str, Any]) -> CudaBound:
        """A function of cuBLAS. Raises LaunchRefusedError where there is none of that name."""
        with self.translated():
            return CudaLibraryBound(self, library_call(call, buffers))

    def open_stream(self) -> CudaStream:
        """A stream that does not wait for the default one."""
        return CudaStream(self.cupy, self.translated, self._prepare)

    def host_array(self, array: npt.NDArray[Any], pinned: bool) -> npt.NDArray[Any]:
        """cudaHostAlloc, where `pinned`."""
        flat = np.ascontiguousarray(array).reshape(-1)
        if not pinned or not flat.size:
            return flat.copy()
        with self.translated():
            memory = self.cupy.cuda.alloc_pinned_memory(flat.nbytes)
        held = np.frombuffer(memory, flat.dtype, flat.size)
        held[:] = flat
        return held

    def bind_copy(self, source: Any, target: Any) -> CudaBound:
        """cudaMemcpyAsync of the whole buffer, in its 2D form to or from an image."""
        if isinstance(source, CudaImage):
            return CudaBound(self, lambda: source.copy_to(target, self.stream))
        if isinstance(target, CudaImage):
            return CudaBound(self, lambda: target.copy_from(source, self.stream))
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
