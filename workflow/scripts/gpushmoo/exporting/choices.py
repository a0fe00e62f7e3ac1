"""Which launch a program is told to use: for each device, kernel, type and class of sizes one.

Of launches that cannot be told from the fastest any may be taken; which one, the report and this
ask the same function (`analysis.best.launch_to_use`). What it costs where it is not tied is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from ..analysis.best import (
    DEFAULT_BLOCKS,
    VERSION,
    Contest,
    default_launch,
    launch_to_use,
    place,
    tied_best,
)
from ..analysis.fastest import axes_of
from ..core.errors import UserError
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


class ExportError(UserError, ValueError):
    """What was asked cannot be exported; one sentence."""


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


# Where a class's bytes lie, by what `analysis.best.place` says.
CLASSES = {"cache": "in_cache", "between": "around_cache", "memory": "in_memory"}
SLOWEST, NEXT = "the slowest launch", "the fastest launch that is not tied"


@dataclass(frozen=True)
class Margin:
    """By how much another launch is slower than the chosen one on the same problem.

    Shares of the chosen one's time. `low` to `high` holds with `confidence` at least: it is made of
    the two medians' intervals without what the cells of a group share, of which each holds with its
    own confidence.
    """

    name: str
    point: Point
    slower: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Choice:
    """The launch for the problems of one class.

    `target` are the columns TARGET, `conditions` the values of CONDITIONS. `tied` are the groups,
    of all of the target's, in whose tied sets the launch is, those of the class first; `not_tied`
    the groups of the class in which it is not. `everywhere` says whether it is tied in every group
    of the target. `main` is the class's largest problem, of which `margins` speak.
    """

    target: Mapping[str, str]
    size_class: str
    conditions: Sequence[str]
    point: Point
    tied: Sequence[ExportGroup]
    not_tied: Sequence[ExportGroup]
    everywhere: bool
    main: ExportGroup
    margins: Sequence[Margin]


def size_class(group: ExportGroup) -> str:
    """A key of CLASSES' values; of a device that does not tell its cache's size ``1024x1024``."""
    where = place(group.fastest["working_set_over_cache"])
    return CLASSES.get(where, group.size)


def choices(groups: Iterable[ExportGroup]) -> list[Choice]:
    """The choices for all classes of all targets, sorted; each group has an ``ok`` cell and axes.

    Classes are told apart by where the data lie and by what launches meet, CONDITIONS.
    """
    targets: dict[tuple[str, ...], list[ExportGroup]] = {}
    for group in groups:
        targets.setdefault(tuple(str(group.key[c]) for c in TARGET), []).append(group)
    return [
        choice
        for names, members in sorted(targets.items())
        for choice in _of_target(dict(zip(TARGET, names, strict=True)), members)
    ]


def _of_target(target: Mapping[str, str], groups: Sequence[ExportGroup]) -> list[Choice]:
    classes: dict[tuple[Any, ...], list[ExportGroup]] = {}
    order = [*CLASSES.values()]
    for group in sorted(groups, key=lambda g: g.elements):
        name = size_class(group)
        rank = order.index(name) if name in order else group.elements
        unusual = [(value not in USUAL, value) for value in group.conditions]
        classes.setdefault((*unusual, rank, name), []).append(group)
    made = []
    for (*_, name), members in sorted(classes.items()):
        point = launch_to_use(*([_contest(g) for g in some] for some in (members, groups)))
        main = members[-1]
        made.append(
            Choice(
                target=target,
                size_class=name,
                conditions=main.conditions,
                point=point,
                tied=[g for g in _first(members, groups) if point in g.tied],
                not_tied=[g for g in members if point not in g.tied],
                everywhere=all(point in g.tied for g in groups),
                main=main,
                margins=margins(main, point),
            )
        )
    return made


def _first(members: Sequence[ExportGroup], groups: Sequence[ExportGroup]) -> list[ExportGroup]:
    """All of `groups`, `members` before the others."""
    return sorted(groups, key=lambda group: all(group is not member for member in members))


def _contest(group: ExportGroup) -> Contest[Point]:
    return Contest({p: float(row["median_s"]) for p, row in group.ok.items()}, group.tied)


def margins(group: ExportGroup, point: Point) -> list[Margin]:
    """What usual blocks, the best launch that is not tied and the slowest cost; none of `point`.

    Empty where the launch was not measured in the group, or is the only one.
    """
    if point not in group.ok:
        return []
    axes, values = [a for a, _ in point], tuple(v for _, v in point)
    others: dict[str, Point] = {}
    for name, block in DEFAULT_BLOCKS.items():
        usual = default_launch(values, axes, block)
        if usual is not None:
            others[f"{name.replace(' × ', 'x')} block"] = tuple(zip(axes, usual, strict=True))
    launches = list(group.ok)
    if (beaten := next((p for p in launches if p not in group.tied), None)) is not None:
        others[NEXT] = beaten
    others[SLOWEST] = launches[-1]
    return [
        _margin(name, p, group.ok[p], group.ok[point])
        for name, p in others.items()
        if p in group.ok and p != point
    ]


def _margin(name: str, point: Point, other: Mapping[str, Any], chosen: Mapping[str, Any]) -> Margin:
    return Margin(
        name,
        point,
        slower=float(other["median_s"] / chosen["median_s"] - 1.0),
        low=float(other["own_low_s"] / chosen["own_high_s"] - 1.0),
        high=float(other["own_high_s"] / chosen["own_low_s"] - 1.0),
        confidence=max(0.0, float(other["coverage"] + chosen["coverage"] - 1.0)),
    )
