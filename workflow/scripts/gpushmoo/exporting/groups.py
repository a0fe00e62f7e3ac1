"""Cells that compete, by launch: what the formats are written of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from ..analysis.advice import VERSION
from ..analysis.best import tied_best
from ..analysis.fastest import axes_of
from ..core.schema import GROUP, Status
from ..core.space import CACHE_STATES, LAUNCH_KINDS
from ..storage.dataset import SAMPLES

# What is told of a launch, in the units of the data set.
NUMBERS = (
    *("median_s", "median_low_s", "median_high_s", "own_low_s", "own_high_s", "coverage"),
    *("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs"),
    *("copy_gbs", "over_copy", "working_set_over_cache"),
)
# What one launch is chosen for, and what a launch meets besides the problem.
TARGET = VERSION
CONDITIONS = tuple(name for name in GROUP if name not in (*TARGET, "height", "width"))
# Conditions that go without saying: launches that follow each other on the same data.
USUAL = frozenset({CACHE_STATES[0], LAUNCH_KINDS[0]})
# A launch's parameters by axis, the axes sorted.
Point = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ExportGroup:
    """The cells of one group (columns GROUP): all launches that were asked of one problem.

    `cells` are its rows of the data set, `axes` its launch parameters.
    """

    key: Mapping[str, Any]
    cells: pd.DataFrame
    axes: Sequence[str]

    @cached_property
    def ok(self) -> Mapping[Point, Mapping[str, Any]]:
        """The verified row of each launch, the faster one where several devices measured it."""
        ok = self.cells.loc[self.cells["status"] == Status.OK, [*NUMBERS, "cell_key", *self.axes]]
        ok = ok.sort_values(["median_s", "cell_key"])
        found: dict[Point, Mapping[str, Any]] = {}
        for row in ok.to_dict("records"):
            found.setdefault(point_of(row, self.axes), row)
        return found

    @cached_property
    def fastest(self) -> Mapping[str, Any]:
        """The row of the smallest median. Raises StopIteration where nothing is `ok`."""
        return next(iter(self.ok.values()))

    @cached_property
    def tied(self) -> frozenset[Point]:
        """The launches that cannot be told from the fastest (`analysis.best`)."""
        rows = tied_best(self.cells)[list(self.axes)].to_dict("records")
        return frozenset(point_of(row, self.axes) for row in rows)

    def without_samples(self) -> ExportGroup:
        """The same, a hundredth as large."""
        return replace(self, cells=self.cells.drop(columns=list(SAMPLES)))

    def slower(self, point: Point) -> float | None:
        """Share of the fastest's median that a launch takes longer; None if it is not `ok`."""
        row = self.ok.get(point)
        return None if row is None else float(row["median_s"] / self.fastest["median_s"] - 1.0)

    @property
    def problem(self) -> str:
        """``1024x1024 warm``; the usual kind of launch goes without saying."""
        return " ".join([self.size, *(c for c in self.conditions if c != LAUNCH_KINDS[0])])

    @property
    def size(self) -> str:
        """``1024x1024``."""
        return f"{self.key['height']}x{self.key['width']}"

    @property
    def elements(self) -> int:
        """Elements of the problem."""
        return int(self.key["height"]) * int(self.key["width"])

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the launches met: the values of CONDITIONS."""
        return tuple(str(self.key[name]) for name in CONDITIONS)

    @property
    def name(self) -> str:
        """The group in words, for sentences."""
        head = " ".join(str(self.key[c]) for c in ("kernel", "variant", "dtype"))
        return f"{head} {self.problem} on {self.key['device_name']}"


def point_of(row: Mapping[str, Any], axes: Sequence[str]) -> Point:
    """The launch of a row that has a value on each of `axes`."""
    return tuple((axis, int(row[axis])) for axis in sorted(axes))


def groups_of(cells: pd.DataFrame) -> Iterator[ExportGroup]:
    """The groups of a kernel's cells, sorted."""
    for key, own in cells.groupby(list(GROUP), sort=True, observed=True):
        yield ExportGroup(dict(zip(GROUP, key, strict=True)), own, axes_of(own))
