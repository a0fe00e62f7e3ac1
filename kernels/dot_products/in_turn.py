"""Feeds the printed loop's pieces in turn: a stream for each, made, fed and given back.

Only this kernel takes its streams within the timed part, so the code is beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from gpushmoo.workloads.host_fed import FedInTurn, InTurn, Piece

T = TypeVar("T")


def bind_in_turn(device: Any, fed: FedInTurn) -> InTurn:
    """Make pieces ready: on CUDA in a compiled loop, elsewhere by the device's streams.

    Raises LaunchConfigError or BuildError.
    """
    if device.info.backend != "cuda":
        return by_streams(device, fed)
    from .driver_in_turn import DriverInTurn, calls_here

    with device.translated():
        return DriverInTurn(device.cupy, device.translated, device.checked, fed, calls_here())


def by_streams(device: Any, fed: FedInTurn) -> StreamsInTurn:
    """Make pieces ready for the streams of any device."""
    return StreamsInTurn(device.streams.open, device.poison, fed)


@dataclass(frozen=True)
class StreamsInTurn:
    """An `InTurn` by the streams of any device."""

    open_stream: Callable[[], Any]
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

    def _feed(self, piece: Piece, stream: Any, results: Any) -> None:
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
