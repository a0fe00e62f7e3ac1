"""Time line of a run: which stream copies, waits or computes when."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpushmoo.core.display import gbs, joined, percent, seconds, significant
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .timeline import COPY, KERNEL, Overlap, Span, Trace, overlap, traces_of, union

COLOURS = {COPY: OKABE_ITO[5], KERNEL: OKABE_ITO[1]}
# Of a stream's row. Kernels, mostly short, stand out above and below the copies, also in grey.
HEIGHTS = {COPY: 0.6, KERNEL: 0.95}
WAITING, WAITING_WIDTH = "#999999", 0.6
ENDED = (0, (4, 2))
# Of the axis, about 0.7 points: a kernel that is far shorter than the copies must not vanish.
THINNEST = 1.5e-3
MOST_CASES = 3
NEARLY_ALL = 0.95
# More streams than these are not all written, but every so many.
MOST_TICKS, TICK_STEP = 8, 8
# Inches of a panel without rows and of a row, and of a panel at most.
PANEL_HEIGHT, ROW_HEIGHT, MOST_HEIGHT = 0.45, 0.17, 2.1


def timeline(rows: pd.DataFrame, svg: Path) -> None:
    """One panel for each case, at most three, and one row for each of its streams.

    `rows` are what `streamed_dot.timeline.read_timeline` gives, of one kernel and dtype. The note's
    facts ``cases`` hold the numbers of the caption. Raises ValueError for more cases.
    """
    traces = traces_of(rows)
    if not 0 < len(traces) <= MOST_CASES:
        raise ValueError(f"a time line shows 1 to {MOST_CASES} cases, not {len(traces)}")
    apply_style()
    heights = [min(PANEL_HEIGHT + ROW_HEIGHT * _streams(t), MOST_HEIGHT) for t in traces.values()]
    figure, axes = plt.subplots(
        len(traces),
        figsize=(PAGE_WIDTH, 0.75 + sum(heights)),
        height_ratios=heights,
        squeeze=False,
        sharex=True,
    )
    end_s = max(t.total_s for t in traces.values())
    for ax, (case, trace) in zip(axes[:, 0], traces.items(), strict=True):
        _panel(ax, trace, THINNEST * end_s)
        ax.set_title(f"{case}: {seconds(trace.total_s)}", loc="left", fontsize=8)
    axes[-1, 0].set_xlim(0, 1.01e3 * end_s)
    axes[-1, 0].set_xlabel("time (ms)")
    figure.supylabel("stream", fontsize=9)
    waits = any(s.begin_s > s.ready_s for t in traces.values() for s in t.spans)
    figure.legend(handles=_legend(waits), loc="outside lower center", ncols=4, fontsize=7.5)
    overlaps = {case: overlap(t.spans, t.total_s) for case, t in traces.items()}
    first = rows.iloc[0]
    title = f"{first['kernel']}, {first['dtype']}, n = {first['n']}: copies and kernels over time"
    findings = [_finding(case, traces[case], o) for case, o in overlaps.items()]
    caption = " ".join([*findings, *_remarks(traces, end_s)])
    save(figure, svg, title, caption, finding=" ".join(findings), cases=_facts(traces, overlaps))


def _streams(trace: Trace) -> int:
    return 1 + max(s.stream for s in trace.spans)


def _panel(ax: Axes, trace: Trace, thinnest_s: float) -> None:
    streams = _streams(trace)
    for what, zorder in ((COPY, 2), (KERNEL, 3)):
        bars = _bars([s for s in trace.spans if s.what == what], HEIGHTS[what], thinnest_s)
        ax.add_collection(PolyCollection(bars, facecolors=COLOURS[what], lw=0, zorder=zorder))
    waits = [
        [(1e3 * s.ready_s, s.stream), (1e3 * s.begin_s, s.stream)]
        for s in trace.spans
        if s.begin_s > s.ready_s
    ]
    width = WAITING_WIDTH if streams <= MOST_TICKS else WAITING_WIDTH / 2
    ax.add_collection(LineCollection(waits, colors=WAITING, linewidths=width, zorder=1))
    ax.axvline(1e3 * trace.total_s, color="black", lw=0.8, ls=ENDED)
    ax.set_ylim(streams - 0.4, -0.6)
    ax.set_yticks(range(0, streams, 1 if streams <= MOST_TICKS else TICK_STEP))


def _bars(
    spans: Sequence[Span], height: float, thinnest_s: float
) -> list[list[tuple[float, float]]]:
    """Corners of bars in ms. A bar or a gap that is too thin to be seen is drawn and is not."""
    streams: dict[int, list[Span]] = {}
    for span in spans:
        streams.setdefault(span.stream, []).append(span)
    bars = []
    for stream, in_stream in streams.items():
        low, high = stream - height / 2, stream + height / 2
        longer = ((s.begin_s, max(s.end_s, s.begin_s + thinnest_s) + thinnest_s) for s in in_stream)
        for begin_s, end_s in union(longer):
            left, right = 1e3 * begin_s, 1e3 * (end_s - thinnest_s)
            bars.append([(left, low), (right, low), (right, high), (left, high)])
    return bars


def _legend(waits: bool) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [
        Patch(fc=COLOURS[COPY], ec="none", label="copy to the device"),
        Patch(fc=COLOURS[KERNEL], ec="none", label="kernel"),
    ]
    if waits:
        handles.append(
            Line2D([], [], c=WAITING, lw=WAITING_WIDTH, label="waits for the copy engine")
        )
    ended = Line2D([], [], c="black", lw=0.8, ls=ENDED, label="the host has the result")
    return [*handles, ended]


def _finding(case: str, trace: Trace, hiding: Overlap) -> str:
    """What the streams hide, and how busy the link is."""
    n = _streams(trace)
    who = "1 stream hides" if n == 1 else f"{n} streams hide"
    hidden = "there is no kernel"
    if not math.isnan(hiding.hidden_share):
        share = _share(hiding.hidden_share) if hiding.hidden_s else "nothing"
        hidden = f"{who} {share} of the kernels' {seconds(hiding.kernel_s)} behind copies"
    link = "the link is busy" if trace.one_engine else "copies run"
    return (
        f"{case}: {hidden}; {link} {_share(hiding.busy_share)} of the {seconds(trace.total_s)}, "
        f"at {gbs(hiding.copy_gbs)}."
    )


def _share(value: float) -> str:
    """Near all, so that what is left can be told from nothing."""
    return f"{significant(100 * value)} %" if value > NEARLY_ALL else percent(value)


def _remarks(traces: Mapping[str, Trace], end_s: float) -> Iterator[str]:
    """What a reader must know of how it was drawn and measured."""
    untraced = joined([seconds(t.untraced_s) for t in traces.values()])
    yield f"Without marks the median run takes {untraced}."
    if any(t.one_engine for t in traces.values()):
        yield (
            "When a copy begins is derived: when its stream has come to it and the one engine, "
            "which takes the copies of all streams in turn, has ended the copy before."
        )
    if not all(t.one_engine for t in traces.values()):
        yield "Copies by the host's own hands are shown from when their stream has come to them."
    spans = itertools.chain.from_iterable(t.spans for t in traces.values())
    if any(s.what == KERNEL and s.end_s - s.begin_s < THINNEST * end_s for s in spans):
        yield "Short kernels are drawn longer than they are, to be seen."


def _facts(traces: Mapping[str, Trace], overlaps: Mapping[str, Overlap]) -> list[dict[str, object]]:
    return [
        {
            "case": case,
            "streams": _streams(trace),
            "total_s": trace.total_s,
            "untraced_s": trace.untraced_s,
            "copy_gbs": _number(overlaps[case].copy_gbs),
            "busy_share": overlaps[case].busy_share,
            "kernel_s": overlaps[case].kernel_s,
            "hidden_share": _number(overlaps[case].hidden_share),
        }
        for case, trace in traces.items()
    ]


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else value
