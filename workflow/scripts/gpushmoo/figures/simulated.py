"""Bandwidth of a simulated device over its number of persistent blocks."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from .style import DTYPE_COLOURS, DTYPE_MARKERS, PAGE_WIDTH, apply_style, save


def simulated(cells: pd.DataFrame, svg: Path) -> None:
    """One panel for each size, one line for each dtype; labelled as simulated.

    `cells` has the columns of schema.SIMULATION_SCHEMA.
    """
    apply_style()
    sizes = sorted(cells["width"].unique())
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(PAGE_WIDTH, 2.9), squeeze=False, sharey=True
    )
    for ax, size in zip(axes[0], sizes, strict=True):
        for dtype, part in cells[cells["width"] == size].groupby("dtype", sort=False):
            part = part.sort_values("num_partition")
            ax.plot(
                part["num_partition"],
                part["bandwidth_gbs"],
                color=DTYPE_COLOURS[dtype],
                marker=DTYPE_MARKERS[dtype],
                ms=3,
                lw=0.9,
                label=dtype,
            )
        ax.set_title(f"{size} × {size}, simulated", fontsize=8)
        ax.set_xlabel("NUM_PARTITION (blocks)")
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("bandwidth (GB/s, read + written)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7.5)
    device = cells["device"].iloc[0]
    title = f"Simulated {device}: bandwidth over the number of persistent blocks"
    save(figure, svg, title, _caption(cells))


def _caption(cells: pd.DataFrame) -> str:
    """The finding: what the critical path does at 16, 30 and 32 blocks, and where the bus rules."""
    smallest = int(cells["width"].min())
    parts = []
    for dtype in ("float", "double"):
        part = cells[(cells["width"] == smallest) & (cells["dtype"] == dtype)]
        table = part.set_index("num_partition")
        shown = [n for n in (16, 30, 32) if n in table.index]
        if not shown:
            continue
        rows = [table.loc[n] for n in shown]
        parts.append(
            f"{dtype}, {smallest} × {smallest}: "
            + "; ".join(
                f"{n} blocks give {row['bandwidth_gbs']:.1f} GB/s ({row['critical_path_tiles']} "
                f"tiles on the busiest SM, bus busy {100 * row['bus_busy_share']:.0f} %)"
                for n, row in zip(shown, rows, strict=True)
            )
            + "."
        )
    return (
        " ".join(parts) + " Where the bus is busy all the time, the critical path shows no more; "
        "that double gets slower from 16 to 32 blocks, as the document measured, does not follow "
        f"from these assumptions ({cells['assumptions'].iloc[0]}). Nothing here was measured."
    )
