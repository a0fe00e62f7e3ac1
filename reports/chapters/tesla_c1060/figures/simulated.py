"""Figures of simulated cells: over blocks, beside measured ones, questions, float3 over time."""

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

from ..answers import (
    ALONE,
    BOARD,
    COALESCED,
    EVEN,
    Answer,
    Sizes,
    answers,
    commands_slow_float3,
    named,
    second_blocks_slow_double,
    signed,
)
from ..simulation.machine import LEVELS, Level
from ..simulation.run import PROFILE_SCHEMA, SAME_MACHINE_SCHEMA, SIMULATION_SCHEMA
from . import DRAWN_FROM


def simulated(cells: pd.DataFrame, svg: Path) -> None:
    """A row for each level of detail, a column for each size, a line for each dtype.

    `cells` has the columns of cells.SIMULATION_SCHEMA.
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
        "Where the bus is busy all the time, the critical path shows no more. Half-warps in round "
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


BLOCK_LOOKS = {16: (OKABE_ITO[0], "o"), 30: (OKABE_ITO[2], "D"), 32: (OKABE_ITO[1], "s")}


def questions(cells: pd.DataFrame, svg: Path) -> None:
    """One row for each variant of the machine, a panel for float and one for double.

    `cells` has the columns of cells.SIMULATION_SCHEMA; their first size is drawn.
    """
    apply_style()
    sizes = answers(cells)
    side, variants = next((side, list(by.values())) for side, by in sizes.items())
    figure, axes = plt.subplots(
        1, 2, figsize=(PAGE_WIDTH, 0.9 + 0.22 * len(variants)), sharey=True, sharex=True
    )
    for ax, dtype in zip(axes, ("float", "double"), strict=True):
        _variant_panel(ax, variants, dtype)
    axes[0].set_yticks(range(len(variants)), [a.variant for a in variants], fontsize=7)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7.5)
    title = f"Simulated {cells['device'].iloc[0]}: 16, 30 and 32 blocks, {side} × {side}"
    save(figure, svg, title, _questions_caption(sizes))


def _variant_panel(ax: Axes, variants: list[Answer], dtype: str) -> None:
    for row, answer in enumerate(variants):
        values = [answer.gbs[dtype, n] for n in BLOCK_LOOKS]
        ax.plot([min(values), max(values)], [row, row], color="0.75", lw=1.2, zorder=1)
    for n, (colour, marker) in BLOCK_LOOKS.items():
        ax.scatter(
            [a.gbs[dtype, n] for a in variants],
            range(len(variants)),
            s=18,
            color=colour,
            marker=marker,
            label=f"{n} blocks",
            zorder=2,
        )
    ax.set_title(dtype, fontsize=8)
    ax.set_xlabel("bandwidth (GB/s, read + written)")
    ax.set_xlim(left=0)
    ax.grid(axis="y", lw=0.4, color="0.9")


def _questions_caption(sizes: Sizes) -> str:
    side, shown = next(iter(sizes.items()))
    board, alone, even = (shown[named(BOARD, Level.BUS, c)] for c in ("", ALONE, EVEN))
    if second_blocks_slow_double(sizes):
        words = (
            "If an SM takes its second block after its first, with the memory at the board's clock "
            f"on one bus, double falls from 16 to 32 blocks by {-100 * alone.double_change:.0f} %: "
            f"for {100 * alone.lonely_share:.0f} % of the time the SMs with two blocks work alone "
            "and leave the bus idle, which 16 blocks of double keep busy; float does "
            f"{signed(alone.float_change)}. So it is at every size and level. On 32 SMs double "
            f"does {signed(even.double_change)}."
        )
    else:
        words = (
            "With the memory at the board's clock, on one bus, double does from 16 to 32 blocks "
            f"{signed(board.double_change)}, with one block an SM at a time "
            f"{signed(alone.double_change)}, on 32 SMs {signed(even.double_change)}."
        )
    whole = [a.variant for a in shown.values() if a.shows_all]
    facts = (
        f"All three facts of the document (float as it was, double slower, 30 best) come out at "
        f"{side}² for: {'; '.join(whole)}."
        if whole
        else f"In no variant do all three facts of the document come out at {side}²."
    )
    return f"{words} {facts} Nothing here was measured."


COPIES = (("float", 1), ("float3", 1), ("float3", 3))
# From this evenness on partitions count as evenly used.
EVENLY = 0.75


def float3(cells: pd.DataFrame, profile: pd.DataFrame, svg: Path) -> None:
    """Bursts of each partition over time above, requests that wait below.

    `profile` has the columns of cells.PROFILE_SCHEMA, `cells` those of SIMULATION_SCHEMA, whose
    first size is that of the profile.
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
    side = int(cells["width"].iloc[0])
    title = f"Simulated {cells['device'].iloc[0]}: coalesced copy of {side} × {side} over time"
    save(figure, svg, title, _float3_caption(cells, profile))


def _copy_name(dtype: str, commands: int) -> str:
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


def _float3_caption(cells: pd.DataFrame, profile: pd.DataFrame) -> str:
    copies = cells[(cells["kernel"] == COALESCED) & (cells["width"] == cells["width"].iloc[0])]
    variant = "half clock: banks, choice of 32"
    by = copies[copies["variant"] == variant].set_index(["dtype", "commands"])
    parts, even = [], 1.0
    for dtype, commands in COPIES:
        row = by.loc[(dtype, commands)]
        part = profile[(profile["dtype"] == dtype) & (profile["commands"] == commands)]
        even = min(even, evenness(part))
        parts.append(
            f"{_copy_name(dtype, commands)}: {row['bandwidth_gbs']:.1f} GB/s, "
            f"{100 * row['row_hit_share']:.0f} % of requests find their row open, partitions "
            f"{100 * evenness(part):.0f} % even in the median stretch"
        )
    shown = ". ".join(["; ".join(parts), _reason(answers(cells), even)])
    return f"{shown} Nothing here was measured."


def _reason(sizes: Sizes, even: float) -> str:
    """What slows float3, where the simulated device shows it; `even` is of the worst panel."""
    if commands_slow_float3(sizes) and even >= EVENLY:
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
        "questions": questions,
        "float3": float3,
    }
    figures[kind](*cells, svg)
