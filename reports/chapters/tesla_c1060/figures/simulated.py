"""Figures of simulated cells: over blocks, beside measured ones, float3 over time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from gpushmoo.figures.style import (
    DTYPE_COLOURS,
    DTYPE_MARKERS,
    OKABE_ITO,
    PAGE_WIDTH,
    apply_style,
    dtype_handles,
    save,
)
from gpushmoo.storage.store import read_table
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.lines import Line2D

from ..answers import DRAMATIC
from ..simulation.machine import LEVELS
from ..simulation.run import COALESCED, PROFILE_SCHEMA, SAME_MACHINE_SCHEMA, SIMULATION_SCHEMA
from . import DRAWN_FROM


def simulated(cells: pd.DataFrame, svg: Path) -> None:
    """A row for each level of detail, a column for each size, a line for each dtype.

    `cells` has the columns of cells.SIMULATION_SCHEMA.
    """
    apply_style()
    sizes = sorted(cells["width"].unique())
    levels = list(dict.fromkeys(cells["level"]))
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
                style = {"marker": DTYPE_MARKERS[dtype], "ms": 2.5, "lw": 0.8}
                _line(ax, line, "bandwidth_gbs", dtype, label=dtype, **style)
            ax.set_title(f"{size} × {size}, {LEVELS[level]}", fontsize=8)
            ax.set_ylim(bottom=0)
    for ax in axes[-1]:
        ax.set_xlabel("NUM_PARTITION (blocks)")
    figure.supylabel("bandwidth (GB/s, read + written)", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7.5)
    device = cells["device"].iloc[0]
    title = f"Simulated {device}: bandwidth over the number of persistent blocks"
    save(figure, svg, title, _blocks_caption(cells))


def _line(ax: Axes, cells: pd.DataFrame, column: str, dtype: str, **style: Any) -> None:
    """A column over the number of blocks, in the colour of `dtype`."""
    ax.plot(cells["num_partition"], cells[column], color=DTYPE_COLOURS[dtype], **style)


def _blocks_caption(cells: pd.DataFrame) -> str:
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
                by_level.append(f"{values} ({LEVELS[str(level)]})")
        if by_level:
            parts.append(f"{dtype}, {smallest} × {smallest}: {'; '.join(by_level)}.")
    first = cells[cells["num_partition"].isin((16, 30, 32))]
    path = first.drop_duplicates("num_partition").set_index("num_partition")
    tiles = ", ".join(
        f"{path.loc[n, 'critical_path_tiles']} of {n}" for n in (16, 30, 32) if n in path.index
    )
    return (
        f"GB/s on 16, 30 and 32 blocks: {' '.join(parts)} Tiles on the busiest SM: {tiles}. "
        "While the bus is busy all the time, the critical path has no effect. Half-warps in round "
        "robin and a fixed latency at every level. Nothing here was measured."
    )


LEVEL_LINES = {"bus": ":", "partitions": "--", "banks": "-"}


def same_machine(points: pd.DataFrame, svg: Path) -> None:
    """Bandwidth over the number of blocks at the left, error of each point at the right.

    `points` has the columns of cells.SAME_MACHINE_SCHEMA; it may be empty.
    """
    apply_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 3.1), width_ratios=(3, 2))
    if points.empty:
        left.set_axis_off()
        right.set_axis_off()
        save(figure, svg, "No such device was measured", "There is nothing to compare with.")
        return
    _bandwidth_panel(left, points)
    _error_panel(right, points)
    levels = list(dict.fromkeys(points["level"]))
    handles = dtype_handles(dict.fromkeys(points["dtype"])) + [
        Line2D([], [], color="0.3", ls=LEVEL_LINES[level], label=f"simulated: {level}")
        for level in levels
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7.5)
    device = points["device"].iloc[0]
    title = f"Simulated {device} against the measured one: block_eq_partition"
    save(figure, svg, title, _measured_caption(points, levels[-1]))


def _bandwidth_panel(ax: Axes, points: pd.DataFrame) -> None:
    for (dtype, level), part in points.groupby(["dtype", "level"], sort=False):
        _line(ax, part, "simulated_gbs", dtype, ls=LEVEL_LINES[level], lw=1)
    for dtype, part in points.groupby("dtype", sort=False):
        part = part.drop_duplicates("num_partition")
        _line(ax, part, "measured_gbs", dtype, marker=DTYPE_MARKERS[dtype], ms=4, ls="")
    _blocks_axis(ax)
    ax.set_yscale("log", base=2)
    ticks = [16, 64, 256, 1024, 4096]
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.set_ylabel("bandwidth (GB/s, read + written)")


def _error_panel(ax: Axes, points: pd.DataFrame) -> None:
    last = points[points["level"] == points["level"].iloc[-1]]
    for dtype, part in last.groupby("dtype", sort=False):
        percent = part.assign(error=100 * part["error"])
        _line(ax, percent, "error", dtype, marker=DTYPE_MARKERS[dtype], ms=4, lw=0.8)
    ax.axhline(0, color="black", lw=0.6)
    _blocks_axis(ax)
    ax.set_ylabel(f"error of level {last['level'].iloc[0]} (%)")


def _blocks_axis(ax: Axes) -> None:
    ax.set_xscale("log", base=2)
    ticks = [4**i for i in range(6)]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_xlabel("NUM_PARTITION (blocks)")


def _measured_caption(points: pd.DataFrame, level: str) -> str:
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


COPIES = (("float", 1), ("float3", 1), ("float3", 3))
# Partitions count as evenly used from this evenness on, bandwidths as equal from this ratio on.
EVENLY, AS_FAST = 0.75, 0.9


def float3(profile: pd.DataFrame, cells: pd.DataFrame, svg: Path) -> None:
    """Bursts of each partition over time above, requests that wait below.

    `profile` has the columns of PROFILE_SCHEMA, `cells` those of SIMULATION_SCHEMA, whose least
    size is that of the profile.
    """
    apply_style()
    figure, axes = plt.subplots(
        2, len(COPIES), figsize=(PAGE_WIDTH, 3.6), sharex=True, sharey="row", height_ratios=(3, 2)
    )
    most = float(profile.groupby("from_cycle")["to_cycle"].max().max())
    for column, (dtype, commands) in enumerate(COPIES):
        part = profile[(profile["dtype"] == dtype) & (profile["commands"] == commands)]
        image = _partitions(axes[0, column], part)
        axes[0, column].set_title(_copy_name(dtype, commands), fontsize=8)
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
    side = int(cells["width"].min())
    title = f"Simulated {cells['device'].iloc[0]}: coalesced copy of {side} × {side} over time"
    save(figure, svg, title, _float3_caption(cells, profile))


def _copy_name(dtype: str, commands: int) -> str:
    return f"{dtype}, one command" if commands == 1 else f"{dtype}, {commands} commands"


def _partitions(ax: Axes, part: pd.DataFrame) -> QuadMesh:
    """Draw a heat map whose cells show how evenly the bursts of a stretch of time are spread."""
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


def _float3_caption(cells: pd.DataFrame, profile: pd.DataFrame) -> str:
    copies = cells[cells["kernel"] == COALESCED].set_index(["dtype", "commands"])
    # Just as the machine is described, which comes first.
    shown = copies[
        (copies["variant"] == copies["variant"].iloc[0])
        & (copies["level"] == "banks")
        & (copies["width"] == copies["width"].min())
    ]
    parts = []
    even = 1.0
    for dtype, commands in COPIES:
        row = shown.loc[(dtype, commands)]
        part = profile[(profile["dtype"] == dtype) & (profile["commands"] == commands)]
        even = min(even, evenness(part))
        parts.append(
            f"{_copy_name(dtype, commands)}: {row['bandwidth_gbs']:.1f} GB/s, "
            f"{100 * row['row_hit_share']:.0f} % of requests find their row open, partitions "
            f"{100 * evenness(part):.0f} % even in the median stretch"
        )
    gbs = copies.set_index(["variant", "level", "width"], append=True)["bandwidth_gbs"].sort_index()
    one, three = (gbs["float3", n] / gbs["float", 1] for n in (1, 3))
    parts = ["; ".join(parts), _reason(one, three, even), "Nothing here was measured."]
    return f"{parts[0]}. {parts[1]} {parts[2]}"


def _reason(one: pd.Series[float], three: pd.Series[float], even: float) -> str:
    """What slows float3, where the simulated device shows it; `even` is of the worst panel."""
    if one.min() >= AS_FAST and three.max() < DRAMATIC and even >= EVENLY:
        return (
            "As one access of 192 bytes float3 is about as fast as float at every size and level "
            "of detail, so camping does not explain the document's collapse. Compiled code loads a "
            "structure of three floats by three commands, each of which touches all 192 bytes: "
            "three times the traffic on evenly used partitions."
        )
    return (
        f"As one access float3 gets {one.min():.2f} to {one.max():.2f} times float's bandwidth: "
        "this device does not tell camping from commands."
    )


def draw(kind: str, sources: Sequence[Path], svg: Path) -> None:
    """Draw a figure of this kind from its tables (`DRAWN_FROM`); a recorded one is copied."""
    if sources[0].suffix == svg.suffix:
        for source in sources:
            shutil.copyfile(source, svg.with_suffix(source.suffix))
        return
    schemas = {"measured": SAME_MACHINE_SCHEMA, "profile": PROFILE_SCHEMA}
    cells = [
        read_table(table, schemas.get(name, SIMULATION_SCHEMA)).to_pandas()
        for name, table in zip(DRAWN_FROM[kind], sources, strict=True)
    ]
    figures: Mapping[str, Callable[..., None]] = {
        "simulated": simulated,
        "same_machine": same_machine,
        "float3": float3,
    }
    figures[kind](*cells, svg)
