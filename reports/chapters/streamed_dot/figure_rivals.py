"""Host against device over the array's length, and what else rounds of ways say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from gpushmoo.core.display import length, significant
from gpushmoo.core.median import MedianInterval
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes

from .rivals import ON_DEVICE, PRODUCT
from .verdicts import (
    AGAINST,
    FASTEST,
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

WORDS = {"naive": "one compiled loop", "blas-one": "BLAS, one core", FASTEST: FASTEST}
# The document's loop against each way on the host, and streams that are kept against the fastest.
PUBLISHED, POOLED = "as published", "pooled"
LOOKS = {
    (PUBLISHED, "naive"): (OKABE_ITO[0], "o", "-"),
    (PUBLISHED, "blas-one"): (OKABE_ITO[1], "s", "-"),
    (PUBLISHED, FASTEST): (OKABE_ITO[2], "^", "-"),
    (POOLED, FASTEST): (OKABE_ITO[3], "D", "--"),
}


def rivals(rows: pd.DataFrame, svg: Path) -> None:
    """A panel for each operation and type: host time over device time with its 95 % interval.

    `rows` are those of rivals.RIVALS_SCHEMA. The note has the chapter's tables beside it: who pays
    from where on (``rivalries``), shares of the host (``sharings``), parameters changed alone
    (``changes``), lengths between powers of two (``betweens``) and the link (``copied``).
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
        _panel(ax, [r for r in found if (r.operation, r.dtype) == place])
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
        *(_finding(r) for r in main if r.operation == PRODUCT),
        *(_sharing_finding(s) for s in shared if s.operation == PRODUCT),
        *_between_findings([b for b in between if b.operation == PRODUCT]),
    ]
    save(
        figure,
        svg,
        "dot products: the device against its host, in rounds",
        _caption(found),
        findings=findings,
        rivalries=_rivalry_rows(found),
        sharings=[_sharing(s) for s in shared],
        changes=_change_table(changes(rows)),
        betweens=[_between(b) for b in between],
        copied={way: f"{_interval(rate)} GB/s" for way, rate in copied(rows).items()},
    )


def _panel(ax: Axes, found: Sequence[Rivalry]) -> None:
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


def _from(r: Rivalry) -> str:
    return "at no length" if r.n is None else f"from n = {length(r.n)} on"


def _caption(found: Sequence[Rivalry]) -> str:
    """Two sentences: where the printed loop pays against one loop, and against all cores."""
    told = []
    for against, who in (("naive", "one compiled loop"), (FASTEST, "the fastest way on the host")):
        mine = [r for r in found if (r.way, r.against) == (PUBLISHED, against)]
        parts = [f"{r.operation} {r.dtype} {_from(r)}" for r in mine]
        if parts:
            told.append(f"As published the device is faster than {who}: {'; '.join(parts)}.")
    return " ".join(told) or "No length was compared."


def _finding(r: Rivalry) -> str:
    fares = (
        "is slower than the naive loop at the longest arrays, as the document says"
        if r.n is None
        else f"is faster than the naive loop from n = {length(r.n)} on, unlike the document's"
    )
    best = _interval(r.ratios[r.at])
    return (
        f"The printed dot product, {r.operation}, {r.dtype}, {fares}; "
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
    for place in dict.fromkeys((b.operation, b.dtype) for b in found):
        most = max((b for b in found if (b.operation, b.dtype) == place), key=lambda b: b.host)
        gain = most.gain
        is_ = "greater" if gain.low > 1 else "smaller" if gain.high < 1 else "not certain to differ"
        sentences.append(
            f"With the printed split, {place[0]}, {place[1]}, the throughput at n = {most.n}, of "
            f"which the host has {100 * most.host:.0f} %, is {is_}: {_interval(gain)} times that "
            "at the power of two below."
        )
    return sentences


def _rivalry_rows(found: Sequence[Rivalry]) -> list[dict[str, Any]]:
    by_place = {(r.operation, r.dtype, r.way, r.against): r for r in found}
    rows = dict.fromkeys((r.operation, r.dtype, r.way) for r in found if r.way in ON_DEVICE)
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
    return f"{pays}; {_interval(r.ratios[r.at])} at {length(r.at)}"


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


def _change_table(found: Sequence[Change]) -> dict[str, Any]:
    """A row for each way, operation, type and length, a column for each change."""
    columns = list(dict.fromkeys(c.change for c in found))
    by_place = {(c.way, c.operation, c.dtype, c.n, c.change): c for c in found}
    rows = dict.fromkeys((c.way, c.operation, c.dtype, c.n) for c in found)
    return {
        "columns": columns,
        "rows": [
            {
                "where": [way, operation, dtype, length(n)],
                "cells": [_cost(by_place.get((way, operation, dtype, n, c))) for c in columns],
            }
            for way, operation, dtype, n in rows
        ],
    }


def _cost(c: Change | None) -> str:
    """``×0.31``; in brackets where the interval holds 1."""
    if c is None:
        return ""
    text = f"×{significant(c.cost.median, 2)}"
    return f"({text})" if c.cost.low <= 1 <= c.cost.high else text


def _between(b: Between) -> dict[str, str]:
    return {
        "operation": b.operation,
        "dtype": b.dtype,
        "n": str(b.n),
        "host": f"{100 * b.host:.0f} %",
        "gain": _interval(b.gain),
    }
