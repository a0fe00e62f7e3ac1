"""Choose the launch that a program should use, for each device, kernel, type and class of sizes.

`analysis.best.launch_to_use` decides, as for the report. If the launch is not tied with the
fastest, the choice states its cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from ..analysis.best import (
    DEFAULT_BLOCKS,
    VERSION,
    Contest,
    cost_of,
    default_launch,
    launch_to_use,
    place,
    tied_best,
)
from ..analysis.fastest import axes_of
from ..core.schema import GROUP, Status
from ..core.space import CACHE_STATES, TIMING_MODES

# Columns that are exported for a launch.
NUMBERS = (
    "median_s",
    "median_low_s",
    "median_high_s",
    "group_low_s",
    "group_high_s",
    "coverage",
    "bandwidth_gbs",
    "bandwidth_low_gbs",
    "bandwidth_high_gbs",
    "memcpy_gbs",
    "vs_memcpy",
    "working_set_over_cache",
)
_FIGURES = [*NUMBERS, "work", "work_unit", "cell_key", "threads_per_block"]
# One launch is chosen per target, and per condition other than the problem.
TARGET = VERSION
CONDITIONS = tuple(name for name in GROUP if name not in (*TARGET, "height", "width"))
# Default conditions, which names leave out: launches that follow each other on the same data.
USUAL = frozenset({CACHE_STATES[0], TIMING_MODES[0]})
# A launch's parameters by axis, the axes sorted.
Point = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class ExportGroup:
    """One group of cells with the values that they share.

    `key` has these values, for example the kernel and the size. `cells` has a row for each launch
    that was requested. `axes` has the names of the launch parameters.
    """

    key: Mapping[str, Any]
    cells: pd.DataFrame
    axes: Sequence[str]

    @cached_property
    def ok(self) -> Mapping[Point, Mapping[str, Any]]:
        """The verified row of each launch, the fastest first.

        Only that if devices repeat a launch.
        """
        ok = self.cells.loc[self.cells["status"] == Status.OK, _FIGURES + list(self.axes)]
        found: dict[Point, Mapping[str, Any]] = {}
        for row in ok.sort_values(["median_s", "cell_key"]).to_dict("records"):
            found.setdefault(point_of(row, self.axes), row)
        return found

    @cached_property
    def fastest(self) -> Mapping[str, Any]:
        """The row of the smallest median; raises StopIteration if no cell is verified."""
        return next(iter(self.ok.values()))

    @cached_property
    def tied(self) -> frozenset[Point]:
        """The launches that are tied with the fastest (`analysis.best`)."""
        rows = tied_best(self.cells)[list(self.axes)].to_dict("records")
        return frozenset(point_of(row, self.axes) for row in rows)

    @cached_property
    def contest(self) -> Contest:
        """The contest of the verified cells (`analysis.best`)."""
        return Contest.of(self.ok)

    @property
    def problem(self) -> str:
        """``1024x1024 warm``, without the default timing mode."""
        return " ".join([self.size, *(c for c in self.conditions if c != TIMING_MODES[0])])

    @property
    def size(self) -> str:
        """The problem's size as ``1024x1024``."""
        return f"{self.key['height']}x{self.key['width']}"

    @property
    def conditions(self) -> tuple[str, ...]:
        """The group's values of CONDITIONS as texts."""
        return tuple(str(self.key[name]) for name in CONDITIONS)

    @property
    def name(self) -> str:
        """The group in words, for sentences."""
        head = " ".join(str(self.key[c]) for c in ("kernel", "variant", "dtype"))
        return f"{head} {self.problem} on {self.key['device_name']}"


def point_of(row: Mapping[str, Any], axes: Sequence[str]) -> Point:
    """Return the launch of a row that has a value on each of `axes`."""
    return tuple((axis, int(row[axis])) for axis in sorted(axes))


def groups_of(cells: pd.DataFrame) -> Iterator[ExportGroup]:
    """Yield the groups of a kernel's cells, sorted."""
    for key, own in cells.groupby(list(GROUP), sort=True, observed=True):
        yield ExportGroup(dict(zip(GROUP, key, strict=True)), own, axes_of(own))


# A class of sizes, by the location of its data (`analysis.best.place`).
CLASSES = {"cache": "in_cache", "between": "around_cache", "memory": "in_memory"}
SLOWEST, NEXT = "the slowest launch", "the fastest launch that is not tied"


