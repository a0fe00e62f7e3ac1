"""Which launch to use for each kernel and element type, and what other launches cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import pandas as pd

from ..core.schema import GROUP, Status
from ..core.space import CACHE_STATES
from ..storage.dataset import matching
from .ceiling import CeilingRow, CeilingShare, told_share
from .fastest import INSIDE, OUTSIDE, axes_of

# The axes of a block, in the order in which its shape is said.
BLOCK_AXES = ("block_x", "block_y", "block_z")
# Blocks that programs use where nobody has measured; a side that is not named has one thread.
DEFAULT_BLOCKS = {
    "256 × 1": {"block_x": 256},
    "16 × 16": {"block_x": 16, "block_y": 16},
    "32 × 8": {"block_x": 32, "block_y": 8},
}
# Values of a group's axes.
Launch = tuple[Any, ...]
# What a program compiles one launch for.
VERSION = ("device_name", "kernel", "variant", "dtype")
# What tells a launch from others of its kernel, whatever a caller calls it by.
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Contest(Generic[_Key]):
    """The launches of one group: seconds of each that is verified, and which cannot be told apart.

    `tied` are those that are not to be told from the fastest.
    """

    times: Mapping[_Key, float]
    tied: frozenset[_Key]

    def slower(self, launch: _Key) -> float | None:
        """The share by which a launch takes longer than the fastest; None if it is not verified."""
        return None if launch not in self.times else self.times[launch] / self._least - 1.0

    @cached_property
    def _least(self) -> float:
        return min(self.times.values())


def launch_to_use(members: Sequence[Contest[_Key]], groups: Sequence[Contest[_Key]]) -> _Key:
    """The launch for `members`, groups that are alike, of all `groups` of a kernel's version.

    One that is tied in all groups, where there is such a one: a program then needs one launch. Else
    one tied in all members, else in the last of them. Of several the one that loses least at its
    worst.
    """
    pool, asked = frozenset.intersection(*(g.tied for g in groups)), groups
    if not pool:
        asked = members
        pool = frozenset.intersection(*(g.tied for g in members)) or members[-1].tied

    def worst(launch: _Key) -> float:
        costs = [g.slower(launch) for g in asked]
        return max(math.inf if c is None else c for c in costs)

    return min(sorted(pool), key=worst)  # type: ignore[type-var]


@dataclass(frozen=True)
class InCache:
    """What is fastest where the bytes fit the cache, and what the launch for memory costs there.

    `best` is a row of the data set. `cost` is a share of the time, None if that launch was not
    measured there.
    """

    best: Mapping[str, Any]
    cost: float | None


@dataclass(frozen=True)
class Advice:
    """The launch to use for one kernel, element type and kind of launch on one device.

    `group` are the columns GROUP of the problem that stands for the others: the largest, warm where
    it was swept so, in the fastest variant. `cell` is the
    launch's row of the data set, `axes` the launch parameters of its group. `place` says where that
    problem's bytes lie: ``cache``, ``memory``, ``between``, or ``unknown`` where the device does
    not tell its cache's size. `of_ceiling` is what that launch reaches there of what loading and
    storing its bytes allow; None where that is not known.

    `tied` of `candidates` launches cannot be told from the fastest. `defaults` has the cost of each
    of DEFAULT_BLOCKS that was swept, `worst` that of the slowest valid launch. Costs are shares of
    the time: 0.1 is 10 % slower. `in_cache` is of the largest size that fits the cache.
    """

    group: Mapping[str, Any]
    cell: Mapping[str, Any]
    axes: Sequence[str]
    place: str
    tied: int
    candidates: int
    of_ceiling: CeilingShare | None
    edge: str
    defaults: Mapping[str, float]
    worst: float
    in_cache: InCache | None = None

    @property
    def undecided(self) -> bool:
        """Whether no launch can be told from any other, so that none of them is the best."""
        return self.tied == self.candidates > 1


def advice(
    cells: pd.DataFrame, best: pd.DataFrame, ceiling: Sequence[CeilingRow] = ()
) -> list[Advice]:
    """One for each device, kernel, kind of launch and element type with a verified cell, sorted.

    `best` has the rows of `best_schema`, without those of variants that are not to win; those
    without a share of the ceiling are told none of `ceiling` either.
    """
    ok = cells[cells["status"] == Status.OK]
    groups = dict(list(ok.groupby(list(GROUP), sort=False, observed=True)))
    tops = best[best["is_fastest"]]
    out = []
    names = ["device_name", "kernel", "launch_kind", "dtype"]
    tied = {key: set(rows["cell_key"]) for key, rows in best.groupby(list(GROUP), observed=True)}
    for _, own in tops.groupby(names, sort=True, observed=True):
        top = _main(own)
        same_version = matching(tops, {name: top[name] for name in VERSION})
        out.append(_advice(top, same_version, groups, tied, ceiling))
    return out


def _main(tops: pd.DataFrame) -> pd.Series:
    """Of the fastest cells of a kernel's groups that of the problem that stands for the rest."""
    elements = tops["height"] * tops["width"]
    largest = tops[elements == elements.max()]
    state = next(s for s in CACHE_STATES if s in set(largest["cache_state"]))
    in_state = largest[largest["cache_state"] == state]
    return in_state.loc[in_state["bandwidth_gbs"].idxmax()]


