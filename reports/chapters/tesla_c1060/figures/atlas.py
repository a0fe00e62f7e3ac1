"""All drawings of the document's figures, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..simulation.machine import Machine
from .charts_bus import DRAWINGS as BUS
from .charts_queues import DRAWINGS as QUEUES
from .charts_read import DRAWINGS as READ
from .charts_saturated import DRAWINGS as SATURATED
from .charts_write import DRAWINGS as WRITE
from .coalescing import DRAWINGS as COALESCING
from .dram_cycles import DRAWINGS as DRAM_CYCLES
from .drawing import Drawing
from .maps import DRAWINGS as MAPS


def in_order(drawings: Iterable[Drawing]) -> tuple[Drawing, ...]:
    """The drawings by number; ValueError where two have the same one."""
    by_number: dict[int, Drawing] = {}
    for drawing in drawings:
        other = by_number.setdefault(drawing.number, drawing)
        if other is not drawing:
            raise ValueError(
                f"figure {drawing.number} has two drawings: {other.picture} and {drawing.picture}."
            )
    return tuple(by_number[number] for number in sorted(by_number))


# The Gantt charts among them.
CHARTS = in_order((*READ, *QUEUES, *BUS, *WRITE, *SATURATED))
DRAWINGS: tuple[Drawing, ...] = in_order((*COALESCING, *MAPS, *DRAM_CYCLES, *CHARTS))


def draw_all(machine: Machine, folder: Path) -> list[Path]:
    """Draw them into `folder`, as figure-01.svg and so on; return the files in that order."""
    files = []
    for drawing in DRAWINGS:
        files.append(folder / f"figure-{drawing.number:02d}.svg")
        drawing.draw(machine, files[-1])
    return files
