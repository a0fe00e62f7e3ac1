"""Gantt charts of reads: one SM, its queues, several SMs and the bursts of their transfers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from gpushmoo.figures.style import PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from ..charts import Charted, Queues, charted, combined, in_step, queues_at, tile_periods
from ..simulation.machine import Machine
from ..simulation.reference import FIRST_ASSUMPTIONS, TileCopy
from . import drawing as bars
from .drawing import (
    CELL_SIZE,
    DOUBLE,
    FLOAT,
    LOOKS,
    NAMES,
    NOTE_SIZE,
    SIDE,
    Drawing,
    Gantt,
    Lane,
    plural,
)


def one_half_warp(machine: Machine, svg: Path) -> None:
    """Figure 12: index computation, memory latency and transfer of one half-warp."""
    chart = charted(machine, TileCopy(1, 1, machine.half_warp * FLOAT), 1)
    index, read = chart.bars()
    (transfer,) = chart.transfers
    unit = chart.unit
    gantt = Gantt([(0, float(read.end) / unit + 1.5)], 1.5, unit=unit)
    (ax,) = gantt.axes
    gantt.draw(bars.lanes_of_block(chart, {0: 0}))
    bars.name_lanes(gantt.axes, ["hw0"])
    notes = (
        (index.start, index.end, f" index: {index.end - index.start} cycles", "left"),
        (read.start, transfer.start, f"latency: {transfer.start - read.start} cycles", "center"),
        (transfer.start, transfer.end, f"bus: {plural(chart.transfer_cycles, 'cycle')}", "right"),
    )
    for start, end, text, side in notes:
        at = {"left": start, "center": (start + end) / 2, "right": end}[side]
        ax.text(float(at) / unit, -0.47, text, ha=side, va="bottom", fontsize=NOTE_SIZE)
    ax.set_ylim(0.5, -0.95)
    wait = read.end - read.start
    caption = (
        f"A float half-warp computes its index in {index.end} cycles and then waits {wait}: "
        f"{transfer.start - read.start} of latency and {chart.transfer_cycles} on the bus. Its SM "
        f"could compute {wait // unit} more indices meanwhile."
    )
    gantt.save(svg, "Figure 12: read of one half-warp", caption)


def all_in_turn(machine: Machine, svg: Path) -> None:
    """Figure 13: the half-warps of a block one below the other."""
    chart = bars.reads(machine, FLOAT, 1)
    count = chart.load.half_warps
    unit = chart.unit
    period = tile_periods(chart.run)[0] / unit
    last = max(t.end for t in chart.transfers[:count]) / unit
    back = chart.transfers[0].end
    gantt = Gantt([(0, float(last) + 0.9)], 3.4, unit=unit)
    gantt.draw_half_warps(chart)
    bars.rule(gantt.axes[0], period, f"tile 1 begins after {float(period):g} units")
    when = "before" if back / unit <= period else "only after"
    caption = (
        f"The SM serves {count} half-warps in turn. The data of hw0 are back after {back} cycles, "
        f"in unit {-(-back // unit)}, {when} the last index is computed: the SM "
        f"{'never waits' if period == count else 'waits'}, and a tile takes {float(period):g} "
        "units. Drawn are the first tile and the begin of the second, float, one block."
    )
    gantt.save(svg, f"Figure 13: {count} half-warps of one block in turn, reads", caption)


def all_tiles(machine: Machine, svg: Path) -> None:
    """Figure 17: the same over all tiles, the middle left out."""
    chart = bars.reads(machine, FLOAT, 1)
    unit = chart.unit
    tiles = chart.load.n_tiles
    starts = [float(start) / unit for start in chart.run.tile_starts[0]]
    end = float(chart.run.makespan_cycles) / unit
    shown_first = starts[2] + 0.25 * starts[1]
    gantt = Gantt(
        [(0, shown_first), (starts[-1] - 0.12 * starts[1], end + 1)], 3.4, (1.25, 1), unit
    )
    gantt.draw_half_warps(chart)
    for ax, numbers in zip(gantt.axes, ((0, 1, 2), (tiles - 1,)), strict=True):
        for number in numbers:
            bars.rule(ax, starts[number], f"tile {number}")
    bars.rule(gantt.axes[1], end, f"end: {end:.2f}", side="right")
    period = tile_periods(chart.run)[0]
    rest = chart.run.makespan_cycles - tiles * period
    caption = (
        f"{tiles} tiles of {period} cycles each, and the {rest} cycles in which the last half-warp "
        f"waits, are {chart.run.makespan_cycles} cycles: {chart.run.bandwidth_gbs:.2f} GB/s for "
        f"{SIDE} × {SIDE} floats that are only read. Drawn are the first tiles and the last."
    )
    gantt.save(svg, f"Figure 17: all {tiles} tiles on one SM, float, reads", caption)


def float_and_double(machine: Machine, svg: Path) -> None:
    """Figure 18: double has the chart of float, only its transfers are longer."""
    pair = {size: bars.reads(machine, size, 1) for size in (FLOAT, DOUBLE)}
    unit = FIRST_ASSUMPTIONS.index_cycles
    back = float(pair[FLOAT].transfers[0].start)
    gantt = Gantt([(0, 3.4 * unit), (back - 0.4 * unit, back + 2.6 * unit)], 2.5)
    for first, chart in zip((0, 4), pair.values(), strict=True):
        gantt.draw(bars.lanes_of_block(chart, {n: first + n for n in range(3)}))
    for first, chart in zip((0, 4), pair.values(), strict=True):
        for transfer in chart.transfers[:3]:
            bars.note_beside(
                gantt.axes[1],
                transfer.end,
                first + transfer.half_warp,
                plural(transfer.end - transfer.start, "cycle"),
            )
    labels = [f"{NAMES[size]} hw{n}" for size in pair for n in range(3)]
    bars.name_lanes(gantt.axes, [*labels[:3], "", *labels[3:]])
    gbs = {size: chart.run.bandwidth_gbs for size, chart in pair.items()}
    caption = (
        f"A double half-warp holds the bus for {pair[DOUBLE].transfer_cycles} cycles instead of "
        f"{pair[FLOAT].transfer_cycles}, but a tile takes {tile_periods(pair[DOUBLE].run)[0]} "
        f"cycles against {tile_periods(pair[FLOAT].run)[0]}: {gbs[DOUBLE]:.2f} against "
        f"{gbs[FLOAT]:.2f} GB/s, {gbs[DOUBLE] / gbs[FLOAT]:.2f} times. Drawn are three half-warps "
        "of each."
    )
    gantt.save(svg, "Figure 18: double on one SM, beside float", caption)


def who_transfers_when(machine: Machine, svg: Path) -> None:
    """Figure 19: two SMs ask at the same time and use the bus one after the other."""
    chart = bars.reads(machine, FLOAT, 2)
    unit = chart.unit
    rows = [{0: 0, 1: 2}, {0: 1, 1: 3}]
    # Reversed, so that of a half-warp's transfers the first tile's is kept.
    own = {t[1:3]: t for t in reversed(chart.transfers) if t.half_warp in rows[0]}
    low, high = (float(t.start) for t in (own[0, 0], max(own.values(), key=lambda t: t.start)))
    gantt = Gantt([(0, 2.6 * unit), (low - 0.25 * unit, high + 0.6 * unit)], 2.3)
    lanes = [lane for b in (0, 1) for lane in bars.lanes_of_block(chart, rows[b], b)]
    lanes += [bars.on_bus(4, t) for t in chart.transfers]
    gantt.draw(lanes)
    for (block, half_warp), transfer in own.items():
        span = f"{transfer.start} to {transfer.end}"
        bars.note_beside(gantt.axes[1], transfer.end, rows[block][half_warp], span)
    sms = [chart.run.sm_of_block[b] for b in (0, 1)]
    bars.name_lanes(gantt.axes, [f"SM{sms[b]} hw{n}" for n in (0, 1) for b in (0, 1)] + ["bus"])
    first, second = own[0, 0], own[1, 0]
    wait = second.start - first.start
    sent = sorted({next(e.start for e in chart.bars(b) if e.phase == "read") for b in (0, 1)})
    caption = (
        f"Commands of hw0 leave at cycle {' and '.join(str(time) for time in sent)} on both SMs. "
        f"SM{first.sm} has the bus from {first.start} to {first.end}, SM{second.sm} from "
        f"{second.start} to {second.end}: it is {plural(wait, 'cycle')} later, "
        f"{'less than' if wait < unit else 'not less than'} the {unit} of an index computation. "
        "Drawn are the first two half-warps of each."
    )
    gantt.save(svg, "Figure 19: two SMs share the bus, float", caption)


def halves(machine: Machine, svg: Path) -> None:
    """Figure 20: two SMs take every other tile and need half the time."""
    one, two = bars.reads(machine, FLOAT, 1), bars.reads(machine, FLOAT, 2)
    unit = one.unit
    total = float(one.run.makespan_cycles)
    gantt = Gantt([(0, 1.15 * total / unit)], 1.9, unit=unit)
    lanes = [(one, 0), (two, 0), (two, 1)]
    for row, (chart, block) in enumerate(lanes):
        _tiles(gantt, row, chart, block)
        end = max(e.end for e in chart.bars(block))
        bars.note_beside(gantt.axes[0], end / unit, row, f"{float(end) / unit:.2f}")
    labels = [f"{blocks} block{'s' * (blocks > 1)}, SM" for blocks in (1, 2, 2)]
    sms = [chart.run.sm_of_block[block] for chart, block in lanes]
    bars.name_lanes(gantt.axes, [f"{label}{sm}" for label, sm in zip(labels, sms, strict=True)])
    ratio = two.run.bandwidth_gbs / one.run.bandwidth_gbs
    caption = (
        f"Each of two SMs has {two.run.critical_path_tiles} tiles instead of "
        f"{one.run.critical_path_tiles}, and a tile takes {tile_periods(two.run)[0]} cycles "
        f"against {tile_periods(one.run)[0]}: {two.run.bandwidth_gbs:.2f} GB/s against "
        f"{one.run.bandwidth_gbs:.2f}, {ratio:.2f} times, for the last wait is not halved. A box "
        f"is the {one.load.half_warps} index computations of a tile; the middle is left out."
    )
    gantt.save(svg, "Figure 20: the tiles in halves on two SMs", caption)


def _tiles(gantt: Gantt, row: float, chart: Charted, block: int) -> None:
    """The first and the last tiles of a block as boxes, and a word for those between."""
    unit = chart.unit
    own = chart.bars(block)
    starts = chart.run.tile_starts[block]
    computed = max(e.end for e in own if e.phase == "index")
    ends_of = [*starts[1:], computed]
    chosen = bars.ends(len(starts), 4, 3)
    lanes = [Lane(row, "index", starts[n], ends_of[n]) for n in chosen if n is not None]
    lanes.append(Lane(row, "read", computed, max(e.end for e in own)))
    gantt.draw(lanes)
    if None in chosen:
        middle = (starts[4] + starts[-3]) / 2 / unit
        width = float(starts[-3] - starts[4]) / unit
        corner = (float(starts[4]) / unit, row - 0.4)
        (ax,) = gantt.axes
        ax.add_patch(Rectangle(corner, width, 0.8, fc="white", ec=LOOKS["index"].colour, ls=":"))
        text = f"…   {len(starts)} tiles, all alike   …"
        ax.text(float(middle), row, text, ha="center", va="center", fontsize=NOTE_SIZE)


_READ_DRAWINGS: tuple[Drawing, ...] = (
    Drawing(12, "blockEqPartition_p5.jpg", one_half_warp),
    Drawing(13, "blockEqPartition_p6.jpg", all_in_turn),
    Drawing(17, "blockEqPartition_p10.jpg", all_tiles),
    Drawing(18, "blockEqPartition_p11.jpg", float_and_double),
    Drawing(19, "blockEqPartition_p12.jpg", who_transfers_when),
    Drawing(20, "blockEqPartition_p13.jpg", halves),
)


_ROWS = ("ready-queue", "SM takes", "waiting-queue")


def queues(machine: Machine, svg: Path, *, number: int, unit_number: int) -> None:
    """Both queues at the end of a time unit, when the scheduler has chosen."""
    chart = bars.reads(machine, FLOAT, 1)
    time = unit_number * chart.unit
    count = chart.load.half_warps
    found = queues_at(chart.bars(), time, count)
    back = {t.half_warp for t in chart.transfers if t.end <= time}
    gantt = Gantt([(-0.2, count)], 1.5)
    _draw_queues(gantt.axes[0], found, back)
    handles = [Patch(fc="white", ec="black", lw=0.5, label="ready")]
    if back:
        handles.append(Patch(fc="white", ec="black", lw=1.6, label="ready, its data are back"))
    handles += [Patch(fc=LOOKS[p].colour, label=LOOKS[p].label) for p in ("index", "read")]
    gantt.figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=NOTE_SIZE)
    title = f"Figure {number}: queues of one SM at the end of time unit {unit_number}"
    caption = _caption(found, back, unit_number, chart.unit)
    save(gantt.figure, svg, title, caption)


def _draw_queues(ax: Axes, found: Queues, back: set[int]) -> None:
    """One row each, the head of a queue at the left; numbers of half-warps in boxes."""
    running = () if found.running is None else (found.running,)
    rows = (found.ready, running, found.waiting)
    fills = ("white", LOOKS["index"].colour, LOOKS["read"].colour)
    for row, (half_warps, fill) in enumerate(zip(rows, fills, strict=True)):
        for place, half_warp in enumerate(half_warps):
            thick = half_warp in back and row < 2
            ax.add_patch(
                Rectangle(
                    (place + 0.06, row - 0.36),
                    0.86,
                    0.72,
                    fc=fill,
                    ec="black",
                    lw=1.6 if thick else 0.5,
                )
            )
            ax.text(
                place + 0.49,
                row,
                str(half_warp),
                ha="center",
                va="center",
                fontsize=CELL_SIZE,
                fontweight="bold" if thick else "normal",
                color="white" if row == 1 else "black",
            )
        if not half_warps:
            ax.text(0.1, row, "empty", va="center", fontsize=NOTE_SIZE)
    ax.set_yticks(range(3), _ROWS, fontsize=NOTE_SIZE)
    ax.set_ylim(2.55, -0.55)
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def _caption(found: Queues, back: set[int], unit_number: int, unit: int) -> str:
    """Who is ready, who waits, and where those stand whose data are back."""
    returned = [n for n in found.ready if n in back]
    parts = [
        f"At the end of time unit {unit_number} ({unit_number * unit} cycles) "
        f"{plural(len(found.waiting), 'half-warp')} wait{'s' * (len(found.waiting) == 1)} for "
        f"memory and the SM takes hw{found.running}"
        + (", whose data are back, for its next tile." if found.running in back else ".")
    ]
    if returned:
        place = found.ready.index(returned[0])
        before = f"behind hw{found.ready[place - 1]}" if place else "at the head"
        whose = f"hw{returned[0]}" + (f" to hw{returned[-1]}" if len(returned) > 1 else "")
        parts.append(
            f"Data are back for {whose}, which stand{'s' * (len(returned) == 1)} {before}."
        )
    elif not back:
        parts.append("No data are back.")
    parts.append("Boxes are numbers of half-warps, the head of each queue at the left.")
    return " ".join(parts)


_QUEUE_DRAWINGS: tuple[Drawing, ...] = tuple(
    Drawing(number, picture, partial(queues, number=number, unit_number=unit_number))
    for number, picture, unit_number in (
        (14, "blockEqPartition_p7.jpg", 1),
        (15, "blockEqPartition_p8.jpg", 22),
        (16, "blockEqPartition_p9.jpg", 32),
    )
)


# Half-warps of the combined chart; the rest follows alike.
_SHOWN = 3


def together(machine: Machine, svg: Path, *, number: int, cases: Sequence[tuple[int, int]]) -> None:
    """A row for each case (bytes of an element, blocks): all SMs in one chart, and their bursts."""
    apply_style()
    charts = [bars.reads(machine, *case) for case in cases]
    figure, grid = plt.subplots(
        len(cases), 2, figsize=(PAGE_WIDTH, 0.75 + 1.2 * len(cases)), squeeze=False
    )
    shown: set[str] = set()
    for (left, right), chart, (itemsize, blocks) in zip(grid, charts, cases, strict=True):
        shown |= _combined(left, chart)
        shown |= _burst(right, chart)
        left.set_title(f"{NAMES[itemsize]}, {blocks} blocks in one chart", fontsize=NOTE_SIZE)
        right.set_title(f"first data of {NAMES[itemsize]}, {blocks} blocks", fontsize=NOTE_SIZE)
    bars.name_time([grid[-1][0]], charts[0].unit)
    bars.name_time([grid[-1][1]])
    bars.legend(figure, shown)
    what = " and ".join(f"{NAMES[itemsize]} on {blocks} SMs" for itemsize, blocks in cases)
    one = bars.reads(machine, FLOAT, 1).run.bandwidth_gbs
    parts = [
        _finding(chart, NAMES[case[0]], case[1], one)
        for chart, case in zip(charts, cases, strict=True)
    ]
    parts.append(
        f"Left, the first {_SHOWN} half-warps of all SMs; right, the bus in numbers of SMs."
    )
    save(figure, svg, f"Figure {number}: {what}", " ".join(parts))


def _combined(ax: Axes, chart: Charted) -> set[str]:
    """Half-warps with bars for all blocks at once."""
    unit = chart.unit
    back = max(
        t.end for t in chart.transfers if t.half_warp == _SHOWN - 1 and t.start < 2 * _first(chart)
    )
    ax.set_xlim(0, float(back) / unit + 1)
    lanes = [Lane(*bar) for bar in combined(chart.run.events) if bar.half_warp < _SHOWN]
    data = [bars.on_bus(t.half_warp, t) for t in chart.transfers if t.half_warp < _SHOWN]
    bars.name_lanes([ax], bars.names("hw", range(_SHOWN)))
    return bars.draw_bars(ax, lanes + data, unit)


def _first(chart: Charted) -> float:
    return float(chart.transfers[0].start)


def _burst(ax: Axes, chart: Charted) -> set[str]:
    """The bus for two index computations from the first data on, and what the SMs do meanwhile."""
    start = _first(chart)
    unit = chart.unit
    ax.set_xlim(start - 0.1 * unit, start + 2.1 * unit)
    bars.name_lanes([ax], ["SMs", "bus"])
    lanes = [Lane(0, e.phase, e.start, e.end) for e in chart.bars() if e.phase == "index"]
    shown = bars.draw_bars(ax, lanes + [bars.on_bus(1, t) for t in chart.transfers])
    for event in chart.bars():
        if event.phase == "index" and start <= event.start < start + 2 * unit:
            text = f"index of hw{event.half_warp}: {unit} cycles"
            bars.write_in(ax, 0, event.start, event.end, text, dark=False)
    for transfer in chart.transfers:
        if transfer.end <= start + 2.1 * unit:
            bars.write_in(ax, 1, transfer.start, transfer.end, str(transfer.sm))
    return shown


def _finding(chart: Charted, name: str, blocks: int, one: float) -> str:
    """The burst against the index computation, and what that makes of the bandwidth."""
    burst = blocks * chart.transfer_cycles
    unit = chart.unit
    against = "shorter than" if burst < unit else "not shorter than"
    step = "SMs compute in step" if in_step(chart.run.events) else "SMs do not compute in step"
    gbs = chart.run.bandwidth_gbs
    return (
        f"{name.capitalize()}, {blocks} blocks: {step}; a burst of {blocks} transfers takes "
        f"{plural(burst, 'cycle')}, {against} the {unit} of an index computation: {gbs:.2f} GB/s, "
        f"{gbs / one:.2f} times one block of float."
    )


_BUS_DRAWINGS: tuple[Drawing, ...] = tuple(
    Drawing(number, picture, partial(together, number=number, cases=cases))
    for number, picture, cases in (
        (21, "blockEqPartition_p14.jpg", ((FLOAT, 2),)),
        (22, "blockEqPartition_p15.jpg", ((DOUBLE, 2), (FLOAT, 4))),
        (23, "blockEqPartition_p16.jpg", ((DOUBLE, 4), (FLOAT, 8))),
        (24, "blockEqPartition_p17.jpg", ((DOUBLE, 8),)),
    )
)
DRAWINGS = (*_READ_DRAWINGS, *_QUEUE_DRAWINGS, *_BUS_DRAWINGS)
