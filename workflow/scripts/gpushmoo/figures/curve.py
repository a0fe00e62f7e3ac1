"""Bandwidth over one launch parameter, with the fitted model where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..analysis.ceiling import CeilingRow, cell_ceiling_gbs, share_of_ceiling
from ..analysis.fastest import bytes_touched
from ..core.display import gbs, of_ceiling
from ..core.schema import Status
from ..workloads.views import Curve, FigureData
from .style import (
    DTYPE_COLOURS,
    DTYPE_MARKERS,
    PAGE_WIDTH,
    apply_style,
    dtype_handles,
    save,
    subject,
)

CEILING_COLOUR, CEILING_DASHES = "#555555", (0, (5, 3))


def draw(view: Curve, data: FigureData, svg: Path) -> None:
    """Draw the view `Curve` of a kernel: bandwidth over the axis that the view names."""
    shown = (data.cells, data.predictions, view.x, view.unit)
    curve(*shown, svg, data.ceiling, data.name_state)


def curve(
    cells: pd.DataFrame,
    predictions: pd.DataFrame,
    x: str,
    unit: str,
    svg: Path,
    ceiling: Sequence[CeilingRow] = (),
    name_state: bool = False,
) -> None:
    """One panel for each variant: measured medians with intervals, model, held-out points.

    `cells` and `predictions` are those of one kernel, problem and cache state, `unit` says what `x`
    counts; with `name_state` the title says the cache state. Without predictions the points are
    joined by a thin line. A thin dashed line is the ceiling of the dtype that moves most bytes.
    """
    apply_style()
    variants = sorted(cells["variant"].unique())
    figure, axes = plt.subplots(
        1, len(variants), figsize=(PAGE_WIDTH, 3.3), squeeze=False, sharey=True
    )
    dtypes = [d for d in DTYPE_COLOURS if d in set(cells["dtype"])]
    widest = cells.loc[bytes_touched(cells).idxmax()]
    limit = cell_ceiling_gbs(ceiling, widest)
    for ax, variant in zip(axes[0], variants, strict=True):
        for dtype in dtypes:
            part = cells[(cells["variant"] == variant) & (cells["dtype"] == dtype)]
            model = predictions[
                (predictions["variant"] == variant) & (predictions["dtype"] == dtype)
            ]
            _series(ax, part, model, x, dtype)
        ax.set_title(variant, fontsize=8)
        ax.set_xlabel(f"{x} ({unit})")
        if limit is not None:
            ax.axhline(limit, color=CEILING_COLOUR, lw=0.8, ls=CEILING_DASHES)
        ax.set_ylim(bottom=0)
        if _spread_wide(cells[x]):
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter("{x:.0f}")
    axes[0, 0].set_ylabel("bandwidth (GB/s, read + written)")
    limited = None if limit is None else str(widest["dtype"])
    handles = _legend(dtypes, not predictions.empty, limited)
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7.5)
    title = f"{subject(cells, name_state)}: bandwidth over {x}"
    save(figure, svg, title, _caption(cells, predictions, x, dtypes, variants, ceiling))


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


def _legend(dtypes: list[str], fitted: bool, limited: str | None) -> list[Line2D]:
    handles = dtype_handles(dtypes)
    if fitted:
        held = Line2D([], [], marker="o", ls="", mfc="white", mec="black", ms=4)
        held.set_label("held out of the fit")
        handles += [held, Line2D([], [], c="black", lw=1.1, label="model")]
    if limited is not None:
        line = Line2D([], [], c=CEILING_COLOUR, lw=0.8, ls=CEILING_DASHES)
        line.set_label(f"ceiling ({limited})")
        handles.append(line)
    return handles


def _caption(
    cells: pd.DataFrame,
    predictions: pd.DataFrame,
    x: str,
    dtypes: list[str],
    variants: list[str],
    ceiling: Sequence[CeilingRow],
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
            share = of_ceiling(share_of_ceiling(ceiling, best))
            parts.append(
                f"{variant} {dtype} peaks at {gbs(best['bandwidth_gbs'])}{share} "
                f"at {x} = {int(best[x])}."
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
