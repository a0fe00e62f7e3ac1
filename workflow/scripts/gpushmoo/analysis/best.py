"""The best launches of each group, and which one to use.

The tied best cells are those whose 95 % interval overlaps the fastest cell's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ..core.display import percent
from ..core.schema import BEST_COLUMNS, CORE_COLUMNS, GROUP, PARAMS, Status, best_schema, is_axis
from ..core.space import BLOCK_AXES, CACHE_STATES
from ..storage.dataset import as_frame, matching, partitions, read_cells, with_axes_noted
from ..storage.store import read_table, write_parquet
from .fastest import INSIDE, OUTSIDE, axes_of, params_texts
from .peak import PeakRow, PeakShare, read_peak, share_of_peak, told_share

# The columns of a dataset that best sets are made from, besides the axes.
_COLUMNS = frozenset(BEST_COLUMNS) | {
    *("status", "median_s", "own_low_s", "own_high_s", "bytes_read", "bytes_written")
}
# An axis with so many values is a range with two boundaries.
_RANGE = 3
# Blocks that programs use where nobody has measured; a side that is not named has one thread.
DEFAULT_BLOCKS = {
    "256 × 1": {"block_x": 256},
    "16 × 16": {"block_x": 16, "block_y": 16},
    "32 × 8": {"block_x": 32, "block_y": 8},
}
# Identifies a launch of a group, such as by the values of the group's axes.
Launch = tuple[Any, ...]
# What a program compiles one launch for.
VERSION = ("device_name", "kernel", "variant", "dtype")


@dataclass(frozen=True)
class Limits:
    """How far axes can go at all: by kernel and axis, and by the threads of a block."""

    most: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    threads: int = 1024


ANY = Limits()


def best_of_dataset(
    dataset: Path,
    peak: Sequence[PeakRow] = (),
    host_fed: Collection[str] = (),
    limits: Limits = ANY,
) -> pa.Table:
    """`best_table` of a dataset, a kernel and dtype at a time: no group has more than one."""
    tables = [
        best_table(read_cells(dataset, where, _COLUMNS), peak, host_fed, limits)
        for where in partitions(dataset)
    ]
    return pa.concat_tables(tables)


def write_best(
    dataset: Path, peak: Path, host_fed: Collection[str], limits: Mapping[str, Any], out: Path
) -> None:
    """Write `best_of_dataset` as Parquet to `out`; `peak` is the file of `measure_peak`."""
    best = best_of_dataset(dataset, read_peak(peak), host_fed, Limits(**limits))
    write_parquet(best.cast(with_axes_noted(best.schema)), out, {})


def read_best(path: Path, axes: Collection[str]) -> pd.DataFrame:
    """What `write_best` has written of a data set with these `axes`, and the column PARAMS."""
    best = as_frame(read_table(path, best_schema(axes)))
    return best.assign(**{PARAMS: params_texts(best)})


def tied_best(cells: pd.DataFrame) -> pd.DataFrame:
    """The ``ok`` cells whose interval of the median overlaps that of the fastest.

    `cells` are the cells of one group, which were sampled in the same rounds. So the intervals are
    those without what all of them share (``own_low_s`` to ``own_high_s``), but with what repeats
    found each cell to vary by. Two medians whose 95 % intervals overlap may stand in either order,
    so none of them is *the* best; the fastest median is marked, not preferred.
    """
    ok = cells[cells["status"] == Status.OK]
    if ok.empty:
        return ok
    fastest = ok.loc[ok["median_s"].idxmin()]
    tied = ok[ok["own_low_s"] <= fastest["own_high_s"]]
    return tied.sort_values(["median_s", "cell_key"])


def best_table(
    cells: pd.DataFrame,
    peak: Sequence[PeakRow] = (),
    host_fed: Collection[str] = (),
    limits: Limits = ANY,
) -> pa.Table:
    """One row for each tied cell of each group, the fastest first (`best_schema`).

    The axes are all that `cells` have as columns.

    Kernels in `host_fed` read over a bus: they have no share of the measured peak, that of the
    device's own memory. `limits` say how far axes can go (see `boundaries`).
    """
    rows: list[dict[str, Any]] = []
    for _, group in cells.groupby(list(GROUP), sort=True, observed=True):
        tied = tied_best(group)
        if tied.empty:
            continue
        axes = axes_of(group)
        rows_of = () if group["kernel"].iloc[0] in host_fed else peak
        fastest = tied["median_s"].iloc[0]
        boundary = ", ".join(boundaries(tied.iloc[0], group, axes, limits))
        candidates = int((group["status"] == Status.OK).sum())
        for place, (_, cell) in enumerate(tied.iterrows()):
            rows.append(
                {
                    name: None if pd.isna(cell[name]) else cell[name]
                    for name in BEST_COLUMNS
                    if name in CORE_COLUMNS
                }
                | {axis: int(cell[axis]) for axis in axes}
                | {
                    "share_of_peak": share_of_peak(rows_of, cell),
                    "slower_than_best": float(cell["median_s"] / fastest - 1.0),
                    "is_fastest": place == 0,
                    "tied": len(tied),
                    "candidates": candidates,
                    "boundary": boundary,
                }
            )
    return pa.Table.from_pylist(rows, schema=best_schema(filter(is_axis, cells.columns)))


def boundaries(
    best: Mapping[str, Any], group: pd.DataFrame, axes: Sequence[str], limits: Limits
) -> list[str]:
    """Axes by which the cell `best` is on the boundary of its `group`, all cells that were swept.

    ``block_x up`` asks for larger values, ``block_x down`` for smaller ones. An end that cannot be
    passed is no boundary: 1, the largest value that the kernel takes, the largest block.
    """
    most = limits.most.get(best["kernel"], {})
    ways = []
    for axis in axes:
        values = sorted(group[axis].dropna().unique())
        if len(values) < _RANGE:
            continue
        first, last, best_value = int(values[0]), int(values[-1]), int(best[axis])
        if best_value == last < most.get(axis, last + 1) and _room(group, axis, limits.threads):
            ways.append(f"{axis} up")
        elif best_value == first > 1:
            ways.append(f"{axis} down")
    return ways


def _room(group: pd.DataFrame, axis: str, threads: int) -> bool:
    """Whether a block of a value above the largest of `axis` may have few enough threads."""
    least = group.groupby(axis)["threads_per_block"].min().sort_index()
    before, last = least.iloc[-2], least.iloc[-1]
    # An axis that does not change the block's size is not limited by it.
    return bool(last == before or last + (last - before) <= threads)


# By so much a launch to use may be slower than it needs to be. With several repeats this is wider
# than the noise, so that another run rarely moves a launch over the border.
MARGIN = 0.01
# Of launches within the margin that of a block nearest to this is taken: few programs need another.
_USUAL_THREADS = 256


@dataclass(frozen=True)
class Contest:
    """Seconds and threads of a block of each verified launch of a group."""

    times: Mapping[Launch, float]
    threads: Mapping[Launch, int]

    @classmethod
    def of(cls, rows: Mapping[Launch, Mapping[str, Any]]) -> Contest:
        """The contest of verified rows, one for each launch."""
        times = {launch: float(row["median_s"]) for launch, row in rows.items()}
        return cls(times, {launch: int(row["threads_per_block"]) for launch, row in rows.items()})

    def slower(self, launch: Launch) -> float | None:
        """The share by which a launch takes longer than the fastest; None if it is not verified."""
        return None if launch not in self.times else self.times[launch] / self._least - 1.0

    def plainness(self, launch: Launch) -> tuple[float, int, Launch]:
        """Least of the launch that is taken where times decide nothing."""
        threads = self.threads[launch]
        return abs(math.log2(max(1, threads) / _USUAL_THREADS)), threads, launch

    @cached_property
    def _least(self) -> float:
        return min(self.times.values())


def launch_to_use(members: Sequence[Contest]) -> Launch:
    """The launch for `members`, groups that are alike, the largest last; another run's as well.

    Candidates lose, at their worst over the members, at most MARGIN more than the launch that loses
    least. Of them what no noise changes decides: threads of a block near 256, then few, then small
    parameters. If every launch loses more than MARGIN in some member, the largest alone counts.
    """
    largest = members[-1]
    worst = {
        launch: max(math.inf if (c := m.slower(launch)) is None else c for m in members)
        for launch in largest.times
    }
    if min(worst.values()) > MARGIN:
        worst = {launch: largest.slower(launch) or 0.0 for launch in largest.times}
    most = min(worst.values()) + MARGIN
    return min((launch for launch, lost in worst.items() if lost <= most), key=largest.plainness)


@dataclass(frozen=True)
class Cost:
    """The share of the time by which a launch takes longer than another: 0.1 is 10 % slower.

    `low` to `high` are from the far ends of the intervals by which launches are tied.
    """

    value: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval is above zero, so that the usual block loses time for certain."""
        return self.low > 0.0

    @property
    def known(self) -> bool:
        """Whether the interval is narrow enough to say how large the cost is."""
        return self.sure and self.high - self.low <= max(self.value, _NARROW)

    @property
    def supported(self) -> float:
        """The cost if its size is known, else the low end of its interval; at least 0.

        Noise makes the largest values. So this ranks what a reader sees first.
        """
        return self.value if self.known else max(0.0, self.low)

    @property
    def text(self) -> str:
        """``+6.8 %``, or ``≥ +1.2 %`` if the size is not known; ``none`` if not significant."""
        if not self.sure:
            return "none"
        return f"{'' if self.known else '≥ '}+{percent(self.supported)}"


