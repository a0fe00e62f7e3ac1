"""Time lines: what is noted on real and on fake devices, what overlaps, and the figure of it."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from conftest import ROOT
from dot_products.in_turn import by_streams
from dot_products.workloads import PUBLISHED
from fakes import INFO
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import DeviceError, LaunchFailedError
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.base import Device, DeviceInfo
from gpushmoo.storage.store import write_parquet
from gpushmoo.workloads.contract import Launch
from gpushmoo.workloads.host_fed import HostFedWorkload, Pipeline, StreamSetup
from gpushmoo.workloads.loader import load_kernel
from hypothesis import given
from hypothesis import strategies as st
from streamed_dot.figure_studies import timeline
from streamed_dot.timeline import (
    COPY,
    KERNEL,
    TIMELINE_SCHEMA,
    Span,
    Trace,
    after_each_other,
    overlap,
    read_timeline,
    timeline_table,
    traces_of,
)
from streamed_dot.tracing import WARMUPS, trace
from test_figures import note_of
from test_host_pipeline import FakeStreams, Memory, dot_piece, pipeline, total

Array = npt.NDArray[Any]

FOLDER = load_kernel(ROOT / "kernels/dot_streamed")


def workload() -> HostFedWorkload:
    assert isinstance(FOLDER.workload, HostFedWorkload)
    return FOLDER.workload


def cell(n: int, variant: str = "pinned-pooled", **params: int) -> Cell:
    usual = {"streams": 1, "min_per_stream": 1, "blocks_per_stream": 4, "threads": 64}
    every = {**usual, "chunk": 0, "host_percent": 0, **params}
    return Cell(FOLDER.name, "float", variant, Problem(1, n), tuple(sorted(every.items())))


def traced(device: Device, cell: Cell, runs: int = 3) -> Trace:
    program = device.build(FOLDER.path, DTYPES[cell.dtype], {})
    inputs = workload().inputs(cell.problem, cell.dtype, np.random.default_rng(1))
    return trace(device, workload(), cell, program, inputs, runs)


def planned(plan: Pipeline, names: Iterable[str], itemsize: int) -> list[tuple[Any, ...]]:
    """What spans say of themselves but for their times, in the order of queueing."""
    found: list[tuple[Any, ...]] = []
    for i, piece in enumerate(plan.pieces):
        nbytes = (piece.end - piece.begin) * itemsize
        found += [(piece.stream, i, COPY, name, nbytes) for name in names]
        found.append((piece.stream, i, KERNEL, None, 0))
    return found


def told(spans: Iterable[Span]) -> list[tuple[Any, ...]]:
    return [(s.stream, s.piece, s.what, s.array, s.nbytes) for s in spans]


@pytest.mark.parametrize("variant", workload().variants)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"streams": 3},
        {"streams": 4, "chunk": 1000},
        {"streams": 64, "chunk": 999, "host_percent": 20},
    ],
    ids=["at once", "streams", "chunks", "many streams"],
)
def test_copies_and_kernels_have_times(
    device: Device, params: dict[str, int], variant: str
) -> None:
    where = cell(2**16 + 5, variant, **params)
    if variant == PUBLISHED and len(params) > 1:
        pytest.skip("the printed loop has neither chunks nor a share of the host")
    plan = workload().pipeline(where)
    found = traced(device, where)
    assert told(found.spans) == planned(plan, ("x", "y"), 4)
    for s in found.spans:
        assert 0 <= s.ready_s <= s.begin_s <= s.end_s <= found.total_s
    for stream in range(plan.streams):
        mine = [s for s in found.spans if s.stream == stream]
        assert all(a.end_s <= b.ready_s for a, b in itertools.pairwise(mine))
    for piece in range(len(plan.pieces)):
        *copies, kernel = (s for s in found.spans if s.piece == piece)
        assert kernel.begin_s >= max(c.end_s for c in copies)
    assert found.untraced_s > 0
    assert found.one_engine == (device.info.kind == "gpu" and plan.pinned)
    if not found.one_engine:
        assert all(s.begin_s == s.ready_s for s in found.spans)


@pytest.mark.gpu
@pytest.mark.parametrize("streams", [1, 4])
def test_pinned_copies_wait_for_one_engine(cuda_device: Device, streams: int) -> None:
    """Were there two, one of two copies at once would come out faster than the link."""
    found = traced(cuda_device, cell(2**24, streams=streams, chunk=2**21))
    copies = [s for s in found.spans if s.what == COPY]
    assert len(copies) == 16
    in_turn = sorted(copies, key=lambda s: s.begin_s)
    assert all(a.end_s <= b.begin_s for a, b in itertools.pairwise(in_turn))
    mean_gbs = overlap(found.spans, found.total_s).memcpy_gbs
    for s in copies:
        assert s.nbytes / (s.end_s - s.begin_s) * 1e-9 < 1.5 * mean_gbs


@dataclass
class FakeFed(FakeStreams):
    """A GPU that has host memory; the clock stands but for what kernels take."""

    info: ClassVar[DeviceInfo] = INFO


def trace_fake(
    device: FakeFed,
    plan: Pipeline,
    runs: int = 1,
    program: Callable[[Launch, Mapping[str, Memory]], None] = dot_piece,
) -> Trace:
    fed = SimpleNamespace(
        pipeline=lambda _: plan, host_part=lambda *_: 0.0, total=lambda _, *parts: total(*parts)
    )
    ones = np.ones(plan.host_end, np.float32)
    inputs = {"x": ones, "y": ones}
    workload = cast(HostFedWorkload, fed)
    return trace(
        cast(Device, device),
        workload,
        cell(ones.size),
        cast(Any, program),
        inputs,
        runs,
        device.clock,
    )


@pytest.mark.parametrize("pinned", [True, False])
def test_spans_are_as_long_as_what_they_hold(pinned: bool) -> None:
    """The fake streams do their work one stream after the other, when they are waited for."""
    device = FakeFed()

    def slow(launch: Launch, buffers: Mapping[str, Memory]) -> None:
        device.clock.now += 2.0

    plan = replace(pipeline(8, streams=2, chunk=2), pinned=pinned)
    found = trace_fake(device, plan, program=slow)
    kernels = [s for s in found.spans if s.what == KERNEL]
    times = [(s.stream, s.piece, s.ready_s, s.begin_s, s.end_s) for s in kernels]
    assert times == [(0, 0, 0, 0, 2), (1, 1, 4, 4, 6), (0, 2, 2, 2, 4), (1, 3, 6, 6, 8)]
    assert found.total_s == found.untraced_s == 8.0
    assert found.one_engine == pinned
    assert told(found.spans) == planned(plan, ("x", "y"), 4)


def test_run_of_median_length_is_told_and_the_median_without_marks() -> None:
    device = FakeFed()
    # Warm runs, then in turn without and with marks.
    seconds = iter([9.0] * WARMUPS + [5.0, 10.0, 1.0, 30.0, 3.0, 20.0])
    marks = []

    def slow(launch: Launch, buffers: Mapping[str, Memory]) -> None:
        device.clock.now += next(seconds)
        marks.append(device.asked["mark"])

    found = trace_fake(device, pipeline(8, streams=1), 3, slow)
    assert (found.total_s, found.untraced_s) == (20.0, 3.0)
    assert found.spans[-1].end_s == 20.0
    # Around two copies and a kernel, in every other run.
    assert marks == [0] * WARMUPS + [0, 6, 6, 12, 12, 18]


# Where marks come in; what else may fail is the pool's own.
FAULTS = [("copy_in", 3), ("launch", 1), *(("mark", i) for i in (0, 5, 11))]


@pytest.mark.parametrize("setup", [*StreamSetup, by_streams])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f[0]} {f[1]}")
def test_failure_in_the_midst_gives_all_back(fault: tuple[str, int], setup: Any) -> None:
    faults: dict[tuple[str, int], DeviceError] = {fault: LaunchFailedError("a fault")}
    device = FakeFed(faults)
    with pytest.raises(LaunchFailedError, match="a fault"):
        trace_fake(device, pipeline(8, streams=2, setup=setup))
    assert (device.live, device.opens) == ([], [])
    device.faults.clear()
    assert len(trace_fake(device, pipeline(8, streams=2, setup=setup)).spans) == 6
    assert (device.live, device.opens) == ([], [])


JOBS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 6)), max_size=12)


@given(JOBS)
def test_derived_begins_are_those_of_one_engine(jobs: list[tuple[int, int, int]]) -> None:
    """Copies of a stream, each so long after the one before it there, and so long."""
    ends, free, spans, begins = [0] * 4, 0, [], []
    for i, (stream, after, length) in enumerate(jobs):
        ready = ends[stream] + after
        begins.append(max(ready, free))
        ends[stream] = free = begins[-1] + length
        spans.append(Span(stream, i, COPY, "x", 8, ready, ready, free))
    found = after_each_other(spans[::-1])[::-1]
    assert [s.begin_s for s in found] == begins
    assert [replace(s, begin_s=s.ready_s) for s in found] == spans


INTERVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=8)


def spans_of(what: str, intervals: list[tuple[int, int]]) -> list[Span]:
    return [
        Span(0, i, what, None, 1000 if what == COPY else 0, begin, begin, begin + length)
        for i, (begin, length) in enumerate(intervals)
    ]


def seconds_in(intervals: list[tuple[int, int]]) -> set[int]:
    return {second for begin, length in intervals for second in range(begin, begin + length)}


@given(INTERVALS, INTERVALS)
def test_overlap_by_seconds(copies: list[tuple[int, int]], kernels: list[tuple[int, int]]) -> None:
    found = overlap([*spans_of(KERNEL, kernels), *spans_of(COPY, copies)], 20.0)
    in_copy, in_kernel = seconds_in(copies), seconds_in(kernels)
    both = len(in_copy & in_kernel)
    assert (found.copy_s, found.kernel_s, found.hidden_s) == (len(in_copy), len(in_kernel), both)
    assert (found.busy_share, found.nbytes) == (len(in_copy) / 20, 1000 * len(copies))
    share = both / len(in_kernel) if in_kernel else np.nan
    gbs = 1e-6 * len(copies) / len(in_copy) if in_copy else np.nan
    told = pytest.approx((share, gbs), nan_ok=True)
    assert (found.hidden_share, found.memcpy_gbs) == told


def example() -> dict[str, tuple[Cell, Trace]]:
    one = tuple(spans_of(COPY, [(0, 2)]) + spans_of(KERNEL, [(2, 1)]))
    named = tuple(replace(s, array="x" if s.what == COPY else None) for s in one)
    return {
        "two": (cell(2**10, streams=2), Trace(named, 3.5, 3.25, True)),
        "one": (cell(2**10), Trace(named[:1], 2.5, 2.5, False)),
    }


def test_table_gives_the_traces_back(tmp_path: Path) -> None:
    path = tmp_path / "timeline.parquet"
    table = timeline_table(example(), INFO)
    assert table.schema == TIMELINE_SCHEMA
    table.validate(full=True)
    write_parquet(table, path, {})
    rows = read_timeline(path)
    assert traces_of(rows) == {case: found for case, (_, found) in example().items()}
    assert set(rows["n"]) == {2**10}
    assert list(rows["cell_key"].unique()) == [c.key for c, _ in example().values()]


DRAWN_CELL = Cell("dot_streamed", "double", "pinned-pooled", Problem(1, 2**20), ())
COPY_S, KERNEL_S = 1e-3, 2e-4


def fed(streams: int, pieces: int, kernel_s: float = KERNEL_S, one_engine: bool = True) -> Trace:
    """Two copies of 1 ms and a kernel a piece; an engine takes the copies in turn, x before y."""
    queues = [[p for p in range(pieces) if p % streams == s] for s in range(streams)]
    at, free, spans = [0.0] * streams, 0.0, []
    for turn in range(max(map(len, queues))):
        taking = [s for s in range(streams) if turn < len(queues[s])]
        for name in "xy":
            for s in taking:
                free = max(at[s], free) + COPY_S
                piece = queues[s][turn]
                spans.append(Span(s, piece, COPY, name, 2 * 10**7, at[s], at[s], free))
                at[s] = free
        for s in taking:
            end = at[s] + kernel_s
            spans.append(Span(s, queues[s][turn], KERNEL, None, 0, at[s], at[s], end))
            at[s] = end
    spans.sort(key=lambda s: (s.piece, s.what, s.array or ""))
    total_s = max(at) + 1e-4
    told = after_each_other(spans) if one_engine else tuple(spans)
    return Trace(told, total_s, 0.9 * total_s, one_engine)


def table(traces: dict[str, Trace]) -> pd.DataFrame:
    return timeline_table({k: (DRAWN_CELL, t) for k, t in traces.items()}, INFO).to_pandas()


@pytest.mark.usefixtures("drawn")
def test_note_tells_what_is_hidden_and_how_busy_the_link_is(tmp_path: Path) -> None:
    one = fed(1, 1)
    copies = replace(one, spans=tuple(s for s in one.spans if s.what == COPY))
    traces = {"1 stream at once": one, "4 streams in chunks": fed(4, 8), "copies": copies}
    timeline(table(traces), tmp_path / "a.svg")
    note = note_of(tmp_path / "a.svg")
    # Of one: 2 ms of copies, a kernel of 0.2 ms, and 0.1 ms to the end. Of four: 16 ms of copies;
    # every kernel but the last runs beside a copy of another stream.
    assert note["finding"].startswith(
        "1 stream at once: 1 stream hides nothing of the kernels' 200 µs behind copies; the link "
        "is busy 87 % of the 2.30 ms, at 20.0 GB/s. 4 streams in chunks: 4 streams hide 88 % of "
        "the kernels' 1.60 ms behind copies; the link is busy 98.2 % of the 16.3 ms, at 20.0 GB/s. "
        "copies: there is no kernel; the link is busy 87 %"
    )
    assert note["caption"].startswith(note["finding"])
    assert "Without marks the median run takes 2.07 ms, 14.7 ms and 2.07 ms." in note["caption"]
