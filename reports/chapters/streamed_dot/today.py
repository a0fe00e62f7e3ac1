"""What CUDA has today: managed memory, the host's read in place, copies and launches as a graph."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gpushmoo.core.errors import LaunchConfigError, OutOfDeviceMemoryError
from gpushmoo.measuring.host_pipeline import Feed, Pool


def managed_array(device: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy by cudaMallocManaged; at most half of the free memory, so that no page is evicted."""
    cuda = device.cupy.cuda
    if not cuda.Device().attributes["ConcurrentManagedAccess"]:
        raise LaunchConfigError("No page of managed memory moves when it is touched.")
    with device.translated():
        if 2 * array.nbytes > cuda.Device().mem_info[0]:
            raise OutOfDeviceMemoryError("Managed memory would need more than half of the device.")
        memory = cuda.malloc_managed(max(4, array.nbytes))
    room: Any = (ctypes.c_char * array.nbytes).from_address(memory.ptr)
    # The array holds `room`, which holds the memory.
    room.memory = memory
    held: npt.NDArray[Any] = np.frombuffer(room, array.dtype)
    held[:] = array
    return held


def in_place(device: Any, held: npt.NDArray[Any]) -> Any:
    """The buffer at an array's address, which under unified addressing is that on the device."""
    cuda = device.cupy.cuda
    memory = cuda.UnownedMemory(held.ctypes.data, held.nbytes, held, cuda.Device().id)
    return device.cupy.ndarray(held.nbytes // 4, np.uint32, cuda.MemoryPointer(memory, 0))


def captured(streams: Sequence[Any], queue: Callable[[], None]) -> Callable[[], None]:
    """Queues as one graph what `queue` puts into the streams; others branch off the first one."""
    first, *others = (stream.stream for stream in streams)
    first.begin_capture()
    try:
        begin = first.record()
        for other in others:
            other.wait_event(begin)
        queue()
        for other in others:
            first.wait_event(other.record())
    finally:
        graph = first.end_capture()
    # Else the first launch would.
    graph.upload(first)
    first.synchronize()
    return partial(graph.launch, first)


class GraphFeed(Feed):
    """A pipeline in a pool whose copies and launches are one graph."""

    # The graph, and the lanes whose memory it names.
    _graph: tuple[Callable[[], None], Sequence[Any]] | None = None

    def _queue(self, pool: Pool) -> None:
        with pool.device.translated():
            if self._graph is None or self._graph[1] is not pool.lanes:
                streams = [lane.stream for lane in pool.lanes[: len(self._rooms)]]
                self._graph = captured(streams, partial(super()._queue, pool)), pool.lanes
            self._graph[0]()
