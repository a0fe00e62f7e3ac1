"""Buffers of the CUDA backend with their guard zones, and images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.dtypes import DType
from ...core.space import Problem
from ...workloads.contract import TextureRef, ceil_div
from ...workloads.limits import Limit
from ..base import Device
from ..buffers import (
    KERNELS,
    STRIDE,
    Image,
    Output,
    Tolerance,
    WordPairs,
    guard_word,
    limits_source,
    words_of,
    zone_bytes,
)

# CuPy would compile a kernel for it at run time.
_PAINT = """
extern "C" __global__ void paint(unsigned int *words, unsigned long long n, unsigned int value)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += step)
        words[i] = value;
}
"""
_WORDS = """
#define KERNEL extern "C" __global__
#define GLOBAL
#define WORD unsigned int
#define LONG unsigned long long
#define FIRST(n) ((LONG)blockIdx.x * blockDim.x + threadIdx.x)
#define END(n) (n)
#define STEP ((LONG)gridDim.x * blockDim.x)
#define ADD atomicAdd
"""
# CuPy's own reduction to a scalar runs in one block: half a second instead of milliseconds.
SOURCE = _PAINT + _WORDS + KERNELS
_LIMITS = """
#define FUNCTION static __device__
#define VOLATILE
#define INFINITY __int_as_float(0x7F800000)
#define MAX atomicMax
#define BITS __float_as_uint
#define AS_DOUBLE(bits) __longlong_as_double((long long)(bits))
#define SUM __dadd_rn
#define PRODUCT __dmul_rn
"""


_THREADS = 512


def _guard_word(buffer: Any) -> np.uint32:
    return np.uint32(guard_word(buffer.base.data.ptr))


class CudaBuffers(Device):
    """The buffers of a CUDA device: flat CuPy arrays of 32-bit words, views of their allocation."""

    cupy: Any
    stream: Any

    def _load_own_kernels(self, module: Any) -> None:
        """Take the kernels out of SOURCE, compiled and loaded."""
        self._compare, self._paint, self._strays_of, self._checksum = (
            module.get_function(name) for name in ("compare", "paint", "strays", "checksum")
        )
        self._limits: dict[tuple[int, bool], Any] = {}

    @abstractmethod
    def _own_module(self, source: str) -> Any:
        """The loaded module of this source."""

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content between painted zones. Raises OutOfDeviceMemoryError."""
        zone = zone_bytes(nbytes) // 4
        words = ceil_div(nbytes, 4)
        offset = self.drawn_offset()
        with self.translated():
            memory = self.cupy.cuda.alloc(4 * (words + 2 * zone) + offset)
            whole = self.cupy.ndarray((words + 2 * zone,), np.uint32, memptr=memory + offset)
        buffer = whole[zone : zone + words]
        self.guard(buffer)
        return buffer

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A buffer that holds `array`. Raises OutOfDeviceMemoryError."""
        words, last = words_of(array)
        buffer = self.allocate(words.nbytes + last.nbytes)
        with self.translated(), self.stream:
            for part, place in ((words, buffer[: words.size]), (last, buffer[words.size :])):
                if part.size:
                    place.set(part)
            self.stream.synchronize()
        return buffer

    def guard(self, buffer: Any) -> None:
        """Write the guard word to the zones before and after `buffer`."""
        zone = zone_bytes(buffer.nbytes) // 4
        word = _guard_word(buffer)
        with self.translated(), self.stream:
            for words in (buffer.base[:zone], buffer.base[-zone:]):
                self._launch(self._paint, (words, np.uint64(zone), word))
            self.stream.synchronize()

    def _found(self, buffers: Sequence[Any], queue: Callable[[Any, Any], None]) -> WordPairs:
        with self.translated(), self.stream:
            counts = self.cupy.zeros((len(buffers), 2), dtype=np.uint32)
            for buffer, row in zip(buffers, counts, strict=True):
                queue(buffer, row)
            on_host: WordPairs = counts.get()
            return on_host

    def _launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        kernel((8 * self.info.multiprocessors,), (_THREADS,), args)

    def _queue_differing(self, buffer: Any, expected: Any, found: Any) -> None:
        self._launch(self._compare, (buffer, expected, np.uint64(buffer.size), found))

    def judges(self, limit: Limit) -> bool:
        """Return True: the device compares within every limit."""
        return True

    def _queue_limits(self, words: Any, output: Output, within: Tolerance, found: Any) -> None:
        width, in_values = within.form.width, within.limit.in_values
        kind = (width, in_values)
        if kind not in self._limits:
            module = self._own_module(_WORDS + _LIMITS + limits_source(width, in_values))
            self._limits[kind] = module.get_function("limits")
        args = (words, output.expected, within.bounds, *within.numbers, found)
        self._launch(self._limits[kind], args)

    def queue_strays(self, buffer: Any, found: Any, stride: int = STRIDE) -> None:
        """Queue the kernel that counts words written around `buffer`."""
        sizes = map(np.uint64, (zone_bytes(buffer.nbytes) // 4, buffer.size, stride))
        self._launch(self._strays_of, (buffer.base, _guard_word(buffer), *sizes, found))

    def queue_checksum(self, buffer: Any, found: Any) -> None:
        """Queue the kernel that adds the words of `buffer`."""
        self._launch(self._checksum, (buffer, np.uint64(buffer.size), found))

    def _read(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        with self.translated(), self.stream:
            found: npt.NDArray[np.uint32] = buffer[begin : begin + count].get()
            return found


# Channels that a CUDA array may have, and the bits of one.
_CHANNELS = (1, 2, 4)
_BITS = (8, 16, 32)


def format_refusal(dtype: DType) -> str | None:
    """Why CUDA has no array of this type; None if it has."""
    if dtype.lanes in _CHANNELS and 8 * dtype.scalar.itemsize in _BITS:
        return None
    return (
        f"CUDA has no image format for {dtype.name}; it has those of 1, 2 or 4 channels of 8, 16 "
        "or 32 bits"
    )


class CudaImage(Image):
    """A two-dimensional CUDA array, and objects to fetch from it and to write to it."""

    def __init__(self, cupy: Any, stream: Any, problem: Problem, dtype: DType) -> None:
        """Allocate; CuPy's errors come out as they are."""
        self._cupy, self._stream, self._dtype = cupy, stream, dtype
        runtime, textures = cupy.cuda.runtime, cupy.cuda.texture
        floating = dtype.scalar.kind == "f"
        kind = "cudaChannelFormatKindFloat" if floating else "cudaChannelFormatKindUnsigned"
        bits = [8 * dtype.scalar.itemsize] * dtype.lanes + [0] * (4 - dtype.lanes)
        channels = textures.ChannelFormatDescriptor(*bits, getattr(runtime, kind))
        self._array = textures.CUDAarray(
            channels, problem.width, problem.height, 0, runtime.cudaArraySurfaceLoadStore
        )
        # For CuPy the channels of a texel are neighbours in a row.
        self._shape = (problem.height, problem.width * dtype.lanes)
        self.nbytes = problem.height * problem.width * dtype.itemsize
        self._resource = textures.ResourceDescriptor(
            runtime.cudaResourceTypeArray, cuArr=self._array
        )
        self._textures: dict[TextureRef, Any] = {}
        self._surface: Any = None

    def texture(self, ref: TextureRef) -> Any:
        """The texture object with the settings of `ref`; made once."""
        if ref not in self._textures:
            runtime, textures = self._cupy.cuda.runtime, self._cupy.cuda.texture
            mode = getattr(runtime, f"cudaAddressMode{ref.address.capitalize()}")
            fetched = "NormalizedFloat" if self._dtype.normalised else "ElementType"
            description = textures.TextureDescriptor(
                addressModes=(mode, mode),
                filterMode=getattr(runtime, f"cudaFilterMode{ref.filter.capitalize()}"),
                readMode=getattr(runtime, f"cudaReadMode{fetched}"),
                normalizedCoords=int(ref.normalised),
            )
            self._textures[ref] = textures.TextureObject(self._resource, description)
        return self._textures[ref]

    def surface(self) -> Any:
        """The surface object for writing; made once."""
        if self._surface is None:
            self._surface = self._cupy.cuda.texture.SurfaceObject(self._resource)
        return self._surface

    def _new_linear(self) -> Any:
        return self._cupy.empty(self.nbytes // 4, dtype=np.uint32)

    def copy_from(self, buffer: Any) -> None:
        """Queue a copy of the whole buffer into the image."""
        words = buffer.view(self._dtype.scalar).reshape(self._shape)
        self._array.copy_from(words, self._stream)

    def copy_to(self, buffer: Any) -> None:
        """Queue a copy of the whole image into the buffer."""
        words = buffer.view(self._dtype.scalar).reshape(self._shape)
        self._array.copy_to(words, self._stream)
