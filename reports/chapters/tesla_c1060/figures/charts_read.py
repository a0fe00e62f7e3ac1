"""Gantt charts of reads: one half-warp, all of a block, and several SMs that share the bus."""

from __future__ import annotations

from pathlib import Path

from gpushmoo.figures.style import save
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ..charts import Charted, charted, tile_periods
from ..simulation.machine import Machine
from ..simulation.reference import FIRST_ASSUMPTIONS, TileCopy
from . import chart_bars as bars
from .chart_bars import DOUBLE, FLOAT, LOOKS, NAMES, SIDE, Lane, plural
from .drawing import NOTE_SIZE, Drawing


def one_half_warp(machine: Machine, svg: Path) -> None:
    """Figure 12: index computation, memory latency and transfer of one half-warp."""
    chart = charted(machine, TileCopy(1, 1, machine.half_warp * FLOAT), 1)
    index, read = chart.bars()
    (transfer,) = chart.transfers
    unit = chart.unit
    figure, (ax,) = bars.panes([(0, float(read.end) / unit + 1.5)], 1.5)
    shown = bars.draw_bars(ax, bars.lanes_of_block(chart, {0: 0}), unit)
    bars.name_lanes([ax], ["hw0"])
    bars.name_time([ax], chart.unit)
    notes = (
        (index.start, index.end, f" index: {index.end - index.start} cycles", "left"),
        (read.start, transfer.start, f"latency: {transfer.start - read.start} cycles", "center"),
        (transfer.start, transfer.end, f"bus: {plural(chart.transfer_cycles, 'cycle')}", "right"),
    )
    for start, end, text, side in notes:
        at = {"left": start, "center": (start + end) / 2, "right": end}[side]
        ax.text(float(at) / unit, -0.47, text, ha=side, va="bottom", fontsize=NOTE_SIZE)
    ax.set_ylim(0.5, -0.95)
    bars.legend(figure, shown)
    wait = read.end - read.start
    caption = (
        f"A float half-warp computes its index in {index.end} cycles and then waits {wait}: "
        f"{transfer.start - read.start} of latency and {chart.transfer_cycles} on the bus. Its SM "
        f"could compute {wait // unit} more indices meanwhile."
    )
    title = "Figure 12: read of one half-warp"
    save(figure, svg, title, caption, wait_cycles=float(wait))


def all_in_turn(machine: Machine, svg: Path) -> None:
    """Figure 13: the half-warps of a block one below the other."""
    chart = bars.reads(machine, FLOAT, 1)
    count, unit = chart.load.half_warps, chart.unit
    period = tile_periods(chart.run)[0] / unit
    last = max(t.end for t in chart.transfers[:count]) / unit
    back = chart.transfers[0].end
    figure, (ax,) = bars.panes([(0, float(last) + 0.9)], 3.4)
    shown = bars.all_half_warps([ax], chart)
    bars.rule(ax, period, f"tile 1 begins after {float(period):g} units")
    bars.finish(figure, shown, [ax], chart.unit)
    when = "before" if back / unit <= period else "only after"
    caption = (
        f"The SM serves {count} half-warps in turn. The data of hw0 are back after {back} cycles, "
        f"in unit {-(-back // unit)}, {when} the last index is computed: the SM "
        f"{'never waits' if period == count else 'waits'}, and a tile takes {float(period):g} "
        "units. Drawn are the first tile and the begin of the second, float, one block."
    )
    title = f"Figure 13: {count} half-warps of one block in turn, reads"
    save(figure, svg, title, caption, period_units=float(period))


