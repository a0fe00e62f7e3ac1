"""Allocate and check buffers with guard zones in the CUDA backend."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...workloads.contract import ceil_div
from ...workloads.tolerances import Limit
from ..base import Device
from ..memory import (
    KERNELS,
    Check,
    Checksum,
    Differing,
    Output,
    Strays,
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


class CudaLimits:
    """Compares outputs within tolerances on the device, see `capabilities.Limits`.

    Parameters
    ----------
    own_module
        Compiles and loads a source.
    launch
        Queues a kernel with arguments.
    """

    def __init__(
        self, own_module: Callable[[str], Any], launch: Callable[[Any, tuple[Any, ...]], None]
    ) -> None:
        """Compile no kernel before the first comparison."""
        self._own_module, self._launch = own_module, launch
        self._kernels: dict[tuple[int, bool], Any] = {}

    def judges(self, limit: Limit) -> bool:
        """Return True, because the kernel supports every limit."""
        return True

    def queue(self, words: Any, output: Output, within: Tolerance, found: Any) -> None:
        """Queue the kernel for elements of this width, which is compiled once."""
        width, in_values = within.form.width, within.limit.in_values
        kind = (width, in_values)
        if kind not in self._kernels:
            module = self._own_module(_WORDS + _LIMITS + limits_source(width, in_values))
            self._kernels[kind] = module.get_function("limits")
        args = (words, output.expected, within.bounds, *within.numbers, found)
        self._launch(self._kernels[kind], args)


class CudaBuffers(Device):
    """Buffers of a CUDA device: flat CuPy arrays of 32-bit words, views of their allocation."""

    cupy: Any
    stream: Any

    def _load_own_kernels(self, module: Any) -> None:
        """Get the kernels of SOURCE from the loaded `module`."""
        self._compare, self._paint, self._strays_of, self._checksum = (
            module.get_function(name) for name in ("compare", "paint", "strays", "checksum")
        )
        self.limits = CudaLimits(self._own_module, self._launch)

    @abstractmethod
    def _own_module(self, source: str) -> Any:
        """Compile and load a source of this backend."""

    def allocate(self, nbytes: int) -> Any:
        """Return a buffer with undefined content between guard zones that are painted.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """
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
        """Return a buffer with the content of `array`.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """
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

    def count(self, buffers: Sequence[Any], queue: Callable[[Any, Any], None]) -> WordPairs:
        """Return two words for each buffer, to which kernels in this stream add."""
        with self.translated(), self.stream:
            counts = self.cupy.zeros((len(buffers), 2), dtype=np.uint32)
            for buffer, row in zip(buffers, counts, strict=True):
                queue(buffer, row)
            on_host: WordPairs = counts.get()
            return on_host

    def _launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        kernel((8 * self.info.multiprocessors,), (_THREADS,), args)

    def check(self, check: Check, buffer: Any, found: Any) -> None:
        """Queue the kernel of a check on `buffer`."""
        words = np.uint64(buffer.size)
        match check:
            case Differing(expected):
                self._launch(self._compare, (buffer, expected, words, found))
            case Strays(stride):
                numbers = map(np.uint64, (zone_bytes(buffer.nbytes) // 4, buffer.size, stride))
                self._launch(self._strays_of, (buffer.base, _guard_word(buffer), *numbers, found))
            case Checksum():
                self._launch(self._checksum, (buffer, words, found))

    def read(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """Copy 32-bit words of a buffer to the host, and wait for them."""
        with self.translated(), self.stream:
            found: npt.NDArray[np.uint32] = buffer[begin : begin + count].get()
            return found
