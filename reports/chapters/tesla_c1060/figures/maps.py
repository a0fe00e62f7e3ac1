"""Figures 2 to 5, 9, 10, 27 and 28: tiles, their partitions, their order, their SMs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from gpushmoo.figures.style import PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes

from .. import maps
from ..maps import SmLoad, Stretch
from ..simulation.machine import Machine
from ..simulation.tiling import Tiling
from .drawing import CELL_SIZE, NEUTRAL, NOTE_SIZE, Drawing, cell, frame, partition_colour

SIDE = 256
FLOAT, DOUBLE, FLOAT3 = ("float", 4), ("double", 8), ("float3", 12)
ROWS_SHOWN = 8


def tile_ids(machine: Machine, svg: Path) -> None:
    """Figure 2: the tiles of the coalesced copy, and how the threads of a block share one."""
    apply_style()
    tiling = Tiling.square_tiles(SIDE, FLOAT[1])
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.7))
    for tile in range(tiling.n_tiles):
        y, x = divmod(tile, tiling.tiles_x)
        cell(left, (x, y), (1, 1), "white", str(tile), points=NOTE_SIZE)
    _tile_axes(left, tiling, "tile = block")
    rows = tiling.tile_height // tiling.items
    for item in range(tiling.items):
        text = f"element {item} of each thread"
        size = (tiling.tile_width, rows)
        cell(right, (0, item * rows), size, NEUTRAL, text, points=NOTE_SIZE)
    right.set_title("one tile", fontsize=NOTE_SIZE)
    right.set_xlim(0, tiling.tile_width)
    right.set_ylim(tiling.tile_height, 0)
    right.set_xticks(range(0, tiling.tile_width + 1, machine.half_warp))
    right.set_yticks(range(0, tiling.tile_height + 1, rows))
    right.set_xlabel("column (elements)")
    right.set_ylabel("row (elements)")
    half_warps = tiling.threads // machine.half_warp
    caption = (
        f"Left: the {tiling.n_tiles} tiles of {SIDE} × {SIDE} elements, numbered row by row; each "
        f"is copied by one block. Right: a tile of {tiling.tile_width} × {tiling.tile_height} "
        f"elements, of which each of the {tiling.threads} threads "
        f"({tiling.tile_width} × {rows}, {half_warps} half-warps) copies {tiling.items}, "
        f"{rows} rows apart."
    )
    save(figure, svg, "Figure 2: tiles of the coalesced copy", caption)


def tile_partition_map(dtype: tuple[str, int], number: int, machine: Machine, svg: Path) -> None:
    """Figures 3 to 5: partitions of the tiles' first rows, and of the array's first rows."""
    apply_style()
    tiling = Tiling.square_tiles(SIDE, dtype[1])
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 2.8))
    for tile in range(tiling.n_tiles):
        y, x = divmod(tile, tiling.tiles_x)
        _stretches(left, tiling, maps.tile_row_stretches(machine, tiling, tile), y)
        frame(left, (x, y), (1, 1))
    _tile_axes(left, tiling, "partition of the first row of each tile")
    for row in range(ROWS_SHOWN):
        _stretches(right, tiling, maps.row_stretches(machine, tiling, row), row)
    _tile_axes(right, tiling, "partitions of the first rows of the array")
    right.set_ylim(ROWS_SHOWN, 0)
    right.set_yticks([r + 0.5 for r in range(ROWS_SHOWN)], [str(r) for r in range(ROWS_SHOWN)])
    right.set_ylabel("row of the array")
    title = f"Figure {number}: partitions of {dtype[0]} tiles"
    save(figure, svg, title, _partition_caption(machine, tiling, dtype[0]))


def _partition_caption(machine: Machine, tiling: Tiling, dtype: str) -> str:
    row_bytes, tile_bytes = tiling.width * tiling.itemsize, tiling.tile_width * tiling.itemsize
    touched = [maps.tile_partitions(machine, tiling, t) for t in range(tiling.tiles_x)]
    first = {s.partition for s in maps.row_stretches(machine, tiling, 0)}
    second = maps.row_stretches(machine, tiling, 1)[0].partition
    shift = (
        "every row of the array begins in the same partition"
        if not second and row_bytes % machine.partition_bytes == 0
        else f"row 1 of the array begins in partition {second}, not 0"
    )
    text = (
        f"Cells carry their partition's number. A row of a tile is {tile_bytes} bytes, a row of "
        f"the array {row_bytes}; {shift}. Each tile lies in {_range(map(len, touched))} of "
        f"{machine.partitions} partitions. The first rows of the {tiling.tiles_x} tiles side by "
        f"side lie in {len(first)} partitions, all their rows in {len(set().union(*touched))}."
    )
    pair = {s.partition for t in (0, 1) for s in maps.tile_row_stretches(machine, tiling, t)}
    if dtype == FLOAT[0]:
        text += (
            f" The document gives two float tiles side by side one partition and so asks for 16 "
            f"blocks to reach all. A row of two tiles does lie in {len(pair)}, but the rows of "
            f"even one tile lie in {len(touched[0])}."
        )
    if dtype == FLOAT3[0]:
        text += (
            f" The document says 378 for the {tile_bytes} bytes, and that two tiles side by side "
            f"occupy two partitions; within a row they lie in {len(pair)}."
        )
    return text


def execution_orders(counts: tuple[int, int], number: int, machine: Machine, svg: Path) -> None:
    """Figures 9 and 10: the step at which each tile of doubles is copied, for two grids."""
    apply_style()
    tiling = Tiling.partition_wide(machine, SIDE, DOUBLE[1])
    figure, axes = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 3.5))
    findings = []
    for ax, count in zip(axes, counts, strict=True):
        turns = maps.execution_order(tiling, count)
        _numbered_tiles(ax, machine, tiling, [str(turn.step) for turn in turns])
        for turn in turns:
            if turn.step == 0:
                frame(ax, divmod(turn.tile, tiling.tiles_x)[::-1], (1, 1))
        _tile_axes(ax, tiling, f"NUM_PARTITION = {count}")
        used = maps.partitions_by_step(machine, tiling, count)
        findings.append(
            f"{count} block{'s need' if count > 1 else ' needs'} {len(used)} steps, each of which "
            f"uses {_range(map(len, used))} of {machine.partitions} partitions"
        )
    caption = (
        f"Each cell is a tile of {tiling.tile_width} × {tiling.tile_height} doubles: at its left "
        f"the partition of its first row, at its right its step. Outlined: the tiles of step 0, "
        f"one for each block; the next step takes the tiles to their right, then those below. "
        f"{'; '.join(findings)}."
    )
    names = " and ".join(str(c) for c in counts)
    save(figure, svg, f"Figure {number}: order of the tiles for NUM_PARTITION {names}", caption)


def double_tiles(machine: Machine, svg: Path) -> None:
    """Figure 27: all tiles of blockEqPartition for double, with their partitions."""
    apply_style()
    tiling = Tiling.partition_wide(machine, SIDE, DOUBLE[1])
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.2))
    _numbered_tiles(ax, machine, tiling, [f"tile {t}" for t in range(tiling.n_tiles)])
    _tile_axes(ax, tiling)
    touched = [len(maps.tile_partitions(machine, tiling, t)) for t in range(tiling.n_tiles)]
    caption = (
        f"{SIDE} × {SIDE} doubles in tiles of {tiling.tile_width} × {tiling.tile_height}: "
        f"{tiling.tiles_x} × {tiling.tiles_y} = {tiling.n_tiles} tiles, each "
        f"{tiling.tile_width * tiling.itemsize} bytes wide, in {_range(touched)} of "
        f"{machine.partitions} partitions. At the left of a cell: the partition of the tile's "
        f"first row."
    )
    title = f"Figure 27: the {tiling.n_tiles} tiles of {SIDE} × {SIDE} doubles"
    save(figure, svg, title, caption, tiles=tiling.n_tiles)


def sm_loads(machine: Machine, svg: Path) -> None:
    """Figure 28: the blocks and tiles of each SM for 32 and 30 blocks."""
    apply_style()
    tiling = Tiling.partition_wide(machine, SIDE, DOUBLE[1])
    counts = (32, 30)
    loads = [maps.assign_blocks(machine, tiling, count) for count in counts]
    highest = [max(load.n_tiles for load in run) for run in loads]
    figure, axes = plt.subplots(
        2, 1, sharex=True, figsize=(PAGE_WIDTH, 3.5), height_ratios=[h + 0.6 for h in highest]
    )
    for ax, count, run, most in zip(axes, counts, loads, highest, strict=True):
        for load in run:
            _sm_column(ax, load)
        for load in maps.critical_sms(run):
            frame(ax, (load.sm - 0.5, 0), (1, load.n_tiles))
        ax.set_title(f"NUM_PARTITION = {count}", fontsize=NOTE_SIZE, pad=2)
        ax.set_xlim(-0.6, machine.n_sm - 0.4)
        ax.set_ylim(0, most + 0.2)
        ax.set_ylabel("tiles (count)", fontsize=NOTE_SIZE)
        ax.yaxis.get_major_locator().set_params(integer=True)
    axes[1].set_xlabel("SM (index)")
    axes[1].set_xticks(range(0, machine.n_sm, 2 if machine.n_sm <= 40 else 8))
    title = "Figure 28: tiles of each SM for NUM_PARTITION 32 and 30"
    critical = {str(count): most for count, most in zip(counts, highest, strict=True)}
    caption = _load_caption(machine, tiling, dict(zip(counts, loads, strict=True)))
    save(figure, svg, title, caption, critical_tiles=critical)


def _load_caption(machine: Machine, tiling: Tiling, loads: Mapping[int, tuple[SmLoad, ...]]) -> str:
    sixteen = maps.critical_sms(maps.assign_blocks(machine, tiling, 16))[0].n_tiles
    paths = "; ".join(f"at {count} blocks {_path(run)}" for count, run in loads.items())
    most = max(len(load.blocks) for load in loads[30])
    return (
        f"Cells are tiles with their numbers; the lowest number of a block is the block's own, and "
        f"a second block of an SM is grey. Outlined: the critical path, {paths}. For 16 blocks it "
        f"is {sixteen} tiles. Where the document counts thread blocks in an SM at 30 blocks it "
        f"means tiles: an SM has at most {most} block{'s' if most > 1 else ''} then."
    )


def _path(loads: tuple[SmLoad, ...]) -> str:
    """'8 tiles on SM0 and SM1'."""
    longest = maps.critical_sms(loads)
    names = [f"SM{load.sm}" for load in longest]
    consecutive = longest[-1].sm - longest[0].sm == len(longest) - 1
    several = len(names) > 2 and consecutive
    where = f"{names[0]} to {names[-1]}" if several else " and ".join(names)
    return f"{longest[0].n_tiles} tiles on {where}"


def _sm_column(ax: Axes, load: SmLoad) -> None:
    """The tiles of one SM on top of each other, in the order of its blocks."""
    height = 0
    for order, tiles in enumerate(load.tiles):
        for tile in tiles:
            colour = NEUTRAL if order % 2 else "white"
            cell(ax, (load.sm - 0.5, height), (1, 1), colour, str(tile))
            height += 1


def _stretches(ax: Axes, tiling: Tiling, stretches: Sequence[Stretch], y: int) -> None:
    """Cells of one row, as wide as they are in tiles, with their partitions' numbers."""
    tile_bytes = tiling.tile_width * tiling.itemsize
    for s in stretches:
        corner, size = (s.start / tile_bytes, y), (s.n_bytes / tile_bytes, 1)
        cell(ax, corner, size, partition_colour(s.partition), str(s.partition), points=NOTE_SIZE)


