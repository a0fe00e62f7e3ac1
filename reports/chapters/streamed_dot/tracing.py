"""Notes when the copies and kernels of a host-fed cell run, by marks in its streams.

Feeding knows nothing of it: a `TracedDevice` has streams that set a mark before and after each copy
to the device and each kernel.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy.typing as npt
from dot_products.in_turn import by_streams
from gpushmoo.core.space import Cell
from gpushmoo.devices.base import Device, Program, streams_of
from gpushmoo.devices.streams import Mark, Stream, Streams
from gpushmoo.measuring.host_pipeline import Feed, Pool
from gpushmoo.workloads.contract import Launch
from gpushmoo.workloads.host_fed import HostFedWorkload, Pipeline, StreamSetup

from .timeline import COPY, KERNEL, Span, Trace, after_each_other

Array = npt.NDArray[Any]

WARMUPS = 2


@dataclass
class Notes:
    """Marks before and after each copy and kernel while `on`, and when the host set the first."""

    clock: Callable[[], float]
    on: bool = False
    first_s: float = math.nan
    marks: list[tuple[Mark, Mark]] = field(default_factory=list)

    def around(self, stream: Stream, queue: Callable[[], None]) -> None:
        """Set marks around what `queue` queues in `stream`."""
        if not self.on:
            queue()
            return
        if not self.marks:
            self.first_s = self.clock()
        before = stream.mark()
        queue()
        self.marks.append((before, stream.mark()))


class TracedStream:
    """A stream that notes its copies to the device and its launches; see `devices.base.Stream`."""

    def __init__(self, stream: Stream, notes: Notes) -> None:
        self._stream, self._notes = stream, notes

    def __enter__(self) -> TracedStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.__exit__(*exc)

    def __getattr__(self, name: str) -> Any:
        """Methods that set no marks (allocate, copy_out, mark, wait) are the stream's own."""
        return getattr(self._stream, name)

    def copy_in(self, target: Any, source: Array) -> None:
        """Queue a copy to the device between two marks."""
        self._notes.around(self._stream, lambda: self._stream.copy_in(target, source))

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a kernel between two marks."""
        self._notes.around(self._stream, lambda: self._stream.launch(program, launch, buffers))


@dataclass(frozen=True)
class TracedStreams:
    """Opens streams that are traced."""

    streams: Streams
    notes: Notes

    def open(self) -> TracedStream:
        """A new stream of the device, wrapped to be traced."""
        return TracedStream(self.streams.open(), self.notes)


@dataclass(frozen=True)
class TracedDevice:
    """What a pool asks of a device, with streams that are traced."""

    streams: TracedStreams
    poison: Callable[[Any], None]


def trace(
    device: Device,
    workload: HostFedWorkload,
    cell: Cell,
    program: Program,
    inputs: Mapping[str, Array],
    runs: int = 9,
    clock: Callable[[], float] = time.perf_counter,
) -> Trace:
    """Run `cell` warm, then `runs` times in turn without and with marks.

    Raises what the device raises, when all that was taken is given back, and ValueError for a cell
    of which nothing goes to the device.
    """
    pipeline = _by_streams(workload.pipeline(cell))
    if not pipeline.pieces:
        raise ValueError(f"cell {cell.key} copies nothing, so that there is no time line")
    streams = streams_of(device)
    arrays = {name: streams.host_array(a, pipeline.pinned) for name, a in inputs.items()}
    host_part = partial(workload.host_part, cell)
    notes = Notes(clock)
    one_engine = pipeline.pinned and device.info.kind == "gpu"
    # A pool opens streams and asks no more of a device where no run is poisoned.
    untraced, traced = [], []
    noted = TracedDevice(TracedStreams(streams, notes), device.poison)
    with Pool(cast(Device, noted), tuple(arrays)) as pool:
        total = partial(workload.total, cell)
        feed = Feed(pool, program, pipeline, arrays, host_part, total)
        for _ in range(WARMUPS):
            feed.run()
        for _ in range(runs):
            untraced.append(_timed(feed, notes, False)[1])
            start, total_s = _timed(feed, notes, True)
            spans = _spans(pipeline, arrays, notes, notes.first_s - start)
            traced.append(Trace(spans, total_s, math.nan, one_engine))
    middle = sorted(traced, key=lambda t: t.total_s)[(runs - 1) // 2]
    spans = after_each_other(middle.spans) if one_engine else middle.spans
    return replace(middle, spans=spans, untraced_s=statistics.median(untraced))


def _by_streams(pipeline: Pipeline) -> Pipeline:
    """The pipeline, fed through streams in Python, which set marks."""
    kept = isinstance(pipeline.setup, StreamSetup)
    return pipeline if kept else replace(pipeline, setup=by_streams)


def _timed(feed: Feed, notes: Notes, traced: bool) -> tuple[float, float]:
    """When a run began and how long it took, by the notes' clock."""
    notes.on = traced
    notes.marks.clear()
    start = notes.clock()
    feed.run()
    return start, notes.clock() - start


def _spans(
    pipeline: Pipeline, arrays: Mapping[str, Array], notes: Notes, first_s: float
) -> tuple[Span, ...]:
    """Return the recorded spans in the order of queueing: each piece's copies, then its kernel.

    The first mark was set `first_s` after the host began, and counts as reached at that time.
    """
    origin = notes.marks[0][0]
    queued: list[tuple[int, str, str | None, int]] = []
    for i, piece in enumerate(pipeline.pieces):
        elements = piece.end - piece.begin
        queued += [(i, COPY, name, elements * array.itemsize) for name, array in arrays.items()]
        queued += [(i, KERNEL, None, 0)] if piece.launch is not None else []
    spans = []
    for (i, what, name, nbytes), marks in zip(queued, notes.marks, strict=True):
        ready, end = (first_s + mark.seconds_since(origin) for mark in marks)
        spans.append(Span(pipeline.pieces[i].stream, i, what, name, nbytes, ready, ready, end))
    return tuple(spans)
