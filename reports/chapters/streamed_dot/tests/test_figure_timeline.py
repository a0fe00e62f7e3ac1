"""The time line's figure: readable for few and many streams, its bars and numbers right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from fakes import INFO
from gpushmoo.core.space import Cell, Problem
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from streamed_dot.figure_studies import COLOURS, THINNEST, WAITING, timeline
from streamed_dot.timeline import COPY, KERNEL, Span, Trace, after_each_other, timeline_table
from test_figures import assert_readable, legend_of, note_of

CELL = Cell("dot_streamed", "double", "pinned-pooled", Problem(1, 2**20), ())
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
    return timeline_table({k: (CELL, t) for k, t in traces.items()}, INFO).to_pandas()


def bars(ax: Axes, what: str) -> list[tuple[float, float, float]]:
    """Stream, begin and end (ms) of each bar of a colour."""
    found = []
    for collection in ax.collections:
        if not isinstance(collection, PolyCollection):
            continue
        if to_hex(collection.get_facecolor()[0]).upper() != COLOURS[what]:
            continue
        for path in collection.get_paths():
            box = path.get_extents()
            found.append(((box.y0 + box.y1) / 2, box.x0, box.x1))
    return sorted((round(s, 9), begin, end) for s, begin, end in found)


def lines(ax: Axes) -> list[tuple[float, float, float]]:
    """Stream, begin and end (ms) of each wait."""
    (collection,) = (c for c in ax.collections if isinstance(c, LineCollection))
    assert {to_hex(c) for c in collection.get_colors()} <= {WAITING}
    return sorted((a[1], a[0], b[0]) for a, b in collection.get_segments())


LABEL = "64 streams, chunks of 128 Ki elements, pinned memory, pooled"
MANY = {
    "one": {"1 stream at once": fed(1, 1)},
    "few": {"1 stream at once": fed(1, 1), "4 streams in chunks": fed(4, 16)},
    "many": {LABEL: fed(64, 640), LABEL + ".": fed(64, 64), LABEL + ",": fed(64, 64)},
    "three small": {"a": fed(1, 9), "b": fed(2, 9), "c": fed(3, 9)},
    "no engine": {"CPU": fed(2, 4, one_engine=False)},
}


@pytest.mark.parametrize("which", MANY)
def test_every_time_line_is_readable(which: str, drawn: list[Figure], tmp_path: Path) -> None:
    traces = MANY[which]
    timeline(table(traces), tmp_path / "a.svg")
    (figure,) = drawn
    assert_readable(figure)
    assert figure.get_size_inches()[1] < 8
    for ax, (case, trace) in zip(figure.axes, traces.items(), strict=True):
        assert ax.get_title(loc="left").startswith(f"{case}: ")
        streams = len({s.stream for s in trace.spans})
        step = 1 if streams <= 8 else 8
        assert list(ax.get_yticks()) == list(range(0, streams, step))
        bottom, top = ax.get_ylim()
        assert top < 0 <= streams - 1 < bottom
        low, high = ax.get_xlim()
        assert low == 0
        assert high >= 1e3 * trace.total_s
        (ended,) = (line for line in ax.lines if line.get_linestyle() == "--")
        assert ended.get_xdata()[0] == pytest.approx(1e3 * trace.total_s)
    waits = any(s.begin_s > s.ready_s for t in traces.values() for s in t.spans)
    assert ("waits for the copy engine" in legend_of(figure)) == waits


def test_bars_are_where_the_spans_are(drawn: list[Figure], tmp_path: Path) -> None:
    """Two streams in turn: x of both, y of both, and then each one's kernel."""
    trace = fed(2, 2)
    timeline(table({"two": trace}), tmp_path / "a.svg")
    (ax,) = drawn[0].axes
    for what in (COPY, KERNEL):
        spans = [s for s in trace.spans if s.what == what]
        expected = sorted((s.stream, 1e3 * s.begin_s, 1e3 * s.end_s) for s in spans)
        found = bars(ax, what)
        assert len(found) == len(expected)
        for bar, span in zip(found, expected, strict=True):
            assert bar == pytest.approx(span)
    copies = [bar for bar in bars(ax, COPY) if bar[0] == 0]
    assert copies == [pytest.approx((0, 0, 1)), pytest.approx((0, 2, 3))]
    assert lines(ax) == [pytest.approx(w) for w in [(0, 1, 2), (1, 0, 1), (1, 2, 3)]]


