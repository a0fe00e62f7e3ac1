"""What the drawings of the document share: fills, bars, lanes and breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from ..charts import Charted, CopyPhase, Transfer, charted
from ..simulation.machine import Machine
from ..simulation.reference import TileCopy

# Paul Tol's light palette: color-blind readers can distinguish the colors, and read black text on
# them.
PARTITION_COLOURS = (
    "#77AADD",
    "#EE8866",
    "#EEDD88",
    "#FFAABB",
    "#99DDFF",
    "#44BB99",
    "#BBCC33",
    "#AAAA00",
)
NEUTRAL = "#DDDDDD"

# Text inside cells and bars, beside them, in points.
CELL_SIZE = 6.0
NOTE_SIZE = 7.5


@dataclass(frozen=True)
class Drawing:
    """A figure of the document: its number, its picture's file name there, and how it is drawn.

    `draw` writes the SVG that it is given and, beside it, a JSON with title and caption.
    """

    number: int
    picture: str
    draw: Callable[[Machine, Path], None]


def partition_colour(partition: int) -> str:
    """The fill of a partition, the same in all drawings; print its number too.

    With more than eight partitions colours repeat.
    """
    return PARTITION_COLOURS[partition % len(PARTITION_COLOURS)]


def cell(
    ax: Axes,
    corner: tuple[float, float],
    size: tuple[float, float],
    colour: str,
    text: str = "",
    *,
    points: float = CELL_SIZE,
    ink: str = "black",
) -> None:
    """A filled rectangle with a thin edge and `text` in its middle, in units of the axes."""
    ax.add_patch(Rectangle(corner, *size, fc=colour, ec="#555555", lw=0.4, clip_on=False))
    if text:
        x, y = corner[0] + size[0] / 2, corner[1] + size[1] / 2
        ax.text(x, y, text, fontsize=points, color=ink, ha="center", va="center_baseline")


def frame(ax: Axes, corner: tuple[float, float], size: tuple[float, float]) -> None:
    """A thick black outline around what belongs together."""
    outline = Rectangle(corner, *size, fill=False, ec="black", lw=1.2, zorder=4, clip_on=False)
    ax.add_patch(outline)


Time = Fraction | float

FLOAT, DOUBLE = 4, 8
NAMES = {FLOAT: "float", DOUBLE: "double"}
SIDE = 256
# Between lanes that are left out.
GAP = "⋮"
# Share of a pane's width: bars narrower than this are not hatched.
_HATCHED = 0.006


@dataclass(frozen=True)
class Look:
    """Style of the bars of one meaning; hatch and height also distinguish them in grey prints."""

    colour: str
    label: str
    height: float = 0.8
    hatch: str = ""
    edge: str = "none"


LOOKS = {
    "index": Look(OKABE_ITO[0], "index computation"),
    "read": Look("#c9d7e3", "waiting for a read", height=0.34),
    "read data": Look(OKABE_ITO[2], "bus transfer of a read", hatch="////"),
    "write": Look(OKABE_ITO[1], "write command", hatch="\\\\\\\\"),
    "store": Look("#f3dcc8", "waiting for a write", height=0.34, edge="#9c7b5e"),
    "store data": Look(OKABE_ITO[4], "bus transfer of a write", hatch="xxxx"),
}
# Waiting is drawn behind the bar that it ends with.
_ORDER = ("read", "store", "index", "write", "read data", "store data")


class Lane(NamedTuple):
    """A bar to draw: its row, its meaning (a key of LOOKS), its begin and end in core cycles."""

    row: float
    phase: str
    start: Time
    end: Time


def on_bus(row: float, item: Transfer | CopyPhase) -> Lane:
    """The bar of a transfer in the colour of transfers."""
    return Lane(row, f"{item.phase} data", item.start, item.end)


def mark_breaks(axes: Sequence[Axes]) -> None:
    """Two slanted strokes on the axis of time wherever a stretch is left out."""
    for number, ax in enumerate(axes):
        if number:
            ax.spines["left"].set_visible(False)
            ax.tick_params(axis="y", left=False, labelleft=False)
        for at in [0.0] * (number > 0) + [1.0] * (number < len(axes) - 1):
            ax.plot(
                [at],
                [0],
                transform=ax.transAxes,
                marker=[(-0.6, -1), (0.6, 1)],
                ms=7,
                mec="black",
                mew=0.9,
                ls="none",
                clip_on=False,
            )


def name_lanes(axes: Sequence[Axes], labels: Sequence[str]) -> None:
    """Name the rows from the top; an empty label leaves its row without a tick."""
    for number, ax in enumerate(axes):
        named = [row for row, label in enumerate(labels) if label]
        shown = [labels[row] for row in named] if not number else []
        ax.set_yticks(named, shown, fontsize=NOTE_SIZE)
        ax.set_ylim(len(labels) - 0.45, -0.55)
        ax.tick_params(axis="y", length=0)
        ax.tick_params(axis="x", labelsize=NOTE_SIZE)
        ax.xaxis.set_major_locator(MaxNLocator(max(5, round(11 * _share(ax))), steps=[1, 2, 5, 10]))


def _share(ax: Axes) -> float:
    """Return the width of a pane as a share of the figure's, before the layout reduces it."""
    figure = ax.get_figure(root=True)
    spec = ax.get_subplotspec()
    return 1.0 if figure is None or spec is None else float(spec.get_position(figure).width)


