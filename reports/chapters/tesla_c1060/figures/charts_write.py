"""Gantt charts of copies on one SM: reads and writes, under both assumptions of the document."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

from gpushmoo.figures.style import save

from ..charts import Charted, charted, tile_periods
from ..simulation.machine import Machine
from ..simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    TileCopy,
)
from . import chart_bars as bars
from .chart_bars import DOUBLE, FLOAT, NAMES, SIDE, plural
from .drawing import Drawing

_COPIES, _SLOTTED = Chart(writes=True), Chart(writes=True, slotted=True)


def copies(machine: Machine, assumptions: Assumptions) -> Charted:
    """The document's 256 × 256 floats, read and written by one block, in slots of a unit."""
    load = TileCopy.square(machine, SIDE, FLOAT)
    return charted(machine, load, 1, chart=_SLOTTED, assumptions=assumptions)


def one_by_one(machine: Machine, svg: Path) -> None:
    """Figure 25: write commands follow each other, one a cycle, once the turn is at hw0 again."""
    chart = charted(machine, TileCopy.square(machine, SIDE, FLOAT), 1, chart=_COPIES)
    writes = [e for e in chart.bars() if e.phase == "write"]
    burst = 1 + next(
        (n for n, (a, b) in enumerate(pairwise(writes)) if a.end != b.start), len(writes) - 1
    )
    start, unit = writes[0].start, chart.unit
    low, high = float(start) - 0.6 * unit, float(writes[burst - 1].end) + 1.6 * unit
    shown_writes = [w for w in writes if w.start < high][: burst + 2]
    last = chart.load.half_warps - 1
    rows = {write.half_warp: row for row, write in enumerate(shown_writes)}
    rows.setdefault(last, len(rows) + 1)
    figure, (ax,) = bars.panes([(low, high)], 3.0)
    shown = bars.draw_bars(ax, bars.lanes_of_block(chart, rows))
    labels = {row: f"hw{half_warp}" for half_warp, row in rows.items()}
    bars.name_lanes([ax], [labels.get(row, "") for row in range(max(labels) + 1)])
    issued = writes[burst - 1].end
    bars.rule(ax, start, f"first command: {float(start):g}", side="right")
    bars.rule(ax, issued, f"{plural(burst, 'command')} issued: {float(issued):g}", side="left")
    bars.finish(figure, shown, [ax])
    held = writes[0].end - start
    caption = (
        f"A write command holds the SM for {plural(held, 'cycle')}, not for the {unit} of an index "
        f"computation. When hw{last} has its index, {burst} half-warps have their data or get them "
        f"in time, and the SM issues their commands back to back until cycle "
        f"{float(issued):g}; then it waits for the next data. Float, one block, "
        "drawn cycle by cycle; figure 26 gives the commands whole time units."
    )
    save(figure, svg, "Figure 25: write commands one by one", caption, commands=burst)


def whole_tile(
    machine: Machine, svg: Path, *, number: int, assumptions: Assumptions, what: str
) -> None:
    """Figures 26 and 31: the copy of a tile, all half-warps, until the next tile begins."""
    chart = copies(machine, assumptions)
    unit = chart.unit
    period = float(tile_periods(chart.run)[0]) / unit
    end = max(e.end for e in chart.bars() if e.phase == "store" and e.start < period * unit * 1.1)
    figure, (ax,) = bars.panes([(0, float(end) / unit + 0.5)], 3.6)
    shown = bars.all_half_warps([ax], chart)
    bars.rule(ax, period, f"tile 1 begins after {period:g} units")
    bars.finish(figure, shown, [ax], unit)
    gbs = chart.run.bandwidth_gbs
    caption = (
        f"A tile takes {period:g} units{_parts(chart, period)}. So {SIDE} × {SIDE} floats are read "
        f"and written at {gbs:.2f} GB/s by one block. The gap after an index computation is the "
        "unit of its read command; in a unit of write commands several half-warps issue theirs."
    )
    title = f"Figure {number}: copy of a tile, {what}"
    save(figure, svg, title, caption, period_units=period, bandwidth_gbs=gbs)


