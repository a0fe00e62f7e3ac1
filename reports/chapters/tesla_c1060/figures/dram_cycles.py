"""Figures 6 to 8: a memory device as a pipeline, its read cycle, and reads without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
from gpushmoo.figures.style import PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from ..dram_cycles import (
    Stage,
    StageSpan,
    banks_of,
    burst_beats,
    burst_duration,
    consecutive_reads,
    pipelined_reads,
    read_cycle,
)
from ..simulation.machine import Machine, half_warp_bytes, read_cycle_cycles
from .drawing import NOTE_SIZE, Drawing

# Fill and ink; neighbours in time differ in lightness, so that they do in grey print.
STAGE_COLOURS = {
    Stage.COMMAND: ("#5F7480", "white"),
    Stage.ROW_ACCESS: ("#6A4C93", "white"),
    Stage.COLUMN_READ: ("#C9B8E4", "black"),
    Stage.DATA_RESTORE: ("#E6DFDC", "black"),
    Stage.PRECHARGE: ("#A1887F", "black"),
    Stage.DATA_BURST: ("#1A1A1A", "white"),
}
# The four parts of the device, by what a read does in them.
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
    end, alone = spans[-1].end, pipelined_reads(machine, 1)[-1].end
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
    facts = {"read_cycle_memory": total, "read_cycle_core": float(read_cycle_cycles(machine))}
    save(figure, svg, "Figure 7: a complete read cycle", caption, **facts)


def concatenated_bursts(machine: Machine, svg: Path) -> None:
    """Figure 8: reads of one open row whose bursts follow one another without a gap."""
    banks = banks_of(machine)
    wanted = half_warp_bytes(machine, DOUBLE_BYTES)
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
    alone, end = banks.t_cl_cycles + burst_duration(machine), spans[-1].end
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
        place = (start + cycles / 2, row)
        ax.text(*place, text, fontsize=NOTE_SIZE, color=ink, ha="center", va="center")


def _extent(ax: Axes, y: float, start: int, end: int, text: str) -> None:
    """A duration as an arrow with two heads and its name on it."""
    ax.annotate("", (end, y), (start, y), arrowprops=ARROW | {"arrowstyle": "<->"})
    background = {"fc": "white", "ec": "none", "pad": 1}
    place = ((start + end) / 2, y)
    ax.text(*place, text, fontsize=NOTE_SIZE, ha="center", va="center", bbox=background)


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


DRAWINGS: tuple[Drawing, ...] = (
    Drawing(6, "DDR_p1.jpg", device_pipeline),
    Drawing(7, "DDR_p2.jpg", complete_read_cycle),
    Drawing(8, "DDR_p3.jpg", concatenated_bursts),
)
