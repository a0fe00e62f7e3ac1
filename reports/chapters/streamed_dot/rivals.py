"""Compare host and device: one process times the ways of one dot product in rounds.

Rates of a host drift by tens of percent between machines and minutes. So ways are compared only
within a round, which times each of them once in a new order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from dot_products import summation
from dot_products.host_ways import THREADED, WAYS, dot_by
from dot_products.workloads import PUBLISHED, DotProduct
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchConfigError, OutOfDeviceMemoryError
from gpushmoo.core.schema import Float64, Int32, Int64, Meaning, String, Table
from gpushmoo.core.space import Cell, Problem, Version
from gpushmoo.devices.base import Device, streams_of
from gpushmoo.devices.streams import Stream
from gpushmoo.measuring.cell_memory import FedSpace
from gpushmoo.measuring.host_pipeline import Feed
from gpushmoo.measuring.programs import programs_for
from gpushmoo.workloads.host_fed import HostFedWorkload, StreamSetup
from gpushmoo.workloads.loader import KernelFolder

from .today import GraphFeed, in_place, managed_array

# A row for a way and round; `way` is unique within comparison, operation, dtype and n. In BETWEEN
# it is a length, with KEPT_STREAMS where streams are kept, and n the power of two below.


class TimedWay(Table):
    """A way of one dot product, timed in one round."""

    comparison: Annotated[
        String, Meaning("what the round compares: length, share, parameter, between or copy")
    ]
    operation: Annotated[String, Meaning("x·y, x·x, or the direction of a copy")]
    dtype: String
    n: Int64
    way: Annotated[
        String, Meaning("name of a way of computing; where lengths are compared, the length")
    ]
    round: Annotated[Int32, Meaning("in which round, from zero; ways are compared within one")]
    seconds: Annotated[Float64, Meaning("mean of a call by the host's clock", "s")]
    backend: String
    device_name: String


RIVALS_SCHEMA = TimedWay.schema()
LENGTH = "length"
SHARE = "share"
PARAMETER = "parameter"
BETWEEN = "between"
COPY = "copy"
TO_DEVICE, TO_HOST = "host to device", "device to host"
PRODUCT, SQUARES = "x·y", "x·x"
STREAMED = {PRODUCT: "dot_streamed", SQUARES: "dot_square"}
DTYPES_COMPARED = ("float", "double")

POOLED = "pinned-pooled"
# The document's parameters, and those that streams which are kept do best with.
PRINTED = {
    "streams": 64,
    "min_per_stream": 1 << 12,
    "blocks_per_stream": 32,
    "threads": 1024,
    "chunk": 0,
    "host_percent": 0,
}
KEPT = {**PRINTED, "streams": 2, "chunk": 1 << 22}
# Ways on the device at every length.
ON_DEVICE: dict[str, tuple[str, dict[str, int]]] = {
    "as published": (PUBLISHED, PRINTED),
    "as published, one stream": (PUBLISHED, {**PRINTED, "streams": 1}),
    "pooled": (POOLED, KEPT),
}
# And those of today, where the backend has them: one launch whose kernel reads the host's pinned
# memory, or managed memory that the host has just written, without a copy; and the copies and
# launches of the pooled way, kept as one graph.
TODAY = "mapped", "managed", "graph"
MAPPED, MANAGED, GRAPH = TODAY
DEVICE_WAYS = (*ON_DEVICE, *TODAY)
KEPT_STREAMS = ", pooled"
SHARES = (0, 20, 40, 45, 50, 55, 60, 65, 70, 75, 80, 90, 100)
CHANGES: dict[str, tuple[int, ...]] = {
    "streams": (1, 4, 16),
    "min_per_stream": (1 << 20,),
    "blocks_per_stream": (4, 128),
    "threads": (128,),
}
# Whose parameters are changed.
BASES = {"as published": PUBLISHED, "pooled": POOLED}
EIGHTHS = (8, 9, 10, 12, 14, 15, 16)

# Short calls are repeated for so long, but not too often.
MIN_S, MAX_CALLS = 2e-4, 20
# Arrays up to BRIEF are computed by one thread anyway.
BRIEF = 2**12
# Threads rest when the process uses less than a quarter of one core for a step, which is longer
# than the system takes to count it: SHORT_STEP_S, or STEP_S where that is not counted at once.
# OpenBLAS's threads look for work for 2^26 cycles after a call.
STEP_S, SHORT_STEP_S, MAX_S = 0.01, 0.002, 0.5


@dataclass(frozen=True)
class Rivals:
    """At which lengths, in how many rounds, ways are compared."""

    lengths: Sequence[int]
    share_lengths: Sequence[int]
    parameter_lengths: Sequence[int]
    between: Sequence[int]
    rounds: int
    seed: int


@dataclass(frozen=True)
class Call:
    """A way of computing, ready; `threaded`: it leaves threads that go on for a while.

    What is done `before` a run is not timed.
    """

    run: Callable[[], object]
    threaded: bool = False
    before: Callable[[], None] | None = None

    def seconds(self, runs: int, clock: Callable[[], float]) -> float:
        """Return the mean seconds of `runs` runs, timed together if nothing precedes each."""
        spent = 0.0
        together = runs if self.before is None else 1
        for _ in range(runs // together):
            if self.before is not None:
                self.before()
            start = clock()
            for _ in range(together):
                self.run()
            spent += clock() - start
        return spent / runs


class Bench:
    """The programs of the streamed kernels on a device."""

    def __init__(self, device: Device, folders: Mapping[str, KernelFolder], seed: int) -> None:
        """`folders` by the kernel's name. Raises BuildError."""
        self.device, self._seed, self.folders = device, seed, folders
        self.operations = [o for o, kernel in STREAMED.items() if kernel in folders]
        self._programs: dict[tuple[str, str, str], Any] = {}
        versions = [Version(PUBLISHED), Version(POOLED)]
        for operation in self.operations:
            for dtype in DTYPES_COMPARED:
                builds = programs_for(device, folders[STREAMED[operation]], dtype, versions)
                for failure in builds.failures.values():
                    raise failure
                for variant, program in builds.programs.items():
                    self._programs[operation, dtype, variant] = program

    def workload(self, operation: str) -> Any:
        """The workload of the kernel that streams this operation, one of STREAMED's keys."""
        found = self.folders[STREAMED[operation]].workload
        assert isinstance(found, DotProduct)
        assert isinstance(found, HostFedWorkload)
        return found

    def space(self, operation: str, dtype: str, n: int) -> FedSpace:
        """Random vectors of `n` elements."""
        workload = self.workload(operation)
        rng = np.random.default_rng([self._seed, 1, n])
        return FedSpace(self.device, workload, workload.inputs(Problem(1, n), dtype, rng))

    def on_device(
        self,
        dot: Dot,
        variant: str,
        params: Mapping[str, int],
        kind: type[Feed] = Feed,
        kept: bool = False,
    ) -> Call:
        """A way that streams, verified. Raises DeviceError.

        `kept` are streams and memory, also of a variant that makes them again.
        """
        cell = dot.cell(variant, params)
        program = self._programs[dot.operation, dot.dtype, variant]
        feed = dot.space.bind(program, cell)
        pipeline = replace(feed.pipeline, setup=StreamSetup.BEFORE) if kept else feed.pipeline
        feed = kind(feed.pool, program, pipeline, feed.arrays, feed.host_part, feed.total)
        proof = replace(feed, poisoned=True)
        proof.run()
        _hold(cell, dot.space.verdict(cell, proof).message)
        return Call(feed.run, threaded=pipeline.host_end > pipeline.host_begin)

    def in_place(self, dot: Dot, managed: bool) -> Call:
        """One launch, a block for each multiprocessor, that reads and writes the host's memory.

        Verified; with `managed` inputs the host writes them before each run. Raises DeviceError.
        """
        device = self.device
        workload = self.workload(dot.operation)
        inputs = dot.space.arrays[True]
        one = {**PRINTED, "streams": 1, "blocks_per_stream": device.info.multiprocessors}
        cell = dot.cell(POOLED, one)
        pipeline = workload.pipeline(cell)
        if managed:
            inputs = {name: managed_array(device, a) for name, a in inputs.items()}
        unwritten = np.full(pipeline.partials, np.nan, DTYPES[dot.dtype].scalar)
        partials = streams_of(device).host_array(unwritten, True)
        every = {**inputs, "partials": partials}
        buffers = {name: in_place(device, array) for name, array in every.items()}
        program = self._programs[dot.operation, dot.dtype, POOLED]
        launch = device.bind(program, pipeline.pieces[0].launch, buffers)

        def run() -> float:
            launch.run()
            return float(workload.total(cell, partials, 0.0))

        def write() -> None:
            for array in inputs.values():
                np.multiply(array, 1, out=array)

        _hold(cell, workload.fault(run(), cell, dot.space.known))
        return Call(run, before=write if managed else None)

    def on_host(self, dot: Dot, way: str) -> Call:
        """A way of `host_ways`, verified."""
        x, y = self.workload(dot.operation).factors(dot.space.arrays[False])
        depth = summation.sequential_depth(x.size)
        value = dot_by(way, x, y)
        known = dot.space.known
        if not summation.agrees(
            value, known, summation.tolerance(known, depth, DTYPES[dot.dtype].scalar)
        ):
            raise ValueError(
                f"{way}, {dot.operation}, {dot.dtype}, n = {x.size}: {value!r} is wrong"
            )
        return Call(partial(dot_by, way, x, y), threaded=way in THREADED)


