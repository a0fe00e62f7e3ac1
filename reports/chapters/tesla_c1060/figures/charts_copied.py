"""Gantt charts of copies: reads and writes of one SM, and the saturated case."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.patches import Rectangle

from ..charts import (
    Charted,
    CopyPhase,
    Multiplier,
    SaturatedCopy,
    charted,
    coarse,
    combined,
    double_over_float,
    formula_pieces,
    phases_of_bus,
    saturated_bandwidth_gbs,
    start_up_cycles,
    tile_periods,
    vacuum_cycles,
)
from ..checks import PUBLISHED
from ..simulation.machine import Machine
from ..simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    Event,
    TileCopy,
)
from . import drawing as bars
from .drawing import DOUBLE, FLOAT, LOOKS, NAMES, SIDE, Drawing, Gantt, Lane, plural

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
    start = writes[0].start
    unit = chart.unit
    low, high = float(start) - 0.6 * unit, float(writes[burst - 1].end) + 1.6 * unit
    shown_writes = [w for w in writes if w.start < high][: burst + 2]
    last = chart.load.half_warps - 1
    rows = {write.half_warp: row for row, write in enumerate(shown_writes)}
    rows.setdefault(last, len(rows) + 1)
    gantt = Gantt([(low, high)], 3.0)
    gantt.draw(bars.lanes_of_block(chart, rows))
    labels = {row: f"hw{half_warp}" for half_warp, row in rows.items()}
    bars.name_lanes(gantt.axes, [labels.get(row, "") for row in range(max(labels) + 1)])
    issued = writes[burst - 1].end
    bars.rule(gantt.axes[0], start, f"first command: {float(start):g}", side="right")
    words = f"{plural(burst, 'command')} issued: {float(issued):g}"
    bars.rule(gantt.axes[0], issued, words, side="left")
    held = writes[0].end - start
    caption = (
        f"A write command holds the SM for {plural(held, 'cycle')}, not for the {unit} of an index "
        f"computation. When hw{last} has its index, {burst} half-warps have their data or get them "
        f"in time, and the SM issues their commands back to back until cycle "
        f"{float(issued):g}; then it waits for the next data. Float, one block, "
        "drawn cycle by cycle; figure 26 gives the commands whole time units."
    )
    gantt.save(svg, "Figure 25: write commands one by one", caption)


def whole_tile(
    machine: Machine, svg: Path, *, number: int, assumptions: Assumptions, what: str
) -> None:
    """Figures 26 and 31: the copy of a tile, all half-warps, until the next tile begins."""
    chart = copies(machine, assumptions)
    unit = chart.unit
    period = float(tile_periods(chart.run)[0]) / unit
    end = max(e.end for e in chart.bars() if e.phase == "store" and e.start < period * unit * 1.1)
    gantt = Gantt([(0, float(end) / unit + 0.5)], 3.6, unit=unit)
    gantt.draw_half_warps(chart)
    bars.rule(gantt.axes[0], period, f"tile 1 begins after {period:g} units")
    gbs = chart.run.bandwidth_gbs
    caption = (
        f"A tile takes {period:g} units{_parts(chart, period)}. So {SIDE} × {SIDE} floats are read "
        f"and written at {gbs:.2f} GB/s by one block. The gap after an index computation is the "
        "unit of its read command; in a unit of write commands several half-warps issue theirs."
    )
    gantt.save(svg, f"Figure {number}: copy of a tile, {what}", caption)


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
    gantt = Gantt([(0, float(end) / unit + 0.5)], 1.9, unit=unit)
    lanes = [
        lane for row, chart in enumerate(charts) for lane in bars.lanes_of_block(chart, {0: row})
    ]
    gantt.draw(lanes)
    bars.name_lanes(gantt.axes, [f"{NAMES[size]} hw0" for size in sizes])
    latency = CORRECTED_ASSUMPTIONS.latency_cycles
    durations = " and ".join(
        f"{latency} + {chart.transfer_cycles} = {latency + chart.transfer_cycles} ({NAMES[size]})"
        for size, chart in zip(sizes, charts, strict=True)
    )
    done = {float(chart.bars()[-1].end) / unit for chart in charts}
    printed = PUBLISHED["core cycles"]["one transfer of 512 bit, “1 memory cycle”"]
    caption = (
        f"With {unit} cycles of index computation instead of {FIRST_ASSUMPTIONS.index_cycles} and "
        f"{CORRECTED_ASSUMPTIONS.beat_cycles} cycles of bus for {machine.bus_bytes} bytes, a "
        f"command takes {durations} cycles: a half-warp alone is done after "
        f"{' and '.join(f'{units:g}' for units in sorted(done))} units. The gap after the index "
        f"computation is the unit of the read command. The document gives {printed} core cycles a "
        f"memory cycle; its clocks make {float(machine.beat_cycles):g}, which it uses later, and "
        "rounds up here."
    )
    gantt.save(svg, "Figure 29: one half-warp, corrected assumptions", caption)


def corrected_part(machine: Machine, svg: Path) -> None:
    """Figure 30: the first and last half-warps until the first writes, corrected assumptions."""
    chart = copies(machine, CORRECTED_ASSUMPTIONS)
    unit = chart.unit
    count = chart.load.half_warps
    numbers = bars.ends(count, 5, 3)
    rows = {number: row for row, number in enumerate(numbers) if number is not None}
    first = {
        phase: next(e for e in chart.bars() if e.phase == phase) for phase in ("read", "write")
    }
    back, written = (float(t) / unit for t in (first["read"].end, first["write"].start))
    gantt = Gantt([(0, float(first["write"].end) / unit + 4)], 2.6, unit=unit)
    gantt.draw(bars.lanes_of_block(chart, rows))
    bars.name_lanes(gantt.axes, bars.names("hw", numbers))
    bars.rule(gantt.axes[0], back, f"data of hw0 back: {back:g}", side="right")
    bars.rule(gantt.axes[0], written, f"its write: {written:g}", side="left")
    wait = written - back
    caption = (
        f"hw0 has its data after {back:g} units, but round robin lets it write after {written:g}, "
        f"when all {count} indices are computed: it is ready for {wait:g} units in which others "
        f"compute. Units are {unit} cycles; {len(rows)} of {count} half-warps are drawn."
    )
    gantt.save(svg, "Figure 30: copy of a tile, corrected assumptions, its first part", caption)


_WRITE_DRAWINGS: tuple[Drawing, ...] = (
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


_COPY = SaturatedCopy()
_HOLDING = ("index", "write")


def saturated(machine: Machine, itemsize: int, tiles: int) -> Charted:
    """Simulate a block of `tiles` tiles on every SM, under the assumptions of the device's file."""
    load = TileCopy(tiles * machine.n_sm, _COPY.half_warps, machine.half_warp * itemsize)
    exact = Assumptions.of(machine)
    return charted(machine, load, machine.n_sm, chart=Chart(writes=True), assumptions=exact)


