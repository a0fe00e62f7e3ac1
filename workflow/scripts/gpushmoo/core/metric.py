"""Express the speed of launches in the unit that fits: bytes, otherwise work, otherwise time.

Launches are ranked by their times alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from .display import significant

# One row of cells, whose figures are numbers, or a frame, whose figures are columns.
Rows: TypeAlias = pd.DataFrame | Mapping[str, Any]


class Speeds(NamedTuple):
    """Figures with the ends of their 95 % intervals."""

    value: Any
    low: Any
    high: Any


@dataclass(frozen=True)
class Metric:
    """Figure of merit: its name in a sentence, its unit, and whether higher is better."""

    name: str
    unit: str
    larger: bool = True

    def of(self, cells: Rows) -> Speeds:
        """Return the figures of verified cells."""
        if self == BANDWIDTH:
            return Speeds(*(cells[f"bandwidth_{end}gbs"] for end in ("", "low_", "high_")))
        median, low, high = (cells[f"median_{end}s"] for end in ("", "low_", "high_"))
        if self == TIME:
            return Speeds(median * 1e6, low * 1e6, high * 1e6)
        giga = cells["work"] * 1e-9
        return Speeds(giga / median, giga / high, giga / low)

    def text(self, value: float) -> str:
        """Return the value with three digits and its unit, ``12.3 GB/s``."""
        return f"{significant(value)} {self.unit}"

    @property
    def label(self) -> str:
        """Name and unit as the label of a figure's axis."""
        return f"{self.unit}, read + written" if self == BANDWIDTH else f"{self.unit} ({self.name})"


BANDWIDTH, TIME = Metric("bandwidth", "GB/s"), Metric("time", "µs", larger=False)
# Heading of figures with several units.
SEVERAL = "speed"


def metric_of(cells: Rows) -> Metric:
    """Return the figure of merit that applies to all verified ones of `cells`."""
    if isinstance(cells, pd.DataFrame):
        cells = cells[cells["median_s"].notna()]
    if np.all(pd.notna(cells["bandwidth_gbs"])):
        return BANDWIDTH
    work, unit = cells.get("work"), cells.get("work_unit")
    units = set(unit) if isinstance(unit, pd.Series) else {unit}
    if work is None or len(units) > 1 or not np.all(pd.notna(work)):
        return TIME
    return Metric("rate", f"G{units.pop()}/s")


def share_of_best(cells: pd.DataFrame) -> pd.Series:
    """Return the time of the fastest of `cells` divided by each cell's time."""
    return cells["median_s"].min() / cells["median_s"]


def heading_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the unit of all rows as the head of a column; SEVERAL if the units differ."""
    units = {metric_of(row).unit for row in rows} or {BANDWIDTH.unit}
    return units.pop() if len(units) == 1 else SEVERAL


def speed_text(cell: Mapping[str, Any], heading: str = "") -> str:
    """Return the figure of a row, with its unit if that differs from the column's `heading`."""
    merit = metric_of(cell)
    value = merit.of(cell).value
    return significant(value) if merit.unit == heading else merit.text(value)


def interval(cell: Mapping[str, Any], heading: str = "") -> str:
    """Format the speed with its 95 % interval."""
    _, low, high = metric_of(cell).of(cell)
    return f"{speed_text(cell, heading)} ({significant(low)} to {significant(high)})"


def half_width(cell: Mapping[str, Any]) -> float:
    """Return half of the interval as a share of the figure."""
    value, low, high = metric_of(cell).of(cell)
    return float((high - low) / 2 / value)
