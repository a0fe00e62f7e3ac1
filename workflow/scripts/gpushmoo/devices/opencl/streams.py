"""Streams of the OpenCL backend: in-order command queues."""

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
    """An in-order command queue; see `streams.Stream`."""

    def __init__(
        self,
        cl: Any,
        context: Any,
        translated: Translated,
        prepare: Prepare,
    ) -> None:
        """`prepare` makes a launch of a program on buffers ready for any queue."""
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
        """Give back all buffers; OpenCL keeps each until the commands that use it have ended."""
        buffers = self._buffers
        self._buffers = []
        for buffer in buffers:
            buffer.release()

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content. Raises OutOfDeviceMemoryError."""
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
        """Queue a launch. Raises LaunchConfigError or BuildError."""
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
        """Wait (clFinish) for all that was queued, and forget its events."""
        with self._translated():
            self._queue.finish()
        self._events.clear()


class OpenCLStreams(Streams):
    """Streams, each with its own command queue, and memory that the runtime allocates and maps."""

    def __init__(
        self, cl: Any, context: Any, queue: Any, translated: Translated, prepare: Prepare
    ) -> None:
        """Memory is mapped by `queue`; `prepare` makes a launch ready for any queue."""
        super().__init__(translated)
        self._cl, self._context, self._queue, self._prepare = cl, context, queue, prepare

    def open(self) -> OpenCLStream:
        """A new stream, whose commands wait for no other stream's."""
        return OpenCLStream(self._cl, self._context, self._translated, self._prepare)

    def _pinned_like(self, flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.ALLOC_HOST_PTR
        buffer = self._cl.Buffer(self._context, flags, flat.nbytes)
        write = self._cl.map_flags.WRITE
        mapped, _ = self._cl.enqueue_map_buffer(
            self._queue, buffer, write, 0, flat.shape, flat.dtype
        )
        return np.asarray(mapped)