def first_reads(machine: Machine, svg: Path) -> None:
    """Figure 32: hw0 of all SMs; their data fill the bus for longer than an index computation."""
    chart = saturated(machine, FLOAT, 2)
    unit, n_sm = chart.unit, machine.n_sm
    two = chart.transfers[: 2 * n_sm]
    second = (two[0].start - 0.3 * unit, two[-1].end + 0.3 * unit)
    gantt = Gantt([(0, 2.3 * unit), second], 3.5, (1, 1.3))
    lanes = [Lane(e.sm, *e[3:]) for e in chart.run.events if e.half_warp < 2]
    lanes += [bars.on_bus(row, t) for t in two for row in (t.sm, n_sm + 1)]
    gantt.draw(lanes)
    named = set(range(0, n_sm - 1, 5)) | {n_sm - 1}
    bars.name_lanes(gantt.axes, [*(f"SM{n}" if n in named else "" for n in range(n_sm)), "", "bus"])
    for number in (0, 1):
        bars.head(gantt.axes[0], (number + 0.5) * unit, f"hw{number}")
        part = two[number * n_sm : (number + 1) * n_sm]
        bars.head(gantt.axes[1], (part[0].start + part[-1].end) / 2, f"data of hw{number}")
    burst = n_sm * chart.transfer_cycles
    rest = vacuum_cycles(two)
    title = f"Figure 32: index and read of hw0 on {n_sm} SMs, float"
    caption = _first_caption(chart, burst, rest)
    gantt.save(svg, title, caption)


