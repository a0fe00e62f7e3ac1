"""Drawings of the memory: coalescing, partitions of tiles, and reads of one device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from gpushmoo.figures.style import PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from .. import memory as maps
from ..memory import (
    SmLoad,
    Stage,
    StageSpan,
    Stretch,
    Transaction,
    banks_of,
    burst_beats,
    burst_duration,
    compiled_loads,
    consecutive_reads,
    pipelined_reads,
    read_cycle,
    whole_accesses,
)
from ..simulation.machine import Machine, Tiling, read_cycle_cycles
from .drawing import CELL_SIZE, NEUTRAL, NOTE_SIZE, Drawing, cell, frame, partition_colour

FLOAT, DOUBLE, FLOAT3 = 4, 8, 12
TRANSACTION_FILL = "#FFFFFF"


@dataclass(frozen=True)
class _Access:
    """A band of the figure: what each thread reads with one instruction, and what moves."""

    label: str
    word_bytes: int
    addresses: Sequence[int]
    transactions: Sequence[Transaction]


def coalesced_pattern(machine: Machine, svg: Path) -> None:
    """Words of the threads above the transactions that serve them, for each instruction."""
    apply_style()
    accesses = _accesses(machine)
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.4))
    for band, access in enumerate(accesses):
        _band(ax, band, access)
    longest = max(t.address + t.n_bytes for a in accesses for t in a.transactions)
    ax.set_xlim(-1, longest + 1)
    ax.set_ylim(len(accesses) - 0.1, -0.15)
    ax.set_xticks(range(0, longest + 1, 32))
    ax.set_yticks([band + 0.4 for band in range(len(accesses))], [a.label for a in accesses])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("address (bytes from a segment's begin)")
    save(figure, svg, "Figure 1: coalescing of a half-warp's reads", _coalescing_caption(machine))


def _accesses(machine: Machine) -> list[_Access]:
    threads = range(machine.half_warp)
    accesses = []
    for name, itemsize in (("float", FLOAT), ("double", DOUBLE), ("float3,\nas counted", FLOAT3)):
        moved = whole_accesses(itemsize, threads=machine.half_warp)
        accesses.append(_Access(name, itemsize, [t * itemsize for t in threads], moved))
    for number, load in enumerate(compiled_loads(FLOAT3, threads=machine.half_warp), 1):
        label = f"float3 as\ncompiled, {number}"
        accesses.append(_Access(label, load.word_bytes, load.addresses, load.transactions))
    return accesses


def _band(ax: Axes, band: int, access: _Access) -> None:
    for thread, address in enumerate(access.addresses):
        cell(ax, (address, band), (access.word_bytes, 0.36), NEUTRAL, str(thread), points=5.5)
    for t in access.transactions:
        corner = (t.address, band + 0.41)
        size = (t.n_bytes, 0.36)
        cell(ax, corner, size, TRANSACTION_FILL, f"{t.n_bytes} bytes", points=NOTE_SIZE)


def _coalescing_caption(machine: Machine) -> str:
    single, double, counted = (
        whole_accesses(size, threads=machine.half_warp) for size in (FLOAT, DOUBLE, FLOAT3)
    )
    loads = compiled_loads(FLOAT3, threads=machine.half_warp)
    issued = [t for load in loads for t in load.transactions]
    moved = sum(t.n_bytes for t in issued)
    useful = machine.half_warp * FLOAT3
    n = machine.half_warp
    return (
        f"Grey: the words that a half-warp reads with one instruction, numbered by thread; white: "
        f"the transactions that serve them, by the rule of compute capability 1.2 and 1.3 "
        f"(the document's 2.3 is the version of the guide). "
        f"{n} float take {_sizes(single)} and {n} double {_sizes(double)}. "
        f"{n} float3 take {_sizes(counted)} if one instruction could read a float3 (it is float3, "
        f"not float, that needs two: a slip of the document). But float3 is aligned to 4 bytes "
        f"only, so a compiler emits {len(loads)} loads at a stride of {FLOAT3} bytes, and each "
        f"touches the same {useful} bytes: {len(issued)} transactions move {moved} bytes, "
        f"{moved / useful:.3g} times the useful {useful}. This alone, without partition camping, "
        f"can make float3 {moved / useful:.3g} times slower than float, byte for byte."
    )


def _sizes(issued: Sequence[Transaction]) -> str:
    """'2 transactions (128 + 64 bytes)'."""
    plural = "s" if len(issued) > 1 else ""
    return f"{len(issued)} transaction{plural} ({' + '.join(str(t.n_bytes) for t in issued)} bytes)"


_COALESCING_DRAWINGS: tuple[Drawing, ...] = (
    Drawing(1, "coalesced_pattern.jpg", coalesced_pattern),
)


SIDE = 256
MAP_FLOAT, MAP_DOUBLE, MAP_FLOAT3 = ("float", 4), ("double", 8), ("float3", 12)
ROWS_SHOWN = 8


def tile_ids(machine: Machine, svg: Path) -> None:
    """Figure 2: the tiles of the coalesced copy, and how the threads of a block share one."""
    apply_style()
    tiling = Tiling.square_tiles(SIDE, MAP_FLOAT[1])
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
        f"the array {row_bytes}; {shift}. Each tile occupies {_range(map(len, touched))} of "
        f"{machine.partitions} partitions. The first rows of the {tiling.tiles_x} tiles side by "
        f"side occupy {len(first)} partitions, all their rows {len(set().union(*touched))}."
    )
    pair = {s.partition for t in (0, 1) for s in maps.tile_row_stretches(machine, tiling, t)}
    if dtype == MAP_FLOAT[0]:
        text += (
            f" The document gives two float tiles one partition and expects over 16 active blocks "
            f"to reach all. A row of two tiles does occupy {len(pair)}, but the rows "
            f"of even one tile occupy {len(touched[0])}."
        )
    if dtype == MAP_FLOAT3[0]:
        text += (
            f" The document says 378 for the {tile_bytes} bytes, and that two tiles "
            f"occupy two partitions: a row of each does, rows side by side occupy {len(pair)}."
        )
    return text


def execution_orders(counts: tuple[int, int], number: int, machine: Machine, svg: Path) -> None:
    """Figures 9 and 10: the step at which each tile of doubles is copied, for two grids."""
    apply_style()
    tiling = Tiling.partition_wide(machine, SIDE, MAP_DOUBLE[1])
    figure, axes = plt.subplots(1, 2, figsize=(PAGE_WIDTH, 3.5))
    findings = []
    for ax, count in zip(axes, counts, strict=True):
        steps = [str(tile // count) for tile in range(tiling.n_tiles)]
        _numbered_tiles(ax, machine, tiling, steps)
        for tile in range(count):
            frame(ax, divmod(tile, tiling.tiles_x)[::-1], (1, 1))
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
    tiling = Tiling.partition_wide(machine, SIDE, MAP_DOUBLE[1])
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
    save(figure, svg, title, caption)


def sm_loads(machine: Machine, svg: Path) -> None:
    """Figure 28: the blocks and tiles of each SM for 32 and 30 blocks."""
    apply_style()
    tiling = Tiling.partition_wide(machine, SIDE, MAP_DOUBLE[1])
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
    caption = _load_caption(machine, tiling, dict(zip(counts, loads, strict=True)))
    save(figure, svg, title, caption)


def _load_caption(machine: Machine, tiling: Tiling, loads: Mapping[int, tuple[SmLoad, ...]]) -> str:
    sixteen = maps.critical_sms(maps.assign_blocks(machine, tiling, 16))[0].n_tiles
    paths = "; ".join(f"at {count} blocks {_path(run)}" for count, run in loads.items())
    most = max(len(load.blocks) for load in loads[30])
    return (
        f"Cells are tiles with their numbers; the lowest number of a block is the block's own, and "
        f"a second block of an SM is grey. Outlined: the critical path, {paths}. For 16 blocks it "
        f"is {sixteen} tiles. At 30 blocks the document counts thread blocks in an SM, but "
        f"means tiles: an SM has at most {most} block{'s' if most > 1 else ''} then."
    )


def _path(loads: tuple[SmLoad, ...]) -> str:
    """The most tiles that an SM copies, and which SMs do: ``8 tiles on SM0 and SM1``."""
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
        corner = (s.start / tile_bytes, y)
        size = (s.n_bytes / tile_bytes, 1)
        cell(ax, corner, size, partition_colour(s.partition), str(s.partition), points=NOTE_SIZE)


def _numbered_tiles(ax: Axes, machine: Machine, tiling: Tiling, labels: Sequence[str]) -> None:
    """All tiles in the colour of their first row's partition, which is at the left."""
    for tile, label in enumerate(labels):
        y, x = divmod(tile, tiling.tiles_x)
        partition = maps.tile_row_stretches(machine, tiling, tile)[0].partition
        cell(ax, (x, y), (1, 1), partition_colour(partition))
        style: dict[str, Any] = {"fontsize": CELL_SIZE, "va": "center_baseline"}
        ax.text(x + 0.05, y + 0.5, f"p{partition}", style="italic", **style)
        ax.text(x + 0.95, y + 0.5, label, ha="right", **style)


