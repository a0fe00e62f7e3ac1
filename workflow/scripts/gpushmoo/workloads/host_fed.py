"""Data that lives on the host, taken to a device in pieces over several streams."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from ..core.space import Cell, Problem
from .contract import Array, Launch, ReducingWorkload
from .user_code import Check, instance_fault


@dataclass(frozen=True)
class Piece:
    """Elements `begin` to `end` (exclusive) of every input, through one stream, then `launch`.

    In the launch's arguments a BufferRef to an input means the stream's own copy of the piece, and
    one to ``partials`` the partial results of all. Without a launch the piece is copied only.
    """

    stream: int
    begin: int
    end: int
    launch: Launch | None


class StreamSetup(Enum):
    """When the streams of a pipeline and their device memory are made.

    `BEFORE`: before the time is taken, and kept from run to run. `WITHIN`: within the time, all of
    them before the first copy. `IN_TURN`: within the time; of each piece the stream and its memory
    are made, filled and given back before those of the next piece are made, so that pieces have a
    stream each.
    """

    BEFORE = "before"
    WITHIN = "within"
    IN_TURN = "in turn"


@dataclass(frozen=True)
class Pipeline:
    """A problem cut into pieces for the device and one part for the host.

    Pieces of a stream follow each other in their order here. Launches leave `partials` elements of
    the result's type. The host takes elements `host_begin` to `host_end` while the device works.
    `pinned`: the inputs lie in memory that the device reads by itself.
    """

    streams: int
    pieces: tuple[Piece, ...]
    partials: int
    host_begin: int
    host_end: int
    pinned: bool
    setup: StreamSetup

    def rooms(self) -> tuple[int, ...]:
        """Elements of the longest piece of each stream; () where there are no pieces."""
        rooms = [0] * self.streams if self.pieces else []
        for piece in self.pieces:
            rooms[piece.stream] = max(rooms[piece.stream], piece.end - piece.begin)
        return tuple(rooms)


class HostFedWorkload(ReducingWorkload):
    """Base of kernels whose data live on the host and whose result is one number.

    What is timed, by the host's clock, is all from the first copy to the number: a `pipeline` and,
    meanwhile, the host's own part. `launch` tells block and grid of a piece and is never bound.
    Inputs are flat and of one length.
    """

    _checks: ClassVar[Mapping[str, Check]] = {
        **ReducingWorkload._checks,
        "pipeline": instance_fault(Pipeline),
    }

    @abstractmethod
    def pipeline(self, cell: Cell) -> Pipeline:
        """How the elements go through streams, and which of them the host takes."""

    @abstractmethod
    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> Any:
        """The host's part of the result, from its part of the inputs; that may be empty."""

    @abstractmethod
    def total(self, cell: Cell, partials: Array, host_part: Any) -> float:
        """The result from what the cell's launches left and the host's part."""

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """The inputs, from the host to the device: counted once, as the bus carries them once."""
        return self.bytes_read(problem, dtype)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """No more than what is copied."""
        return self.footprint(problem, dtype)

    def footprint(self, problem: Problem, dtype: str) -> int:
        """What is copied: as much is on the device at once where the pieces are large."""
        return self.bytes_copied(problem, dtype) if self.device_code else 0


def share_of_host(n: int, percent: int) -> int:
    """Elements of `n` that the host takes, rounded; `percent` is 0 to 100."""
    return (n * percent + 50) // 100


def count_cuts(n: int, streams: int, min_per_stream: int, chunk: int) -> int:
    """How many pieces `cuts` makes, or a few more, without making them."""
    used = _streams(n, streams, min_per_stream)
    return used * -(-(n // used + 1) // chunk) if chunk else used


def _streams(n: int, streams: int, min_per_stream: int) -> int:
    """How many of the streams `n` elements use."""
    return max(1, min(streams, n // max(1, min_per_stream)))


def cuts(n: int, streams: int, min_per_stream: int, chunk: int) -> tuple[Piece, ...]:
    """`n` elements for at most `streams` streams, in the order in which they are queued.

    A stream gets at least `min_per_stream` elements, so that few elements use few streams; all get
    equally many but for one. A stream takes its share in chunks of `chunk` elements (0: at once),
    and the streams take turns, so that all of them have work early.
    """
    if n == 0:
        return ()
    used = _streams(n, streams, min_per_stream)
    bounds = [n * i // used for i in range(used + 1)]
    step = chunk or n
    rounds = max(-(-(b - a) // step) for a, b in itertools.pairwise(bounds))
    return tuple(
        Piece(s, begin, min(begin + step, bounds[s + 1]), None)
        for r in range(rounds)
        for s in range(used)
        if (begin := bounds[s] + r * step) < bounds[s + 1]
    )
