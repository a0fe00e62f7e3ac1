"""Feeds pieces in turn on CUDA, by the driver's calls in a compiled loop."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.errors import LaunchConfigError, LaunchFailedError
from gpushmoo.workloads.contract import BufferRef, Launch, SharedMemory
from gpushmoo.workloads.host_fed import FedInTurn

T = TypeVar("T")


def driver_calls(driver: Any) -> npt.NDArray[np.uint64]:
    """The addresses of the functions of `driver` that `driver_loops` calls."""
    from .driver_loops import CALLS

    found = [ctypes.cast(getattr(driver, name), ctypes.c_void_p).value for name in CALLS]
    return np.array(found, np.uint64)


@cache
def calls_here() -> npt.NDArray[np.uint64]:
    """`driver_calls` of the CUDA driver of this machine."""
    return driver_calls(ctypes.CDLL("libcuda.so.1"))


def _compile(loop: Any, *arguments: Any) -> None:
    """Compile the loop for arguments of these types, unless Numba has kept it. It is not called."""
    from numba import typeof

    loop.compile(tuple(map(typeof, arguments)))


class DriverInTurn:
    """An `InTurn` by calls of the driver in a compiled loop."""

    def __init__(
        self,
        cupy: Any,
        translated: Callable[[], AbstractContextManager[None]],
        checked: Callable[[Any, Launch], Any],
        fed: FedInTurn,
        calls: npt.NDArray[np.uint64],
    ) -> None:
        """`checked` gives the function of a launch, `calls` those of the driver (`driver_calls`).

        Raises LaunchConfigError or BuildError.
        """
        from . import driver_loops

        self._error = cupy.cuda.driver.CUDADriverError
        self._translated, self._fed, self._calls = translated, fed, calls
        self._feed, self._drain = driver_loops.feed, driver_loops.drain
        self._pieces = pieces_of(fed, checked)
        # The stream of each piece, and the addresses of its inputs and of the partial results.
        self._streams = np.zeros(len(fed.pieces), np.uint64)
        self._room = np.zeros(len(fed.arrays) + 1, np.uint64)
        self._partials = fed.partials.ctypes.data, fed.partials.nbytes
        # Here, because the first launch has a time limit.
        target, nbytes = self._partials
        _compile(self._feed, calls, self._pieces, self._streams, self._room, nbytes, fed.poisoned)
        _compile(self._drain, calls, self._streams, self._room, target, nbytes)

    def run(self, meanwhile: Callable[[], T]) -> T:
        """Feed all pieces, call `meanwhile`, then wait for the results."""
        calls, streams, room = self._calls, self._streams, self._room
        target, nbytes = self._partials
        with self._translated():
            try:
                poisoned = self._fed.poisoned
                self._check(self._feed(calls, self._pieces, streams, room, nbytes, poisoned))
                value = meanwhile()
                self._check(self._drain(calls, streams, room, target, nbytes))
            except BaseException:
                self._drain(calls, streams, room, 0, 0)
                raise
        return value

    def _check(self, code: int) -> None:
        if code:
            raise self._error(code)


def pieces_of(fed: FedInTurn, checked: Callable[[Any, Launch], Any]) -> tuple[Any, ...]:
    """What `driver_loops.feed` takes of the pieces, an array each with a row a piece.

    Host addresses and bytes of the inputs; functions; grid, block and shared memory; arguments,
    eight bytes each; their addresses; and, for all pieces alike, pairs of an argument's place
    and an index into the device addresses of the inputs and the partial results.
    """
    names = [*fed.arrays, "partials"]
    rows = []
    slots: list[tuple[int, int]] = []
    for piece in fed.pieces:
        launch = piece.launch
        if launch is None:
            raise LaunchFailedError("a piece in turn has a launch, which this one lacks")
        if launch.has_attributes:
            raise LaunchConfigError("Pieces in turn are launched without attributes.")
        args = [a for a in launch.args if not isinstance(a, SharedMemory)]
        values = np.zeros(len(args), np.uint64)
        slots = []
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