# The size of a cost is known if its interval is at most as wide as the cost itself, or as this.
_NARROW = 0.05


def cost_of(cell: Mapping[str, Any], than: Mapping[str, Any]) -> Cost:
    """The cost of a row of a group against another one of it."""
    return Cost(
        cell["median_s"] / than["median_s"] - 1.0,
        cell["own_low_s"] / than["own_high_s"] - 1.0,
        cell["own_high_s"] / than["own_low_s"] - 1.0,
    )


@dataclass(frozen=True)
class InCache:
    """The best row where the bytes fit the cache, and what the launch for memory costs there."""

    best: Mapping[str, Any]
    cost: Cost | None


@dataclass(frozen=True)
class Advice:
    """The launch to use for one kernel, element type and timing mode on one device.

    `group` are the columns GROUP of the problem that stands for the others: the largest, warm where
    it was swept so, in the fastest variant. `cell` is the
    launch's row of the data set, `axes` the launch parameters of its group. `place` says where that
    problem's bytes lie: ``cache``, ``memory``, ``between``, or ``unknown`` where the device does
    not tell its cache's size. `of_peak` is what that launch reaches there of what loading and
    storing its bytes allow; None where that is not known.

    `tied` of `candidates` launches are statistically tied with the fastest. `boundary` has the ends
    of axes at which all of these lie. `defaults` has the cost of each of DEFAULT_BLOCKS that was
    swept; `worst` and `typical` are how many times as long the slowest and the median launch take.
    `in_cache` is of the largest size that fits the cache.
    """

    group: Mapping[str, Any]
    cell: Mapping[str, Any]
    axes: Sequence[str]
    place: str
    tied: int
    candidates: int
    of_peak: PeakShare | None
    boundary: str
    defaults: Mapping[str, Cost]
    worst: float
    typical: float
    in_cache: InCache | None = None

    @property
    def undecided(self) -> bool:
        """Whether all launches are tied, so that none of them is the best."""
        return self.tied == self.candidates > 1

    @property
    def stake(self) -> float:
        """What one loses who does not know: by the worst usual block, else by a typical launch."""
        if self.undecided:
            return 0.0
        if not self.defaults:
            return self.typical - 1.0
        return max(cost.supported for cost in self.defaults.values())

    @property
    def exceeds_cache(self) -> bool:
        """Whether the working set is larger than the last cache level, as far as that is known."""
        over = self.cell["working_set_over_cache"]
        return bool(pd.notna(over) and over > 1.0)