def _parts(chart: Charted, period: float) -> str:
    """What the period of a tile consists of, where memory takes longer than the turn of the SM."""
    count, latency = chart.load.half_warps, chart.assumptions.latency_cycles
    wait = -(-(latency + chart.transfer_cycles) // chart.unit)
    if count + wait + 2 != period:
        return ""
    return (
        f": {count} of index computation, one of the last read command, {wait} until its data are "
        f"back ({latency} + {chart.transfer_cycles} cycles), and one of the last write command"
    )


def corrected_half_warp(machine: Machine, svg: Path) -> None:
    """Figure 29: one half-warp alone under the corrected assumptions, float and double."""
    sizes = (FLOAT, DOUBLE)
    charts = [
        charted(
            machine,
            TileCopy(1, 1, machine.half_warp * size),
            1,
            chart=_SLOTTED,
            assumptions=CORRECTED_ASSUMPTIONS,
        )
        for size in sizes
    ]
    unit = charts[0].unit
    end = max(e.end for chart in charts for e in chart.bars())
    figure, (ax,) = bars.panes([(0, float(end) / unit + 0.5)], 1.9)
    lanes = [
        lane for row, chart in enumerate(charts) for lane in bars.lanes_of_block(chart, {0: row})
    ]
    shown = bars.draw_bars(ax, lanes, unit)
    bars.name_lanes([ax], [f"{NAMES[size]} hw0" for size in sizes])
    bars.finish(figure, shown, [ax], unit)
    latency = CORRECTED_ASSUMPTIONS.latency_cycles
    durations = " and ".join(
        f"{latency} + {chart.transfer_cycles} = {latency + chart.transfer_cycles} ({NAMES[size]})"
        for size, chart in zip(sizes, charts, strict=True)
    )
    done = {float(chart.bars()[-1].end) / unit for chart in charts}
    caption = (
        f"With {unit} cycles of index computation instead of {FIRST_ASSUMPTIONS.index_cycles} and "
        f"{CORRECTED_ASSUMPTIONS.beat_cycles} cycles of bus for {machine.bus_bytes} bytes, a "
        f"command takes {durations} cycles: a half-warp alone is done after "
        f"{' and '.join(f'{units:g}' for units in sorted(done))} units. The gap after the index "
        "computation is the unit of the read command. The document gives 1.664 core cycles a "
        f"memory cycle; its clocks make {float(machine.beat_cycles):g}, which it uses later, and "
        "rounds up here."
    )
    title = "Figure 29: one half-warp, corrected assumptions"
    save(figure, svg, title, caption, end_units=float(end) / unit)


def corrected_part(machine: Machine, svg: Path) -> None:
    """Figure 30: the first and last half-warps until the first writes, corrected assumptions."""
    chart = copies(machine, CORRECTED_ASSUMPTIONS)
    unit, count = chart.unit, chart.load.half_warps
    numbers = bars.ends(count, 5, 3)
    rows = {number: row for row, number in enumerate(numbers) if number is not None}
    first = {
        phase: next(e for e in chart.bars() if e.phase == phase) for phase in ("read", "write")
    }
    back, written = (float(t) / unit for t in (first["read"].end, first["write"].start))
    figure, (ax,) = bars.panes([(0, float(first["write"].end) / unit + 4)], 2.6)
    shown = bars.draw_bars(ax, bars.lanes_of_block(chart, rows), unit)
    bars.name_lanes([ax], bars.names("hw", numbers))
    bars.rule(ax, back, f"data of hw0 back: {back:g}", side="right")
    bars.rule(ax, written, f"its write: {written:g}", side="left")
    bars.finish(figure, shown, [ax], unit)
    wait = written - back
    caption = (
        f"hw0 has its data after {back:g} units, but round robin lets it write after {written:g}, "
        f"when all {count} indices are computed: it is ready for {wait:g} units in which others "
        f"compute. Units are {unit} cycles; {len(rows)} of {count} half-warps are drawn."
    )
    title = "Figure 30: copy of a tile, corrected assumptions, its first part"
    save(figure, svg, title, caption, ready_units=wait)


DRAWINGS: tuple[Drawing, ...] = (
    Drawing(25, "blockEqPartition_p18.jpg", one_by_one),
    Drawing(
        26,
        "blockEqPartition_p19.jpg",
        partial(whole_tile, number=26, assumptions=FIRST_ASSUMPTIONS, what="first assumptions"),
    ),
    Drawing(29, "blockEqPartition_p24.jpg", corrected_half_warp),
    Drawing(30, "blockEqPartition_p25.jpg", corrected_part),
    Drawing(
        31,
        "blockEqPartition_p26.jpg",
        partial(
            whole_tile, number=31, assumptions=CORRECTED_ASSUMPTIONS, what="corrected assumptions"
        ),
    ),
)
