"""Draw shmoo plots: bandwidth over two launch parameters, and a map of the limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from matplotlib.ticker import PercentFormatter

from ..analysis.best import DEFAULT_BLOCKS, cost_of, tied_best
from ..analysis.fastest import axes_of
from ..core.display import joined, percent, percent_range
from ..core.metric import metric_of, share_of_best, speed_text
from ..core.schema import FAULTS, LIMITS, Status
from ..core.space import BLOCK_AXES
from ..model.form import LIMITS as MODEL_LIMITS
from ..workloads.views import FigureData, HeatMap
from .style import OKABE_ITO, PAGE_WIDTH, apply_style, save, sns, subject

_LIMIT, _FAULT = "#d9d9d9", "#D55E00"
_MAP = "viridis"
# Range of the colors, as shares of a panel's best. Lower values get the darkest color.
_SCALE = Normalize(0.5, 1.0)
# Panels side by side, and the height of a row in inches, which leaves room for the caption. With
# the maps of limits, rows are lower, so that two figures fit on a page.
_MAX_COLUMNS = 4
_ROW_HEIGHT, _LOW_ROW_HEIGHT, _MAX_HEIGHT = 2.2, 1.7, 7.6
# An axis with more values than this labels only some of them.
_MANY_TICKS = 6
# With more tied cells than this, an outline replaces the dots.
_MANY_TIED = 40
# Entries of the legend side by side.
_MAX_HANDLES = 5
# A launch counts as close to the best if its time is within this share.
CLOSE = 0.05
# From this number of points on, a caption also has the share in percent.
_MANY_POINTS = 100
# A caption leaves out limits of fewer launches than this.
NAMED_SHARE = 0.05
# The palette without black, which would dominate; one color per limit.
LIMIT_COLOURS = dict(zip(MODEL_LIMITS, OKABE_ITO, strict=False))
# The cells of each map, by the title of the map.
Panels = Mapping[str, pd.DataFrame]


def draw(view: HeatMap, data: FigureData, svg: Path) -> None:
    """Draw the view `HeatMap`: a map for each element type, of its fastest variant.

    Each map is scaled to its own best. Variants in ``controls`` move other bytes than the rest, so
    they are not ranked with it. If the device has a model, maps of the limits follow below.
    """
    apply_style()
    panels = fastest_variants(data.cells, data.dtypes, data.controls)
    limits = _limits_of(panels, data.device)
    figure = plt.figure()
    draw_panels(figure, panels, view, limits)
    what = f"{metric_of(data.cells).name} over {over_words(view)}"
    title = f"{subject(data.cells, data.named)}: {what}"
    save(figure, svg, title, _caption(panels, view, limits))


def over_words(view: HeatMap) -> str:
    """Return one name for the two axes of a view together."""
    return "the block's shape" if view.is_block_shape() else f"{view.x} and {view.y}"


def fastest_variants(
    cells: pd.DataFrame, dtypes: Sequence[str], controls: Collection[str] = ()
) -> Panels:
    """Return the cells of each type's fastest variant; without a verified cell, of its first."""
    panels = {}
    for dtype in dtypes:
        own = cells[cells["dtype"] == dtype].reset_index(drop=True)
        ranked = own[~own["variant"].isin(controls)]
        own = own if ranked.empty else ranked
        if own.empty:
            continue
        times = own["median_s"].where(own["status"] == Status.OK)
        at = times.idxmin() if times.notna().any() else own["variant"].idxmin()
        variant = own.loc[at, "variant"]
        alone = own["variant"].nunique() == 1 and cells["variant"].nunique() == 1
        panels[str(dtype) if alone else f"{dtype}, {variant}"] = own[own["variant"] == variant]
    return panels


def every_variant(cells: pd.DataFrame, dtypes: Sequence[str]) -> Panels:
    """Return the cells of a panel for each variant and element type."""
    return {
        f"{dtype}, {variant}": part
        for variant in sorted(cells["variant"].unique())
        for dtype in dtypes
        if len(part := cells[(cells["variant"] == variant) & (cells["dtype"] == dtype)])
    }


