"""Bandwidth of the best launch over the bytes it touches: where the caches end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..analysis.fastest import (
    BYTES_TOUCHED,
    INSIDE,
    OUTSIDE,
    CacheEnd,
    bytes_touched,
    cache_bytes,
    cache_ends,
    fastest,
)
from ..analysis.peak import PeakRow, told_share
from ..core.display import gbs, joined, significant, size_bytes
from ..workloads.views import FigureData, WorkingSet
from .style import (
    DTYPE_COLOURS,
    DTYPE_MARKERS,
    PAGE_WIDTH,
    apply_style,
    cache_word,
    dtype_handles,
    save,
    sns,
    state_words,
)

# Lengths of dashes and gaps, in widths of the line; no gap is a solid line.
DASHES = {"warm": (1, 0), "flushed": (4, 2)}
MOST_TICKS = 8


def draw(view: WorkingSet, data: FigureData, svg: Path) -> None:
    """Draw the view `WorkingSet`: a line for each dtype and cache state over the bytes touched.

    Each point is the best verified cell over variants and launch parameters, with its interval. A
    vertical line stands at the nominal size of the last cache level.
    """
    apply_style()
    cells = data.cells[bytes_touched(data.cells) > 0]
    best = fastest(cells, ["dtype", "cache_state", BYTES_TOUCHED])
    dtypes = [d for d in DTYPE_COLOURS if d in set(best["dtype"])]
    states = [s for s in DASHES if s in set(best["cache_state"])]
    cache, word = cache_bytes(cells), cache_word(cells)
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 2.5))
    for dtype in dtypes:
        for state in states:
            _intervals(ax, best[(best["dtype"] == dtype) & (best["cache_state"] == state)])
    if dtypes:
        sns.lineplot(
            best,
            x=BYTES_TOUCHED,
            y="bandwidth_gbs",
            hue="dtype",
            hue_order=dtypes,
            palette=DTYPE_COLOURS,
            style="cache_state",
            style_order=states,
            dashes={state: DASHES[state] for state in states},
            lw=1.0,
            errorbar=None,
            legend=False,
            ax=ax,
        )
    handles = dtype_handles(dtypes)
    for state in states:
        face = "black" if state == "warm" else "white"
        line = Line2D([], [], c="black", lw=1.0, ls=(0, DASHES[state]), marker="o", ms=4, mfc=face)
        line.set_label(state_words(state, word))
        handles.append(line)
    if cache is not None:
        ax.axvline(cache, color="black", lw=0.7)
        label = f"{word}, {size_bytes(cache)}"
        handles.append(Line2D([], [], c="black", lw=0.7, marker="|", ls="", ms=9, label=label))
    _size_axis(ax, [*best[BYTES_TOUCHED], *([] if cache is None else [cache])])
    ax.set_xlabel("bytes touched by a launch (read + written)")
    ax.set_ylabel("GB/s, read + written")
    ax.set_ylim(bottom=0)
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=7.5)
    # A kernel is no share of the measured peak that it is itself.
    others = [] if data.kernel in {r.kernel for r in data.peak} else data.peak
    title = f"{data.kernel}: bandwidth over the bytes touched"
    save(figure, svg, title, _caption(best, cache_ends(cells), word, others))


def _intervals(ax: Axes, rows: pd.DataFrame) -> None:
    """The points of one dtype and cache state, with their intervals."""
    if rows.empty:
        return
    dtype, state = rows["dtype"].iloc[0], rows["cache_state"].iloc[0]
    values = rows["bandwidth_gbs"].to_numpy()
    error = np.abs(rows[["bandwidth_low_gbs", "bandwidth_high_gbs"]].to_numpy().T - values)
    colour = DTYPE_COLOURS[dtype]
    ax.errorbar(
        rows[BYTES_TOUCHED],
        values,
        yerr=error,
        color=colour,
        ls="",
        elinewidth=0.7,
        capsize=1.5,
        marker=DTYPE_MARKERS[dtype],
        ms=4,
        mec=colour,
        mfc=colour if state == "warm" else "white",
        mew=0.8,
        zorder=3,
    )


def _size_axis(ax: Axes, sizes: list[int]) -> None:
    """A logarithmic axis in binary units, ticks at powers of two that are evenly spaced."""
    ax.set_xscale("log", base=2)
    low, high = (min(sizes), max(sizes)) if sizes else (2**20, 2**30)
    first, last = int(np.floor(np.log2(low))), int(np.ceil(np.log2(high)))
    step = -(-max(1, last - first) // (MOST_TICKS - 1))
    # Multiples of the step, so that the ticks of all figures of a run agree.
    ticks = [2.0**e for e in range(first, last + 1) if e % step == 0]
    ax.set_xlim(low / 2**0.5, high * 2**0.5)
    ax.set_xticks(ticks, [_tick(t) for t in ticks])
    ax.minorticks_off()


def _tick(value: float) -> str:
    """A power of two in binary units: ``16 MiB``."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 2**power:
            return f"{value / 2**power:g} {unit}"
    return f"{value:g} B"


def _caption(
    best: pd.DataFrame, ends: Sequence[CacheEnd], word: str, peak: Sequence[PeakRow]
) -> str:
    """The finding: the speed inside the cache and outside, and where it falls."""
    states = [state for state in DASHES if state in set(best["cache_state"])]
    if not states:
        return "No valid cell."
    own = best[best["cache_state"] == states[0]]
    share = own["working_set_over_cache"]
    regions = {f"inside the {word}": share <= INSIDE, "far outside": share >= OUTSIDE}
    places = {place: own[in_region] for place, in_region in regions.items() if in_region.any()}
    clauses = []
    # Without a cache's size, or with sizes near it alone, there is one place.
    for place, rows in (places or {"at most": own}).items():
        top = rows.loc[rows["bandwidth_gbs"].idxmax()]
        told = told_share(peak, top)
        of = "" if told is None else f", {told.words},"
        clauses.append(f"{gbs(top['bandwidth_gbs'])}{of} {place} ({top['dtype']})")
    text = f"{_capital(state_words(states[0], word))}: {joined(clauses)}."
    # Dtypes whose cache ends at the same place share a clause.
    falls: dict[str, list[str]] = {}
    for end in sorted(ends, key=lambda e: list(DTYPE_COLOURS).index(e.dtype)):
        falls.setdefault(_place(end, word), []).append(end.dtype)
    fallen = [f"the warm {joined(d)} bandwidth falls between {at}" for at, d in falls.items()]
    return f"{text} {_capital('; '.join(fallen))}." if fallen else text


def _place(end: CacheEnd, word: str) -> str:
    if end.multiples is None:
        return f"{size_bytes(end.low)} and {size_bytes(end.high)}"
    low, high = (significant(m, 2) for m in end.multiples)
    return f"{low} and {high} × {word}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
