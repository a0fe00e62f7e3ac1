"""Run a kernel whose data the host streams to the device while it computes its own part."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..core.errors import OutOfDeviceMemoryError
from ..core.space import USUAL, Condition
from ..devices.base import Device, Program, TimedInterval, streams_of
from ..devices.streams import Stream
from ..workloads.host_fed import FedInTurn, Pipeline, StreamSetup

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
T = TypeVar("T")


@dataclass(frozen=True)
class StreamRoom:
    """A stream, and device memory of `nbytes` bytes for one piece of every input."""

    stream: Stream
    nbytes: int
    room: Mapping[str, Any]


@dataclass
class Pool:
    """Streams and device memory for a pipeline, which are reused from run to run.

    As a context manager, it closes the streams and frees the memory at the end.

    Attributes
    ----------
    device
        The device.
    inputs
        Names of the inputs.
    lanes
        Streams with memory for pieces of the inputs.
    keeper, partials
        Stream that owns the memory of the partial results, and this memory.
    """

    device: Device
    inputs: tuple[str, ...]
    lanes: list[StreamRoom] = field(default_factory=list)
    keeper: Stream | None = None
    partials: Any = None
    _partial_bytes: int = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        keepers = [] if self.keeper is None else [self.keeper]
        streams = keepers + [lane.stream for lane in self.lanes]
        self.lanes = []
        self.keeper = None
        self.partials = None
        self._partial_bytes = 0
        # Each is left, the keeper last, even if another one raises.
        with ExitStack() as stack:
            for stream in streams:
                stack.push(stream)

    @contextmanager
    def emptied_on_error(self) -> Iterator[None]:
        """Free all streams and memory if the block raises an error."""
        with ExitStack() as stack:
            stack.push(self)
            yield
            stack.pop_all()

    def ready(self, packages: Sequence[int], partials: int) -> None:
        """Allocate memory for pieces of the inputs and for partial results.

        If one buffer is too small, all are allocated again.

        Parameters
        ----------
        packages
            Bytes of each input in each lane.
        partials
            Bytes of the partial results.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """
        held = [lane.nbytes for lane in self.lanes]
        most = [max(pair) for pair in zip_longest(packages, held, fillvalue=0)]
        if most == held and partials <= self._partial_bytes:
            return
        partials = max(partials, self._partial_bytes)
        with self.emptied_on_error():
            self.__exit__()
            for nbytes in most:
                stream = streams_of(self.device).open()
                self.lanes.append(StreamRoom(stream, nbytes, {}))
                room = {name: stream.allocate(nbytes) for name in self.inputs}
                self.lanes[-1] = StreamRoom(stream, nbytes, room)
            if partials:
                self.keeper = streams_of(self.device).open()
                self._partial_bytes = partials
                self.partials = self.keeper.allocate(partials)
                # Other streams use it.
                self.keeper.wait()


@dataclass
class Feed:
    """A pipeline bound to arrays of the host and timed by the host. It is a `PreparedLaunch`.

    Attributes
    ----------
    pool
        Streams and memory.
    program
        The loaded kernel.
    pipeline
        Pieces, launches and streams.
    arrays
        Flat inputs by name, all of one length and type.
    host_part
        Computes the host's part of the result.
    total
        Computes the result from the partial results of the device and the host's part.
    clock
        Returns the time in seconds.
    poisoned
        Whether a run starts by filling all memory with ones, so that a missing or late copy shows.
    value
        Result of the last run, or NaN before.
    """

    pool: Pool
    program: Program
    pipeline: Pipeline
    arrays: Arrays
    host_part: Callable[[Arrays], Any]
    total: Callable[[Array, Any], float]
    clock: Callable[[], float] = time.perf_counter
    poisoned: bool = False
    value: float = math.nan

    def __post_init__(self) -> None:
        dtype = next(iter(self.arrays.values())).dtype
        self._partials = np.zeros(self.pipeline.partials, dtype)
        p = self.pipeline
        share = {name: a[p.host_begin : p.host_end] for name, a in self.arrays.items()}
        # The host's part of the result.
        self._own_part = partial(self.host_part, share)
        self._in_turn = None
        if not isinstance(p.setup, StreamSetup) and p.pieces:
            fed = FedInTurn(self.program, p.pieces, self.arrays, self._partials, self.poisoned)
            self._in_turn = p.setup(self.pool.device, fed)
        self._rooms = [elements * dtype.itemsize for elements in self.pipeline.packages()]
        self._prepared(lambda: None)

    def run(self) -> None:
        """Compute the result once. If the device raises an error, its memory is freed."""
        self._prepared(self._once)

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Return the mean time of a run in seconds, by the host's clock.

        The condition `met` has no effect, because each run moves its data from the host.
        """
        return self._prepared(lambda: self._timed(launches))

    def interval(self, met: Condition) -> TimedInterval:
        """Return LAUNCH, because the host times each run."""
        return TimedInterval.LAUNCH

    def _prepared(self, action: Callable[[], T]) -> T:
        """Run `action` with a ready pool. If memory is short, once more with an empty pool."""
        others = bool(self.pool.lanes)
        while True:
            try:
                self.value = math.nan
                if self.pipeline.setup is StreamSetup.BEFORE:
                    self.pool.ready(self._rooms, self._partials.nbytes)
                return action()
            except OutOfDeviceMemoryError:
                if not others:
                    raise
                self.pool.__exit__()
                others = False

    def _timed(self, launches: int) -> float:
        start = self.clock()
        for _ in range(launches):
            self._once()
        return (self.clock() - start) / launches

    def _once(self) -> None:
        self.value = math.nan
        if self._in_turn is not None:
            if self.poisoned:
                self._partials.view(np.uint8).fill(0xFF)
            value = self.total(self._partials, self._in_turn.run(self._own_part))
        elif self.pipeline.setup is StreamSetup.BEFORE:
            with self.pool.emptied_on_error():
                value = self._compute(self.pool)
        else:
            with Pool(self.pool.device, self.pool.inputs) as pool:
                pool.ready(self._rooms, self._partials.nbytes)
                value = self._compute(pool)
        self.value = value

    def _poison(self, pool: Pool) -> None:
        self._partials.view(np.uint8).fill(0xFF)
        for lane in pool.lanes[: len(self._rooms)]:
            # Then its memory may be used beside the stream.
            lane.stream.wait()
            for buffer in lane.room.values():
                pool.device.poison(buffer)
        if pool.partials is not None:
            pool.device.poison(pool.partials)

    def _queue(self, pool: Pool) -> None:
        for piece in self.pipeline.pieces:
            lane = pool.lanes[piece.stream]
            for name, array in self.arrays.items():
                lane.stream.copy_in(lane.room[name], array[piece.begin : piece.end])
            if piece.launch is not None:
                buffers = {**lane.room, "partials": pool.partials}
                lane.stream.launch(self.program, piece.launch, buffers)

    def _compute(self, pool: Pool) -> float:
        p = self.pipeline
        if self.poisoned:
            self._poison(pool)
        self._queue(pool)
        of_host = self._own_part()
        for lane in pool.lanes[: len(self._rooms)]:
            lane.stream.wait()
        if p.partials:
            pool.lanes[0].stream.copy_out(self._partials, pool.partials)
            pool.lanes[0].stream.wait()
        return self.total(self._partials, of_host)