def draw_panels(
    figure: Figure, panels: Panels, view: HeatMap, limits: pd.DataFrame | None = None
) -> None:
    """Draw maps on an empty `figure`, without a title, in the current style.

    Cells over a limit are grey, and faults have a cross. Tied best cells have a dot (or, if there
    are many, an outline), and the fastest has a ring. Common blocks that were swept are marked with
    their cost.

    Parameters
    ----------
    figure
        Empty figure.
    panels
        Cells of each map, by its title.
    view
        The view, which names the axes.
    limits
        Cells with the column ``limit``. If given, a second map per panel shows them.
    """
    every = pd.concat(list(panels.values()))
    columns = min(_MAX_COLUMNS, len(panels))
    # Five panels become three and two.
    rows = -(-len(panels) // columns)
    columns = -(-len(panels) // rows)
    all_rows, inches = (rows, _ROW_HEIGHT) if limits is None else (2 * rows, _LOW_ROW_HEIGHT)
    width = min(PAGE_WIDTH, 1.1 + 2.6 * columns)
    figure.set_size_inches(width, 0.75 + min(inches * all_rows, _MAX_HEIGHT))
    axes = figure.subplots(all_rows, columns, squeeze=False, sharex=True, sharey=True)
    above, below = axes[:rows], axes[rows:]
    for ax, (title, cells) in zip(above.flat, panels.items(), strict=False):
        _panel(ax, cells, view.x, view.y)
        ax.set_title(_title(title, cells, view), fontsize=8)
    if limits is not None:
        for ax, cells in zip(below.flat, panels.values(), strict=False):
            _limits_panel(ax, cells, limits, view.x, view.y)
    for part in (above, below):
        for ax in part.flat[len(panels) :]:
            ax.set_visible(False)
    x_label, y_label = (
        axis if unit is None else f"{axis} ({unit})"
        for axis, unit in zip((view.x, view.y), view.units(), strict=True)
    )
    for ax in axes[-rows:].flat[max(0, len(panels) - columns) : len(panels)]:
        ax.set_xlabel(x_label)
        ax.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel(y_label)
    colours = plt.cm.ScalarMappable(_SCALE, _MAP)
    bar = figure.colorbar(
        colours, ax=above, shrink=0.9, pad=0.02, aspect=25, extend="min", format=PercentFormatter(1)
    )
    bar.set_label("of the panel's best", fontsize=8)
    handles = _legend(every, view.x, view.y, limits)
    below_all: dict[str, Any] = {"loc": "outside lower center", "fontsize": 7.5}
    for ncols in range(min(len(handles), _MAX_HANDLES), 0, -1):
        legend = figure.legend(handles=handles, ncols=ncols, **below_all)
        if legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def _panel(ax: Axes, cells: pd.DataFrame, x: str, y: str) -> None:
    """Draw the speed over `x` and `y` as a share of the best, with marks."""
    xs, ys = (np.sort(cells[axis].unique()) for axis in (x, y))
    ok = cells[cells["status"] == Status.OK]
    ok = ok.assign(share=share_of_best(ok))
    left_out = cells[cells["status"] == Status.NOT_SEARCHED].assign(share=0.0)
    ax.set_facecolor(_LIMIT)
    ax.set(xlim=(0, len(xs)), ylim=(len(ys), 0))
    for part, colours in ((ok, _MAP), (left_out, ["white"])):
        if len(part):
            grid = part.pivot_table(values="share", index=y, columns=x, aggfunc="max")
            _shade(ax, grid.reindex(index=ys, columns=xs), colours, _SCALE)
    ax.invert_yaxis()
    # Center of each value's row or column.
    column, row = ({v: k + 0.5 for k, v in enumerate(values)} for values in (xs, ys))
    bad = cells[cells["status"].isin([s.value for s in FAULTS])]
    ax.scatter([column[v] for v in bad[x]], [row[v] for v in bad[y]], marker="x", s=12, c=_FAULT)
    tied = tied_best(cells)
    places = [(column[px], row[py]) for px, py in zip(tied[x], tied[y], strict=True)]
    _mark_tied(ax, places, (len(ys), len(xs)))
    for at in _usual(cells, x, y).values():
        place = column[at[0]], row[at[1]]
        _mark(ax, [place], marker="P", s=26, c="white")
        here = ok[(ok[x] == at[0]) & (ok[y] == at[1])]
        if len(here):
            cost = cost_of(here.loc[here["median_s"].idxmin()], tied.iloc[0])
            if cost.sure:
                _write(ax, cost.text, place, len(xs))
    for face, size, line in (("white", 70, 2.6), ("black", 70, 1.1)):
        _mark(ax, places[:1], s=size, facecolors="none", edgecolors=face, linewidths=line)
    _ticks(ax, xs, ys)


def _title(title: str, cells: pd.DataFrame, view: HeatMap) -> str:
    """Write a panel's title: the fastest launch, or any if all are tied, and its speed."""
    lines = title.split(", ")
    tied = tied_best(cells)
    measured = int((cells["status"] == Status.OK).sum())
    if len(tied):
        best = tied.iloc[0]
        launch = f"{int(best[view.x])} × {int(best[view.y])}"
        use = f"any of the {measured}" if len(tied) == measured > 1 else launch
        lines.append(f"{use}: {speed_text(best)}")
    return "\n".join(lines)


def _write(ax: Axes, words: str, place: tuple[float, float], columns: int) -> None:
    """Write beside a mark, on the side that has more room."""
    left = place[0] > 0.7 * columns
    ax.annotate(
        words,
        place,
        (-5 if left else 5, 3),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=6.5,
        bbox={"facecolor": "white", "alpha": 0.8, "pad": 0.8, "linewidth": 0},
        zorder=4,
        # Text must not change the widths of panels.
        in_layout=False,
    )


def _limits_panel(ax: Axes, cells: pd.DataFrame, limits: pd.DataFrame, x: str, y: str) -> None:
    """Draw the limit of each cell of a panel; cells without a measurement are grey."""
    xs, ys = (np.sort(cells[axis].unique()) for axis in (x, y))
    mine = limits[limits["cell_key"].isin(cells["cell_key"])]
    places = mine.assign(place=mine["limit"].map({n: k for k, n in enumerate(MODEL_LIMITS)}))
    grid = places.pivot_table(values="place", index=y, columns=x, aggfunc="first")
    ax.set_facecolor(_LIMIT)
    norm = Normalize(-0.5, len(MODEL_LIMITS) - 0.5)
    _shade(ax, grid.reindex(index=ys, columns=xs), list(LIMIT_COLOURS.values()), norm)
    ax.invert_yaxis()
    _ticks(ax, xs, ys)


def _shade(ax: Axes, grid: pd.DataFrame, colours: str | list[str], norm: Normalize) -> None:
    ticks = {"xticklabels": False, "yticklabels": False}
    sns.heatmap(grid, ax=ax, cmap=colours, norm=norm, cbar=False, rasterized=True, **ticks)


def _usual(cells: pd.DataFrame, x: str, y: str) -> dict[str, tuple[int, int]]:
    """Return the common blocks that were swept over these axes, by name, as `x` and `y`."""
    swept = set(zip(cells[x], cells[y], strict=True))
    sides = {n: b for n, b in DEFAULT_BLOCKS.items() if set(b) <= {x, y} <= set(BLOCK_AXES)}
    places = {name: (block.get(x, 1), block.get(y, 1)) for name, block in sides.items()}
    return {name: at for name, at in places.items() if at in swept}


def _mark_tied(ax: Axes, places: Sequence[tuple[float, float]], shape: tuple[int, int]) -> None:
    """Draw a dot on each tied cell, or an outline around them."""
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
    """Draw marks that the panel's edge does not cut off."""
    style: dict[str, Any] = {"edgecolors": "black", "linewidths": 0.8} | marks
    xs, ys = [p[0] for p in places], [p[1] for p in places]
    ax.scatter(xs, ys, clip_on=False, zorder=3, **style)


def _ticks(ax: Axes, xs: np.ndarray, ys: np.ndarray) -> None:
    """Label every value if they fit, otherwise the first and the multiples of 16, 32, and so on."""
    for values, axis in ((xs, ax.xaxis), (ys, ax.yaxis)):
        shown = list(range(len(values)))
        step = 16
        while len(shown) > _MANY_TICKS:
            shown = [k for k, v in enumerate(values) if k == 0 or v % step == 0]
            step *= 2
        axis.set_ticks([k + 0.5 for k in shown], [f"{values[k]:.0f}" for k in shown])
    ax.tick_params(labelsize=7)
    ax.set(xlabel="", ylabel="")


def _legend(
    cells: pd.DataFrame, x: str, y: str, limits: pd.DataFrame | None
) -> list[Patch | Line2D]:
    def dot(marker: str, size: float, face: str, label: str) -> Line2D:
        style: dict[str, Any] = {"marker": marker, "ms": size, "mfc": face, "mec": "black"}
        return Line2D([], [], ls="", label=label, mew=0.9, **style)

    handles: list[Patch | Line2D] = [
        dot("o", 7, "none", "fastest"),
        dot("o", 3.5, "white", "tied with it"),
    ]
    if usual := _usual(cells, x, y):
        handles.append(dot("P", 5, "white", f"{', '.join(usual)}, and its cost"))
    statuses = set(cells["status"])
    if statuses & {s.value for s in LIMITS}:
        handles.append(Patch(fc=_LIMIT, ec="#999999", label="not possible"))
    if Status.NOT_SEARCHED in statuses:
        handles.append(Patch(fc="white", ec="#999999", label="not measured"))
    if statuses & {s.value for s in FAULTS}:
        handles.append(Line2D([], [], marker="x", ls="", c=_FAULT, label="fault"))
    binding = set() if limits is None else set(limits["limit"])
    colours = LIMIT_COLOURS.items()
    return handles + [Patch(fc=c, label=f"limit: {n}") for n, c in colours if n in binding]


def _caption(panels: Panels, view: HeatMap, limits: pd.DataFrame | None) -> str:
    """Write the finding: how many launches are close to the fastest, and the slowest speed."""
    close, slowest = [], []
    for cells in panels.values():
        ok = cells[cells["status"] == Status.OK]
        if ok.empty:
            continue
        shown = ok.assign(share=share_of_best(ok)).groupby([view.x, view.y])["share"].max()
        close.append((int((shown >= 1 / (1 + CLOSE)).sum()), len(shown)))
        slowest.append(float(shown.min()))
    if not close:
        return "No valid cell."
    every = pd.concat(list(panels.values()))
    merit = metric_of(every)
    word = merit.name if merit.larger else "speed"
    points = "shapes" if "shape" in over_words(view) else "points"
    text = (
        f"{_counts(close, points)} take at most {percent(CLOSE)} more time than the fastest, and "
        f"the slowest reach {percent_range(slowest)} of its {word}"
    )
    if others := [axis for axis in axes_of(every) if axis not in (view.x, view.y)]:
        text = f"Each place shows the fastest launch over {joined(others)}. {text}"
    if limits is None:
        return f"{text}."
    shares = limits["limit"].value_counts(normalize=True)
    named = ", ".join(f"{n} {percent(s)}" for n, s in shares.items() if s >= NAMED_SHARE)
    return f"{text}; below, the limits that the model of the device infers: {named}."


def _counts(close: Sequence[tuple[int, int]], points: str) -> str:
    """Return the least and largest share as counts: ``1 of 21 shapes``, ``2 to 6 of 15 shapes``.

    With very many points, the share in percent follows.
    """
    ends = min(close, key=_share), max(close, key=_share)
    (few, of_few), (many, of_many) = ends
    if ends[0] == ends[1]:
        words = f"{few} of {of_few} {points}"
    elif of_few == of_many:
        words = f"{few} to {many} of {of_few} {points}"
    else:
        words = f"{few} of {of_few} to {many} of {of_many} {points}"
    if min(of_few, of_many) < _MANY_POINTS:
        return words
    return f"{words} ({percent_range([_share(end) for end in ends])})"


def _share(counts: tuple[int, int]) -> float:
    return counts[0] / counts[1]


def _limits_of(panels: Panels, device: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return the cells with column ``limit`` of the device's model; None without a model."""
    if device is None:
        return None
    names = ["device_name", "cell_key"]
    every = pd.concat(list(panels.values()))
    found = every.merge(device[[*names, "limit"]], on=names)
    return None if found.empty else found
