"""Bandwidth over one launch parameter, with the fitted model where there is one."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..display import gbs
from ..schema import Status
from .style import DTYPE_COLOURS, DTYPE_MARKERS, PAGE_WIDTH, apply_style, save


def curve(cells: pd.DataFrame, predictions: pd.DataFrame, x: str, unit: str, svg: Path) -> None:
    """One panel for each variant: measured medians with intervals, model, held-out points.

    `cells` and `predictions` are those of one kernel and problem, `unit` says what `x` counts.
    Without predictions the points are joined by a thin line.
    """
    apply_style()
    variants = sorted(cells["variant"].unique())
    figure, axes = plt.subplots(
        1, len(variants), figsize=(PAGE_WIDTH, 3.3), squeeze=False, sharey=True
    )
    dtypes = [d for d in DTYPE_COLOURS if d in set(cells["dtype"])]
    for ax, variant in zip(axes[0], variants, strict=True):
        for dtype in dtypes:
            part = cells[(cells["variant"] == variant) & (cells["dtype"] == dtype)]
            model = predictions[
                (predictions["variant"] == variant) & (predictions["dtype"] == dtype)
            ]
            _series(ax, part, model, x, dtype)
        ax.set_title(variant, fontsize=8)
        ax.set_xlabel(f"{x} ({unit})")
        ax.set_ylim(bottom=0)
        if _spread_wide(cells[x]):
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter("{x:.0f}")
    axes[0, 0].set_ylabel("bandwidth (GB/s, read + written)")
    handles = _legend(dtypes, not predictions.empty)
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7.5)
    size = f"{int(cells['height'].iloc[0])} × {int(cells['width'].iloc[0])}"
    title = f"{cells['kernel'].iloc[0]}, {size} elements: bandwidth over {x}"
    save(figure, svg, title, _caption(cells, predictions, x, dtypes, variants))


def _spread_wide(values: pd.Series) -> bool:
    """Whether most of the distinct values crowd into the lowest quarter of their range."""
    distinct = values.dropna().unique()
    return bool(np.median(distinct) <= distinct.max() / 4)


def _series(ax: Axes, part: pd.DataFrame, model: pd.DataFrame, x: str, dtype: str) -> None:
    ok = part[part["status"] == Status.OK].sort_values(x)
    if ok.empty:
        return
    colour = DTYPE_COLOURS[dtype]
    error = np.abs(
        ok[["bandwidth_low_gbs", "bandwidth_high_gbs"]].to_numpy().T
        - ok["bandwidth_gbs"].to_numpy()
    )
    held = set(model.loc[model["held_out"], "blocks"])
    faces = ["white" if b in held else colour for b in ok["blocks"]]
    ax.errorbar(
        ok[x], ok["bandwidth_gbs"], yerr=error, fmt="none", ecolor=colour, elinewidth=0.6, alpha=0.6
    )
    ax.scatter(
        ok[x],
        ok["bandwidth_gbs"],
        marker=DTYPE_MARKERS[dtype],
        s=14,
        facecolors=faces,
        edgecolors=colour,
        linewidths=0.8,
        zorder=3,
    )
    if model.empty:
        ax.plot(ok[x], ok["bandwidth_gbs"], color=colour, lw=0.6)
    line = model.dropna(subset=["predicted_gbs"]).sort_values("blocks")
    ax.plot(line["blocks"], line["predicted_gbs"], color=colour, lw=1.1)


def _legend(dtypes: list[str], fitted: bool) -> list[Line2D]:
    handles = [
        Line2D([], [], marker=DTYPE_MARKERS[d], ls="", c=DTYPE_COLOURS[d], ms=4, label=d)
        for d in dtypes
    ]
    if not fitted:
        return handles
    handles.append(
        Line2D(
            [], [], marker="o", ls="", mfc="white", mec="black", ms=4, label="held out of the fit"
        )
    )
    handles.append(Line2D([], [], c="black", lw=1.1, label="model"))
    return handles


def _caption(
    cells: pd.DataFrame, predictions: pd.DataFrame, x: str, dtypes: list[str], variants: list[str]
) -> str:
    """The finding: where the curve peaks, double against float, how well the model predicts."""
    parts = []
    for variant in variants:
        ok = cells[(cells["variant"] == variant) & (cells["status"] == Status.OK)]
        for dtype in dtypes:
            part = ok[ok["dtype"] == dtype]
            if part.empty:
                parts.append(f"{variant} {dtype}: no valid cell.")
                continue
            best = part.loc[part["bandwidth_gbs"].idxmax()]
            parts.append(
                f"{variant} {dtype} peaks at {gbs(best['bandwidth_gbs'])} at {x} = {int(best[x])}."
            )
        one = ok[ok[x] == 1].set_index("dtype")["bandwidth_gbs"]
        if {"float", "double"} <= set(one.index):
            parts.append(f"At {x} = 1 double moves {one['double'] / one['float']:.2f} × float.")
    judged = predictions.dropna(subset=["relative_error"])
    held = judged[judged["held_out"]]
    if not held.empty:
        parts.append(
            f"Held-out points are predicted to {100 * held['relative_error'].abs().median():.1f} % "
            f"(median of {len(held)}), at worst "
            f"{100 * held['relative_error'].abs().max():.0f} %."
        )
    elif not predictions.empty:
        parts.append("The fit did not converge, so no model is drawn.")
    return " ".join(parts)