def in_page_order(advice: Sequence[Advice]) -> list[Advice]:
    """The order of the report's first page: data in memory first, then the highest stake.

    Among groups whose working set exceeds the last cache, and likewise among the others, one of
    each kernel comes before a second one of any.
    """
    ranked = sorted(advice, key=lambda a: -a.stake)
    ordered = []
    for exceeds in (True, False):
        part = [a for a in ranked if a.exceeds_cache == exceeds]
        kernels = [a.group["kernel"] for a in part]
        places = sorted(range(len(part)), key=lambda i: kernels[:i].count(kernels[i]))
        ordered += [part[i] for i in places]
    return ordered


def advice(cells: pd.DataFrame, best: pd.DataFrame, peak: Sequence[PeakRow] = ()) -> list[Advice]:
    """One for each device, kernel, timing mode and element type with a verified cell, sorted.

    `best` has the rows of `best_schema`, without those of variants that are not to win; those
    without a share of the measured peak are told none of `peak` either.
    """
    ok = cells[cells["status"] == Status.OK]
    groups = dict(list(ok.groupby(list(GROUP), sort=False, observed=True)))
    tops = best[best["is_fastest"]]
    out = []
    names = ["device_name", "kernel", "timing_mode", "dtype"]
    tied = {key: set(rows["cell_key"]) for key, rows in best.groupby(list(GROUP), observed=True)}
    for _, own in tops.groupby(names, sort=True, observed=True):
        top = _main(own)
        same_version = matching(tops, {name: top[name] for name in VERSION})
        out.append(_advice(top, same_version, groups, tied, peak))
    return out


