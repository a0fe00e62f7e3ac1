"""Feeding any device piece by piece, each through a stream that is made for it and given back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from ..workloads.host_fed import Piece
from .base import Stream
from .in_turn import FedInTurn

T = TypeVar("T")


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
