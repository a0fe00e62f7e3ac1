"""What the drawings of the document share: their description, colours of partitions, text sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ..simulation.machine import Machine

# Paul Tol's light palette: told apart by colour-blind readers, and black text is legible on each.
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