def test_kernel_too_short_to_be_seen_is_drawn_longer_and_said_to_be(
    drawn: list[Figure], tmp_path: Path
) -> None:
    trace = fed(1, 3, kernel_s=1e-7)
    timeline(table({"short": trace}), tmp_path / "a.svg")
    (ax,) = drawn[0].axes
    lengths = [end - begin for _, begin, end in bars(ax, KERNEL)]
    assert lengths == [pytest.approx(1e3 * THINNEST * trace.total_s)] * 3
    # The gaps between the copies are as short, and are not drawn.
    assert len(bars(ax, COPY)) == 1
    assert "Short kernels are drawn longer" in note_of(tmp_path / "a.svg")["caption"]
    timeline(table({"long": fed(1, 3)}), tmp_path / "b.svg")
    assert "drawn longer" not in note_of(tmp_path / "b.svg")["caption"]


@pytest.mark.usefixtures("drawn")
def test_note_tells_what_is_hidden_and_how_busy_the_link_is(tmp_path: Path) -> None:
    traces = {"1 stream at once": fed(1, 1), "4 streams in chunks": fed(4, 8)}
    timeline(table(traces), tmp_path / "a.svg")
    note = note_of(tmp_path / "a.svg")
    one, four = note["cases"]
    # 2 ms of copies, a kernel of 0.2 ms, and 0.1 ms to the end.
    assert (one["streams"], one["hidden_share"]) == (1, 0.0)
    assert one["busy_share"] == pytest.approx(2 / 2.3)
    assert one["copy_gbs"] == pytest.approx(20.0)
    # 16 ms of copies; every kernel but the last runs beside a copy of another stream.
    assert four["total_s"] == pytest.approx(16.3e-3)
    assert four["kernel_s"] == pytest.approx(8 * KERNEL_S)
    assert four["hidden_share"] == pytest.approx(7 / 8)
    assert four["untraced_s"] == pytest.approx(0.9 * 16.3e-3)
    assert note["finding"] == (
        "1 stream at once: 1 stream hides nothing of the kernels' 200 µs behind copies; the link "
        "is busy 87 % of the 2.30 ms, at 20.0 GB/s. 4 streams in chunks: 4 streams hide 88 % of "
        "the kernels' 1.60 ms behind copies; the link is busy 98.2 % of the 16.3 ms, at 20.0 GB/s."
    )
    assert note["caption"].startswith(note["finding"])
    assert "Without marks the median run takes 2.07 ms and 14.7 ms." in note["caption"]
    assert "When a copy begins is derived" in note["caption"]
    assert "own hands" not in note["caption"]
    assert note["title"] == "dot_streamed, double, n = 1048576: copies and kernels over time"


@pytest.mark.usefixtures("drawn")
def test_note_of_a_device_without_an_engine_speaks_of_no_link(tmp_path: Path) -> None:
    timeline(table({"CPU": fed(2, 4, one_engine=False)}), tmp_path / "a.svg")
    caption = note_of(tmp_path / "a.svg")["caption"]
    assert "copies run " in caption
    assert "link" not in caption
    assert "derived" not in caption
    assert "Copies by the host's own hands are shown from when their stream has come" in caption


@pytest.mark.usefixtures("drawn")
def test_copies_alone_have_no_share_that_is_hidden(tmp_path: Path) -> None:
    trace = fed(2, 4)
    copies = tuple(s for s in trace.spans if s.what == COPY)
    timeline(table({"copies": replace(trace, spans=copies)}), tmp_path / "a.svg")
    note = note_of(tmp_path / "a.svg")
    assert note["cases"][0]["hidden_share"] is None
    assert note["caption"].startswith("copies: there is no kernel; the link is busy 9")


@pytest.mark.parametrize("cases", [0, 4])
def test_more_cases_than_fit_are_refused(cases: int, tmp_path: Path) -> None:
    rows = table({str(i): fed(1, 1) for i in range(cases)})
    with pytest.raises(ValueError, match=f"1 to 3 cases, not {cases}"):
        timeline(rows, tmp_path / "a.svg")
    assert list(tmp_path.iterdir()) == []


def test_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        timeline(table(MANY["few"]), tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
