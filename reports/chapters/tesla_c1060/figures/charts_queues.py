"""Ready-queue and waiting-queue of one SM at three moments of the chart of reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gpushmoo.figures.style import save
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from ..charts import Queues, queues_at
from ..simulation.machine import Machine
from . import chart_bars as bars
from .chart_bars import FLOAT, LOOKS, plural
from .drawing import CELL_SIZE, NOTE_SIZE, Drawing

_ROWS = ("ready-queue", "SM takes", "waiting-queue")


def queues(machine: Machine, svg: Path, *, number: int, unit_number: int) -> None:
    """Both queues at the end of a time unit, when the scheduler has chosen."""
    chart = bars.reads(machine, FLOAT, 1)
    time, count = unit_number * chart.unit, chart.load.half_warps
    found = queues_at(chart.bars(), time, count)
    back = {t.half_warp for t in chart.transfers if t.end <= time}
    figure, (ax,) = bars.panes([(-0.2, count)], 1.5)
    _draw_queues(ax, found, back)
    handles = [Patch(fc="white", ec="black", lw=0.5, label="ready")]
    if back:
        handles.append(Patch(fc="white", ec="black", lw=1.6, label="ready, its data are back"))
    handles += [Patch(fc=LOOKS[p].colour, label=LOOKS[p].label) for p in ("index", "read")]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=NOTE_SIZE)
    title = f"Figure {number}: queues of one SM at the end of time unit {unit_number}"
    caption = _caption(found, back, unit_number, chart.unit)
    save(figure, svg, title, caption, ready=len(found.ready), waiting=len(found.waiting))


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


DRAWINGS: tuple[Drawing, ...] = tuple(
    Drawing(number, picture, partial(queues, number=number, unit_number=unit_number))
    for number, picture, unit_number in (
        (14, "blockEqPartition_p7.jpg", 1),
        (15, "blockEqPartition_p8.jpg", 22),
        (16, "blockEqPartition_p9.jpg", 32),
    )
)
