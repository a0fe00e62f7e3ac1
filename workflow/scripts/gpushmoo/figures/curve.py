"""Draw a kernel's cells over a launch parameter, over bytes touched, or over work per byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from ..analysis.peak import PeakRow, cell_peak_gbs, displayed_share
from ..core.display import gbs, joined, percent, significant, size_bytes
from ..core.metric import Metric, metric_of, speed_text
from ..core.schema import DERIVED, Status
from ..workloads.views import Curve, FigureData, Roofline, WorkingSet
from .style import (
    DTYPE_COLOURS,
    DTYPE_MARKERS,
    PAGE_WIDTH,
    apply_style,
    cache_word,
    dtype_handles,
    save,
    save_words,
    sns,
    state_words,
    subject,
)

# Panels side by side, and the height of a row of them in inches.
_MAX_COLUMNS, _HEIGHT = 3, 2.8
_PEAK: dict[str, Any] = {"color": "#555555", "lw": 0.8, "ls": (0, (5, 3))}
_MODEL: dict[str, Any] = {"lw": 1.1, "ls": (0, (1, 1.2))}
TRAINED, PREDICTED = (f"{DERIVED}{name}" for name in ("trained", "predicted_gbs"))


def draw_curve(view: Curve, data: FigureData, svg: Path) -> None:
    """Draw the view `Curve`: a panel for each variant, medians with intervals over an axis.

    A thin dashed line is the measured peak of the type that moves the most bytes. A dotted line is
    the prediction of the device's model.
    """
    cells, x = data.cells, view.x
    predicted = _predicted(cells, data.device)
    apply_style()
    dtypes = [d for d in DTYPE_COLOURS if d in set(cells["dtype"])]
    widest = cells.loc[bytes_touched(cells).idxmax()]
    limit = cell_peak_gbs(data.peak, widest)
    variants = sorted(cells["variant"].unique())
    # Seaborn computes its own layout of a grid, which leaves no room for a legend below it.
    with plt.rc_context({"figure.constrained_layout.use": False}):
        grid = sns.FacetGrid(
            cells,
            col="variant",
            col_order=variants,
            col_wrap=min(_MAX_COLUMNS, len(variants)),
            hue="dtype",
            hue_order=dtypes,
            palette=DTYPE_COLOURS,
        )
    merit = metric_of(cells)
    grid.map_dataframe(_series, x=x, merit=merit, predicted=predicted)
    grid.set_titles("{col_name}", size=8)
    grid.set_axis_labels(f"{x} ({view.unit})", merit.label)
    handles = dtype_handles(dtypes)
    if not predicted.empty:
        handles.append(Line2D([], [], c="black", label="model", **_MODEL))
    if limit is not None:
        grid.refline(y=limit, **_PEAK)
        handles.append(Line2D([], [], label=f"measured peak ({widest['dtype']})", **_PEAK))
    grid.set(ylim=(0, None))
    # Most of the distinct values are in the lowest quarter of their range.
    distinct = cells[x].dropna().unique()
    if np.median(distinct) <= distinct.max() / 4:
        for ax in grid.axes.flat:
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter("{x:.0f}")
    grid.figure.set_layout_engine("constrained")
    grid.figure.set_size_inches(PAGE_WIDTH, _HEIGHT * -(-len(variants) // _MAX_COLUMNS))
    grid.figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=7.5)
    title = f"{subject(cells, data.named)}: {merit.name} over {x}"
    save(grid.figure, svg, title, _curve_caption(cells, predicted, x, dtypes, data.peak))


def _predicted(cells: pd.DataFrame, model: pd.DataFrame | None) -> pd.DataFrame:
    """Return the cells that the model predicts, with the columns TRAINED and PREDICTED."""
    if model is None:
        return cells.iloc[:0]
    names = ["device_name", "cell_key"]
    renamed = {"trained": TRAINED, "predicted_gbs": PREDICTED}
    return cells.merge(model[[*names, *renamed]].rename(columns=renamed), on=names)


def _series(
    data: pd.DataFrame, *, x: str, merit: Metric, predicted: pd.DataFrame, color: str, label: str
) -> None:
    """Draw medians with intervals of one variant and of the type `label`, and the model's line."""
    ok = data[data["status"] == Status.OK].sort_values(x)
    if ok.empty:
        return
    ax = plt.gca()
    value, low, high = merit.of(ok)
    ax.vlines(ok[x], low, high, colors=color, lw=0.6, alpha=0.6)
    sns.scatterplot(
        x=ok[x],
        y=value,
        marker=DTYPE_MARKERS[label],
        s=14,
        facecolor=color,
        edgecolor=color,
        linewidth=0.8,
        zorder=3,
        ax=ax,
    )
    sns.lineplot(x=ok[x], y=value, color=color, lw=0.6, ax=ax)
    mine = predicted[predicted["cell_key"].isin(ok["cell_key"])]
    if not mine.empty:
        sns.lineplot(mine, x=x, y=PREDICTED, color=color, ax=ax, **_MODEL)


