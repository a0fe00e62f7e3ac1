"""The coalesced copy at the partitions of a simulated device over time, by element type."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from ..answers import Sizes, answers, commands_slow_float3

KERNEL = "copy2d_coalesced"
SHOWN = (("float", 1), ("float3", 1), ("float3", 3))
# From this evenness on partitions count as evenly used.
EVEN = 0.75


def float3(cells: pd.DataFrame, profile: pd.DataFrame, svg: Path) -> None:
    """Bursts of each partition over time above, requests that wait below.

    `profile` has the columns of schema.PROFILE_SCHEMA, `cells` those of SIMULATION_SCHEMA, whose
    first size is that of the profile.
    """
    apply_style()
    figure, axes = plt.subplots(
        2, len(SHOWN), figsize=(PAGE_WIDTH, 3.6), sharex=True, sharey="row", height_ratios=(3, 2)
    )
    most = float(profile.groupby("from_cycle")["to_cycle"].max().max())
    for column, (dtype, commands) in enumerate(SHOWN):
        part = profile[(profile["dtype"] == dtype) & (profile["commands"] == commands)]
        image = _partitions(axes[0, column], part)
        axes[0, column].set_title(_name(dtype, commands), fontsize=8)
        _waiting(axes[1, column], part)
        axes[1, column].set_xlim(0, most / 1e3)
        axes[1, column].set_xlabel("time (1000 core cycles)")
    # The panels share the axis, so that its end has to hold for all.
    longest = profile.groupby(["dtype", "commands", "from_cycle"])["waiting"].sum().max()
    axes[1, 0].set_ylim(0, 1.05 * longest)
    axes[0, 0].set_ylabel("partition")
    axes[1, 0].set_ylabel("requests waiting,\nall partitions")
    bar = figure.colorbar(image, ax=axes[0, :], pad=0.01, aspect=15)
    bar.set_label("share of the busiest\npartition's bursts", fontsize=7)
    side = int(cells["width"].iloc[0])
    title = f"Simulated {cells['device'].iloc[0]}: coalesced copy of {side} × {side} over time"
    save(figure, svg, title, _caption(cells, profile))


def _name(dtype: str, commands: int) -> str:
    return f"{dtype}, one command" if commands == 1 else f"{dtype}, {commands} commands"


def _partitions(ax: Axes, part: pd.DataFrame) -> QuadMesh:
    """A heat map whose cells tell how evenly the bursts of a stretch of time are spread."""
    table = part.pivot_table(index="partition", columns="from_cycle", values="bursts")
    share = table / table.max(axis=0).where(table.max(axis=0) > 0)
    edges = [*table.columns, part["to_cycle"].max()]
    ax.set_yticks(range(0, len(table), 2))
    return ax.pcolormesh(
        [e / 1e3 for e in edges],
        [p - 0.5 for p in range(len(table) + 1)],
        share.to_numpy(),
        cmap="cividis",
        vmin=0,
        vmax=1,
        rasterized=True,
    )


def _waiting(ax: Axes, part: pd.DataFrame) -> None:
    total = part.groupby("from_cycle")["waiting"].sum()
    ax.step(total.index / 1e3, total, where="post", color=OKABE_ITO[0], lw=1)


def evenness(part: pd.DataFrame) -> float:
    """Mean bursts of a partition over those of the busiest, in the median stretch of time."""
    table = part.pivot_table(index="partition", columns="from_cycle", values="bursts")
    table = table.loc[:, table.sum(axis=0) > 0]
    return float((table.mean(axis=0) / table.max(axis=0)).median())


def _caption(cells: pd.DataFrame, profile: pd.DataFrame) -> str:
    copies = cells[(cells["kernel"] == KERNEL) & (cells["width"] == cells["width"].iloc[0])]
    variant = "half clock: banks, choice of 32"
    by = copies[copies["variant"] == variant].set_index(["dtype", "commands"])
    parts, even = [], 1.0
    for dtype, commands in SHOWN:
        row = by.loc[(dtype, commands)]
        part = profile[(profile["dtype"] == dtype) & (profile["commands"] == commands)]
        even = min(even, evenness(part))
        parts.append(
            f"{_name(dtype, commands)}: {row['bandwidth_gbs']:.1f} GB/s, "
            f"{100 * row['row_hit_share']:.0f} % of requests find their row open, partitions "
            f"{100 * evenness(part):.0f} % even in the median stretch"
        )
    shown = ". ".join(["; ".join(parts), _reason(answers(cells), even)])
    return f"{shown} Nothing here was measured."


def _reason(sizes: Sizes, even: float) -> str:
    """What slows float3, where the simulated device shows it; `even` is of the worst panel."""
    if commands_slow_float3(sizes) and even >= EVEN:
        return (
            "As one access of 192 bytes float3 is about as fast as float at every size and level "
            "of detail, so camping does not explain the document's collapse. Compiled code loads a "
            "structure of three floats by three commands, each of which touches all 192 bytes: "
            "three times the traffic on evenly used partitions."
        )
    ratios = [a.float3_over_float(1) for by in sizes.values() for a in by.values()]
    return (
        f"As one access float3 gets {min(ratios):.2f} to {max(ratios):.2f} times float's bandwidth "
        "over all variants: this device does not tell camping from commands."
    )
