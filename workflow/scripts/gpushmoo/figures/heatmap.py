"""Shmoo: bandwidth over two launch parameters, and a map of the limits that bind there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..analysis.best import BLOCK_AXES, DEFAULT_BLOCKS, tied_best
from ..core.display import joined, percent
from ..core.schema import FAULTS, LIMITS, Status
from ..model.form import LIMITS as MODEL_LIMITS
from ..workloads.views import FigureData, HeatMap
from .style import OKABE_ITO, PAGE_WIDTH, apply_style, save, sns, subject

_LIMIT, _FAULT = "#d9d9d9", "#D55E00"
_MAP = "viridis"
# Panels side by side, and inches of a row of them, of which all must leave room for the caption.
# With the maps of limits rows are lower, so that a page has room for two figures.
_MOST_COLUMNS = 4
_ROW_HEIGHT, _LOW_ROW_HEIGHT, _MOST_HEIGHT = 2.2, 1.7, 7.6
# More values on an axis than this are not all written.
_MANY_TICKS = 6
# Of more tied cells the outline is drawn, not a dot each.
_MANY_TIED = 40
# Entries of the legend side by side.
_MOST_HANDLES = 5
# What comes so close to the best is as good for most purposes.
CLOSE = 0.05


@dataclass(frozen=True)
class AxisWords:
    """What the two axes of a heat map count, if anybody says, and what both make up."""

    x_unit: str | None = "threads"
    y_unit: str | None = "threads"
    over: str = "the block's shape"

    @property
    def points(self) -> str:
        """What the panels' points are called."""
        return "shapes" if "shape" in self.over else "points"


BLOCK_SHAPE = AxisWords()


@dataclass(frozen=True)
class Panel:
    """One map: the cells of one element type and variant, which compete."""

    title: str
    cells: pd.DataFrame


def draw(view: HeatMap, data: FigureData, svg: Path) -> None:
    """Draw the view `HeatMap` of a kernel: bandwidth over the two axes that the view names."""
    axes = (view.x, view.y, list(data.dtypes))
    heatmap(data.cells, *axes, svg, data.named, data.controls, words_of(view), data.device)


def words_of(view: HeatMap) -> AxisWords:
    """What the view calls its axes."""
    both = BLOCK_SHAPE.over if view.is_block_shape() else f"{view.x} and {view.y}"
    return AxisWords(*view.units(), view.over or both)


def heatmap(
    cells: pd.DataFrame,
    x: str,
    y: str,
    dtypes: list[str],
    svg: Path,
    named: Collection[str] = (),
    controls: Collection[str] = (),
    words: AxisWords = BLOCK_SHAPE,
    device: pd.DataFrame | None = None,
) -> None:
    """One panel for each of `dtypes`: its fastest variant, of one kernel, problem and cache state.

    The panels share one colour scale in GB/s. The variants in `controls` move other bytes than the
    rest and are not ranked with it. The title says what the columns `named` hold; `words`
    describe the axes. With the table of the model of the `device`, maps of what binds stand below.
    """
    apply_style()
    shown = fastest_variants(cells, dtypes, controls)
    figure = plt.figure()
    draw_panels(figure, shown, x, y, words, device)
    title = f"{subject(cells, named)}: bandwidth over {words.over}"
    save(figure, svg, title, _caption(shown, x, y, words.points, device))


def fastest_variants(
    cells: pd.DataFrame, dtypes: Sequence[str], controls: Collection[str] = ()
) -> list[Panel]:
    """The cells of each type's fastest variant; of one without a verified cell the first."""
    panels = []
    for dtype in dtypes:
        own = cells[cells["dtype"] == dtype].reset_index(drop=True)
        ranked = own[~own["variant"].isin(controls)]
        own = own if ranked.empty else ranked
        if own.empty:
            continue
        speed = own["bandwidth_gbs"].where(own["status"] == Status.OK)
        at = speed.idxmax() if speed.notna().any() else own["variant"].idxmin()
        variant = own.loc[at, "variant"]
        alone = own["variant"].nunique() == 1 and cells["variant"].nunique() == 1
        title = str(dtype) if alone else f"{dtype}, {variant}"
        panels.append(Panel(title, own[own["variant"] == variant]))
    return panels


