"""The figures of the studies: what copies and kernels do when, ways in rounds, errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from gpushmoo.core.display import gbs, joined, length, percent, seconds, significant
from gpushmoo.core.median import MedianInterval
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from gpushmoo.storage.store import read_table
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .figure_errors import errors
from .numerics import ERRORS_SCHEMA
from .rivals import PRODUCT, RIVALS_SCHEMA, TODAY
from .timeline import COPY, KERNEL, Overlap, Span, Trace, overlap, read_timeline, traces_of, union
from .verdicts import (
    AGAINST,
    FASTEST,
    KEPT_WAY,
    Between,
    Change,
    Rivalry,
    Sharing,
    betweens,
    changes,
    copied,
    rivalries,
    sharings,
)

COLOURS = {COPY: OKABE_ITO[5], KERNEL: OKABE_ITO[1]}
# Shares of a stream's row. Kernels, mostly short, are taller than copies, which also shows in grey.
HEIGHTS = {COPY: 0.6, KERNEL: 0.95}
WAITING = "#999999"
WAITING_WIDTH = 0.6
ENDED = (0, (4, 2))
# Share of the axis, about 0.7 points: a kernel that is far shorter than the copies must not vanish.
THINNEST = 1.5e-3
NEARLY_ALL = 0.95
# With more streams than this, only every n-th is labeled.
MAX_TICKS, TICK_STEP = 8, 8
# Inches of a panel without rows and of a row, and of a panel at most.
PANEL_HEIGHT, ROW_HEIGHT, MAX_HEIGHT = 0.45, 0.17, 2.1


def timeline(rows: pd.DataFrame, svg: Path) -> None:
    """One panel for each case, at most three, and one row for each of its streams.

    `rows` are what `streamed_dot.timeline.read_timeline` gives, of one kernel and dtype.
    """
    traces = traces_of(rows)
    apply_style()
    heights = [min(PANEL_HEIGHT + ROW_HEIGHT * _streams(t), MAX_HEIGHT) for t in traces.values()]
    figure, axes = plt.subplots(
        len(traces),
        figsize=(PAGE_WIDTH, 0.75 + sum(heights)),
        height_ratios=heights,
        squeeze=False,
        sharex=True,
    )
    end_s = max(t.total_s for t in traces.values())
    for ax, (case, trace) in zip(axes[:, 0], traces.items(), strict=True):
        _trace_panel(ax, trace, THINNEST * end_s)
        ax.set_title(f"{case}: {seconds(trace.total_s)}", loc="left", fontsize=8)
    axes[-1, 0].set_xlim(0, 1.01e3 * end_s)
    axes[-1, 0].set_xlabel("time (ms)")
    figure.supylabel("stream", fontsize=9)
    waits = any(s.begin_s > s.ready_s for t in traces.values() for s in t.spans)
    figure.legend(handles=_trace_legend(waits), loc="outside lower center", ncols=4, fontsize=7.5)
    overlaps = {case: overlap(t.spans, t.total_s) for case, t in traces.items()}
    first = rows.iloc[0]
    title = f"{first['kernel']}, {first['dtype']}, n = {first['n']}: copies and kernels over time"
    findings = [_hiding_finding(case, traces[case], o) for case, o in overlaps.items()]
    caption = " ".join([*findings, *_trace_remarks(traces, end_s)])
    save(figure, svg, title, caption, finding=" ".join(findings))


def _streams(trace: Trace) -> int:
    return 1 + max(s.stream for s in trace.spans)


def _trace_panel(ax: Axes, trace: Trace, thinnest_s: float) -> None:
    streams = _streams(trace)
    for what, zorder in ((COPY, 2), (KERNEL, 3)):
        bars = _bars([s for s in trace.spans if s.what == what], HEIGHTS[what], thinnest_s)
        ax.add_collection(PolyCollection(bars, facecolors=COLOURS[what], lw=0, zorder=zorder))
    waits = [
        [(1e3 * s.ready_s, s.stream), (1e3 * s.begin_s, s.stream)]
        for s in trace.spans
        if s.begin_s > s.ready_s
    ]
    width = WAITING_WIDTH if streams <= MAX_TICKS else WAITING_WIDTH / 2
    ax.add_collection(LineCollection(waits, colors=WAITING, linewidths=width, zorder=1))
    ax.axvline(1e3 * trace.total_s, color="black", lw=0.8, ls=ENDED)
    ax.set_ylim(streams - 0.4, -0.6)
    ax.set_yticks(range(0, streams, 1 if streams <= MAX_TICKS else TICK_STEP))


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
            left = 1e3 * begin_s
            right = 1e3 * (end_s - thinnest_s)
            bars.append([(left, low), (right, low), (right, high), (left, high)])
    return bars


def _trace_legend(waits: bool) -> list[Patch | Line2D]:
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


def _hiding_finding(case: str, trace: Trace, hiding: Overlap) -> str:
    """What the streams hide, and how busy the link is."""
    n = _streams(trace)
    who = "1 stream hides" if n == 1 else f"{n} streams hide"
    hidden = "there is no kernel"
    if not math.isnan(hiding.hidden_share):
        share = _percent(hiding.hidden_share) if hiding.hidden_s else "nothing"
        hidden = f"{who} {share} of the kernels' {seconds(hiding.kernel_s)} behind copies"
    link = "the link is busy" if trace.one_engine else "copies run"
    return (
        f"{case}: {hidden}; {link} {_percent(hiding.busy_share)} of the {seconds(trace.total_s)}, "
        f"at {gbs(hiding.memcpy_gbs)}."
    )


def _percent(value: float) -> str:
    """Format a share near 1, with enough digits to show that the rest is not zero."""
    return f"{significant(100 * value)} %" if value > NEARLY_ALL else percent(value)


def _trace_remarks(traces: Mapping[str, Trace], end_s: float) -> Iterator[str]:
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


WORDS = {"naive": "one compiled loop", "blas-one": "BLAS, one core", FASTEST: FASTEST}
# The printed program against each way on the host, and streams that are kept against the fastest.
PUBLISHED = "as published"
CAPTION = (
    "Above 1 the device is faster. As published: our variant of the printed loop; pooled: streams "
    "that are kept. The band is the 95 % interval of the median over the rounds."
)
LOOKS = {
    (PUBLISHED, "naive"): (OKABE_ITO[0], "o", "-"),
    (PUBLISHED, "blas-one"): (OKABE_ITO[1], "s", "-"),
    (PUBLISHED, FASTEST): (OKABE_ITO[2], "^", "-"),
    (KEPT_WAY, FASTEST): (OKABE_ITO[3], "D", "--"),
}


def rivals(rows: pd.DataFrame, svg: Path) -> None:
    """A panel for each operation and type: host time over device time with its 95 % interval.

    `rows` are those of rivals.RIVALS_SCHEMA. The note has the chapter's tables beside it: who pays
    from where on (``rivalries``), shares of the host (``sharings``), parameters changed alone
    (``changes``), ways beside the pooled one (``today``), lengths between powers of two
    (``betweens``) and the link (``copied``).
    """
    apply_style()
    found = rivalries(rows)
    places = list(dict.fromkeys((r.operation, r.dtype) for r in found)) or [(PRODUCT, "double")]
    columns = 2 if len(places) > 1 else 1
    lines = -(-len(places) // columns)
    size = (PAGE_WIDTH, 0.9 + 2.1 * lines)
    figure, axes = plt.subplots(
        lines, columns, figsize=size, squeeze=False, sharex=True, sharey=True
    )
    for ax, place in zip(axes.flat, places, strict=False):
        _rivals_panel(ax, [r for r in found if (r.operation, r.dtype) == place])
        ax.set_title(f"{place[0]}, {place[1]}")
    for ax in axes[-1]:
        ax.set_xlabel("length n of an array (elements)")
    for ax in axes[:, 0]:
        ax.set_ylabel("host time over device time")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7)
    shared, between = sharings(rows), betweens(rows)
    # The report's first page speaks of the document's main operation alone.
    main = [r for r in found if (r.way, r.against) == (PUBLISHED, "naive")]
    findings = [
        *(_rivals_finding(r) for r in main if r.operation == PRODUCT),
        *(_sharing_finding(s) for s in shared if s.operation == PRODUCT),
        *_between_findings([b for b in between if b.operation == PRODUCT]),
    ]
    save(
        figure,
        svg,
        "dot products: the device against its host, in rounds",
        CAPTION,
        findings=findings,
        rivalries=_rivalry_rows(found),
        sharings=[_sharing(s) for s in shared],
        changes=_changes(changes(rows)),
        today=_today(found),
        betweens=_betweens(between),
        copied={way: f"{_interval(rate)} GB/s" for way, rate in copied(rows).items()},
    )


def _rivals_panel(ax: Axes, found: Sequence[Rivalry]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.axhline(1.0, c="#555555", lw=0.8)
    for rivalry in found:
        if (rivalry.way, rivalry.against) not in LOOKS:
            continue
        colour, marker, dashes = LOOKS[rivalry.way, rivalry.against]
        n = list(rivalry.ratios)
        ratios = list(rivalry.ratios.values())
        low, high = [r.low for r in ratios], [r.high for r in ratios]
        ax.fill_between(n, low, high, color=colour, alpha=0.2, lw=0)
        label = f"{rivalry.way}, against {WORDS[rivalry.against]}"
        medians = [r.median for r in ratios]
        ax.plot(n, medians, c=colour, marker=marker, ms=3, ls=dashes, lw=1, label=label)
    ticks = sorted({n for rivalry in found for n in rivalry.ratios})
    shown = ticks[:: -(-len(ticks) // 6)] if ticks else []
    ax.set_xticks(shown, [length(n) for n in shown])
    ax.minorticks_off()


def _interval(m: MedianInterval) -> str:
    return f"{significant(m.median)} [{significant(m.low)}, {significant(m.high)}]"


def _rivals_finding(r: Rivalry) -> str:
    fares = (
        "is slower than the naive loop at the longest arrays, as the document says"
        if r.n is None
        else f"is faster than the naive loop from n = {length(r.n)} on, unlike the document's"
    )
    best = _interval(r.ratios[r.at])
    return (
        f"Our variant of the printed dot product, {r.operation}, {r.dtype}, {fares}; "
        f"at most {best} times as fast (n = {length(r.at)})."
    )


def _sharing_finding(s: Sharing) -> str:
    where = f"Shared with the host, {s.operation}, {s.dtype}, n = {length(s.n)}"
    pays = "pays" if s.gain.low > 1 else "costs" if s.gain.high < 1 else "is not certain to pay"
    return (
        f"{where}: {s.share} % on the host (chosen in other rounds) {pays}: "
        f"{_interval(s.gain)} times the faster side alone."
    )


def _between_findings(found: Sequence[Between]) -> list[str]:
    """The document's note on n_cpu ≈ n_gpu, at the host's largest share."""
    sentences = []
    for place in dict.fromkeys((b.operation, b.dtype, b.kept) for b in found):
        mine = [b for b in found if (b.operation, b.dtype, b.kept) == place]
        most = max(mine, key=lambda b: (b.host, b.n))
        gain = most.gain
        is_ = "greater" if gain.low > 1 else "smaller" if gain.high < 1 else "not certain to differ"
        sentences.append(
            f"With the printed split{' and kept streams' * most.kept}, {place[0]}, {place[1]}, the "
            f"throughput at n = {most.n}, of which the host has {100 * most.host:.0f} %, is {is_}: "
            f"{_interval(gain)} times that at the power of two below."
        )
    return sentences


def _rivalry_rows(found: Sequence[Rivalry]) -> list[dict[str, Any]]:
    by_place = {(r.operation, r.dtype, r.way, r.against): r for r in found}
    rows = dict.fromkeys((r.operation, r.dtype, r.way) for r in found)
    return [
        {
            "operation": operation,
            "dtype": dtype,
            "way": way,
            "against": [_pays(by_place.get((operation, dtype, way, a))) for a in AGAINST],
        }
        for operation, dtype, way in rows
    ]


def _pays(r: Rivalry | None) -> str:
    if r is None:
        return "not measured"
    pays = "never" if r.n is None else f"n ≥ {length(r.n)}"
    return f"{pays}; {_interval(r.ratios[r.at])}"


def _sharing(s: Sharing) -> dict[str, str]:
    return {
        "operation": s.operation,
        "dtype": s.dtype,
        "n": length(s.n),
        "predicted": f"{significant(s.predicted, 2)} %",
        "share": f"{s.share} %",
        "gain": _interval(s.gain),
        "reached": _interval(s.reached),
    }


def _changes(found: Sequence[Change]) -> dict[str, Any]:
    """A row for each way, operation, type and length, a column for each change."""
    cells: dict[tuple[str, ...], dict[str, MedianInterval]] = {}
    for c in found:
        cells.setdefault((c.way, c.operation, c.dtype, length(c.n)), {})[c.change] = c.cost
    return _crossed(cells)


def _today(found: Sequence[Rivalry]) -> dict[str, Any]:
    """Speed over that of the pooled way; a column for every fifth length from the longest on."""
    return _crossed(
        {
            (r.way, r.operation, r.dtype): {length(n): r.ratios[n] for n in [*r.ratios][::-5][::-1]}
            for r in found
            if r.against == KEPT_WAY and r.way in TODAY
        }
    )


def _betweens(found: Sequence[Between]) -> dict[str, Any]:
    """A row for each operation, type, way and power of two, a column for each share of the host."""
    cells: dict[tuple[str, ...], dict[str, MedianInterval]] = {}
    for b in found:
        place = (b.operation, b.dtype, "kept" if b.kept else "as printed", length(b.power))
        cells.setdefault(place, {})[f"{100 * b.host:.0f} %"] = b.gain
    return _crossed(cells)


def _crossed(cells: Mapping[tuple[str, ...], Mapping[str, MedianInterval]]) -> dict[str, Any]:
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    rows = [
        {"where": [*where], "cells": [_factor(row.get(column)) for column in columns]}
        for where, row in cells.items()
    ]
    return {"columns": columns, "rows": rows}


def _factor(m: MedianInterval | None) -> str:
    """``×0.31``; in brackets where the interval holds 1."""
    if m is None:
        return ""
    text = f"×{significant(m.median, 2)}"
    return f"({text})" if m.low <= 1 <= m.high else text


def draw_study(study: str, table: Path, svg: Path) -> None:
    """The figure of the `study` of this name."""
    if study == "timeline":
        timeline(read_timeline(table), svg)
    elif study == "rivals":
        rivals(read_table(table, RIVALS_SCHEMA).to_pandas(), svg)
    else:
        errors(read_table(table, ERRORS_SCHEMA).to_pandas(), svg)