def _curve_caption(
    cells: pd.DataFrame,
    predicted: pd.DataFrame,
    x: str,
    dtypes: Sequence[str],
    peak: Sequence[PeakRow],
) -> str:
    """Write the finding: the peak of each type's curve, and how well the model predicts."""
    ok = cells[cells["status"] == Status.OK]
    peaks = []
    for dtype in dtypes:
        part = ok[ok["dtype"] == dtype]
        if part.empty:
            continue
        best = part.loc[part["median_s"].idxmin()]
        share = displayed_share(peak, best)
        of = "" if share is None else f", {share.words}"
        peaks.append(f"{int(best[x])} ({dtype}: {speed_text(best)}{of})")
    if not peaks:
        return "No valid cell."
    text = f"Fastest at {x} = {joined(peaks)}."
    unseen = predicted[~predicted[TRAINED].astype(bool)] if len(predicted) else predicted
    if unseen.empty:
        return text
    missed = (unseen["bandwidth_gbs"] / unseen[PREDICTED] - 1).abs()
    return (
        f"{text} The model misses points that it was not fitted to by {percent(missed.median())} "
        f"in the median, at worst by {percent(missed.max())}."
    )


# The axis extends beyond the drawn points by this factor.
_ROOM = 4.0


def draw_roofline(view: Roofline, data: FigureData, svg: Path) -> None:
    """Draw the view `Roofline`: all cells as dots, each type's and variant's fastest marked.

    The roof of a type is a line: the peak of loads and stores of its bytes, up to the measured peak
    of its work.
    """
    apply_style()
    title = f"{subject(data.cells, data.named)}: roofline"
    ok = data.cells[(data.cells["status"] == Status.OK) & data.cells["work"].notna()]
    ok = ok[(bytes_touched(ok) > 0) & ~ok["variant"].isin(data.controls)]
    if ok["work_unit"].nunique() != 1:
        save_words(svg, title, "No cells tell both their bytes and their work in one unit.")
        return
    unit = str(ok["work_unit"].iloc[0])
    merit = Metric("rate", f"G{unit}/s")
    best = fastest(ok, ["dtype", "variant"])
    dtypes = [d for d in DTYPE_COLOURS if d in set(ok["dtype"])]
    roofs = {d: _roof(data, best[best["dtype"] == d]) for d in dtypes}
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.2))
    places = _intensity(ok)
    ridges = [top / slope for slope, top in roofs.values() if slope and top]
    marked = [*places, *ridges]
    low, high = min(marked) / _ROOM, max(marked) * _ROOM
    xs = np.geomspace(low, high, 200)
    for dtype, (slope, top) in roofs.items():
        colour = DTYPE_COLOURS[dtype]
        if slope or top:
            ys = np.minimum((slope or np.inf) * xs, top or np.inf)
            ax.plot(xs, ys, color=colour, lw=1.0)
        for part, size, alpha in ((ok, 6, 0.25), (best, 34, 1.0)):
            own = part[part["dtype"] == dtype]
            mark = DTYPE_MARKERS[dtype]
            rates = merit.of(own).value
            ax.scatter(_intensity(own), rates, s=size, c=colour, marker=mark, alpha=alpha, lw=0)
    ax.set(xscale="log", yscale="log", xlim=(low, high))
    ax.set_xlabel(f"work a byte read or written ({unit})")
    ax.set_ylabel(merit.label)
    figure.legend(handles=dtype_handles(dtypes), loc="outside lower center", ncols=7, fontsize=7.5)
    save(figure, svg, title, _roofline_caption(best, roofs, merit, unit, data))


def _intensity(cells: pd.DataFrame) -> pd.Series:
    return cells["work"] / bytes_touched(cells)


