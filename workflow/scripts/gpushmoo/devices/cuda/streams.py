"""Streams of the CUDA backend, and pieces in turn by the runtime's own calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.errors import LaunchFailedError, LaunchRefusedError
from ...workloads.contract import BufferRef, Launch
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
        """Queue a copy of host memory to `target`, without waiting for it."""
        runtime = self._cupy.cuda.runtime
        sizes = (source.nbytes, runtime.memcpyHostToDevice)
        with self._translated():
            # CuPy's own method refuses to be captured.
            runtime.memcpyAsync(target.data.ptr, source.ctypes.data, *sizes, self.stream.ptr)

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the buffer to host memory, which is valid after `wait`."""
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


T = TypeVar("T")
_ALL_ONES = 0xFF
# Handles, addresses and sizes are 64-bit words to the compiled loop.
_WORD, _INT = ctypes.c_uint64, ctypes.c_uint32
_DRIVER_CALLS: Mapping[str, Sequence[Any]] = {
    "cuStreamCreate": (_WORD, _INT),
    "cuStreamSynchronize": (_WORD,),
    "cuStreamDestroy_v2": (_WORD,),
    "cuMemAlloc_v2": (_WORD, _WORD),
    "cuMemFree_v2": (_WORD,),
    "cuMemAllocAsync": (_WORD, _WORD, _WORD),
    "cuMemFreeAsync": (_WORD, _WORD),
    "cuMemsetD8Async": (_WORD, ctypes.c_uint8, _WORD, _WORD),
    "cuMemcpyHtoDAsync_v2": (_WORD, _WORD, _WORD, _WORD),
    "cuMemcpyDtoH_v2": (_WORD, _WORD, _WORD),
    "cuLaunchKernel": (_WORD, *(_INT,) * 7, _WORD, _WORD, _WORD),
}


class InTurnLoops(NamedTuple):
    """The loops of `in_turn_loops`; both return the driver's first error code, 0 for none.

    Numba compiles each at its first call with arguments of other types, or by `compiled`.
    """

    feed: Callable[..., int]
    drain: Callable[..., int]


def compiled(loop: Any, *arguments: Any) -> None:
    """Compile the loop for arguments of these types, which takes a second. It is not called."""
    from numba import typeof

    loop.compile(tuple(map(typeof, arguments)))


@cache
def driver_loops() -> InTurnLoops:
    """`in_turn_loops` by the CUDA driver of this machine."""
    library = ctypes.CDLL("libcuda.so.1")
    for name, types in _DRIVER_CALLS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, ctypes.c_int
    return in_turn_loops(library)


def in_turn_loops(driver: Any) -> InTurnLoops:
    """The loops over the pieces of a `FedInTurn`, compiled by Numba, with calls of `driver`.

    In Python the eight calls for a stream take 10 to 20 µs, in a host program a tenth of that.
    `room` has the device addresses of a piece's inputs and, last, of all partial results. `drain`
    copies these to the host's `target` unless that is 0.
    """
    from numba import njit

    create, wait, destroy = (
        driver.cuStreamCreate,
        driver.cuStreamSynchronize,
        driver.cuStreamDestroy_v2,
    )
    allocate, free, fill = driver.cuMemAllocAsync, driver.cuMemFreeAsync, driver.cuMemsetD8Async
    copy, launch = driver.cuMemcpyHtoDAsync_v2, driver.cuLaunchKernel
    reserve, give_back, fetch = driver.cuMemAlloc_v2, driver.cuMemFree_v2, driver.cuMemcpyDtoH_v2

    def feed(pieces: Any, streams: Any, room: Any, partial_bytes: int, poisoned: bool) -> int:
        sources, nbytes, functions, geometry, values, addresses, slots = pieces
        code: int = reserve(room[-1:].ctypes.data, max(4, partial_bytes))
        if code == 0 and poisoned:
            # The default stream, for which the pieces' streams wait.
            code = fill(room[-1], _ALL_ONES, partial_bytes, 0)
        for p in range(functions.size):
            if code != 0:
                break
            code = create(streams[p:].ctypes.data, 0)
            held = 0
            for i in range(sources.shape[1]):
                if code == 0:
                    code = allocate(room[i:].ctypes.data, nbytes[p, i], streams[p])
                    held += code == 0
            for i in range(sources.shape[1]):
                if code == 0 and poisoned:
                    code = fill(room[i], _ALL_ONES, nbytes[p, i], streams[p])
                if code == 0:
                    code = copy(room[i], sources[p, i], nbytes[p, i], streams[p])
            for k in range(slots.shape[0]):
                values[p, slots[k, 0]] = room[slots[k, 1]]
            if code == 0:
                g = geometry[p]
                code = launch(
                    functions[p], g[0], g[1], g[2], g[3], g[4], g[5], g[6],
                    streams[p], addresses[p].ctypes.data, 0,
                )  # fmt: skip
            for i in range(held):
                freed = free(room[i], streams[p])
                code = freed if code == 0 else code
        return code

    def drain(streams: Any, room: Any, target: int, partial_bytes: int) -> int:
        code: int = 0
        for p in range(streams.size):
            if streams[p] != 0:
                waited = wait(streams[p])
                destroyed = destroy(streams[p])
                streams[p] = 0
                code = code if code != 0 else waited if waited != 0 else destroyed
        if code == 0 and target != 0:
            code = fetch(target, room[-1], partial_bytes)
        if room[-1] != 0:
            freed = give_back(room[-1])
            room[-1] = 0
            code = code if code != 0 else freed
        return code

    return InTurnLoops(njit(feed), njit(drain))


