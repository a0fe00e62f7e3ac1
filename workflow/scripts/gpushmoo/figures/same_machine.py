"""A simulated device against the measured one of its name, point by point."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .style import DTYPE_COLOURS, DTYPE_MARKERS, PAGE_WIDTH, apply_style, dtype_handles, save

LEVEL_LINES = {"bus": ":", "partitions": "--", "banks": "-"}


def same_machine(points: pd.DataFrame, svg: Path) -> None:
    """Bandwidth over the number of blocks at the left, error of each point at the right.

    `points` has the columns of schema.SAME_MACHINE_SCHEMA; it may be empty.
    """
    apply_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 3.1), width_ratios=(3, 2))
    if points.empty:
        left.set_axis_off()
        right.set_axis_off()
        save(figure, svg, "No such device was measured", "There is nothing to compare with.")
        return
    _bandwidths(left, points)
    _errors(right, points)
    levels = list(dict.fromkeys(points["level"]))
    handles = dtype_handles(dict.fromkeys(points["dtype"])) + [
        Line2D([], [], color="0.3", ls=LEVEL_LINES[level], label=f"simulated: {level}")
        for level in levels
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7.5)
    device = points["device"].iloc[0]
    title = f"Simulated {device} against the measured one: block_eq_partition"
    save(figure, svg, title, _caption(points, levels[-1]))


def _bandwidths(ax: Axes, points: pd.DataFrame) -> None:
    for (dtype, level), part in points.groupby(["dtype", "level"], sort=False):
        ax.plot(
            part["num_partition"],
            part["simulated_gbs"],
            color=DTYPE_COLOURS[dtype],
            ls=LEVEL_LINES[level],
            lw=1,
        )
    for dtype, part in points.groupby("dtype", sort=False):
        part = part.drop_duplicates("num_partition")
        ax.plot(
            part["num_partition"],
            part["measured_gbs"],
            color=DTYPE_COLOURS[dtype],
            marker=DTYPE_MARKERS[dtype],
            ms=4,
            ls="",
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ticks = [4**i for i in range(6)]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ticks = [16, 64, 256, 1024, 4096]
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.set_xlabel("NUM_PARTITION (blocks)")
    ax.set_ylabel("bandwidth (GB/s, read + written)")


def _errors(ax: Axes, points: pd.DataFrame) -> None:
    last = points[points["level"] == points["level"].iloc[-1]]
    for dtype, part in last.groupby("dtype", sort=False):
        ax.plot(
            part["num_partition"],
            100 * part["error"],
            color=DTYPE_COLOURS[dtype],
            marker=DTYPE_MARKERS[dtype],
            ms=4,
            lw=0.8,
        )
    ax.axhline(0, color="black", lw=0.6)
    ax.set_xscale("log", base=2)
    ticks = [4**i for i in range(6)]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_xlabel("NUM_PARTITION (blocks)")
    ax.set_ylabel(f"error of level {last['level'].iloc[0]} (%)")


def _caption(points: pd.DataFrame, level: str) -> str:
    last = points[points["level"] == level]
    errors = last["error"].abs()
    worst = last.loc[errors.idxmax()]
    others = [
        f"{100 * part['error'].abs().median():.0f} % at level {name}"
        for name, part in points.groupby("level", sort=False)
        if name != level
    ]
    parts = [
        f"At level {level} half of the points are off by less than {100 * errors.median():.1f} % "
        f"({', '.join(others)}), the worst, {worst['dtype']} on {worst['num_partition']} blocks, "
        f"by {100 * worst['error']:+.0f} %."
        if others
        else f"Half of the points are off by less than {100 * errors.median():.1f} %."
    ]
    for dtype, part in last.groupby("dtype", sort=False):
        table = part.set_index("num_partition")
        past = [n for n in table.index if n - 1 in table.index and n > 500]
        parts += [
            f"From {n - 1} to {n} blocks {dtype} falls to "
            f"{100 * table['measured_gbs'][n] / table['measured_gbs'][n - 1]:.0f} % measured, "
            f"{100 * table['simulated_gbs'][n] / table['simulated_gbs'][n - 1]:.0f} % simulated."
            for n in past
        ]
    parts.append(
        "The simulation's parameters were measured apart from these points, or are typical."
    )
    return " ".join(parts)
