"""Allocate and check buffers with guard zones in the OpenCL backend."""

from __future__ import annotations

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

_WORDS = """
#define KERNEL __kernel
#define GLOBAL __global
#define WORD uint
#define LONG ulong
#define ADD atomic_add
"""
# Work-items of a GPU take adjacent words, which it reads at once. A core of a CPU runs work-items
# one after the other, and fetches each cache line again unless it has a separate range.
_STRIDE = """
#define FIRST(n) get_global_id(0)
#define END(n) (n)
#define STEP get_global_size(0)
"""
_RANGE = """
#define FIRST(n) ((n) * get_global_id(0) / get_global_size(0))
#define END(n) ((n) * (get_global_id(0) + 1) / get_global_size(0))
#define STEP 1
"""
_LIMITS = """
#define FUNCTION
#define VOLATILE volatile
#define MAX atomic_max
#define BITS as_uint
#define AS_DOUBLE as_double
#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#pragma OPENCL FP_CONTRACT OFF
#if defined(cl_khr_fp64) && __OPENCL_VERSION__ < 120
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
"""


def _guard_word(buffer: Any) -> np.uint32:
    return np.uint32(guard_word(buffer.whole.int_ptr))


class OpenCLLimits:
    """Compares outputs within tolerances on the device, see `capabilities.Limits`.

    Parameters
    ----------
    cl
        The module pyopencl.
    context
        Context of the device.
    order
        Macros that determine which words a work-item reads.
    has_doubles
        Whether the device supports doubles.
    queue_kernel
        Queues a kernel with arguments.
    """

    def __init__(
        self,
        cl: Any,
        context: Any,
        order: str,
        has_doubles: bool,
        queue_kernel: Callable[..., None],
    ) -> None:
        """Build no kernel before the first comparison."""
        self._cl, self._context, self._order = cl, context, order
        self.has_doubles, self._queue_kernel = has_doubles, queue_kernel
        self._kernels: dict[tuple[int, bool], Any] = {}

    def judges(self, limit: Limit) -> bool:
        """Return whether the device supports this tolerance. Bounds on values require doubles."""
        return not limit.in_values or self.has_doubles

    def queue(self, words: Any, output: Output, within: Tolerance, found: Any) -> None:
        """Queue the kernel for elements of this width, which is built once."""
        width, in_values = within.form.width, within.limit.in_values
        kind = (width, in_values)
        if kind not in self._kernels:
            source = self._order + _WORDS + _LIMITS + limits_source(width, in_values)
            program = self._cl.Program(self._context, source).build()
            self._kernels[kind] = self._cl.Kernel(program, "limits")
        args = (words, output.expected, within.bounds, *within.numbers, found)
        self._queue_kernel(self._kernels[kind], *args)


class OpenCLBuffers(Device):
    """Buffers of an OpenCL device, which are sub-buffers of their allocation `whole`."""

    _cl: Any
    _context: Any
    _queue: Any

    def _build_own_kernels(self) -> None:
        """Build the kernels that check buffers. Errors of pyopencl are not converted."""
        cl, context = self._cl, self._context
        device = context.devices[0]
        cpu = device.type & cl.device_type.CPU
        self._sizes = ((8 * device.max_compute_units,), (1,)) if cpu else ((4096,), (64,))
        self._order = _RANGE if cpu else _STRIDE
        program = cl.Program(context, self._order + _WORDS + KERNELS).build()
        self._compare, self._strays_of, self._checksum = (
            cl.Kernel(program, name) for name in ("compare", "strays", "checksum")
        )
        has_doubles = "cl_khr_fp64" in device.extensions.split()
        self.limits = OpenCLLimits(cl, context, self._order, has_doubles, self._queued)

    def _queued(self, kernel: Any, *args: Any) -> None:
        kernel(self._queue, *self._sizes, *args)

    def allocate(self, nbytes: int) -> Any:
        """Return a buffer with undefined content between guard zones that are painted.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """
        zone = zone_bytes(nbytes)
        nbytes = 4 * ceil_div(nbytes, 4)
        with self.translated():
            flags = self._cl.mem_flags.READ_WRITE
            whole = self._cl.Buffer(self._context, flags, nbytes + 2 * zone)
            buffer = whole.get_sub_region(zone, nbytes)
        # pyopencl would release the buffer's own parent once too often.
        buffer.whole = whole
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
        with self.translated():
            for part, begin in ((words, 0), (last, words.nbytes)):
                if part.size:
                    self._cl.enqueue_copy(self._queue, buffer, part, dst_offset=begin)
        return buffer

    def guard(self, buffer: Any) -> None:
        """Write the guard word to the zones before and after `buffer`."""
        zone = zone_bytes(buffer.size)
        value = np.full(1, _guard_word(buffer))
        with self.translated():
            for begin in (0, zone + buffer.size):
                self._cl.enqueue_fill_buffer(self._queue, buffer.whole, value, begin, zone).wait()

    def count(self, buffers: Sequence[Any], queue: Callable[[Any, Any], None]) -> WordPairs:
        """Return two words for each buffer, to which kernels in this queue add."""
        found = np.zeros((len(buffers), 2), np.uint32)
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.COPY_HOST_PTR
        with self.translated():
            results = [self._cl.Buffer(self._context, flags, hostbuf=row) for row in found]
            for buffer, result in zip(buffers, results, strict=True):
                queue(buffer, result)
            for row, result in zip(found, results, strict=True):
                self._cl.enqueue_copy(self._queue, row, result)
        return found

    def check(self, check: Check, buffer: Any, found: Any) -> None:
        """Queue the kernel of a check on `buffer`."""
        words = np.uint64(buffer.size // 4)
        match check:
            case Differing(expected):
                self._queued(self._compare, buffer, expected, words, found)
            case Strays(stride):
                numbers = map(np.uint64, (zone_bytes(buffer.size) // 4, buffer.size // 4, stride))
                word = _guard_word(buffer)
                self._queued(self._strays_of, buffer.whole, word, *numbers, found)
            case Checksum():
                self._queued(self._checksum, buffer, words, found)

    def read(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """Copy 32-bit words of a buffer to the host, and wait for them."""
        found = np.empty(count, np.uint32)
        with self.translated():
            self._cl.enqueue_copy(self._queue, found, buffer, src_offset=4 * begin)
        return found
