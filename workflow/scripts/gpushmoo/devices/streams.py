"""Streams of a device, and pieces that are fed to it, each through a stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

from ..workloads.contract import Launch
from ..workloads.host_fed import Piece

T = TypeVar("T")


class Mark(Protocol):
    """A point in a stream's order: reached when all that was queued before is done."""

    def seconds_since(self, other: Any) -> float:
        """From when `other`, a mark of this device, was reached to when this one was.

        By the device's clock. Both marks' streams must have been waited for since.
        """


class Stream(Protocol):
    """A queue of copies and launches that run in its order, beside those of other streams.

    A context manager: at its end the stream is waited for, and gone with all that it allocated.
    """

    def __enter__(self) -> Stream:
        """The stream itself."""

    def __exit__(self, *exc: object) -> None:
        """Wait, then free."""

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content, the stream's own. Raises OutOfDeviceMemoryError."""

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of the whole flat `source` to the beginning of `target`.

        `source` must stay as it is until the stream was waited for.
        """

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the beginning of `source` to the whole flat `target`."""

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch. Raises as `Device.bind` does."""

    def release(self) -> None:
        """Give back, in the stream's order, all that it allocated."""

    def mark(self) -> Mark:
        """Queue a mark, which is reached when all that was queued before it is done."""

    def wait(self) -> None:
        """Return when all that was queued is done. Raises LaunchFailedError or DeviceLostError."""


@dataclass(frozen=True)
class FedInTurn:
    """What a pipeline of `StreamSetup.IN_TURN` feeds, one of its `pieces` after another.

    `arrays` are the flat inputs on the host, by name; `partials`, on the host as well, is where the
    launches' partial results end up. A `poisoned` feed fills all device memory with all-ones words
    first.
    """

    program: Any
    pieces: Sequence[Piece]
    arrays: Mapping[str, npt.NDArray[Any]]
    partials: npt.NDArray[Any]
    poisoned: bool


class InTurn(Protocol):
    """A `FedInTurn` made ready on a device."""

    def run(self, meanwhile: Callable[[], T]) -> T:
        """Queue all pieces, call `meanwhile`, wait, and fetch the partial results.

        Returns what `meanwhile` did. Whatever is raised, what was taken is given back.
        """


class StreamsInTurn:
    """The streams of any device, see `InTurn`."""

    def __init__(
        self,
        open_stream: Callable[[], Stream],
        poison: Callable[[Any], None],
        fed: FedInTurn,
    ) -> None:
        self._open_stream, self._poison_one, self._fed = open_stream, poison, fed

    def run(self, meanwhile: Callable[[], T]) -> T:
        """See `InTurn`."""
        with ExitStack() as held:
            keeper = held.enter_context(self._open_stream())
            results = keeper.allocate(self._fed.partials.nbytes)
            # Other streams use it.
            keeper.wait()
            self._poison(results)
            streams = []
            for piece in self._fed.pieces:
                streams.append(held.enter_context(self._open_stream()))
                self._feed(piece, streams[-1], results)
            value = meanwhile()
            for stream in streams:
                stream.wait()
            keeper.copy_out(self._fed.partials, results)
            keeper.wait()
        return value

    def _feed(self, piece: Piece, stream: Stream, results: Any) -> None:
        parts = {name: a[piece.begin : piece.end] for name, a in self._fed.arrays.items()}
        room = {name: stream.allocate(part.nbytes) for name, part in parts.items()}
        if self._fed.poisoned:
            stream.wait()
            self._poison(*room.values())
        for name, part in parts.items():
            stream.copy_in(room[name], part)
        if piece.launch is not None:
            stream.launch(self._fed.program, piece.launch, {**room, "partials": results})
        stream.release()

    def _poison(self, *buffers: Any) -> None:
        for buffer in buffers if self._fed.poisoned else ():
            self._poison_one(buffer)