def _numbered_tiles(ax: Axes, machine: Machine, tiling: Tiling, labels: Sequence[str]) -> None:
    """All tiles in the colour of their first row's partition, which stands at the left."""
    for tile, label in enumerate(labels):
        y, x = divmod(tile, tiling.tiles_x)
        partition = maps.tile_row_stretches(machine, tiling, tile)[0].partition
        cell(ax, (x, y), (1, 1), partition_colour(partition))
        style: dict[str, Any] = {"fontsize": CELL_SIZE, "va": "center_baseline"}
        ax.text(x + 0.05, y + 0.5, f"p{partition}", style="italic", **style)
        ax.text(x + 0.95, y + 0.5, label, ha="right", **style)


def _tile_axes(ax: Axes, tiling: Tiling, title: str = "") -> None:
    """One unit for each tile, y downwards as rows lie in memory."""
    ax.set_title(title, fontsize=NOTE_SIZE)
    ax.set_xlim(0, tiling.tiles_x)
    ax.set_ylim(tiling.tiles_y, 0)
    ax.set_xticks([x + 0.5 for x in range(tiling.tiles_x)], map(str, range(tiling.tiles_x)))
    ax.set_yticks([y + 0.5 for y in range(tiling.tiles_y)], map(str, range(tiling.tiles_y)))
    ax.tick_params(length=0, labelsize=NOTE_SIZE)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlabel(f"x tile index (tiles of {tiling.tile_width} elements)")
    ax.set_ylabel(f"y tile index (tiles of {tiling.tile_height} rows)")


def _range(counts: Iterable[int]) -> str:
    """'2', or '2 to 4'."""
    values = sorted(set(counts))
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


DRAWINGS: tuple[Drawing, ...] = (
    Drawing(2, "copy2D_coalesced_p1.jpg", tile_ids),
    Drawing(3, "copy2D_coalesced_p2.jpg", partial(tile_partition_map, DOUBLE, 3)),
    Drawing(4, "copy2D_coalesced_p3.jpg", partial(tile_partition_map, FLOAT, 4)),
    Drawing(5, "copy2D_coalesced_p4.jpg", partial(tile_partition_map, FLOAT3, 5)),
    Drawing(9, "blockEqPartition_p1.jpg", partial(execution_orders, (1, 2), 9)),
    Drawing(10, "blockEqPartition_p2.jpg", partial(execution_orders, (4, 8), 10)),
    Drawing(27, "blockEqPartition_p22.jpg", double_tiles),
    Drawing(28, "blockEqPartition_p23.jpg", sm_loads),
)
