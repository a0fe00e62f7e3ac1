"""Implement streams of the OpenCL backend as in-order command queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...workloads.contract import Launch
from ..capabilities import Translated
from ..streams import Mark, Streams

# Queues a launch on a command queue.
Enqueue = Callable[[Any], Any]
Prepare = Callable[[Any, Launch, Mapping[str, Any]], Enqueue]


class OpenCLStream:
    """An in-order command queue, see `streams.Stream`.

    Parameters
    ----------
    cl
        The module pyopencl.
    context
        Context of the device.
    translated
        Returns a context manager that converts errors of pyopencl.
    prepare
        Prepares a launch for any queue.
    """

    def __init__(
        self,
        cl: Any,
        context: Any,
        translated: Translated,
        prepare: Prepare,
    ) -> None:
        """Create a queue that records the times of commands."""
        self._cl, self._context = cl, context
        self._translated, self._prepare = translated, prepare
        with translated():
            # Marks need profiling, which costs nothing that could be measured.
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self._queue = cl.CommandQueue(context, properties=profiling)
        self._buffers: list[Any] = []
        # pyopencl waits for a copy when its event goes: they are kept until all is done.
        self._events: list[Any] = []

    def __enter__(self) -> OpenCLStream:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.wait()
        finally:
            self._events.clear()
            self.release()

    def release(self) -> None:
        """Free all buffers. OpenCL keeps each until the commands that use it have ended."""
        buffers = self._buffers
        self._buffers = []
        for buffer in buffers:
            buffer.release()

    def allocate(self, nbytes: int) -> Any:
        """Return a buffer with undefined content.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """
        with self._translated():
            buffer = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(4, nbytes))
        self._buffers.append(buffer)
        return buffer

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of host memory to `target`, without waiting for it."""
        self._copy(target, source)

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the buffer to host memory, which is valid after `wait`."""
        self._copy(target, source)

    def _copy(self, target: Any, source: Any) -> None:
        with self._translated():
            event = self._cl.enqueue_copy(self._queue, target, source, is_blocking=False)
        self._events.append(event)

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch, or raise LaunchConfigError or BuildError if it is not possible."""
        enqueue = self._prepare(program, launch, buffers)
        with self._translated():
            enqueue(self._queue)
            # A runtime may delay commands until someone waits.
            self._queue.flush()

    def mark(self) -> Mark:
        """Queue a marker by clEnqueueMarkerWithWaitList."""
        with self._translated():
            return Mark(self._cl.enqueue_marker(self._queue), self._elapsed_s)

    def _elapsed_s(self, start: Any, stop: Any) -> float:
        with self._translated():
            return float(stop.profile.end - start.profile.end) * 1e-9

    def wait(self) -> None:
        """Wait for all queued commands with clFinish."""
        with self._translated():
            self._queue.finish()
        self._events.clear()


class OpenCLStreams(Streams):
    """Streams with a command queue each, and host memory that the runtime allocates and maps.

    Parameters
    ----------
    cl, context
        The module pyopencl, and the context of the device.
    queue
        Queue that maps memory.
    translated
        Returns a context manager that converts errors of pyopencl.
    prepare
        Prepares a launch for any queue.
    """

    def __init__(
        self, cl: Any, context: Any, queue: Any, translated: Translated, prepare: Prepare
    ) -> None:
        """Create no stream before the first call of `open`."""
        super().__init__(translated)
        self._cl, self._context, self._queue, self._prepare = cl, context, queue, prepare

    def open(self) -> OpenCLStream:
        """Return a new stream, whose commands do not wait for other streams."""
        return OpenCLStream(self._cl, self._context, self._translated, self._prepare)

    def _pinned_like(self, flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.ALLOC_HOST_PTR
        buffer = self._cl.Buffer(self._context, flags, flat.nbytes)
        write = self._cl.map_flags.WRITE
        mapped, _ = self._cl.enqueue_map_buffer(
            self._queue, buffer, write, 0, flat.shape, flat.dtype
        )
        return np.asarray(mapped)