def _advice(
    top: pd.Series,
    same_version: pd.DataFrame,
    groups: Mapping[tuple[Any, ...], pd.DataFrame],
    tied: Mapping[tuple[Any, ...], set[str]],
    ceiling: Sequence[CeilingRow],
) -> Advice:
    """The advice for the group of `top`; `tied` are the best cells of each of all `groups`.

    `same_version` are the fastest cells of all groups that agree with `top` in VERSION.
    """
    main = tuple(top[list(GROUP)])
    group = groups[main]
    axes = axes_of(group)
    contests = {
        key: _contest(groups[key], tied[key], axes)
        for key in same_version[list(GROUP)].itertuples(index=False, name=None)
    }
    alike = [key for key in contests if _class(key, groups) == _class(main, groups)]
    # No other is larger than the main one.
    members = [contests[key] for key in alike if key != main] + [contests[main]]
    launch = launch_to_use(members, list(contests.values()))
    times = contests[main].times
    own = group[(group[axes] == list(launch)).all(axis=1)]
    cell = own.loc[own["median_s"].idxmin()].to_dict()
    fastest = cell["median_s"]
    in_cache = None
    kind = GROUP.index("launch_kind")
    if (cached := _cached([k for k in contests if k[kind] == main[kind]], groups)) is not None:
        there = groups[cached]
        best_there = there.loc[there["median_s"].idxmin()].to_dict()
        in_cache = InCache(best_there, contests[cached].slower(launch))
    defaults = {
        name: times[default] / fastest - 1.0
        for name, block in DEFAULT_BLOCKS.items()
        if (default := default_launch(launch, axes, block)) is not None and default in times
    }
    return Advice(
        group=dict(zip(GROUP, main, strict=True)),
        cell=cell,
        axes=axes,
        place=place(cell["working_set_over_cache"]),
        tied=int(top["tied"]),
        candidates=int(top["candidates"]),
        of_ceiling=None if pd.isna(top["share_of_ceiling"]) else told_share(ceiling, cell),
        edge=str(top["edge"]),
        defaults=defaults,
        worst=float(group["median_s"].max() / fastest - 1.0),
        in_cache=in_cache,
    )


def place(working_set_over_cache: float | None) -> str:
    """Where data of that many times the last cache level lie: see `Advice`."""
    if working_set_over_cache is None or pd.isna(working_set_over_cache):
        return "unknown"
    if working_set_over_cache <= INSIDE:
        return "cache"
    return "memory" if working_set_over_cache >= OUTSIDE else "between"


def _class(key: tuple[Any, ...], groups: Mapping[tuple[Any, ...], pd.DataFrame]) -> tuple[Any, ...]:
    """What groups of one version have in common for which one launch is chosen."""
    named = dict(zip(GROUP, key, strict=True))
    where = place(groups[key]["working_set_over_cache"].iloc[0])
    size = (named["height"], named["width"]) if where == "unknown" else ()
    return where, *size, named["cache_state"], named["launch_kind"]


def _contest(group: pd.DataFrame, tied: set[str], axes: Sequence[str]) -> Contest[Launch]:
    ranked = group.sort_values("median_s", ascending=False)
    # A frame without columns has no tuples.
    launches = [*ranked[list(axes)].itertuples(index=False, name=None)] or [()] * len(ranked)
    among = zip(launches, ranked["cell_key"], strict=True)
    times = dict(zip(launches, ranked["median_s"], strict=True))
    return Contest(times, frozenset(launch for launch, key in among if key in tied))


def _cached(
    keys: Sequence[tuple[Any, ...]], groups: Mapping[tuple[Any, ...], pd.DataFrame]
) -> tuple[Any, ...] | None:
    """The warm group of the largest size that fits the cache, where the main one does not."""
    places = {key: place(groups[key]["working_set_over_cache"].iloc[0]) for key in keys}
    state, height, width = (GROUP.index(c) for c in ("cache_state", "height", "width"))
    inside = [k for k in keys if places[k] == "cache" and k[state] == CACHE_STATES[0]]
    if not inside or set(places.values()) == {"cache"}:
        return None
    return max(inside, key=lambda k: k[height] * k[width])


def default_launch(launch: Launch, axes: Sequence[str], block: Mapping[str, int]) -> Launch | None:
    """`launch` with another block; None where the kernel has no such block."""
    sides = [axis for axis in BLOCK_AXES if axis in axes]
    if not sides or not set(block) <= set(sides):
        return None
    return tuple(
        block.get(axis, 1) if axis in sides else value
        for axis, value in zip(axes, launch, strict=True)
    )