def draw_bars(ax: Axes, lanes: Iterable[Lane], unit: int = 1) -> set[str]:
    """Draw what of the bars is in the pane, in units of `unit` cycles; return their meanings."""
    low, high = ax.get_xlim()
    shown: dict[str, list[tuple[float, float, float]]] = {}
    for lane in lanes:
        start, end = float(lane.start) / unit, float(lane.end) / unit
        if end > low and start < high:
            shown.setdefault(lane.phase, []).append((lane.row, max(start, low), min(end, high)))
    for phase in sorted(shown, key=_ORDER.index):
        _draw_phase(ax, LOOKS[phase], shown[phase], (high - low) * _HATCHED)
    return set(shown)


def _draw_phase(
    ax: Axes, look: Look, bars: Sequence[tuple[float, float, float]], hatched: float
) -> None:
    """Fill and hatch apart: a white hatch over an edge of the bar's own colour."""
    half = look.height / 2
    boxes = [
        [(left, row - half), (right, row - half), (right, row + half), (left, row + half)]
        for row, left, right in bars
    ]
    edge = "white" if look.edge == "none" and look.height > 0.5 else look.edge
    wide = [box for box in boxes if box[1][0] - box[0][0] >= hatched]
    thin = [box for box in boxes if box[1][0] - box[0][0] < hatched]
    zorder = 1 if look.height < 0.5 else 2
    ax.add_collection(
        PolyCollection(wide, fc=look.colour, ec=edge, lw=0.4, zorder=zorder), autolim=False
    )
    # A white edge would leave nothing of these.
    ax.add_collection(
        PolyCollection(thin, fc=look.colour, ec=look.colour, lw=0.5, zorder=zorder + 1),
        autolim=False,
    )
    if look.hatch:
        ax.add_collection(
            PolyCollection(wide, fc="none", ec="white", lw=0, hatch=look.hatch, zorder=zorder),
            autolim=False,
        )


def legend(figure: Figure, phases: set[str]) -> None:
    """Below the chart, what the colours that are shown mean."""
    # In the order of time of a tile, not of drawing.
    handles = [
        Patch(
            fc=look.colour,
            ec="white" if look.hatch else look.edge,
            hatch=look.hatch,
            lw=0.4,
            label=look.label,
        )
        for phase, look in LOOKS.items()
        if phase in phases
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(3, len(handles)), fontsize=NOTE_SIZE
    )


def write_in(ax: Axes, row: float, start: Time, end: Time, text: str, dark: bool = True) -> None:
    """Write a short text in the middle of a bar, on a box that keeps a hatch from hiding it."""
    low, high = ax.get_xlim()
    if float(start) >= high or float(end) <= low:
        return
    ax.text(
        (max(float(start), low) + min(float(end), high)) / 2,
        row,
        text,
        ha="center",
        va="center",
        fontsize=CELL_SIZE,
        color="black" if dark else "white",
        bbox={"fc": "white", "ec": "none", "pad": 0.6} if dark else None,
        zorder=5,
    )


