"""Implement streams of the CUDA backend, with which a kernel's data is copied from the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...workloads.contract import Launch
from ..capabilities import Translated
from ..streams import Mark, Streams

Enqueue = Callable[[], None]
Prepare = Callable[[Any, Launch, Mapping[str, Any]], Enqueue]


class CudaStream:
    """A CUDA stream, see `streams.Stream`.

    Parameters
    ----------
    cupy
        The module CuPy.
    translated
        Returns a context manager that converts errors of CuPy.
    prepare
        Prepares a launch for the current stream.
    """

    def __init__(
        self,
        cupy: Any,
        translated: Translated,
        prepare: Prepare,
    ) -> None:
        """Create a stream that does not wait for the default stream."""
        self._cupy, self._translated, self._prepare = cupy, translated, prepare
        with translated():
            self.stream = cupy.cuda.Stream(non_blocking=True)
        self._pointers: list[int] = []

    def __enter__(self) -> CudaStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        self.wait()

    def release(self) -> None:
        """Queue cudaFreeAsync for all buffers of the stream."""
        pointers = self._pointers
        self._pointers = []
        with self._translated():
            for pointer in pointers:
                self._cupy.cuda.runtime.freeAsync(pointer, self.stream.ptr)

    def allocate(self, nbytes: int) -> Any:
        """Return a flat array of 32-bit words that cudaMallocAsync allocates.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """
        cuda = self._cupy.cuda
        size = max(4, nbytes)
        with self._translated():
            pointer = cuda.runtime.mallocAsync(size, self.stream.ptr)
        self._pointers.append(pointer)
        memory = cuda.UnownedMemory(pointer, size, self)
        return self._cupy.ndarray(size // 4, np.uint32, cuda.MemoryPointer(memory, 0))

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of host memory to `target`, without waiting for it."""
        runtime = self._cupy.cuda.runtime
        with self._translated():
            # CuPy's own method refuses to be captured.
            runtime.memcpyAsync(
                target.data.ptr,
                source.ctypes.data,
                source.nbytes,
                runtime.memcpyHostToDevice,
                self.stream.ptr,
            )

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the buffer to host memory, which is valid after `wait`."""
        with self._translated():
            source.data.copy_to_host_async(target.ctypes.data, target.nbytes, self.stream)

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch, or raise LaunchConfigError or BuildError if it is not possible."""
        enqueue = self._prepare(program, launch, buffers)
        with self._translated(), self.stream:
            enqueue()

    def mark(self) -> Mark:
        """Record a CUDA event on the stream."""
        with self._translated():
            event = self._cupy.cuda.Event()
            event.record(self.stream)
        return Mark(event, self._elapsed_s)

    def _elapsed_s(self, start: Any, stop: Any) -> float:
        with self._translated():
            return float(self._cupy.cuda.get_elapsed_time(start, stop)) * 1e-3

    def wait(self) -> None:
        """Wait for all commands by cudaStreamSynchronize."""
        with self._translated():
            self.stream.synchronize()


class CudaStreams(Streams):
    """Streams that do not wait for the default stream, and host memory from cudaHostAlloc.

    Parameters
    ----------
    cupy
        The module CuPy.
    translated
        Returns a context manager that converts errors of CuPy.
    prepare
        Prepares a launch for the current stream.
    """

    def __init__(self, cupy: Any, translated: Translated, prepare: Prepare) -> None:
        """Create no stream before the first call of `open`."""
        super().__init__(translated)
        self._cupy, self._prepare = cupy, prepare

    def open(self) -> CudaStream:
        """Return a new stream of the device."""
        return CudaStream(self._cupy, self._translated, self._prepare)

    def _pinned_like(self, flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        memory = self._cupy.cuda.alloc_pinned_memory(flat.nbytes)
        return np.frombuffer(memory, flat.dtype, flat.size)
