"""Streams of the CUDA backend, and pieces in turn by the runtime's own calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.errors import LaunchFailedError
from ...workloads.contract import BufferRef, Launch
from ...workloads.host_fed import Piece
from ..machine_code.cubins import passed
from ..streams import FedInTurn, Mark

Enqueue = Callable[[], None]


class CudaStream:
    """A CUDA stream; see `streams.Stream`."""

    def __init__(
        self,
        cupy: Any,
        translated: Callable[[], AbstractContextManager[None]],
        prepare: Callable[[Any, Launch, Mapping[str, Any]], Enqueue],
    ) -> None:
        """`prepare` prepares a launch for the current stream."""
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
        """By cudaFreeAsync."""
        pointers, self._pointers = self._pointers, []
        with self._translated():
            for pointer in pointers:
                self._cupy.cuda.runtime.freeAsync(pointer, self.stream.ptr)

    def allocate(self, nbytes: int) -> Any:
        """A flat array of 32-bit words by cudaMallocAsync. Raises OutOfDeviceMemoryError."""
        cuda = self._cupy.cuda
        size = max(4, nbytes)
        with self._translated():
            pointer = cuda.runtime.mallocAsync(size, self.stream.ptr)
        self._pointers.append(pointer)
        memory = cuda.UnownedMemory(pointer, size, self)
        return self._cupy.ndarray(size // 4, np.uint32, cuda.MemoryPointer(memory, 0))

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """See `Stream`."""
        runtime = self._cupy.cuda.runtime
        sizes = (source.nbytes, runtime.memcpyHostToDevice)
        with self._translated():
            # CuPy's own method refuses to be captured.
            runtime.memcpyAsync(target.data.ptr, source.ctypes.data, *sizes, self.stream.ptr)

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """See `Stream`."""
        with self._translated():
            source.data.copy_to_host_async(target.ctypes.data, target.nbytes, self.stream)

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch. Raises LaunchRefusedError or BuildError."""
        enqueue = self._prepare(program, launch, buffers)
        with self._translated(), self.stream:
            enqueue()

    def mark(self) -> Mark:
        """Record a CUDA event."""
        with self._translated():
            event = self._cupy.cuda.Event()
            event.record(self.stream)
        return Mark(event, self._elapsed_s)

    def _elapsed_s(self, start: Any, stop: Any) -> float:
        with self._translated():
            return float(self._cupy.cuda.get_elapsed_time(start, stop)) * 1e-3

    def wait(self) -> None:
        """By cudaStreamSynchronize."""
        with self._translated():
            self.stream.synchronize()


def captured(streams: Sequence[CudaStream], queue: Callable[[], None]) -> Callable[[], None]:
    """See `Device.captured`. The other streams branch off the first one and join it again."""
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


T = TypeVar("T")
_ALL_ONES = 0xFF


@dataclass(frozen=True)
class _Ready:
    """A piece: host address and bytes of each input, and a launch without device addresses.

    `geometry` is grid, block and shared memory. `values` holds the arguments, eight bytes each,
    `pointers` their addresses. `slots` are pairs of a place in `values` and an index into the
    device addresses of the inputs and of the partial results, in this order.
    """

    sources: tuple[tuple[int, int], ...]
    function: int
    geometry: tuple[int, ...]
    values: npt.NDArray[np.uint64]
    pointers: npt.NDArray[np.uint64]
    slots: tuple[tuple[int, int], ...]


class CudaInTurn:
    """An `InTurn` by calls of CUDA's runtime and, for launches, of the driver."""

    def __init__(
        self,
        cupy: Any,
        translated: Callable[[], AbstractContextManager[None]],
        checked: Callable[[Any, Launch], Any],
        fed: FedInTurn,
    ) -> None:
        """`checked` gives the function of a launch. Raises LaunchRefusedError or BuildError."""
        self._runtime, self._driver = cupy.cuda.runtime, cupy.cuda.driver
        self._translated, self._fed = translated, fed
        self._pieces = [_ready(piece, fed, checked) for piece in fed.pieces]

    def run(self, meanwhile: Callable[[], T]) -> T:
        """See `InTurn`."""
        runtime, fed = self._runtime, self._fed
        streams: list[int] = []
        with self._translated():
            results = runtime.malloc(max(4, fed.partials.nbytes))
            try:
                if fed.poisoned:
                    runtime.memset(results, _ALL_ONES, fed.partials.nbytes)
                    runtime.deviceSynchronize()
                for piece in self._pieces:
                    streams.append(runtime.streamCreate())
                    self._feed(piece, streams[-1], results)
                value = meanwhile()
                while streams:
                    runtime.streamSynchronize(streams[0])
                    runtime.streamDestroy(streams.pop(0))
                host, kind = fed.partials.ctypes.data, runtime.memcpyDeviceToHost
                runtime.memcpy(host, results, fed.partials.nbytes, kind)
            finally:
                for stream in streams:
                    runtime.streamDestroy(stream)
                runtime.free(results)
        return value

    def _feed(self, piece: _Ready, stream: int, results: int) -> None:
        runtime, room = self._runtime, []
        try:
            for _, nbytes in piece.sources:
                room.append(runtime.mallocAsync(nbytes, stream))
            for (host, nbytes), pointer in zip(piece.sources, room, strict=True):
                if self._fed.poisoned:
                    runtime.memsetAsync(pointer, _ALL_ONES, nbytes, stream)
                runtime.memcpyAsync(pointer, host, nbytes, runtime.memcpyHostToDevice, stream)
            addresses = [*room, results]
            for place, i in piece.slots:
                piece.values[place] = addresses[i]
            arguments = piece.pointers.ctypes.data
            self._driver.launchKernel(piece.function, *piece.geometry, stream, arguments, 0)
        finally:
            for pointer in room:
                runtime.freeAsync(pointer, stream)


def _ready(piece: Piece, fed: FedInTurn, checked: Callable[[Any, Launch], Any]) -> _Ready:
    launch = piece.launch
    if launch is None:
        raise LaunchFailedError("a piece in turn has a launch, which this one lacks")
    names, args = [*fed.arrays, "partials"], passed(launch)
    values, slots = np.zeros(len(args), np.uint64), []
    for place, argument in enumerate(args):
        if not isinstance(argument, BufferRef):
            raw = np.asarray(argument).tobytes()
            values[place : place + 1].view(np.uint8)[: len(raw)] = np.frombuffer(raw, np.uint8)
        elif argument.name in names:
            slots.append((place, names.index(argument.name)))
        else:
            raise LaunchFailedError(
                f"an argument names the buffer '{argument.name}'; there are: {', '.join(names)}"
            )
    step = np.uint64(values.itemsize)
    pointers = np.uint64(values.ctypes.data) + step * np.arange(len(values), dtype=np.uint64)
    parts = [array[piece.begin : piece.end] for array in fed.arrays.values()]
    sources = tuple((part.ctypes.data, part.nbytes) for part in parts)
    function = checked(fed.program, launch).kernel.ptr
    geometry = (*launch.grid, *launch.block, launch.shared_bytes)
    return _Ready(sources, function, geometry, values, pointers, tuple(slots))