def _main(tops: pd.DataFrame) -> pd.Series:
    """Of the fastest cells of a kernel's groups that of the problem that stands for the rest."""
    elements = tops["height"] * tops["width"]
    largest = tops[elements == elements.max()]
    state = next(s for s in CACHE_STATES if s in set(largest["cache_state"]))
    in_state = largest[largest["cache_state"] == state]
    return in_state.loc[in_state["median_s"].idxmin()]


def _advice(
    top: pd.Series,
    same_version: pd.DataFrame,
    groups: Mapping[tuple[Any, ...], pd.DataFrame],
    tied: Mapping[tuple[Any, ...], set[str]],
    peak: Sequence[PeakRow],
) -> Advice:
    """The advice for the group of `top`; `same_version` are the fastest cells of its VERSION."""
    main = tuple(top[list(GROUP)])
    group = groups[main]
    axes = axes_of(group)
    contests = {
        key: _contest(groups[key], axes)
        for key in same_version[list(GROUP)].itertuples(index=False, name=None)
    }
    alike = [key for key in contests if _class(key, groups) == _class(main, groups)]
    # No other is larger than the main one.
    members = [contests[key] for key in alike if key != main] + [contests[main]]
    launch = launch_to_use(members)
    cell = _row(group, axes, launch)
    assert cell is not None
    in_cache = None
    kind = GROUP.index("timing_mode")
    if (cached := _cached([k for k in contests if k[kind] == main[kind]], groups)) is not None:
        there = groups[cached]
        best_there = there.loc[there["median_s"].idxmin()].to_dict()
        same = _row(there, axes, launch)
        in_cache = InCache(best_there, None if same is None else cost_of(same, best_there))
    defaults = {
        name: cost_of(usual, cell)
        for name, block in DEFAULT_BLOCKS.items()
        if (default := default_launch(launch, axes, block)) is not None
        and (usual := _row(group, axes, default)) is not None
    }
    among = group[group["cell_key"].isin(tied[main])]
    return Advice(
        group=dict(zip(GROUP, main, strict=True)),
        cell=cell,
        axes=axes,
        place=place(cell["working_set_over_cache"]),
        tied=int(top["tied"]),
        candidates=int(top["candidates"]),
        of_peak=None if pd.isna(top["share_of_peak"]) else told_share(peak, cell),
        boundary=", ".join(
            part
            for part in str(top["boundary"]).split(", ")
            if part and among[part.split(" ")[0]].nunique() == 1
        ),
        defaults=defaults,
        worst=float(group["median_s"].max() / cell["median_s"]),
        typical=float(group["median_s"].median() / cell["median_s"]),
        in_cache=in_cache,
    )


def _row(group: pd.DataFrame, axes: Sequence[str], launch: Launch) -> dict[str, Any] | None:
    """The row of a launch; None where it is not in the group."""
    own = group[(group[list(axes)] == list(launch)).all(axis=1)]
    return None if own.empty else own.loc[own["median_s"].idxmin()].to_dict()


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
    return where, *size, named["cache_state"], named["timing_mode"]


def _contest(group: pd.DataFrame, axes: Sequence[str]) -> Contest:
    ranked = group.sort_values("median_s", ascending=False)
    # A frame without columns has no tuples.
    launches = [*ranked[list(axes)].itertuples(index=False, name=None)] or [()] * len(ranked)
    rows = ranked[["median_s", "threads_per_block"]].to_dict("records")
    return Contest.of(dict(zip(launches, rows, strict=True)))


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
