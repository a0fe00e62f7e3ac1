"""Bandwidth over one launch parameter, with the prediction of a model where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from ..analysis.fastest import bytes_touched
from ..analysis.peak import PeakRow, cell_peak_gbs, told_share
from ..core.display import joined, percent
from ..core.merit import Merit, merit_of, speed_text
from ..core.schema import DERIVED, Status
from ..workloads.views import Curve, FigureData
from .style import (
    DTYPE_COLOURS,
    DTYPE_MARKERS,
    PAGE_WIDTH,
    apply_style,
    dtype_handles,
    save,
    sns,
    subject,
)

# Panels side by side, and inches of a row of them.
_MOST_COLUMNS, _HEIGHT = 3, 2.8
_PEAK: dict[str, Any] = {"color": "#555555", "lw": 0.8, "ls": (0, (5, 3))}
_MODEL: dict[str, Any] = {"lw": 1.1, "ls": (0, (1, 1.2))}
TRAINED, PREDICTED = (f"{DERIVED}{name}" for name in ("trained", "predicted_gbs"))


def draw(view: Curve, data: FigureData, svg: Path) -> None:
    """Draw the view `Curve`: a panel for each variant, medians with intervals over an axis.

    A thin dashed line is the measured peak of the type that moves most bytes, a dotted one the
    prediction of the device's model.
    """
    cells, x = data.cells, view.x
    predicted = _predicted(cells, data.device)
    apply_style()
    dtypes = [d for d in DTYPE_COLOURS if d in set(cells["dtype"])]
    widest = cells.loc[bytes_touched(cells).idxmax()]
    limit = cell_peak_gbs(data.peak, widest)
    variants = sorted(cells["variant"].unique())
    # Seaborn lays a grid out in a way of its own, which knows of no legend below it.
    with plt.rc_context({"figure.constrained_layout.use": False}):
        grid = sns.FacetGrid(
            cells,
            col="variant",
            col_order=variants,
            col_wrap=min(_MOST_COLUMNS, len(variants)),
            hue="dtype",
            hue_order=dtypes,
            palette=DTYPE_COLOURS,
        )
    merit = merit_of(cells)
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
    # Most of the distinct values crowd into the lowest quarter of their range.
    distinct = cells[x].dropna().unique()
    if np.median(distinct) <= distinct.max() / 4:
        for ax in grid.axes.flat:
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter("{x:.0f}")
    grid.figure.set_layout_engine("constrained")
    grid.figure.set_size_inches(PAGE_WIDTH, _HEIGHT * -(-len(variants) // _MOST_COLUMNS))
    grid.figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=7.5)
    title = f"{subject(cells, data.named)}: {merit.name} over {x}"
    save(grid.figure, svg, title, _caption(cells, predicted, x, dtypes, data.peak))


def _predicted(cells: pd.DataFrame, model: pd.DataFrame | None) -> pd.DataFrame:
    """The cells that the model predicts, with the columns TRAINED and PREDICTED."""
    if model is None:
        return cells.iloc[:0]
    names = ["device_name", "cell_key"]
    renamed = {"trained": TRAINED, "predicted_gbs": PREDICTED}
    return cells.merge(model[[*names, *renamed]].rename(columns=renamed), on=names)


def _series(
    data: pd.DataFrame,
    *,
    x: str,
    merit: Merit,
    predicted: pd.DataFrame,
    color: str,
    label: str,
) -> None:
    """Medians with intervals of one variant and of the dtype `label`, and the model's line."""
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


def _caption(
    cells: pd.DataFrame,
    predicted: pd.DataFrame,
    x: str,
    dtypes: Sequence[str],
    peak: Sequence[PeakRow],
) -> str:
    """The finding: where each type's curve peaks, and how well the model predicts."""
    ok = cells[cells["status"] == Status.OK]
    peaks = []
    for dtype in dtypes:
        part = ok[ok["dtype"] == dtype]
        if part.empty:
            continue
        best = part.loc[part["median_s"].idxmin()]
        share = told_share(peak, best)
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