def _first_caption(chart: Charted, burst: Fraction, rest: Fraction) -> str:
    """The burst against the index computation, and the document's slip."""
    longer = burst > chart.unit
    n_sm = len(chart.run.tiles_per_sm)
    follow = f"after {plural(rest, 'cycle')} of vacuum" if rest else "without vacuum"
    limit = ": the bus is the limit" if longer and not rest else ""
    return (
        f"Data of hw0 of {n_sm} SMs take {n_sm} × {float(chart.transfer_cycles):g} = "
        f"{float(burst):g} cycles of the bus, {'longer' if longer else 'not longer'} than the "
        f"{chart.unit} of an index computation. Those of hw1 follow "
        f"{follow}{limit}. Drawn are the first two half-warps. For the cycles of an index "
        "computation the document writes “18 x 2 = 16”, a slip: it computes with 36."
    )


def write_commands(machine: Machine, svg: Path) -> None:
    """Figure 33: what SMs do from the first index to the first write commands."""
    chart = saturated(machine, FLOAT, 2)
    unit, n_sm = chart.unit, machine.n_sm
    holds = [e for e in chart.run.events if e.phase in _HOLDING]
    first, issued, again = _first_commands([e for e in holds if e.sm == 0])
    data = chart.transfers[:n_sm]
    numbers = bars.ends(n_sm, 3, 2)
    rows = {number: row for row, number in enumerate(numbers) if number is not None}
    windows = [
        (0, 1.3 * unit),
        (data[0].start - 0.3 * unit, data[-1].end + 0.3 * unit),
        (first - 0.3 * unit, max(issued, again) + 0.4 * unit),
    ]
    gantt = Gantt(windows, 2.5)
    lanes = [Lane(rows[e.sm], *e[3:]) for e in holds if e.sm in rows]
    lanes += [bars.on_bus(len(numbers), t) for t in chart.transfers]
    gantt.draw(lanes)
    bars.name_lanes(gantt.axes, [*bars.names("SM", numbers), "bus"])
    for row in rows.values():
        bars.write_in(gantt.axes[0], row, 0, unit, "hw0", dark=False)
    bars.write_in(gantt.axes[1], len(numbers), data[0].start, data[-1].end, "data of hw0")
    bars.head(gantt.axes[2], first, f"write of hw0: {float(first):g}")
    idle = _idle_share([e for e in holds if e.sm == 0], issued)
    count = sum(e.phase == "write" and e.start < issued for e in holds if e.sm == 0)
    reading = any(t.phase == "read" and t.start <= issued < t.end for t in chart.transfers)
    caption = (
        f"hw0 of every SM has its data after {float(data[-1].end):g} cycles and issues its write "
        f"command after {float(first):g}, when all {chart.load.half_warps} indices are computed. "
        f"SM0 issues {plural(count, 'command')} in a row until cycle {float(issued):g}; from then "
        f"to its next index computation it is idle for {idle:.0%} of the time, while the bus "
        f"{'still' if reading else 'no longer'} carries reads. Rows show what an SM "
        f"computes or issues, for {len(rows)} of {n_sm} SMs."
    )
    gantt.save(svg, f"Figure 33: index, read and write command on {n_sm} SMs, float", caption)


def _first_commands(holds: Sequence[Event]) -> tuple[Fraction, Fraction, Fraction]:
    """Start and end of an SM's first write commands in a row, and when it is held again."""
    writes = [e for e in holds if e.phase == "write"]
    end = writes[0].start
    start = end
    for event in holds:
        if event.start == end:
            end = event.end
    return start, end, min((e.start for e in holds if e.start >= end), default=end)