def _tile_axes(ax: Axes, tiling: Tiling, title: str = "") -> None:
    """One unit for each tile, y downwards as rows are in memory."""
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
    """The least to the greatest count, as in ``2 to 4``; one number where all are alike."""
    values = sorted(set(counts))
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


_MAP_DRAWINGS: tuple[Drawing, ...] = (
    Drawing(2, "copy2D_coalesced_p1.jpg", tile_ids),
    Drawing(3, "copy2D_coalesced_p2.jpg", partial(tile_partition_map, MAP_DOUBLE, 3)),
    Drawing(4, "copy2D_coalesced_p3.jpg", partial(tile_partition_map, MAP_FLOAT, 4)),
    Drawing(5, "copy2D_coalesced_p4.jpg", partial(tile_partition_map, MAP_FLOAT3, 5)),
    Drawing(9, "blockEqPartition_p1.jpg", partial(execution_orders, (1, 2), 9)),
    Drawing(10, "blockEqPartition_p2.jpg", partial(execution_orders, (4, 8), 10)),
    Drawing(27, "blockEqPartition_p22.jpg", double_tiles),
    Drawing(28, "blockEqPartition_p23.jpg", sm_loads),
)


# Fill and ink; neighbours in time differ in lightness, so that they do in grey print.
STAGE_COLOURS = {
    Stage.COMMAND: ("#5F7480", "white"),
    Stage.ROW_ACCESS: ("#6A4C93", "white"),
    Stage.COLUMN_READ: ("#C9B8E4", "black"),
    Stage.DATA_RESTORE: ("#E6DFDC", "black"),
    Stage.PRECHARGE: ("#A1887F", "black"),
    Stage.DATA_BURST: ("#1A1A1A", "white"),
}
# The four parts of the device, by the steps of a read in them.
PARTS = {
    Stage.COMMAND: "1 interface:\ncommand decoded",
    Stage.ROW_ACCESS: "2 bank: row to\nsense amplifiers",
    Stage.COLUMN_READ: "3 column path:\nto the data buffer",
    Stage.DATA_BURST: "4 data pins:\nburst on the bus",
}
ARROW = {"color": "black", "lw": 0.8, "shrinkA": 0, "shrinkB": 0}
PIPELINED_READS = 4
DOUBLE_BYTES = 8