def _roof(data: FigureData, best: pd.DataFrame) -> tuple[float | None, float | None]:
    """Return the GB/s that the fastest cell's bytes allow, and its type's peak of work in 10⁹/s."""
    cell = best.loc[best["median_s"].idxmin()]
    names = ("device_name", "dtype", "work_unit")
    tops = [p.rate for p in data.work_peaks if all(getattr(p, n) == cell[n] for n in names)]
    return cell_peak_gbs(data.peak, cell), max(tops, default=None)


def _roofline_caption(
    best: pd.DataFrame, roofs: dict[str, Any], merit: Metric, unit: str, data: FigureData
) -> str:
    """Write the finding: the share of the roof that the fastest reach, and missing roofs."""
    several = best["variant"].nunique() > 1
    told = []
    for cell in best.to_dict("records"):
        slope, top = roofs[cell["dtype"]]
        rate = merit.of(cell).value
        place = cell["work"] / cell[BYTES_TOUCHED]
        name = f"{cell['dtype']}, {cell['variant']}" if several else cell["dtype"]
        words = f"{name}: {merit.text(rate)} at {significant(place)} {unit} a byte"
        by_work = top is not None and (slope is None or slope * place > top)
        share = None if by_work else displayed_share(data.peak, cell)
        if by_work:
            words += f", {percent(rate / top)} of the measured peak of work"
        elif share is not None:
            words += f", {share.words}"
        told.append(words)
    parts = ("bytes (kernels global_load and global_store)", "work (kernel issue)")
    missing = [
        f"the peak of {part}"
        for part, of_types in zip(parts, zip(*roofs.values(), strict=True), strict=True)
        if None in of_types
    ]
    gap = f" Not measured in this run, and not drawn: {joined(missing)}." if missing else ""
    return f"{'; '.join(told)}.{gap}"


# Lengths of dashes and gaps in widths of the line. A solid line has no gap.
DASHES = {"warm": (1, 0), "flushed": (4, 2)}
MAX_TICKS = 8


def draw_working_set(view: WorkingSet, data: FigureData, svg: Path) -> None:
    """Draw the view `WorkingSet`: a line for each type and cache state over the bytes touched.

    Each point is the best verified cell over variants and launch parameters, with its interval. A
    vertical line marks the nominal size of the last cache level.
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
    # Kernels that define the measured peak do not get a share of it.
    others = [] if data.kernel in {r.kernel for r in data.peak} else data.peak
    title = f"{data.kernel}: bandwidth over the bytes touched"
    save(figure, svg, title, _working_set_caption(best, cache_ends(cells), word, others))


def _intervals(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the points of one type and cache state, with their intervals."""
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
    """Draw a logarithmic axis in binary units, with ticks at evenly spaced powers of two."""
    ax.set_xscale("log", base=2)
    low, high = (min(sizes), max(sizes)) if sizes else (2**20, 2**30)
    first, last = int(np.floor(np.log2(low))), int(np.ceil(np.log2(high)))
    step = -(-max(1, last - first) // (MAX_TICKS - 1))
    # Ticks are multiples of the step, so that they agree between all figures of a run.
    ticks = [2.0**e for e in range(first, last + 1) if e % step == 0]
    ax.set_xlim(low / 2**0.5, high * 2**0.5)
    ax.set_xticks(ticks, [_tick(t) for t in ticks])
    ax.minorticks_off()


def _tick(value: float) -> str:
    """Write a power of two in binary units: ``16 MiB``."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 2**power:
            return f"{value / 2**power:g} {unit}"
    return f"{value:g} B"


def _working_set_caption(
    best: pd.DataFrame, ends: Sequence[CacheEnd], word: str, peak: Sequence[PeakRow]
) -> str:
    """Write the finding: the speed inside and outside the cache, and the size at which it falls."""
    states = [state for state in DASHES if state in set(best["cache_state"])]
    if not states:
        return "No valid cell."
    own = best[best["cache_state"] == states[0]]
    share = own["working_set_over_cache"]
    regions = {f"inside the {word}": share <= INSIDE, "far outside": share >= OUTSIDE}
    places = {place: own[in_region] for place, in_region in regions.items() if in_region.any()}
    clauses = []
    # Without the size of the cache, or with sizes near it only, there is one place.
    for place, rows in (places or {"at most": own}).items():
        top = rows.loc[rows["bandwidth_gbs"].idxmax()]
        told = displayed_share(peak, top)
        of = "" if told is None else f", {told.words},"
        clauses.append(f"{gbs(top['bandwidth_gbs'])}{of} {place} ({top['dtype']})")
    text = f"{_capital(state_words(states[0], word))}: {joined(clauses)}."
    # Types whose cache ends at the same size share a clause.
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
