"""Streams of a device, and pieces of host data that pass through a stream each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

from ..workloads.contract import Launch
from ..workloads.host_fed import Piece

T = TypeVar("T")


@dataclass(frozen=True)
class Mark:
    """A point in a stream's order; `elapsed_s` gives the seconds between two of its events."""

    event: Any
    elapsed_s: Callable[[Any, Any], float]

    def seconds_since(self, other: Mark) -> float:
        """Seconds from `other` to this mark. Both marks' streams must have been waited for."""
        return self.elapsed_s(other.event, self.event)


class Stream(Protocol):
    """A queue of copies and launches; at the end of its context it waits and frees its memory."""

    def __enter__(self) -> Stream:
        """Return the stream, which is open already."""

    def __exit__(self, *exc: object) -> None:
        """Wait for all commands, then free all buffers."""

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content, freed with the stream. Raises OutOfDeviceMemoryError."""

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of the flat `source` on the host to the beginning of `target`.

        `source` must not change until the stream was waited for.
        """

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the beginning of `source` to the flat `target` on the host."""

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch. Raises as `Device.bind` does."""

    def release(self) -> None:
        """Free all that the stream allocated, in the stream's order."""

    def mark(self) -> Mark:
        """Queue a mark, whose time can be read later."""

    def wait(self) -> None:
        """Return when all commands are done. Raises LaunchFailedError or DeviceLostError."""


@dataclass(frozen=True)
class FedInTurn:
    """The `pieces` of a pipeline of `StreamSetup.IN_TURN`, fed one after another.

    `arrays` are the flat inputs on the host, by name; `partials`, also on the host, receives the
    launches' partial results. A `poisoned` feed first fills all device memory with all-ones words.
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

        Returns the value of `meanwhile`. All memory is freed, also after an error.
        """


@dataclass(frozen=True)
class StreamsInTurn:
    """An `InTurn` by the streams of any device."""

    open_stream: Callable[[], Stream]
    poison: Callable[[Any], None]
    fed: FedInTurn

    def run(self, meanwhile: Callable[[], T]) -> T:
        """Feed each piece through its own stream, call `meanwhile`, then wait for the results."""
        with ExitStack() as held:
            keeper = held.enter_context(self.open_stream())
            results = keeper.allocate(self.fed.partials.nbytes)
            # Other streams use it.
            keeper.wait()
            self._poison(results)
            streams = []
            for piece in self.fed.pieces:
                streams.append(held.enter_context(self.open_stream()))
                self._feed(piece, streams[-1], results)
            value = meanwhile()
            for stream in streams:
                stream.wait()
            keeper.copy_out(self.fed.partials, results)
            keeper.wait()
        return value

    def _feed(self, piece: Piece, stream: Stream, results: Any) -> None:
        parts = {name: a[piece.begin : piece.end] for name, a in self.fed.arrays.items()}
        room = {name: stream.allocate(part.nbytes) for name, part in parts.items()}
        if self.fed.poisoned:
            stream.wait()
            self._poison(*room.values())
        for name, part in parts.items():
            stream.copy_in(room[name], part)
        if piece.launch is not None:
            stream.launch(self.fed.program, piece.launch, {**room, "partials": results})
        stream.release()

    def _poison(self, *buffers: Any) -> None:
        for buffer in buffers if self.fed.poisoned else ():
            self.poison(buffer)