def device_pipeline(machine: Machine, svg: Path) -> None:
    """Figure 6: the four parts of a device, and reads of different banks that overlap in them."""
    reads = min(PIPELINED_READS, banks_of(machine).count)
    spans = pipelined_reads(machine, reads)
    apply_style()
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(PAGE_WIDTH, 3.0), height_ratios=[0.32, 0.68]
    )
    _boxes(top)
    for span in spans:
        _bar(bottom, span.read, span)
    names = [f"read {r}, bank {r}" for r in range(reads)]
    _time_axes(bottom, names, spans)
    end = spans[-1].end
    alone = pipelined_reads(machine, 1)[-1].end
    interval = (end - alone) / (reads - 1) if reads > 1 else alone
    caption = (
        f"A read passes four parts of the device; its bars have their colours. Reads of different "
        f"banks overlap: {_number(interval)} memory cycles after one read the next begins, though "
        f"each takes {_number(alone)}, so that {reads} reads end after {_number(end)} cycles "
        f"instead of {_number(reads * alone)}. The command is the first cycle of tRCD = "
        f"{banks_of(machine).t_rcd_cycles}."
    )
    save(figure, svg, "Figure 6: a memory device as a pipeline of four parts", caption)


def complete_read_cycle(machine: Machine, svg: Path) -> None:
    """Figure 7: Gantt chart of one read from a closed row to the end of precharge."""
    banks, spans = banks_of(machine), read_cycle(machine)
    apply_style()
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 2.5))
    rows = {Stage.COLUMN_READ: 1, Stage.DATA_BURST: 2}
    timing = {
        Stage.ROW_ACCESS: f"row access\ntRCD = {banks.t_rcd_cycles}",
        Stage.DATA_RESTORE: "data restore\nuntil tRAS",
        Stage.COLUMN_READ: f"column read, tCL = {banks.t_cl_cycles}",
        Stage.PRECHARGE: f"precharge\ntRP = {machine.t_rp_cycles}",
    }
    for span in spans:
        _bar(ax, rows.get(span.stage, 0), span, timing.get(span.stage, ""))
    burst = next(s for s in spans if s.stage is Stage.DATA_BURST)
    label = f" data burst: {_number(burst.cycles)} cycles"
    ax.text(float(burst.end), 2, label, fontsize=NOTE_SIZE, va="center")
    total = machine.t_ras_cycles + machine.t_rp_cycles
    _extent(ax, -0.75, 0, machine.t_ras_cycles, f"tRAS = {machine.t_ras_cycles}")
    _extent(ax, -1.35, 0, total, f"tRC = tRAS + tRP = {total}")
    _time_axes(ax, ["row of the bank", "column path", "data pins"], spans)
    ax.set_ylim(2.6, -1.8)
    first = burst.start * machine.memory_cycle
    caption = (
        f"A complete read cycle is {machine.t_ras_cycles} + {machine.t_rp_cycles} = {total} memory "
        f"cycles = {_number(read_cycle_cycles(machine))} core cycles. Its data begin to leave "
        f"after {_number(burst.start)} memory cycles = {_number(first)} core cycles, which is "
        f"{float(first / machine.latency_cycles):.0%} of the latency of {machine.latency_cycles} "
        f"core cycles: the rest arises outside this cycle. Data restore goes on while the column "
        f"is read."
    )
    save(figure, svg, "Figure 7: a complete read cycle", caption)