def all_tiles(machine: Machine, svg: Path) -> None:
    """Figure 17: the same over all tiles, the middle left out."""
    chart = bars.reads(machine, FLOAT, 1)
    unit, tiles = chart.unit, chart.load.n_tiles
    starts = [float(start) / unit for start in chart.run.tile_starts[0]]
    end = float(chart.run.makespan_cycles) / unit
    shown_first = starts[2] + 0.25 * starts[1]
    figure, axes = bars.panes(
        [(0, shown_first), (starts[-1] - 0.12 * starts[1], end + 1)], 3.4, (1.25, 1)
    )
    shown = bars.all_half_warps(axes, chart)
    for ax, numbers in zip(axes, ((0, 1, 2), (tiles - 1,)), strict=True):
        for number in numbers:
            bars.rule(ax, starts[number], f"tile {number}")
    bars.rule(axes[1], end, f"end: {end:.2f}", side="right")
    bars.finish(figure, shown, axes, unit)
    period = tile_periods(chart.run)[0]
    rest = chart.run.makespan_cycles - tiles * period
    caption = (
        f"{tiles} tiles of {period} cycles each, and the {rest} cycles in which the last half-warp "
        f"waits, are {chart.run.makespan_cycles} cycles: {chart.run.bandwidth_gbs:.2f} GB/s for "
        f"{SIDE} × {SIDE} floats that are only read. Drawn are the first tiles and the last."
    )
    title = f"Figure 17: all {tiles} tiles on one SM, float, reads"
    save(figure, svg, title, caption, bandwidth_gbs=chart.run.bandwidth_gbs)


def float_and_double(machine: Machine, svg: Path) -> None:
    """Figure 18: double has the chart of float, only its transfers are longer."""
    pair = {size: bars.reads(machine, size, 1) for size in (FLOAT, DOUBLE)}
    unit = FIRST_ASSUMPTIONS.index_cycles
    back = float(pair[FLOAT].transfers[0].start)
    figure, axes = bars.panes([(0, 3.4 * unit), (back - 0.4 * unit, back + 2.6 * unit)], 2.5)
    shown: set[str] = set()
    for ax in axes:
        for first, chart in zip((0, 4), pair.values(), strict=True):
            shown |= bars.draw_bars(
                ax, bars.lanes_of_block(chart, {n: first + n for n in range(3)})
            )
    for first, chart in zip((0, 4), pair.values(), strict=True):
        for transfer in chart.transfers[:3]:
            bars.note_beside(
                axes[1],
                transfer.end,
                first + transfer.half_warp,
                plural(transfer.end - transfer.start, "cycle"),
            )
    labels = [f"{NAMES[size]} hw{n}" for size in pair for n in range(3)]
    bars.name_lanes(axes, [*labels[:3], "", *labels[3:]])
    bars.finish(figure, shown, axes)
    gbs = {size: chart.run.bandwidth_gbs for size, chart in pair.items()}
    caption = (
        f"A double half-warp holds the bus for {pair[DOUBLE].transfer_cycles} cycles instead of "
        f"{pair[FLOAT].transfer_cycles}, but a tile takes {tile_periods(pair[DOUBLE].run)[0]} "
        f"cycles against {tile_periods(pair[FLOAT].run)[0]}: {gbs[DOUBLE]:.2f} against "
        f"{gbs[FLOAT]:.2f} GB/s, {gbs[DOUBLE] / gbs[FLOAT]:.2f} times. Drawn are three half-warps "
        "of each."
    )
    save(figure, svg, "Figure 18: double on one SM, beside float", caption, gbs=list(gbs.values()))


def who_transfers_when(machine: Machine, svg: Path) -> None:
    """Figure 19: two SMs ask at the same time and use the bus one after the other."""
    chart = bars.reads(machine, FLOAT, 2)
    unit, rows = chart.unit, [{0: 0, 1: 2}, {0: 1, 1: 3}]
    # Reversed, so that of a half-warp's transfers the first tile's is kept.
    own = {t[1:3]: t for t in reversed(chart.transfers) if t.half_warp in rows[0]}
    low, high = (float(t.start) for t in (own[0, 0], max(own.values(), key=lambda t: t.start)))
    figure, axes = bars.panes([(0, 2.6 * unit), (low - 0.25 * unit, high + 0.6 * unit)], 2.3)
    lanes = [lane for b in (0, 1) for lane in bars.lanes_of_block(chart, rows[b], b)]
    lanes += [bars.on_bus(4, t) for t in chart.transfers]
    shown = {phase for ax in axes for phase in bars.draw_bars(ax, lanes)}
    for (block, half_warp), transfer in own.items():
        span = f"{transfer.start} to {transfer.end}"
        bars.note_beside(axes[1], transfer.end, rows[block][half_warp], span)
    sms = [chart.run.sm_of_block[b] for b in (0, 1)]
    bars.name_lanes(axes, [f"SM{sms[b]} hw{n}" for n in (0, 1) for b in (0, 1)] + ["bus"])
    bars.finish(figure, shown, axes)
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
    title = "Figure 19: two SMs share the bus, float"
    save(figure, svg, title, caption, later_cycles=float(wait))


