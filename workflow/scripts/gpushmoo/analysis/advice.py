"""Which launch to use for each kernel and element type, and what other launches cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..core.schema import GROUP, Status
from ..core.space import CACHE_STATES
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
# Values of a group's axes, and the median time of each launch in seconds.
Launch = tuple[Any, ...]
Times = Mapping[Launch, float]
# Of a tied set so many, and those that take at most so much longer than the fastest, are asked how
# well they do elsewhere.
_ASKED, _CLOSE = 64, 0.005


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
    for _, own in tops.groupby(names, sort=True, observed=True):
        top = _main(own)
        tied = best[(best[list(GROUP)] == top[list(GROUP)].tolist()).all(axis=1)]
        same_variant = own[own["variant"] == top["variant"]]
        out.append(_advice(top, tied, same_variant, groups, ceiling))
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
    tied: pd.DataFrame,
    same_variant: pd.DataFrame,
    groups: Mapping[tuple[Any, ...], pd.DataFrame],
    ceiling: Sequence[CeilingRow],
) -> Advice:
    """The advice for the group of `top`, of which `tied` are the best.

    `same_variant` are the fastest cells of all groups of its kernel, type, device and variant.
    """
    keys = [tuple(row) for row in same_variant[list(GROUP)].itertuples(index=False, name=None)]
    main = tuple(top[list(GROUP)])
    group = groups[main]
    axes = axes_of(group)
    times = {key: _times(groups[key], axes) for key in keys}
    members = group[group["cell_key"].isin(set(tied["cell_key"]))].sort_values("median_s")
    close = members[members["median_s"] <= (1 + _CLOSE) * members["median_s"].min()]
    cell = _steadiest(close.head(_ASKED), list(times.values()), axes)
    launch, fastest = _launch(cell, axes), cell["median_s"]
    in_cache = None
    if (cached := _cached(keys, groups)) is not None:
        there = groups[cached]
        best_there = there.loc[there["median_s"].idxmin()].to_dict()
        in_cache = InCache(best_there, _cost(times[cached], launch))
    defaults = {
        name: times[main][default] / fastest - 1.0
        for name, block in DEFAULT_BLOCKS.items()
        if (default := default_launch(launch, axes, block)) is not None and default in times[main]
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


def _launch(row: Mapping[str, Any], axes: Sequence[str]) -> Launch:
    return tuple(row[axis] for axis in axes)


def _times(group: pd.DataFrame, axes: Sequence[str]) -> Times:
    """The median time in seconds of each launch of a group."""
    launches = zip(*(group[axis] for axis in axes), strict=True) if axes else [()] * len(group)
    return dict(zip(launches, group["median_s"], strict=True))


def _cost(times: Times, launch: Launch) -> float | None:
    """How much slower than the fastest of `times` a launch is there, if it was measured."""
    return times[launch] / min(times.values()) - 1.0 if launch in times else None


def _steadiest(
    members: pd.DataFrame, groups: Sequence[Times], axes: Sequence[str]
) -> dict[str, Any]:
    """Of tied cells, the fastest first, the one that loses least at its worst in the `groups`."""
    rows: list[dict[str, Any]] = members.to_dict("records")
    if len(rows) == 1 or len(groups) == 1:
        return rows[0]

    def worst(row: Mapping[str, Any]) -> float:
        costs = [_cost(times, _launch(row, axes)) for times in groups]
        return max((c for c in costs if c is not None), default=0.0)

    return min(rows, key=worst)


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
