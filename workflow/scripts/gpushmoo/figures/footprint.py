"""Bandwidth of block shapes over their threads, and over the sectors that they touch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..analysis.models.blocks import NONE
from ..analysis.models.footprint import WARP
from ..core.display import gbs, percent
from ..core.dtypes import DTYPES
from ..core.schema import GROUP
from ..workloads.views import FigureData, Footprint
from .style import OKABE_ITO, PAGE_WIDTH, apply_style, save, subject

Fit = Mapping[str, Any]

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SECTOR_BYTES = 32
# Thousands of marks go into the SVG as one image of this many dots per inch.
DPI = 300
LIMIT_COLOUR, LIMIT_DASHES = "#555555", (0, (5, 3))


def draw(view: Footprint, data: FigureData, svg: Path) -> None:
    """Draw the view `Footprint` of a kernel: bandwidth over threads and over sectors touched.

    The first of the element types stands for the others.
    """
    first = next((d for d in data.dtypes if d in set(data.shapes["dtype"])), None)
    shown = data.shapes[data.shapes["dtype"] == first]
    footprint(shown, data.shape_fits, svg, data.named)


def footprint(
    table: pd.DataFrame, fits: Sequence[Fit], svg: Path, named: Collection[str] = ()
) -> None:
    """Left bandwidth over threads per block; right, at equal threads, over sectors touched.

    `table` are rows (see model.shapes.SHAPE_SCHEMA) of one kernel, dtype, problem and cache state,
    `fits` the stage's fits, theirs among them; of devices of several names the first is shown.
    Sectors are counted in the layout that the fit believes in, else in the tiled one. The
    title says what the columns `named` hold.
    """
    apply_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 3.6), dpi=DPI)
    if table.empty:
        save(figure, svg, "Bandwidth over a block's threads and sectors", "No valid cell.")
        return
    device, fit = _first_device(table, fits)
    layout = fit["best"] if fit["best"] not in (None, NONE) else "tiled"
    rows = _compared(device, layout)
    # What the launch limits is equally fast whatever it touches.
    free = rows[rows["limit"] != "launch"]
    free = rows if free.empty else free
    looks = {
        v: (OKABE_ITO[i % len(OKABE_ITO)], MARKERS[i % len(MARKERS)])
        for i, v in enumerate(sorted(rows["variant"].unique()))
    }
    for variant, (colour, marker) in looks.items():
        style = {"marker": marker, "s": 4, "color": colour, "lw": 0, "alpha": 0.45}
        for ax, shown, x, y in (
            (left, rows, "threads", "measured_gbs"),
            (right, free, "excess", "share_of_best"),
        ):
            part = shown[shown["variant"] == variant]
            ax.scatter(part[x], part[y], rasterized=True, **style)
    _over_threads(left, rows, fit)
    _over_sectors(right, free)
    handles = _legend(looks, fit["best"] is not None)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7.5)
    subject_words = subject(rows, named)
    dtype = rows["dtype"].iloc[0]
    save(
        figure,
        svg,
        f"{subject_words}, {dtype}: {_finding(rows, fit)}",
        _caption(rows, fit),
    )


def _first_device(table: pd.DataFrame, fits: Sequence[Fit]) -> tuple[pd.DataFrame, Fit]:
    """The rows of one device name, and their fit."""
    names = [n for n in GROUP if n != "variant"]
    first = table.sort_values("device_name").iloc[0]
    fit = next(f for f in fits if all(f[n] == first[n] for n in names))
    return table[table["device_name"] == first["device_name"]], fit


def _compared(table: pd.DataFrame, layout: str) -> pd.DataFrame:
    """The rows with what they move beyond need, and how they compare at equal threads.

    ``excess`` is bytes of the sectors that a block touches over bytes of its elements;
    ``share_of_best`` is the bandwidth over the best of all shapes and mappings of as many threads.
    """
    needed = table["threads"] * DTYPES[table["dtype"].iloc[0]].itemsize
    best = table.groupby("threads")["measured_gbs"].transform("max")
    return table.assign(
        excess=table[f"{layout}_sectors_per_block"] * SECTOR_BYTES / needed,
        share_of_best=table["measured_gbs"] / best,
    )


def _over_threads(ax: Axes, rows: pd.DataFrame, fit: Fit) -> None:
    top = 1.08 * float(rows["measured_gbs"].max())
    if fit["best"] is not None:
        threads = np.array([0.0, float(rows["threads"].max())])
        limit = threads * _gbs_per_thread(rows, fit)
        ax.plot(threads, limit, color=LIMIT_COLOUR, lw=1.0, ls=LIMIT_DASHES)
        # Between multiples of the warp the curve is a saw; its teeth would hide the points.
        full = rows[rows["threads"] % WARP == 0].groupby("threads")["predicted_gbs"].max()
        ax.plot(full.index, full, color="black", lw=0.9)
    ax.set_ylim(0, top)
    ax.set_xlim(0, 1.02 * float(rows["threads"].max()))
    ax.set_xlabel("threads per block (threads)")
    ax.set_ylabel("bandwidth (GB/s, read + written)")
    ax.set_title("all shapes", fontsize=8)


def _over_sectors(ax: Axes, free: pd.DataFrame) -> None:
    excess = np.linspace(1.0, max(free["excess"].max(), 1.1), 50)
    ax.plot(excess, 1 / excess, color=LIMIT_COLOUR, lw=0.9, ls=":")
    ax.set_ylim(min(0.75, free["share_of_best"].min(), 1 / excess[-1]) - 0.05, 1.03)
    ax.set_xlabel(f"sectors ({SECTOR_BYTES} B) touched / needed (1)")
    ax.set_ylabel("bandwidth / best of as many threads (1)")
    ax.set_title("shapes that launching does not limit", fontsize=8)


def _gbs_per_thread(rows: pd.DataFrame, fit: Fit) -> float:
    """GB/s that every thread of a block adds while blocks are started as fast as can be."""
    row = rows.iloc[0]
    bytes_each = row["measured_gbs"] * row["measured_s"] / (row["height"] * row["width"])
    return float(bytes_each * fit["units"] / _parameter(fit, "launch_s"))


def _parameter(fit: Fit, name: str) -> float:
    return float(fit["hypotheses"][fit["best"]]["parameters"][name]["value"])


def _legend(looks: Mapping[str, tuple[str, str]], fitted: bool) -> list[Line2D]:
    handles = [
        Line2D([], [], marker=marker, ls="", c=colour, ms=4, label=variant)
        for variant, (colour, marker) in looks.items()
    ]
    if fitted:
        handles += [
            Line2D([], [], c=LIMIT_COLOUR, lw=1.0, ls=LIMIT_DASHES, label="launch limit"),
            Line2D([], [], c="black", lw=0.9, label="model, full warps"),
        ]
    return [*handles, Line2D([], [], c=LIMIT_COLOUR, lw=0.9, ls=":", label="1 / sectors")]


def _finding(rows: pd.DataFrame, fit: Fit) -> str:
    top = f"{gbs(rows['measured_gbs'].max())} at best"
    if fit["best"] is None:
        return f"{top} over threads and sectors of a block"
    sectors = "do not show" if fit["best"] == NONE else "count too"
    return f"{top}; the threads of a block count, the sectors that it touches {sectors}"


def _caption(rows: pd.DataFrame, fit: Fit) -> str:
    """What limits the shapes by the model, how well it knows them, and what it says of sectors."""
    if fit["best"] is None:
        return f"No model is drawn: {fit['reason']}."
    shares = rows["limit"].value_counts(normalize=True)
    limits = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    judged = fit["hypotheses"][fit["best"]]
    error = judged["held_out_error"] or judged["train_error"]
    return (
        f"Shapes by their limit in the model: {limits}; its median error is "
        f"{percent(error['median'])}. {fit['reason']}"
    )