@dataclass(frozen=True)
class Dot:
    """A dot product of the first `n` elements of the vectors in `space`."""

    space: FedSpace
    operation: str
    dtype: str
    n: int

    def cell(self, variant: str, params: Mapping[str, int]) -> Cell:
        """Return the cell of a kernel that computes it."""
        axes = tuple(sorted(params.items()))
        return Cell(STREAMED[self.operation], self.dtype, variant, Problem(1, self.n), axes)

    def part(self, n: int) -> Dot:
        """Return the dot product of the first `n` elements alone."""
        return replace(self, space=self.space.part(n), n=n)


def _hold(cell: Cell, message: str | None) -> None:
    if message is not None:
        raise ValueError(f"{cell.key}: {message}")


def run_rivals(device: Device, folders: Mapping[str, KernelFolder], rivals: Rivals) -> pa.Table:
    """All comparisons, as rows of RIVALS_SCHEMA. Ways that a device refuses are left out.

    Raises DeviceLostError, BuildError, and ValueError where a way gives a wrong number.
    """
    bench = Bench(device, folders, rivals.seed)
    rng = np.random.default_rng(rivals.seed)
    rows: list[dict[str, Any]] = []

    def timed(
        comparison: str, operation: str, dtype: str, n: int, ways: Mapping[str, Call]
    ) -> None:
        for number, way, seconds in in_rounds(ways, rivals.rounds, n > BRIEF, rng):
            row = (comparison, operation, dtype, n, way, number, seconds)
            of_device = (device.info.backend, device.info.name)
            rows.append(dict(zip(RIVALS_SCHEMA.names, (*row, *of_device), strict=True)))

    for dtype in DTYPES_COMPARED:
        for operation in bench.operations:
            for n in sorted({*rivals.lengths, *rivals.share_lengths, *rivals.parameter_lengths}):
                with bench.space(operation, dtype, n) as space:
                    dot = Dot(space, operation, dtype, n)
                    if n in rivals.lengths:
                        timed(LENGTH, operation, dtype, n, _length_ways(bench, dot))
                    if n in rivals.share_lengths:
                        timed(SHARE, operation, dtype, n, _share_ways(bench, dot))
                    # Streams that are kept slow the making of others: what keeps them comes last.
                    for base in BASES if n in rivals.parameter_lengths else ():
                        ways = _parameter_ways(bench, dot, base)
                        timed(PARAMETER, operation, dtype, n, ways)
            for n in rivals.between:
                with bench.space(operation, dtype, n * max(EIGHTHS) // 8) as longest:
                    dot = Dot(longest, operation, dtype, n)
                    for kept in (False, True):
                        ways = _between_ways(bench, dot, kept)
                        timed(BETWEEN, operation, dtype, n, ways)
    if bench.operations:
        n = max((*rivals.lengths, *rivals.share_lengths), default=BRIEF)
        with streams_of(device).open() as stream:
            timed(COPY, PRODUCT, "double", n, _copies(device, stream, n))
    return pa.Table.from_pylist(rows, schema=RIVALS_SCHEMA)


@cache
def step_s() -> float:
    """The shortest step in which the system shows that another thread of this process computes."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        # The first step begins with the thread.
        counted = [_used_s(SHORT_STEP_S) >= SHORT_STEP_S / 4 for _ in range(6)]
    finally:
        over.set()
        thread.join()
    return SHORT_STEP_S if all(counted[1:]) else STEP_S


def _used_s(seconds: float) -> float:
    """Seconds of a processor that this process uses while this thread sleeps."""
    used = time.process_time()
    time.sleep(seconds)
    return time.process_time() - used


def at_rest() -> None:
    """Wait until no thread of this process computes, half a second at most."""
    step = step_s()
    for _ in range(int(MAX_S / step)):
        if _used_s(step) < step / 4:
            return


def in_rounds(
    ways: Mapping[str, Call],
    rounds: int,
    settles: bool,
    rng: np.random.Generator,
    clock: Callable[[], float] = time.perf_counter,
    rest: Callable[[], None] = at_rest,
) -> Sequence[tuple[int, str, float]]:
    """Round, way and mean seconds of a call; each way once a round, in an order drawn for it.

    With `settles` the threads of a way before come to rest first. A call outside of the clock then
    wakes the way's own threads and fills the caches as the way itself does.
    """
    calls = {}
    for label, way in ways.items():
        way.run()
        calls[label] = max(1, min(MAX_CALLS, int(MIN_S / max(way.seconds(1, clock), 1e-9))))
    found = []
    before = any(way.threaded for way in ways.values())
    for number in range(rounds):
        for label in (str(name) for name in rng.permutation(list(ways))):
            if settles and before:
                rest()
            ways[label].run()
            found.append((number, label, ways[label].seconds(calls[label], clock)))
            before = ways[label].threaded
    return found


def _taken(made: Mapping[str, Callable[[], Call]]) -> dict[str, Call]:
    """Those that the device does not refuse."""
    ways = {}
    for label, make in made.items():
        with suppress(LaunchConfigError, OutOfDeviceMemoryError):
            ways[label] = make()
    return ways


def _length_ways(bench: Bench, dot: Dot) -> dict[str, Call]:
    made = {way: partial(bench.on_host, dot, way) for way in WAYS}
    for label, (variant, params) in ON_DEVICE.items():
        made[label] = partial(bench.on_device, dot, variant, params)
    if hasattr(bench.device, "cupy"):
        made |= {way: partial(bench.in_place, dot, way == MANAGED) for way in (MAPPED, MANAGED)}
        made[GRAPH] = partial(bench.on_device, dot, POOLED, KEPT, GraphFeed)
    return _taken(made)


def _share_ways(bench: Bench, dot: Dot) -> dict[str, Call]:
    ways = {str(p): {**KEPT, "host_percent": p} for p in SHARES}
    return _taken({s: partial(bench.on_device, dot, POOLED, p) for s, p in ways.items()})


def _parameter_ways(bench: Bench, dot: Dot, base: str) -> dict[str, Call]:
    """The document's parameters, and each of them changed alone."""
    variant = BASES[base]
    made = {base: partial(bench.on_device, dot, variant, PRINTED)}
    changes = {**CHANGES, **({"chunk": (1 << 18, 1 << 22)} if variant == POOLED else {})}
    for axis, values in changes.items():
        for value in values:
            changed = {**PRINTED, axis: value}
            made[f"{base}, {axis} {value}"] = partial(bench.on_device, dot, variant, changed)
    return _taken(made)


def _between_ways(bench: Bench, dot: Dot, kept: bool) -> dict[str, Call]:
    """The printed split, its streams made again as printed or kept.

    The vectors of `dot` are as long as the longest part."""
    ways = {}
    for eighths in EIGHTHS:
        part = dot.part(dot.n * eighths // 8)
        label = f"{part.n}{KEPT_STREAMS if kept else ''}"
        ways[label] = bench.on_device(part, PUBLISHED, PRINTED, kept=kept)
    return ways


def _copies(device: Device, stream: Stream, n: int) -> dict[str, Call]:
    """`n` doubles from the host's pinned memory through `stream` to the device, and back."""
    host: npt.NDArray[Any] = streams_of(device).host_array(np.arange(n, dtype=np.float64), True)
    there = stream.allocate(host.nbytes)

    def to_device() -> None:
        stream.copy_in(there, host)
        stream.wait()

    def to_host() -> None:
        stream.copy_out(host, there)
        stream.wait()

    return {TO_DEVICE: Call(to_device), TO_HOST: Call(to_host)}
