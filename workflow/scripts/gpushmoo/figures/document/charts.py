"""All Gantt charts of the document, in the order of their numbers."""

from __future__ import annotations

from .charts_bus import DRAWINGS as BUS
from .charts_queues import DRAWINGS as QUEUES
from .charts_read import DRAWINGS as READ
from .charts_saturated import DRAWINGS as SATURATED
from .charts_write import DRAWINGS as WRITE
from .drawing import Drawing

DRAWINGS: tuple[Drawing, ...] = tuple(
    sorted((*READ, *QUEUES, *BUS, *WRITE, *SATURATED), key=lambda drawing: drawing.number)
)
