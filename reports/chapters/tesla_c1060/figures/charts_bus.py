"""Charts of several SMs in one, and the bursts of their transfers beside an index computation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from gpushmoo.figures.style import PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes

from ..charts import Charted, combined, in_step
from ..simulation.machine import Machine
from . import chart_bars as bars
from .chart_bars import DOUBLE, FLOAT, NAMES, Lane, plural
from .drawing import NOTE_SIZE, Drawing

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
    bars.finish(figure, shown, [grid[-1][1]])
    what = " and ".join(f"{NAMES[itemsize]} on {blocks} SMs" for itemsize, blocks in cases)
    one = bars.reads(machine, FLOAT, 1).run.bandwidth_gbs
    parts = [
        _finding(chart, NAMES[case[0]], case[1], one)
        for chart, case in zip(charts, cases, strict=True)
    ]
    parts.append(
        f"Left, the first {_SHOWN} half-warps of all SMs; right, the bus in numbers of SMs."
    )
    gbs = [chart.run.bandwidth_gbs for chart in charts]
    save(figure, svg, f"Figure {number}: {what}", " ".join(parts), bandwidth_gbs=gbs)


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
    start, unit = _first(chart), chart.unit
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
    burst, unit = blocks * chart.transfer_cycles, chart.unit
    against = "shorter than" if burst < unit else "not shorter than"
    step = "SMs compute in step" if in_step(chart.run.events) else "SMs do not compute in step"
    gbs = chart.run.bandwidth_gbs
    return (
        f"{name.capitalize()}, {blocks} blocks: {step}; a burst of {blocks} transfers takes "
        f"{plural(burst, 'cycle')}, {against} the {unit} of an index computation: {gbs:.2f} GB/s, "
        f"{gbs / one:.2f} times one block of float."
    )


DRAWINGS: tuple[Drawing, ...] = tuple(
    Drawing(number, picture, partial(together, number=number, cases=cases))
    for number, picture, cases in (
        (21, "blockEqPartition_p14.jpg", ((FLOAT, 2),)),
        (22, "blockEqPartition_p15.jpg", ((DOUBLE, 2), (FLOAT, 4))),
        (23, "blockEqPartition_p16.jpg", ((DOUBLE, 4), (FLOAT, 8))),
        (24, "blockEqPartition_p17.jpg", ((DOUBLE, 8),)),
    )
)
