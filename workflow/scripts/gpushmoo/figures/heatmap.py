"""Shmoo: bandwidth over two launch parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..analysis.best import tied_best
from ..analysis.ceiling import CeilingRow, share_of_ceiling
from ..core.display import gbs, of_ceiling
from ..core.schema import FAULTS, LIMITS, Status
from ..workloads.views import FigureData, HeatMap
from .style import PAGE_WIDTH, apply_style, save, subject

_LIMIT = "#d9d9d9"
_FAULT = "#ffffff"

# Inches of a row of panels, and of all of them, which must leave room for the caption on a page.
_ROW_HEIGHT, _MOST_HEIGHT = 2.25, 7.6
# Of more panels than this the caption tells no more than the best variant of each dtype, and of
# more others than that only the range.
_MANY_PANELS = 8
_MANY_OTHERS = 3
# More values on an axis than this are not all written.
_MANY_TICKS = 6


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


def draw(view: HeatMap, data: FigureData, svg: Path) -> None:
    """Draw the view `HeatMap` of a kernel: bandwidth over the two axes that the view names."""
    axes = (view.x, view.y, list(data.dtypes))
    words = words_of(view)
    heatmap(data.cells, *axes, svg, data.ceiling, data.name_state, data.controls, words)


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
    ceiling: Sequence[CeilingRow] = (),
    name_state: bool = False,
    controls: Collection[str] = (),
    words: AxisWords = BLOCK_SHAPE,
) -> None:
    """One panel for each variant (row) and dtype (column) of one kernel, problem, cache state.

    All panels share one colour scale in GB/s. Cells over a limit are grey, faults are white with a
    cross, tied best cells carry a dot and the fastest a ring. `dtypes` gives the columns' order;
    with `name_state` the title says the cache state. The variants in `controls` are drawn, but they
    move other bytes than the rest and are not ranked with it. `words` describe the axes.
    """
    apply_style()
    figure = plt.figure()
    draw_panels(figure, cells, x, y, dtypes, words)
    title = f"{subject(cells, name_state)}: bandwidth over {words.over}"
    save(figure, svg, title, _caption(cells, x, y, dtypes, controls, ceiling, words.points))


def draw_panels(
    figure: Figure,
    cells: pd.DataFrame,
    x: str,
    y: str,
    dtypes: list[str],
    words: AxisWords = BLOCK_SHAPE,
) -> None:
    """The panels of `heatmap` on an empty `figure`, without a title, in the style that is set."""
    variants = sorted(cells["variant"].unique())
    ok = cells[cells["status"] == Status.OK]
    low, high = (0.0, 1.0) if ok.empty else (0.0, float(ok["bandwidth_gbs"].max()))
    norm = Normalize(low, high)
    height = min(_ROW_HEIGHT * len(variants), _MOST_HEIGHT)
    figure.set_size_inches(PAGE_WIDTH, 0.75 + height)
    axes = figure.subplots(len(variants), len(dtypes), squeeze=False, sharex=True, sharey=True)
    image = None
    for i, variant in enumerate(variants):
        for j, dtype in enumerate(dtypes):
            part = cells[(cells["variant"] == variant) & (cells["dtype"] == dtype)]
            image = _panel(axes[i, j], part, x, y, norm)
    _name_panels(axes, variants, dtypes)
    for ax in axes[-1]:
        ax.set_xlabel(_with_unit(x, words.x_unit))
    figure.supylabel(_with_unit(y, words.y_unit), fontsize=9)
    if image is not None:
        bar = figure.colorbar(image, ax=axes, shrink=0.75, pad=0.02, aspect=30)
        bar.set_label("bandwidth (GB/s, read + written)")
    figure.legend(handles=_legend(cells), loc="outside lower center", ncols=4, fontsize=7.5)


def _with_unit(axis: str, unit: str | None) -> str:
    return axis if unit is None else f"{axis} ({unit})"


def _name_panels(axes: np.ndarray, variants: list[str], dtypes: list[str]) -> None:
    """The dtype above each column; the variant, whose name may be long, above each row."""
    for ax, dtype in zip(axes[0], dtypes, strict=True):
        place = {"xy": (0.5, 1), "xycoords": "axes fraction", "textcoords": "offset points"}
        ax.annotate(dtype, xytext=(0, 17), ha="center", va="bottom", fontsize=8, **place)
    for row, variant in zip(axes, variants, strict=True):
        row[0].set_title(variant, loc="left", fontsize=8)


def _panel(ax: Axes, part: pd.DataFrame, x: str, y: str, norm: Normalize) -> AxesImage:
    xs = np.sort(part[x].unique())
    ys = np.sort(part[y].unique())
    col = {v: k for k, v in enumerate(xs)}
    row = {v: k for k, v in enumerate(ys)}
    grid = np.full((len(ys), len(xs)), np.nan)
    ok = part[part["status"] == Status.OK]
    for px, py, value in zip(ok[x], ok[y], ok["bandwidth_gbs"], strict=True):
        grid[row[py], col[px]] = value
    ax.set_facecolor(_LIMIT)
    image = ax.imshow(grid, origin="lower", cmap="viridis", norm=norm, aspect="auto")
    bad = part[part["status"].isin([s.value for s in FAULTS])]
    ax.scatter([col[v] for v in bad[x]], [row[v] for v in bad[y]], marker="s", s=18, c=_FAULT)
    ax.scatter([col[v] for v in bad[x]], [row[v] for v in bad[y]], marker="x", s=12, c="#D55E00")
    tied = tied_best(part)
    places = [(col[px], row[py]) for px, py in zip(tied[x], tied[y], strict=True)]
    # A mark on the outermost cells must not be cut off by the panel's edge.
    for marked, face, size in ((places[:1], "none", 46), (places, "white", 9)):
        ax.scatter(
            [place[0] for place in marked],
            [place[1] for place in marked],
            s=size,
            facecolors=face,
            edgecolors="black",
            linewidths=0.9,
            clip_on=False,
        )
    _ticks(ax, xs, ys)
    return image


def _ticks(ax: Axes, xs: np.ndarray, ys: np.ndarray) -> None:
    """Every value while they fit; else the first and the multiples of 16, or of 32, and so on."""
    for values, place in ((xs, ax.set_xticks), (ys, ax.set_yticks)):
        shown, step = list(range(len(values))), 16
        while len(shown) > _MANY_TICKS:
            shown = [k for k, v in enumerate(values) if k == 0 or v % step == 0]
            step *= 2
        place(shown, [f"{values[k]:.0f}" for k in shown])


def _legend(cells: pd.DataFrame) -> list[Patch | Line2D]:
    def dot(size: float, face: str, label: str) -> Line2D:
        return Line2D(
            [], [], marker="o", ls="", ms=size, mfc=face, mec="black", mew=0.9, label=label
        )

    handles: list[Patch | Line2D] = [
        dot(7, "none", "fastest median"),
        dot(3, "white", "tied with the fastest"),
    ]
    statuses = set(cells["status"])
    if statuses & {s.value for s in LIMITS}:
        handles.append(Patch(fc=_LIMIT, ec="#999999", label="not possible, not run"))
    if statuses & {s.value for s in FAULTS}:
        handles.append(Line2D([], [], marker="x", ls="", c="#D55E00", label="fault"))
    return handles


def _caption(
    cells: pd.DataFrame,
    x: str,
    y: str,
    dtypes: list[str],
    controls: Collection[str],
    ceiling: Sequence[CeilingRow],
    points: str,
) -> str:
    """The finding: best points and what choosing badly costs."""
    variants = sorted(cells["variant"].unique())
    if len(variants) * len(dtypes) > _MANY_PANELS:
        ranked = cells[~cells["variant"].isin(controls)]
        return " ".join(_best_variant(ranked, x, y, dtype, ceiling, points) for dtype in dtypes)
    parts = []
    for variant in variants:
        for dtype in dtypes:
            part = cells[(cells["variant"] == variant) & (cells["dtype"] == dtype)]
            parts.append(f"{variant} {_panel_sentence(part, x, y, dtype, ceiling, points)}")
    return " ".join(parts)


def _panel_sentence(
    part: pd.DataFrame, x: str, y: str, dtype: str, ceiling: Sequence[CeilingRow], points: str
) -> str:
    ok = part[part["status"] == Status.OK]
    if ok.empty:
        return f"{dtype}: no valid cell."
    tied = tied_best(part)
    best, worst = tied.iloc[0], ok.loc[ok["bandwidth_gbs"].idxmin()]
    share = of_ceiling(share_of_ceiling(ceiling, best))
    return (
        f"{dtype}: {gbs(best['bandwidth_gbs'])}{share} at {int(best[x])}×{int(best[y])}, "
        f"{len(tied)} of {len(ok)} {points} tied; the slowest ({int(worst[x])}×{int(worst[y])}) "
        f"reaches {100 * worst['bandwidth_gbs'] / best['bandwidth_gbs']:.0f} % of it."
    )


def _best_variant(
    cells: pd.DataFrame, x: str, y: str, dtype: str, ceiling: Sequence[CeilingRow], points: str
) -> str:
    """The best variant's sentence, and how far behind the others' best points are."""
    part = cells[cells["dtype"] == dtype]
    tops = part[part["status"] == Status.OK].groupby("variant", observed=True)["bandwidth_gbs"]
    if tops.ngroups == 0:
        return f"{dtype}: no valid cell."
    ranked = tops.max().sort_values(ascending=False)
    best = str(ranked.index[0])
    text = f"{best} {_panel_sentence(part[part['variant'] == best], x, y, dtype, ceiling, points)}"
    if len(ranked) == 1:
        return text
    shares = [
        f"{100 * value / ranked.iloc[0]:.0f} % ({name})" for name, value in ranked[1:].items()
    ]
    if len(shares) > _MANY_OTHERS:
        extremes = f"from {shares[0]} to {shares[-1]}"
        return f"{text} Best of the {len(shares)} others, against it: {extremes}."
    return f"{text} Best of the others, against it: {', '.join(shares)}."