def every_variant(cells: pd.DataFrame, dtypes: Sequence[str]) -> list[Panel]:
    """One panel for each variant and element type."""
    return [
        Panel(f"{dtype}, {variant}", part)
        for variant in sorted(cells["variant"].unique())
        for dtype in dtypes
        if len(part := cells[(cells["variant"] == variant) & (cells["dtype"] == dtype)])
    ]


def draw_panels(
    figure: Figure,
    panels: Sequence[Panel],
    x: str,
    y: str,
    words: AxisWords = BLOCK_SHAPE,
    device: pd.DataFrame | None = None,
) -> None:
    """Maps on an empty `figure`, without a title, in the style that is set.

    Cells over a limit are grey, faults carry a cross, tied best cells a dot (or, where they are
    many, an outline) and the fastest a ring. The usual blocks are marked where they were swept.
    Where the model of the `device` says of them what binds, as many maps of that follow.
    """
    every = pd.concat([panel.cells for panel in panels])
    limits = with_limits(every, device)
    columns = min(_MOST_COLUMNS, len(panels))
    # Five panels are three and two.
    rows = -(-len(panels) // columns)
    columns = -(-len(panels) // rows)
    all_rows, inches = (rows, _ROW_HEIGHT) if limits is None else (2 * rows, _LOW_ROW_HEIGHT)
    width = min(PAGE_WIDTH, 1.1 + 2.6 * columns)
    figure.set_size_inches(width, 0.75 + min(inches * all_rows, _MOST_HEIGHT))
    axes = figure.subplots(all_rows, columns, squeeze=False, sharex=True, sharey=True)
    above, below = axes[:rows], axes[rows:]
    top = every.loc[every["status"] == Status.OK, "bandwidth_gbs"].max()
    norm = Normalize(0.0, 1.0 if pd.isna(top) else float(top))
    for ax, panel in zip(above.flat, panels, strict=False):
        _panel(ax, panel, x, y, norm)
    if limits is not None:
        for ax, panel in zip(below.flat, panels, strict=False):
            _limits_panel(ax, panel, limits, x, y)
    for part in (above, below):
        for ax in part.flat[len(panels) :]:
            ax.set_visible(False)
    for ax in axes[-rows:].flat[max(0, len(panels) - columns) : len(panels)]:
        ax.set_xlabel(_with_unit(x, words.x_unit))
        ax.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel(_with_unit(y, words.y_unit))
    colours = plt.cm.ScalarMappable(norm, _MAP)
    bar = figure.colorbar(colours, ax=above, shrink=0.9, pad=0.02, aspect=25)
    bar.set_label("GB/s, read + written", fontsize=8)
    handles = _legend(every, x, y) + ([] if limits is None else limit_handles(limits))
    ncols = min(len(handles), _MOST_HANDLES) if columns > 1 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=ncols, fontsize=7.5)


def _with_unit(axis: str, unit: str | None) -> str:
    return axis if unit is None else f"{axis} ({unit})"


def _panel(ax: Axes, panel: Panel, x: str, y: str, norm: Normalize) -> None:
    cells = panel.cells
    ok = cells[cells["status"] == Status.OK]
    xs, ys = (np.sort(cells[axis].unique()) for axis in (x, y))
    grid = ok.pivot_table(values="bandwidth_gbs", index=y, columns=x, aggfunc="max")
    grid = grid.reindex(index=ys, columns=xs)
    ax.set_facecolor(_LIMIT)
    ax.set(xlim=(0, len(xs)), ylim=(len(ys), 0))
    if len(ok):
        sns.heatmap(
            grid,
            ax=ax,
            cmap=_MAP,
            norm=norm,
            cbar=False,
            rasterized=True,
            xticklabels=False,
            yticklabels=False,
        )
    left_out = cells[cells["status"] == Status.UNPROPOSED]
    if len(left_out):
        white = left_out.assign(left_out=0.0).pivot_table(values="left_out", index=y, columns=x)
        white = white.reindex(index=ys, columns=xs)
        sns.heatmap(white, ax=ax, cmap=["white"], cbar=False, rasterized=True)
        ax.set(xticks=[], yticks=[])
    ax.invert_yaxis()
    # The middle of each value's row or column.
    column, row = ({v: k + 0.5 for k, v in enumerate(values)} for values in (xs, ys))
    bad = cells[cells["status"].isin([s.value for s in FAULTS])]
    ax.scatter([column[v] for v in bad[x]], [row[v] for v in bad[y]], marker="x", s=12, c=_FAULT)
    tied = tied_best(cells)
    places = [(column[px], row[py]) for px, py in zip(tied[x], tied[y], strict=True)]
    _mark_tied(ax, places, grid.shape)
    for at in _usual(cells, x, y).values():
        _mark(ax, [(column[at[0]], row[at[1]])], marker="P", s=26, c="white")
    # A mark on the outermost cells must not be cut off by the panel's edge.
    for face, size, line in (("white", 70, 2.6), ("black", 70, 1.1)):
        _mark(ax, places[:1], s=size, facecolors="none", edgecolors=face, linewidths=line)
    _ticks(ax, xs, ys)
    ax.set(xlabel="", ylabel="")
    ax.set_title(panel.title.replace(", ", "\n"), fontsize=8)


def _limits_panel(ax: Axes, panel: Panel, limits: pd.DataFrame, x: str, y: str) -> None:
    """What binds the cells of a panel; grey where nothing was measured."""
    xs, ys = (np.sort(panel.cells[axis].unique()) for axis in (x, y))
    mine = limits[limits["cell_key"].isin(panel.cells["cell_key"])]
    ax.set_facecolor(_LIMIT)
    draw_limits(ax, mine, x, y, pd.DataFrame(index=ys, columns=xs))
    _ticks(ax, xs, ys)
    ax.set(xlabel="", ylabel="")


def _usual(cells: pd.DataFrame, x: str, y: str) -> dict[str, tuple[int, int]]:
    """The usual blocks that were swept over these axes, by name, as values of `x` and `y`."""
    swept = set(zip(cells[x], cells[y], strict=True))
    sides = {n: b for n, b in DEFAULT_BLOCKS.items() if set(b) <= {x, y} <= set(BLOCK_AXES)}
    places = {name: (block.get(x, 1), block.get(y, 1)) for name, block in sides.items()}
    return {name: at for name, at in places.items() if at in swept}


def _mark_tied(ax: Axes, places: Sequence[tuple[float, float]], shape: tuple[int, int]) -> None:
    """A dot on each tied cell, or an outline around them."""
    if len(places) <= _MANY_TIED:
        _mark(ax, places, s=9, c="white")
        return
    mask = np.zeros((shape[0] + 2, shape[1] + 2))
    for px, py in places:
        mask[int(py) + 1, int(px) + 1] = 1.0
    rows, columns = (np.arange(-0.5, n + 1) for n in shape)
    for colour, line in (("white", 1.8), ("black", 0.7)):
        ax.contour(columns, rows, mask, levels=[0.5], colors=colour, linewidths=line)


def _mark(ax: Axes, places: Sequence[tuple[float, float]], **marks: Any) -> None:
    style: dict[str, Any] = {"edgecolors": "black", "linewidths": 0.8} | marks
    xs, ys = [p[0] for p in places], [p[1] for p in places]
    ax.scatter(xs, ys, clip_on=False, zorder=3, **style)


def _ticks(ax: Axes, xs: np.ndarray, ys: np.ndarray) -> None:
    """Every value while they fit; else the first and the multiples of 16, or of 32, and so on."""
    for values, axis in ((xs, ax.xaxis), (ys, ax.yaxis)):
        shown, step = list(range(len(values))), 16
        while len(shown) > _MANY_TICKS:
            shown = [k for k, v in enumerate(values) if k == 0 or v % step == 0]
            step *= 2
        axis.set_ticks([k + 0.5 for k in shown], [f"{values[k]:.0f}" for k in shown])
    ax.tick_params(labelsize=7)


def _legend(cells: pd.DataFrame, x: str, y: str) -> list[Patch | Line2D]:
    def dot(marker: str, size: float, face: str, label: str) -> Line2D:
        style: dict[str, Any] = {
            "marker": marker,
            "ms": size,
            "mfc": face,
            "mec": "black",
            "mew": 0.9,
        }
        return Line2D([], [], ls="", label=label, **style)

    handles: list[Patch | Line2D] = [
        dot("o", 7, "none", "fastest"),
        dot("o", 3.5, "white", "tied with it"),
    ]
    if usual := _usual(cells, x, y):
        handles.append(dot("P", 5, "white", ", ".join(usual)))
    statuses = set(cells["status"])
    if statuses & {s.value for s in LIMITS}:
        handles.append(Patch(fc=_LIMIT, ec="#999999", label="not possible"))
    if Status.UNPROPOSED in statuses:
        handles.append(Patch(fc="white", ec="#999999", label="not measured"))
    if statuses & {s.value for s in FAULTS}:
        handles.append(Line2D([], [], marker="x", ls="", c=_FAULT, label="fault"))
    return handles


def _caption(
    panels: Sequence[Panel], x: str, y: str, points: str, device: pd.DataFrame | None
) -> str:
    """The finding: where the fastest lie, how many come close, what the slowest reach."""
    fastest, close, slowest = [], [], []
    for panel in panels:
        ok = panel.cells[panel.cells["status"] == Status.OK]
        if ok.empty:
            continue
        best = ok.loc[ok["bandwidth_gbs"].idxmax()]
        share = ok["bandwidth_gbs"] / best["bandwidth_gbs"]
        fastest.append(f"{int(best[x])} × {int(best[y])} ({panel.title})")
        close.append(float((share >= 1 / (1 + CLOSE)).mean()))
        slowest.append(float(share.min()))
    if not fastest:
        return "No valid cell."
    limits = with_limits(pd.concat([panel.cells for panel in panels]), device)
    return (
        f"Fastest: {joined(fastest)}. {_range(close)} of the {points} take at most "
        f"{percent(CLOSE)} more time, and the slowest reach {_range(slowest)} of the bandwidth"
        f"{'.' if limits is None else limits_words(limits)}"
    )


def _range(shares: Sequence[float]) -> str:
    """``1.2 % to 30 %``, or the one that there is."""
    return " to ".join(dict.fromkeys(percent(s) for s in (min(shares), max(shares))))


# The palette without its black, which would outweigh all others; one colour a limit.
LIMIT_COLOURS = dict(zip(MODEL_LIMITS, OKABE_ITO, strict=False))
# Limits of fewer launches than this are not named in a caption.
NAMED_SHARE = 0.05


def with_limits(cells: pd.DataFrame, device: pd.DataFrame | None) -> pd.DataFrame | None:
    """`cells` with the ``limit`` that the table of the device's model names, of those that it has.

    None without a model, or where it says nothing of any of them.
    """
    if device is None:
        return None
    names = ["device_name", "cell_key"]
    found = cells.merge(device[[*names, "limit"]], on=names)
    return None if found.empty else found


def draw_limits(ax: Axes, cells: pd.DataFrame, x: str, y: str, like: pd.DataFrame) -> None:
    """A map of ``limit`` over the rows and columns of the grid `like`; none where there is none."""
    places = cells.assign(place=cells["limit"].map({n: k for k, n in enumerate(MODEL_LIMITS)}))
    grid = places.pivot_table(values="place", index=y, columns=x, aggfunc="first")
    sns.heatmap(
        grid.reindex(index=like.index, columns=like.columns),
        ax=ax,
        cmap=list(LIMIT_COLOURS.values()),
        norm=Normalize(-0.5, len(MODEL_LIMITS) - 0.5),
        cbar=False,
        rasterized=True,
        xticklabels=False,
        yticklabels=False,
    )
    ax.invert_yaxis()


def limit_handles(cells: pd.DataFrame) -> list[Patch]:
    """For a legend: the colours of the limits that bind any of the cells."""
    shown = set(cells["limit"])
    return [Patch(fc=c, label=f"limit: {n}") for n, c in LIMIT_COLOURS.items() if n in shown]


def limits_words(cells: pd.DataFrame) -> str:
    """Which limits bind most of the cells: the end of a caption's last sentence."""
    shares = cells["limit"].value_counts(normalize=True)
    named = ", ".join(f"{n} {percent(s)}" for n, s in shares.items() if s >= NAMED_SHARE)
    return f"; below, the limits that the model of the device infers: {named}."
