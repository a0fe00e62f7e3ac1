"""Streams of the CUDA backend, with memory allocated in the stream's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from ...workloads.contract import Launch

Enqueue = Callable[[], None]


class CudaMark:
    """An event that keeps its time; see `base.Mark`."""

    def __init__(
        self, cupy: Any, translated: Callable[[], AbstractContextManager[None]], stream: Any
    ) -> None:
        self._cupy, self._translated = cupy, translated
        with translated():
            self._event = cupy.cuda.Event()
            self._event.record(stream)

    def seconds_since(self, other: CudaMark) -> float:
        """Seconds from `other` to this event, by cudaEventElapsedTime."""
        with self._translated():
            elapsed_ms = self._cupy.cuda.get_elapsed_time(other._event, self._event)
        return float(elapsed_ms) * 1e-3


class CudaStream:
    """A queue of copies and launches on a CUDA stream; see `base.Stream`."""

    def __init__(
        self,
        cupy: Any,
        translated: Callable[[], AbstractContextManager[None]],
        prepare: Callable[[Any, Launch, Mapping[str, Any]], Enqueue],
    ) -> None:
        """`prepare` makes a launch of a program on buffers ready for the current stream."""
        self._cupy, self._translated, self._prepare = cupy, translated, prepare
        with translated():
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pointers: list[int] = []

    def __enter__(self) -> CudaStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        self.wait()

    def release(self) -> None:
        """Give back all that was allocated, by cudaFreeAsync."""
        pointers, self._pointers = self._pointers, []
        with self._translated():
            for pointer in pointers:
                self._cupy.cuda.runtime.freeAsync(pointer, self._stream.ptr)

    def allocate(self, nbytes: int) -> Any:
        """A flat array of 32-bit words by cudaMallocAsync. Raises OutOfDeviceMemoryError."""
        cuda = self._cupy.cuda
        size = max(4, nbytes)
        with self._translated():
            pointer = cuda.runtime.mallocAsync(size, self._stream.ptr)
        self._pointers.append(pointer)
        memory = cuda.UnownedMemory(pointer, size, self)
        return self._cupy.ndarray(size // 4, np.uint32, cuda.MemoryPointer(memory, 0))

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of `source` on the host to the beginning of `target`."""
        with self._translated():
            target.data.copy_from_host_async(source.ctypes.data, source.nbytes, self._stream)

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the beginning of `source` to `target` on the host."""
        with self._translated():
            source.data.copy_to_host_async(target.ctypes.data, target.nbytes, self._stream)

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch. Raises LaunchRefusedError or BuildError."""
        enqueue = self._prepare(program, launch, buffers)
        with self._translated(), self._stream:
            enqueue()

    def mark(self) -> CudaMark:
        """Queue a CUDA event behind all that the stream holds, by cudaEventRecord."""
        return CudaMark(self._cupy, self._translated, self._stream)

    def wait(self) -> None:
        """Return when all that was queued is done, by cudaStreamSynchronize."""
        with self._translated():
            self._stream.synchronize()
