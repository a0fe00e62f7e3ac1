"""Bandwidth of a simulated device over its number of persistent blocks."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from .style import DTYPE_COLOURS, DTYPE_MARKERS, PAGE_WIDTH, apply_style, save

LEVEL_WORDS = {"bus": "one bus", "partitions": "partitions", "banks": "banks"}


def simulated(cells: pd.DataFrame, svg: Path) -> None:
    """A row for each level of detail, a column for each size, a line for each dtype.

    `cells` has the columns of schema.SIMULATION_SCHEMA.
    """
    apply_style()
    sizes, levels = sorted(cells["width"].unique()), list(dict.fromkeys(cells["level"]))
    figure, axes = plt.subplots(
        len(levels),
        len(sizes),
        figsize=(PAGE_WIDTH, 0.9 + 1.45 * len(levels)),
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for row, level in enumerate(levels):
        for column, size in enumerate(sizes):
            ax = axes[row, column]
            part = cells[(cells["level"] == level) & (cells["width"] == size)]
            for dtype, line in part.groupby("dtype", sort=False):
                line = line.sort_values("num_partition")
                ax.plot(
                    line["num_partition"],
                    line["bandwidth_gbs"],
                    color=DTYPE_COLOURS[dtype],
                    marker=DTYPE_MARKERS[dtype],
                    ms=2.5,
                    lw=0.8,
                    label=dtype,
                )
            ax.set_title(f"{size} × {size}, {LEVEL_WORDS[level]}", fontsize=8)
            ax.set_ylim(bottom=0)
    for ax in axes[-1]:
        ax.set_xlabel("NUM_PARTITION (blocks)")
    figure.supylabel("bandwidth (GB/s, read + written)", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7.5)
    device = cells["device"].iloc[0]
    title = f"Simulated {device}: bandwidth over the number of persistent blocks"
    save(figure, svg, title, _caption(cells))


def _caption(cells: pd.DataFrame) -> str:
    """The finding: what the critical path does at 16, 30 and 32 blocks, level by level."""
    smallest = int(cells["width"].min())
    parts = []
    for dtype in ("float", "double"):
        part = cells[(cells["width"] == smallest) & (cells["dtype"] == dtype)]
        by_level = []
        for level, rows in part.groupby("level", sort=False):
            table = rows.set_index("num_partition")
            shown = [n for n in (16, 30, 32) if n in table.index]
            if shown:
                values = ", ".join(f"{table.loc[n, 'bandwidth_gbs']:.1f}" for n in shown)
                by_level.append(f"{values} ({LEVEL_WORDS[str(level)]})")
        if by_level:
            parts.append(f"{dtype}, {smallest} × {smallest}: {'; '.join(by_level)}.")
    first = cells[cells["num_partition"].isin((16, 30, 32))]
    path = first.drop_duplicates("num_partition").set_index("num_partition")
    tiles = ", ".join(
        f"{path.loc[n, 'critical_path_tiles']} of {n}" for n in (16, 30, 32) if n in path.index
    )
    return (
        f"GB/s on 16, 30 and 32 blocks: {' '.join(parts)} Tiles on the busiest SM: {tiles}. "
        "Where the bus is busy all the time, the critical path shows no more. Half-warps in round "
        "robin and a fixed latency at every level. Nothing here was measured."
    )