class CudaInTurn:
    """An `InTurn` by calls of the driver in a compiled loop."""

    def __init__(
        self,
        cupy: Any,
        translated: Callable[[], AbstractContextManager[None]],
        checked: Callable[[Any, Launch], Any],
        fed: FedInTurn,
        loops: InTurnLoops,
    ) -> None:
        """`checked` gives the function of a launch. Raises LaunchRefusedError or BuildError."""
        self._error = cupy.cuda.driver.CUDADriverError
        self._translated, self._fed, self._loops = translated, fed, loops
        self._pieces = _pieces(fed, checked)
        # The stream of each piece, and the addresses of its inputs and of the partial results.
        self._streams = np.zeros(len(fed.pieces), np.uint64)
        self._room = np.zeros(len(fed.arrays) + 1, np.uint64)
        self._partials = fed.partials.ctypes.data, fed.partials.nbytes
        # Here, because the first launch has a time limit.
        target, nbytes = self._partials
        compiled(loops.feed, self._pieces, self._streams, self._room, nbytes, fed.poisoned)
        compiled(loops.drain, self._streams, self._room, target, nbytes)

    def run(self, meanwhile: Callable[[], T]) -> T:
        """See `InTurn`."""
        loops, streams, room = self._loops, self._streams, self._room
        target, nbytes = self._partials
        with self._translated():
            try:
                self._check(loops.feed(self._pieces, streams, room, nbytes, self._fed.poisoned))
                value = meanwhile()
                self._check(loops.drain(streams, room, target, nbytes))
            except BaseException:
                loops.drain(streams, room, 0, 0)
                raise
        return value

    def _check(self, code: int) -> None:
        if code:
            raise self._error(code)


def _pieces(fed: FedInTurn, checked: Callable[[Any, Launch], Any]) -> tuple[Any, ...]:
    """What `in_turn_loops` takes of the pieces, an array each with a row a piece.

    Host addresses and bytes of the inputs; functions; grid, block and shared memory; arguments,
    eight bytes each; their addresses; and, for all pieces alike, pairs of an argument's place
    and an index into the device addresses of the inputs and the partial results.
    """
    names, rows = [*fed.arrays, "partials"], []
    slots: list[tuple[int, int]] = []
    for piece in fed.pieces:
        launch = piece.launch
        if launch is None:
            raise LaunchFailedError("a piece in turn has a launch, which this one lacks")
        if launch.has_attributes:
            raise LaunchRefusedError("Pieces in turn are launched without attributes.")
        args = passed(launch)
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
        parts = [array[piece.begin : piece.end] for array in fed.arrays.values()]
        rows.append(
            (
                [part.ctypes.data for part in parts],
                [part.nbytes for part in parts],
                checked(fed.program, launch).kernel.ptr,
                (*launch.grid, *launch.block, launch.shared_bytes),
                values,
            )
        )
    sources, nbytes, functions, geometry, arguments = zip(*rows, strict=True)
    values = np.stack(arguments)
    addresses = np.uint64(values.ctypes.data) + np.arange(0, values.nbytes, 8, dtype=np.uint64)
    words = [np.array(column, np.uint64) for column in (sources, nbytes, functions)]
    pairs = np.array(slots, np.int64).reshape(-1, 2)
    return (*words, np.array(geometry, np.uint32), values, addresses.reshape(values.shape), pairs)
