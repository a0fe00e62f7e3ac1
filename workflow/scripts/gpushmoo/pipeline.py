"""Data that lives on the host, taken to a device in pieces over several streams."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .workload import Launch


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


@dataclass(frozen=True)
class Pipeline:
    """A problem cut into pieces for the device and one part for the host.

    Pieces of a stream follow each other in their order here. Launches leave `partials` elements of
    the result's type. The host takes elements `host_begin` to `host_end` while the device works.
    `pinned`: the inputs lie in memory that the device reads by itself. `pooled`: streams and device
    memory are made before the time is taken.
    """

    streams: int
    pieces: tuple[Piece, ...]
    partials: int
    host_begin: int
    host_end: int
    pinned: bool
    pooled: bool

    def rooms(self) -> tuple[int, ...]:
        """Elements of the longest piece of each stream; () where there are no pieces."""
        rooms = [0] * self.streams if self.pieces else []
        for piece in self.pieces:
            rooms[piece.stream] = max(rooms[piece.stream], piece.end - piece.begin)
        return tuple(rooms)


@dataclass(frozen=True)
class Cut:
    """A piece before it has a launch: elements `begin` to `end` of `stream`."""

    stream: int
    begin: int
    end: int


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


def cuts(n: int, streams: int, min_per_stream: int, chunk: int) -> tuple[Cut, ...]:
    """Cut `n` elements for at most `streams` streams, in the order in which they are queued.

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
        Cut(s, begin, min(begin + step, bounds[s + 1]))
        for r in range(rounds)
        for s in range(used)
        if (begin := bounds[s] + r * step) < bounds[s + 1]
    )