def head(ax: Axes, at: Time, text: str, side: str = "center") -> None:
    """A few words above the pane, at a moment."""
    ax.annotate(
        text,
        (float(at), 1),
        xycoords=ax.get_xaxis_transform(),
        xytext=(0, 2),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=NOTE_SIZE,
    )


def rule(ax: Axes, at: Time, text: str, side: str = "center") -> None:
    """A dashed line at a moment, with its meaning above the pane."""
    ax.axvline(float(at), color="black", lw=0.8, ls="--", zorder=4)
    head(ax, at, text, side)


def note_beside(ax: Axes, at: Time, row: float, text: str) -> None:
    """A few words to the right of a bar that ends at `at`."""
    ax.annotate(
        text,
        (float(at), row),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=NOTE_SIZE,
    )


def name_time(axes: Sequence[Axes], unit: int = 1) -> None:
    """Name the axis of time of the widest pane: core cycles, or units of `unit` of them."""
    words = f"units of {unit} core cycles" if unit > 1 else "core cycles"
    # Constrained layout keeps a legend below away from a pane's label, not from a figure's.
    widest = max(axes, key=_share)
    widest.set_xlabel(f"time ({words})", fontsize=NOTE_SIZE)


def ends(count: int, first: int, last: int) -> list[int | None]:
    """Numbers below `count`: the first and the last ones, and None where the middle is left out."""
    if count <= first + last + 1:
        return list(range(count))
    return [*range(first), None, *range(count - last, count)]


def names(prefix: str, numbers: Iterable[int | None]) -> list[str]:
    """Labels of lanes, with dots where lanes are left out."""
    return [GAP if number is None else f"{prefix}{number}" for number in numbers]


def reads(machine: Machine, itemsize: int, blocks: int) -> Charted:
    """The document's 256 × 256 elements, only read, under its first assumptions."""
    return charted(machine, TileCopy.square(machine, SIDE, itemsize), blocks)


def lanes_of_block(chart: Charted, rows: Mapping[int, float], block: int = 0) -> list[Lane]:
    """Bars and transfers of the half-warps of one block that have a row."""
    bars = [Lane(rows[e.half_warp], *e[3:]) for e in chart.bars(block) if e.half_warp in rows]
    own = [t for t in chart.transfers if t.block == block and t.half_warp in rows]
    return bars + [on_bus(rows[t.half_warp], t) for t in own]


class Gantt:
    """A figure of bars, with one pane for each stretch of time and breaks where time is left out.

    Time is in units of `unit` core cycles.
    """

    def __init__(
        self,
        windows: Sequence[tuple[Time, Time]],
        height: float,
        ratios: Sequence[float] | None = None,
        unit: int = 1,
    ) -> None:
        """`windows` are begin and end of each stretch, `ratios` the panes' widths."""
        apply_style()
        self.figure, grid = plt.subplots(
            1, len(windows), figsize=(PAGE_WIDTH, height), squeeze=False, width_ratios=ratios
        )
        self.axes = list(grid[0])
        self.unit = unit
        # Meanings of the bars that were drawn.
        self.shown: set[str] = set()
        for ax, (low, high) in zip(self.axes, windows, strict=True):
            ax.set_xlim(float(low), float(high))
        mark_breaks(self.axes)

    def draw(self, lanes: Iterable[Lane]) -> None:
        """Draw in each pane what of the bars is there."""
        bars = list(lanes)
        for ax in self.axes:
            self.shown |= draw_bars(ax, bars, self.unit)

    def draw_half_warps(self, chart: Charted) -> None:
        """One lane for every half-warp of the first block; every fourth one is named."""
        count = chart.load.half_warps
        self.draw(lanes_of_block(chart, {n: n for n in range(count)}))
        named = {*range(0, count, 4), count - 1} - ({count - 2, count - 3} if count > 4 else set())
        name_lanes(self.axes, [f"hw{n}" if n in named else "" for n in range(count)])

    def save(self, svg: Path, title: str, caption: str) -> None:
        """Name the axis of time and the colours, and write the figure."""
        name_time(self.axes, self.unit)
        legend(self.figure, self.shown)
        save(self.figure, svg, title, caption)


def plural(count: Fraction | int, noun: str) -> str:
    """A number in decimals with its noun."""
    return f"{float(count):g} {noun}{'s' * (count != 1)}"