@dataclass(frozen=True)
class Margin:
    """How much slower the launch `than` is than the chosen one, on the same problem.

    Values are shares of the chosen one's time. The interval from `low` to `high` has at least the
    given `confidence`: it combines the intervals of both medians, each with its own coverage,
    without the variation that the cells of a group share.
    """

    than: str
    launch: Point
    slower: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Choice:
    """The launch for the problems of one class.

    Attributes
    ----------
    target
        The columns TARGET.
    tied, not_tied
        Groups of the target in whose tied sets the launch is, those of the class first; and groups
        of the class in which it is not tied.
    everywhere
        Whether it is tied in every group of the target.
    main
        The class's largest problem, to which `margins` belong.
    """

    target: Mapping[str, str]
    size_class: str
    point: Point
    tied: Sequence[ExportGroup]
    not_tied: Sequence[ExportGroup]
    everywhere: bool
    main: ExportGroup
    margins: Sequence[Margin]


def choices(groups: Iterable[ExportGroup]) -> list[Choice]:
    """Return the choices for all classes of all targets, sorted.

    A class of problems shares its CONDITIONS and the location of its data. If the device does not
    report the size of its cache, each size is a separate class. Each group must have an ``ok`` cell
    and axes.
    """
    targets: dict[tuple[str, ...], list[ExportGroup]] = {}
    for group in groups:
        targets.setdefault(tuple(str(group.key[c]) for c in TARGET), []).append(group)
    made = []
    for names, members in sorted(targets.items()):
        classes: dict[tuple[Any, ...], list[ExportGroup]] = {}
        for group in sorted(members, key=_elements):
            classes.setdefault(_class(group), []).append(group)
        target = dict(zip(TARGET, names, strict=True))
        made += [
            _choice(target, name, some, members) for (*_, name), some in sorted(classes.items())
        ]
    return made


def choices_frame(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each choice.

    `slower` is its cost at the class's largest size, as a share.
    """
    usable = [group for group in groups_of(cells) if group.ok]
    return pd.DataFrame(
        {
            **choice.target,
            "size_class": choice.size_class,
            **{name: choice.main.key[name] for name in CONDITIONS},
            **dict(choice.point),
            "slower": choice.main.contest.slower(choice.point),
        }
        for choice in choices(usable)
    )


def _elements(group: ExportGroup) -> int:
    return int(group.key["height"]) * int(group.key["width"])


def _class(group: ExportGroup) -> tuple[Any, ...]:
    """Return a sort key of the group's class, which ends in the name of the class."""
    where = place(group.fastest["working_set_over_cache"])
    rank = list(CLASSES).index(where) if where in CLASSES else _elements(group)
    unusual = [(value not in USUAL, value) for value in group.conditions]
    return *unusual, rank, CLASSES.get(where, group.size)


def _choice(
    target: Mapping[str, str],
    size_class: str,
    members: Sequence[ExportGroup],
    groups: Sequence[ExportGroup],
) -> Choice:
    """Choose the launch for `members`, the groups of a class, out of all `groups` of the target."""
    point = launch_to_use([g.contest for g in members])
    return Choice(
        target=target,
        size_class=size_class,
        point=point,
        tied=[g for g in sorted(groups, key=lambda g: g not in members) if point in g.tied],
        not_tied=[g for g in members if point not in g.tied],
        everywhere=all(point in g.tied for g in groups),
        main=members[-1],
        margins=margins(members[-1], point),
    )


def margins(group: ExportGroup, point: Point) -> list[Margin]:
    """Return how much slower other launches are than the recommended one, in one group.

    The others are the common block sizes, the fastest launch that is not tied, and the slowest
    launch.

    Parameters
    ----------
    group
        The group.
    point
        Launch parameters of the recommended launch. If it was not verified in the group, the result
        is empty.
    """
    if point not in group.ok:
        return []
    axes = [a for a, _ in point]
    values = tuple(v for _, v in point)
    others: dict[str, Point] = {}
    for name, block in DEFAULT_BLOCKS.items():
        usual = default_launch(values, axes, block)
        if usual is not None:
            others[f"{name.replace(' × ', 'x')} block"] = tuple(zip(axes, usual, strict=True))
    launches = list(group.ok)
    if (beaten := next((p for p in launches if p not in group.tied), None)) is not None:
        others[NEXT] = beaten
    others[SLOWEST] = launches[-1]
    chosen = group.ok[point]
    found = [(name, p, group.ok[p]) for name, p in others.items() if p != point and p in group.ok]
    sure = [max(0.0, float(row["coverage"] + chosen["coverage"] - 1.0)) for *_, row in found]
    costs = [cost_of(row, chosen) for *_, row in found]
    return [
        Margin(name, p, cost.value, cost.low, cost.high, confidence)
        for (name, p, _), cost, confidence in zip(found, costs, sure, strict=True)
    ]