def concatenated_bursts(machine: Machine, svg: Path) -> None:
    """Figure 8: reads of one open row whose bursts follow one another without a gap."""
    banks = banks_of(machine)
    wanted = machine.half_warp * DOUBLE_BYTES
    reads = -(-wanted // banks.burst_bytes)
    spans = consecutive_reads(machine, reads)
    apply_style()
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 2.4))
    for span in spans:
        _bar(ax, span.read, span)
        if span.stage is Stage.DATA_BURST:
            _bar(ax, reads, span)
    names = [f"read {r}" for r in range(reads)] + ["data pins"]
    _time_axes(ax, names, spans)
    ax.axhline(reads - 0.5, color="black", lw=0.6)
    handles = [
        Patch(fc=STAGE_COLOURS[stage][0], ec="#555555", label=label)
        for stage, label in (
            (Stage.COLUMN_READ, f"column read, tCL = {banks.t_cl_cycles}"),
            (Stage.DATA_BURST, f"data burst of {_number(burst_beats(machine))}"),
        )
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=NOTE_SIZE)
    alone = banks.t_cl_cycles + burst_duration(machine)
    end = spans[-1].end
    caption = (
        f"{wanted} bytes, {machine.half_warp} doubles, are {reads} bursts of {banks.burst_bytes} "
        f"bytes from one open row of one partition. With a read command every "
        f"{_number(spans[2].start if reads > 1 else alone)} memory cycles the column latency is "
        f"waited for once: all data are out after {_number(end)} memory cycles instead of "
        f"{_number(reads * alone)} for reads that wait for each other."
    )
    save(figure, svg, "Figure 8: consecutive reads with concatenated bursts", caption)


def _boxes(ax: Axes) -> None:
    """The four parts side by side, joined by arrows."""
    ax.set_xlim(0, len(PARTS) - 0.16)
    ax.set_ylim(0, 1)
    ax.axis("off")
    for x, (stage, text) in enumerate(PARTS.items()):
        fill, ink = STAGE_COLOURS[stage]
        ax.add_patch(Rectangle((x, 0.05), 0.84, 0.9, fc=fill, ec="black", lw=0.6))
        ax.text(x + 0.42, 0.5, text, fontsize=NOTE_SIZE, color=ink, ha="center", va="center")
        if x:
            ax.annotate("", (x, 0.5), (x - 0.16, 0.5), arrowprops=ARROW | {"arrowstyle": "->"})


def _bar(ax: Axes, row: int, span: StageSpan, text: str = "") -> None:
    fill, ink = STAGE_COLOURS[span.stage]
    start, cycles = float(span.start), float(span.cycles)
    ax.barh(row, cycles, left=start, height=0.72, color=fill, edgecolor="white", linewidth=0.5)
    if text:
        middle = start + cycles / 2
        ax.text(middle, row, text, fontsize=NOTE_SIZE, color=ink, ha="center", va="center")


def _extent(ax: Axes, y: float, start: int, end: int, text: str) -> None:
    """A duration as an arrow with two heads and its name on it."""
    ax.annotate("", (end, y), (start, y), arrowprops=ARROW | {"arrowstyle": "<->"})
    background = {"fc": "white", "ec": "none", "pad": 1}
    middle = (start + end) / 2
    ax.text(middle, y, text, fontsize=NOTE_SIZE, ha="center", va="center", bbox=background)


def _time_axes(ax: Axes, rows: Sequence[str], spans: Sequence[StageSpan]) -> None:
    """Rows from the top down with their names, time from 0."""
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(axis="y", length=0, labelsize=NOTE_SIZE)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, float(max(span.end for span in spans)) * 1.02)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("time (memory cycles)")


def _number(value: Fraction | int) -> str:
    return f"{float(value):g}"


_CYCLE_DRAWINGS: tuple[Drawing, ...] = (
    Drawing(6, "DDR_p1.jpg", device_pipeline),
    Drawing(7, "DDR_p2.jpg", complete_read_cycle),
    Drawing(8, "DDR_p3.jpg", concatenated_bursts),
)
DRAWINGS = (*_COALESCING_DRAWINGS, *_MAP_DRAWINGS, *_CYCLE_DRAWINGS)
