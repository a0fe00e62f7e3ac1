"""Gantt chart of the first tiles on one multiprocessor of a simulated device."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..model.gantt import FIRST_ASSUMPTIONS, Chart, Event, Workload, simulate
from ..model.machine import load_machine
from .style import OKABE_ITO, PAGE_WIDTH, apply_style, save

PHASES = {
    "index": (OKABE_ITO[0], "index computation"),
    "read": ("#c9d7e3", "read: latency and transfer"),
    "write": (OKABE_ITO[1], "write command"),
    "store": ("#f3dcc8", "write: latency and transfer"),
}
HALF_WARPS = 32
EVENTS = 2 * HALF_WARPS * 4


def gantt(device_file: Path, svg: Path) -> None:
    """One float tile and the start of the next, as the document charts it (unit 20 cycles)."""
    apply_style()
    machine = load_machine(device_file)
    unit = FIRST_ASSUMPTIONS.index_cycles
    run = simulate(
        machine,
        Workload.square(machine, 256, 4),
        1,
        chart=Chart(writes=True, slotted=True),
        assumptions=FIRST_ASSUMPTIONS,
        trace_limit=EVENTS,
    )
    period = float(run.tile_starts[0][1] - run.tile_starts[0][0]) / unit
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.6))
    for event in run.events:
        _bar(ax, event, unit)
    ax.axvline(period, color="black", lw=0.8, ls="--")
    ax.annotate(
        f"next tile starts\nafter {period:.0f} units",
        (period, HALF_WARPS - 1),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=7.5,
        va="bottom",
        bbox={"fc": "white", "ec": "none", "pad": 1},
    )
    ax.set_xlim(0, 1.4 * period)
    ax.set_ylim(HALF_WARPS - 0.4, -0.6)
    ax.set_xlabel(f"time (units of {unit} core cycles)")
    ax.set_ylabel("half-warp")
    handles = [Patch(fc=c, ec="none", label=label) for c, label in PHASES.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7.5)
    caption = (
        "The multiprocessor computes 32 indices one after the other; the first data are back long "
        "before, but round robin lets the write commands wait until all indices are computed. "
        f"A tile so takes {period:.0f} units, not the 32 that its computations need."
    )
    title = f"Simulated {machine.name}: one block copying one 64 × 8 float tile"
    save(figure, svg, title, caption, period_units=period)


def _bar(ax: Axes, event: Event, unit: int) -> None:
    colour, _ = PHASES[event.phase]
    thin = event.phase in ("read", "store")
    ax.barh(
        event.half_warp,
        float(event.end - event.start) / unit,
        left=float(event.start) / unit,
        height=0.35 if thin else 0.8,
        color=colour,
        linewidth=0,
        zorder=1 if thin else 2,
    )