def _idle_share(holds: Sequence[Event], start: Fraction) -> float:
    """Return the share of the time from `start` to the next index computation without a held SM."""
    end = min(e.start for e in holds if e.phase == "index" and e.start >= start)
    held = sum(e.end - e.start for e in holds if start <= e.start < end)
    return float(1 - held / (end - start)) if end > start else 0.0


def write_transfers(machine: Machine, svg: Path) -> None:
    """Figure 34: reads and writes take turns on the bus; hw0 computes when its write is done."""
    chart = saturated(machine, FLOAT, 3)
    count = chart.load.half_warps
    numbers = sorted({0, 1, count // 2, count - 1})
    rows = {number: row for row, number in enumerate(numbers)}
    pieces = phases_of_bus(chart.transfers)
    gantt = Gantt([(0, 1.05 * float(chart.run.tile_starts[0][2]))], 2.5)
    lanes = [Lane(rows[b.half_warp], *b[1:]) for b in combined(chart.run.events) if b[0] in rows]
    data = [bar for bar in combined(chart.transfers) if bar.half_warp in rows]
    lanes += [bars.on_bus(rows[bar.half_warp], CopyPhase(*bar[1:])) for bar in data]
    gantt.draw(lanes)
    _draw_bus(gantt, len(rows), pieces, chart)
    bars.name_lanes(gantt.axes, [*bars.names("hw", numbers), "bus"])
    own = [e for e in chart.bars() if e.half_warp == 0]
    done = float(next(e.end for e in own if e.phase == "store"))
    again = float([e.start for e in own if e.phase == "index"][1])
    reading, writing = (float(piece.end - piece.start) for piece in pieces[:2])
    rest = vacuum_cycles(chart.transfers)
    caption = (
        f"The bus carries reads for {reading:g} cycles, then writes for {writing:g}, and so on; in "
        f"between it {_rests(rest)}. The write of hw0 on SM0 is complete at "
        f"cycle {done:g} and its next index computation begins at {again:g}. A bar shows all "
        f"{machine.n_sm} SMs, from the first that begins to the last that ends; {len(rows)} of "
        f"{count} half-warps are drawn. The bus has both colours while reads and writes alternate "
        "transfer by transfer."
    )
    gantt.save(svg, f"Figure 34: index, read and write on {machine.n_sm} SMs, float", caption)


def _rests(cycles: Fraction) -> str:
    return f"rests for {plural(cycles, 'cycle')}" if cycles else "never rests"


def _draw_bus(gantt: Gantt, row: float, pieces: Sequence[CopyPhase], chart: Charted) -> None:
    """The bus by direction; reads above writes where both alternate too quickly to be seen."""
    stretches = coarse(pieces, len(chart.run.sm_of_block) * chart.transfer_cycles)
    gantt.draw([bars.on_bus(row, piece) for piece in stretches if piece.phase != "both"])
    for ax in gantt.axes:
        low, high = ax.get_xlim()
        for piece in stretches:
            if piece.phase == "both" and piece.start < high and piece.end > low:
                start, end = max(float(piece.start), low), min(float(piece.end), high)
                for phase, top in (("read data", row - 0.4), ("store data", row)):
                    look = LOOKS[phase]
                    style: dict[str, Any] = {
                        "fc": look.colour,
                        "ec": "white",
                        "hatch": look.hatch,
                        "lw": 0,
                    }
                    ax.add_patch(Rectangle((start, top), end - start, look.height / 2, **style))
                    gantt.shown.add(phase)


def total_time(machine: Machine, svg: Path, *, number: int, itemsize: int) -> None:
    """Figures 35 and 36: X and Y of the formula, as published and corrected, and the simulation."""
    copy = _COPY
    chart = saturated(machine, itemsize, _COPY.tiles_per_block)
    formulas = [formula_pieces(machine, copy, itemsize, m) for m in Multiplier]
    totals = [pieces[-1].end for pieces in formulas] + [chart.run.drained_cycles]
    gbs = [saturated_bandwidth_gbs(machine, copy, itemsize, m) for m in Multiplier]
    gbs.append(chart.run.drained_bandwidth_gbs)
    tile = float(totals[1]) / copy.tiles_per_block
    last = (float(min(totals)) - 0.4 * tile, float(max(totals)) + 0.7 * tile)
    gantt = Gantt([(0, 1.6 * tile), last], 2.3)
    for row, (x, *y) in enumerate(formulas):
        gantt.draw([Lane(row, *x), *(bars.on_bus(row, piece) for piece in y)])
    gantt.draw(
        [
            Lane(2, "index", 0, chart.unit),
            Lane(2, "read", chart.unit, chart.transfers[0].start),
        ]
    )
    _draw_bus(gantt, 2, phases_of_bus(chart.transfers), chart)
    for row, (total, rate) in enumerate(zip(totals, gbs, strict=True)):
        bars.note_beside(gantt.axes[1], total, row, f"{rate:.4f} GB/s")
    factors = (machine.n_sm, copy.half_warps)
    bars.name_lanes(gantt.axes, [*(f"formula, bursts × {n}" for n in factors), "simulated bus"])
    caption = _total_caption(machine, chart, itemsize, totals, gbs)
    title = f"Figure {number}: {copy.tiles_per_block} tiles on every SM, {NAMES[itemsize]}"
    gantt.save(svg, title, caption)


def _total_caption(
    machine: Machine,
    chart: Charted,
    itemsize: int,
    totals: Sequence[Fraction],
    gbs: Sequence[float],
) -> str:
    """X and Y in numbers, the slip, and what the simulation says."""
    copy = _COPY
    burst = float(machine.n_sm * chart.transfer_cycles)
    x = start_up_cycles(machine, copy)
    rests = _rests(vacuum_cycles(chart.transfers))
    parts = [
        f"X = ({copy.half_warps} − {copy.hidden_half_warps}) × {machine.index_cycles} = {x} cycles "
        f"and Y = {copy.tiles_per_block} × 2 × {burst:g} × {machine.n_sm} = "
        f"{float(totals[0] - x):.10g} make {gbs[0]:.4f} GB/s by the document's formula. Its slip: "
        f"{burst:g} cycles already hold the {machine.n_sm} SMs, and a tile is {copy.half_warps} "
        f"such bursts; with these it is {gbs[1]:.4f} GB/s. Simulated, the last write has crossed "
        f"the bus after {float(totals[2]):.10g} cycles against {float(totals[1]):.10g} of X + Y, "
        f"and from the first read to the last write the bus {rests}."
    ]
    counted = copy.side**2 // (copy.half_warps * machine.half_warp)
    timed = chart.load.n_tiles
    if counted != timed:
        parts.append(
            f"The formula takes the bytes of {counted} tiles and the time of {timed}; the "
            f"simulation ({gbs[2]:.4f} GB/s) copies {timed}."
        )
    if itemsize == DOUBLE:
        ratio = [double_over_float(machine, copy, m) for m in Multiplier]
        parts.append(
            f"Double gets {ratio[0]:.5f} times the bandwidth of float, {ratio[1]:.5f} times "
            "without the slip, for X is paid once."
        )
    parts.append("The middle is left out.")
    return " ".join(parts)


_SATURATED_DRAWINGS: tuple[Drawing, ...] = (
    Drawing(32, "blockEqPartition_p27.jpg", first_reads),
    Drawing(33, "blockEqPartition_p28.jpg", write_commands),
    Drawing(34, "blockEqPartition_p29.jpg", write_transfers),
    Drawing(35, "blockEqPartition_p30.jpg", partial(total_time, number=35, itemsize=FLOAT)),
    Drawing(36, "blockEqPartition_p31.jpg", partial(total_time, number=36, itemsize=DOUBLE)),
)
DRAWINGS = (*_WRITE_DRAWINGS, *_SATURATED_DRAWINGS)
