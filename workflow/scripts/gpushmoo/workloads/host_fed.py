"""Describe kernels whose data are on the host and streamed to a device in pieces."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar

import numpy.typing as npt

from ..core.space import Cell, Problem
from .contract import Array, Launch, ReducingWorkload
from .user_code import Check, instance_fault

T = TypeVar("T")


@dataclass(frozen=True)
class Piece:
    """Elements `begin` to `end` (exclusive) of every input, copied by one stream, then `launch`.

    A BufferRef to an input means the stream's copy of the piece, and one to ``partials`` the
    partial results of all pieces. Without a launch the piece is only copied.
    """

    stream: int
    begin: int
    end: int
    launch: Launch | None


class StreamSetup(Enum):
    """Time at which the streams of a pipeline and their device memory are created.

    `BEFORE`: before the timed part, and kept from run to run. `WITHIN`: within it, all before the
    first copy.
    """

    BEFORE = "before"
    WITHIN = "within"


@dataclass(frozen=True)
class FedInTurn:
    """The `pieces` of a pipeline that a kernel feeds by its own code, one after another.

    `arrays` are the flat inputs on the host, by name. `partials`, also on the host, receives the
    launches' partial results. A `poisoned` feed first fills all device memory with all-ones words.
    """

    program: Any
    pieces: Sequence[Piece]
    arrays: Mapping[str, npt.NDArray[Any]]
    partials: npt.NDArray[Any]
    poisoned: bool


class InTurn(Protocol):
    """A kernel that streams its host data to a device in pieces, bound to the device and the data.

    `FedInTurn` describes the pieces.
    """

    def run(self, meanwhile: Callable[[], T]) -> T:
        """Queue all pieces, call `meanwhile`, wait, and fetch the partial results.

        Returns the value of `meanwhile`. All memory is freed, also after an error.
        """


# Makes what is fed ready on a device. Raises as `devices.base.Device.bind` does.
Feeder = Callable[[Any, FedInTurn], InTurn]


@dataclass(frozen=True)
class Pipeline:
    """Problem divided into pieces for the device and one part for the host.

    Pieces of a stream keep their order. Launches leave `partials` elements of the result's type.
    Meanwhile the host computes elements `host_begin` to `host_end`. The device reads `pinned`
    inputs directly from host memory. A kernel with a feeder creates its streams by its own code.
    """

    streams: int
    pieces: tuple[Piece, ...]
    partials: int
    host_begin: int
    host_end: int
    pinned: bool
    setup: StreamSetup | Feeder

    def packages(self) -> tuple[int, ...]:
        """Return the elements of the longest piece of each stream; () without pieces."""
        packages = [0] * self.streams if self.pieces else []
        for piece in self.pieces:
            packages[piece.stream] = max(packages[piece.stream], piece.end - piece.begin)
        return tuple(packages)


class HostFedWorkload(ReducingWorkload):
    """Base of kernels whose data are on the host and whose result is one number.

    The host's clock times everything from the first copy to the number: a `pipeline` and,
    meanwhile, the host's own part. `launch` returns block and grid of a piece and is never bound.
    Inputs are flat and have one length.
    """

    _checks: ClassVar[Mapping[str, Check]] = {
        **ReducingWorkload._checks,
        "pipeline": instance_fault(Pipeline),
    }

    @abstractmethod
    def pipeline(self, cell: Cell) -> Pipeline:
        """Return the division of the elements between streams and the host."""

    @abstractmethod
    def host_part(self, cell: Cell, arrays: Mapping[str, Array]) -> Any:
        """Return the host's part of the result, from its part of the inputs, which may be empty."""

    @abstractmethod
    def total(self, cell: Cell, partials: Array, host_part: Any) -> float:
        """Return the result from the launches' partial results and the host's part."""

    def bytes_copied(self, problem: Problem, dtype: str) -> int:
        """Return the bytes of the inputs, which the baseline copies once from the host."""
        return self.bytes_read(problem, dtype)

    def largest_buffer(self, problem: Problem, dtype: str) -> int:
        """Return the copied bytes, an upper bound."""
        return self.footprint(problem, dtype)

    def footprint(self, problem: Problem, dtype: str) -> int:
        """Return the copied bytes: large pieces are on the device at once."""
        return self.bytes_copied(problem, dtype) if self.device_code else 0


def share_of_host(n: int, percent: int) -> int:
    """Return the elements of `n` for the host, rounded; `percent` is 0 to 100."""
    return (n * percent + 50) // 100


def count_cuts(n: int, streams: int, min_per_stream: int, chunk: int) -> int:
    """Return the number of pieces that `cuts` makes, or a few more, without making them."""
    used = _streams(n, streams, min_per_stream)
    return used * -(-(n // used + 1) // chunk) if chunk else used


def _streams(n: int, streams: int, min_per_stream: int) -> int:
    """Return the number of streams that `n` elements use."""
    return max(1, min(streams, n // max(1, min_per_stream)))


def cuts(n: int, streams: int, min_per_stream: int, chunk: int) -> tuple[Piece, ...]:
    """Divide `n` elements between at most `streams` streams; pieces are in the order of queuing.

    Parameters
    ----------
    n
        Number of elements.
    streams
        Most streams to use.
    min_per_stream
        Fewest elements of a stream. Shares differ by at most one element.
    chunk
        Elements of a piece (0: the whole share). The streams alternate.
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