def halves(machine: Machine, svg: Path) -> None:
    """Figure 20: two SMs take every other tile and need half the time."""
    one, two = bars.reads(machine, FLOAT, 1), bars.reads(machine, FLOAT, 2)
    unit, total = one.unit, float(one.run.makespan_cycles)
    figure, (ax,) = bars.panes([(0, 1.15 * total / unit)], 1.9)
    lanes = [(one, 0), (two, 0), (two, 1)]
    shown: set[str] = set()
    for row, (chart, block) in enumerate(lanes):
        shown |= _tiles(ax, row, chart, block)
        end = max(e.end for e in chart.bars(block))
        bars.note_beside(ax, end / unit, row, f"{float(end) / unit:.2f}")
    labels = [f"{blocks} block{'s' * (blocks > 1)}, SM" for blocks in (1, 2, 2)]
    sms = [chart.run.sm_of_block[block] for chart, block in lanes]
    bars.name_lanes([ax], [f"{label}{sm}" for label, sm in zip(labels, sms, strict=True)])
    bars.finish(figure, shown, [ax], one.unit)
    ratio = two.run.bandwidth_gbs / one.run.bandwidth_gbs
    caption = (
        f"Each of two SMs has {two.run.critical_path_tiles} tiles instead of "
        f"{one.run.critical_path_tiles}, and a tile takes {tile_periods(two.run)[0]} cycles "
        f"against {tile_periods(one.run)[0]}: {two.run.bandwidth_gbs:.2f} GB/s against "
        f"{one.run.bandwidth_gbs:.2f}, {ratio:.2f} times, for the last wait is not halved. A box "
        f"is the {one.load.half_warps} index computations of a tile; the middle is left out."
    )
    save(figure, svg, "Figure 20: the tiles in halves on two SMs", caption, ratio=ratio)


def _tiles(ax: Axes, row: float, chart: Charted, block: int) -> set[str]:
    """The first and the last tiles of a block as boxes, and a word for those between."""
    unit = chart.unit
    own = chart.bars(block)
    starts = chart.run.tile_starts[block]
    computed = max(e.end for e in own if e.phase == "index")
    ends_of = [*starts[1:], computed]
    chosen = bars.ends(len(starts), 4, 3)
    lanes = [Lane(row, "index", starts[n], ends_of[n]) for n in chosen if n is not None]
    lanes.append(Lane(row, "read", computed, max(e.end for e in own)))
    shown = bars.draw_bars(ax, lanes, unit)
    if None in chosen:
        middle = (starts[4] + starts[-3]) / 2 / unit
        box = (float(starts[-3] - starts[4]) / unit, 0.8)
        corner = (float(starts[4]) / unit, row - 0.4)
        ax.add_patch(Rectangle(corner, *box, fc="white", ec=LOOKS["index"].colour, ls=":"))
        text = f"…   {len(starts)} tiles, all alike   …"
        ax.text(float(middle), row, text, ha="center", va="center", fontsize=NOTE_SIZE)
    return shown


DRAWINGS: tuple[Drawing, ...] = (
    Drawing(12, "blockEqPartition_p5.jpg", one_half_warp),
    Drawing(13, "blockEqPartition_p6.jpg", all_in_turn),
    Drawing(17, "blockEqPartition_p10.jpg", all_tiles),
    Drawing(18, "blockEqPartition_p11.jpg", float_and_double),
    Drawing(19, "blockEqPartition_p12.jpg", who_transfers_when),
    Drawing(20, "blockEqPartition_p13.jpg", halves),
)
