"""Find the best launches of each group, and choose the one to use.

Cells are tied for best if their 95 % interval overlaps the interval of the fastest cell.
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
from .peak import PeakRow, PeakShare, displayed_share, read_peak, share_of_peak

# Columns of a data set that the best sets are made from, besides the axes.
_COLUMNS = frozenset(BEST_COLUMNS) | {
    "status",
    "median_s",
    "group_low_s",
    "group_high_s",
    "bytes_read",
    "bytes_written",
}
# An axis with at least this number of values is a range with two boundaries.
_RANGE = 3
# Common blocks of programs that nobody has tuned. A side that is not listed has one thread.
DEFAULT_BLOCKS = {
    "256 × 1": {"block_x": 256},
    "16 × 16": {"block_x": 16, "block_y": 16},
    "32 × 8": {"block_x": 32, "block_y": 8},
}
# Identifies a launch of a group, for example by the values of the group's axes.
Launch = tuple[Any, ...]
# Columns that select the version for which a program compiles one launch.
VERSION = ("device_name", "kernel", "variant", "dtype")


@dataclass(frozen=True)
class Limits:
    """Hard limits of the axes: by kernel and axis, and the threads of a block."""

    most: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    threads: int = 1024


ANY = Limits()


def best_of_dataset(
    dataset: Path,
    peak: Sequence[PeakRow] = (),
    host_fed: Collection[str] = (),
    limits: Limits = ANY,
) -> pa.Table:
    """Return `best_table` of a data set, read one kernel and element type at a time.

    No group spans two kernels or types, so the result does not depend on the order.
    """
    tables = [
        best_table(read_cells(dataset, where, _COLUMNS), peak, host_fed, limits)
        for where in partitions(dataset)
    ]
    return pa.concat_tables(tables)


def write_best(
    dataset: Path, peak: Path, host_fed: Collection[str], limits: Mapping[str, Any], out: Path
) -> None:
    """Write `best_of_dataset` as Parquet to `out`; `peak` is the file that `measure_peak` wrote."""
    best = best_of_dataset(dataset, read_peak(peak), host_fed, Limits(**limits))
    write_parquet(best.cast(with_axes_noted(best.schema)), out, {})


def read_best(path: Path, axes: Collection[str]) -> pd.DataFrame:
    """Read the file that `write_best` wrote for a data set with these `axes`; add column PARAMS."""
    best = as_frame(read_table(path, best_schema(axes)))
    return best.assign(**{PARAMS: params_texts(best)})


def tied_best(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the ``ok`` cells whose interval of the median overlaps that of the fastest cell.

    `cells` are the cells of one group, so they were sampled in the same rounds. The comparison uses
    the intervals without the variation that all of them share (``group_low_s`` to
    ``group_high_s``). These intervals still include the variation of each cell between repeats. If
    the 95 % intervals of two medians overlap, either cell may be the faster one, so neither is
    *the* best.
    """
    ok = cells[cells["status"] == Status.OK]
    if ok.empty:
        return ok
    fastest = ok.loc[ok["median_s"].idxmin()]
    tied = ok[ok["group_low_s"] <= fastest["group_high_s"]]
    return tied.sort_values(["median_s", "cell_key"])


def best_table(
    cells: pd.DataFrame,
    peak: Sequence[PeakRow] = (),
    host_fed: Collection[str] = (),
    limits: Limits = ANY,
) -> pa.Table:
    """Return one row for each tied cell of each group, the fastest first (`best_schema`).

    Parameters
    ----------
    cells
        Rows of a data set. All of its axes are columns.
    peak
        Measured peaks, for the column ``share_of_peak``.
    host_fed
        Kernels that read over a bus. They have no share of the peak of the device's own memory.
    limits
        Hard limits of the axes, see `boundaries`.
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
                    "slowdown": float(cell["median_s"] / fastest - 1.0),
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
    """Return the axes on which the cell `best` is at the edge of the swept values of its `group`.

    ``block_x up`` means that larger values may be faster, ``block_x down`` smaller ones. An end
    that nobody can pass does not count: 1, the largest value that the kernel accepts, and the
    largest block.
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
    """Return whether a block with the next larger value of `axis` may still be launched."""
    least = group.groupby(axis)["threads_per_block"].min().sort_index()
    before, last = least.iloc[-2], least.iloc[-1]
    # The size of the block does not limit an axis that does not change it.
    return bool(last == before or last + (last - before) <= threads)


# A recommended launch may be slower than the fastest by at most this share. With several repeats it
# is wider than the noise, so another run rarely moves a launch across the border.
MARGIN = 0.01
# Among launches within the margin, choose the block nearest to this, which most programs can use.
_USUAL_THREADS = 256


@dataclass(frozen=True)
class Contest:
    """Seconds, and threads per block, of each verified launch of a group."""

    times: Mapping[Launch, float]
    threads: Mapping[Launch, int]

    @classmethod
    def of(cls, rows: Mapping[Launch, Mapping[str, Any]]) -> Contest:
        """Return the contest of verified rows, one for each launch."""
        times = {launch: float(row["median_s"]) for launch, row in rows.items()}
        return cls(times, {launch: int(row["threads_per_block"]) for launch, row in rows.items()})

    def slower(self, launch: Launch) -> float | None:
        """Return the share by which a launch is slower than the fastest; None if not verified."""
        return None if launch not in self.times else self.times[launch] / self._least - 1.0

    def plainness(self, launch: Launch) -> tuple[float, int, Launch]:
        """Return a key that breaks ties of times: smallest for the block nearest to 256 threads."""
        threads = self.threads[launch]
        return abs(math.log2(max(1, threads) / _USUAL_THREADS)), threads, launch

    @cached_property
    def _least(self) -> float:
        return min(self.times.values())


def launch_to_use(members: Sequence[Contest]) -> Launch:
    """Return the recommended launch for `members`, groups that share one launch, the largest last.

    The loss of a launch is the largest share by which it is slower than the fastest, over all
    members. Candidates have a loss of at most MARGIN above the smallest loss. Among the candidates,
    only quantities without noise decide: a number of threads near 256, then fewer threads, then
    smaller parameters. So another run usually recommends the same launch. If the loss of every
    launch exceeds MARGIN, only the largest member counts.
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
    """Share of the time by which a launch takes longer than another: 0.1 is 10 % slower.

    `low` and `high` combine the opposite ends of the two intervals that also decide ties.
    """

    value: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether the interval is above zero, so that the cost is significant at 95 %."""
        return self.low > 0.0

    @property
    def known(self) -> bool:
        """Whether the interval is narrow enough to state how large the cost is."""
        return self.sure and self.high - self.low <= max(self.value, _NARROW)

    @property
    def supported(self) -> float:
        """The cost if its size is known, otherwise the lower end of its interval; at least 0.

        The largest estimates are large partly by noise. Page one sorts by this value instead.
        """
        return self.value if self.known else max(0.0, self.low)

    @property
    def text(self) -> str:
        """Return the cost as reports show it, for example ``+6.8 %``.

        If the interval is too wide to state how large the cost is, the text is its lower end, for
        example ``≥ +1.2 %``. If the cost is not significantly above zero, the text is ``none``.
        """
        if not self.sure:
            return "none"
        return f"{'' if self.known else '≥ '}+{percent(self.supported)}"


# The size of a cost is known if its interval is at most as wide as the cost, or as this share.
_NARROW = 0.05


def cost_of(cell: Mapping[str, Any], than: Mapping[str, Any]) -> Cost:
    """Return the cost of the launch in row `cell` relative to that in row `than` of its group."""
    return Cost(
        cell["median_s"] / than["median_s"] - 1.0,
        cell["group_low_s"] / than["group_high_s"] - 1.0,
        cell["group_high_s"] / than["group_low_s"] - 1.0,
    )


@dataclass(frozen=True)
class InCache:
    """The best row among data that fits the cache, and what the launch for memory costs there."""

    best: Mapping[str, Any]
    cost: Cost | None


@dataclass(frozen=True)
class Advice:
    """Recommended launch for one kernel, element type and timing mode on one device.

    Attributes
    ----------
    group
        Columns GROUP of the representative problem: the largest one, warm if that was swept, in the
        fastest variant.
    cell, axes
        Row of the recommended launch in the data set, and the launch parameters of its group.
    place
        Location of the problem's data: ``cache``, ``memory``, ``between``, or ``unknown`` if the
        device does not report the size of its cache.
    tied, candidates
        Number of launches that are statistically tied with the fastest, out of all verified ones.
    of_peak
        Share of the measured peak that the launch reaches; None if not known.
    boundary
        Ends of axes at which all tied launches are.
    defaults
        Cost of each block in DEFAULT_BLOCKS that was swept.
    worst, typical
        Time of the slowest and of the median launch, relative to the recommended one.
    in_cache
        Result of the largest size that fits the cache, if one was swept.
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
    def impact(self) -> float:
        """Loss without this advice: of the worst common block, otherwise of a typical launch."""
        if self.undecided:
            return 0.0
        if not self.defaults:
            return self.typical - 1.0
        return max(cost.supported for cost in self.defaults.values())

    @property
    def exceeds_cache(self) -> bool:
        """Whether the working set is larger than the last cache level; False if not known."""
        over = self.cell["working_set_over_cache"]
        return bool(pd.notna(over) and over > 1.0)


def in_page_order(advice: Sequence[Advice]) -> list[Advice]:
    """Sort advice as on the report's first page: data in memory first, then by the largest loss.

    Within each of these two parts, every kernel appears once before any kernel appears twice.
    """
    ranked = sorted(advice, key=lambda a: -a.impact)
    ordered = []
    for exceeds in (True, False):
        part = [a for a in ranked if a.exceeds_cache == exceeds]
        kernels = [a.group["kernel"] for a in part]
        places = sorted(range(len(part)), key=lambda i: kernels[:i].count(kernels[i]))
        ordered += [part[i] for i in places]
    return ordered


def advice(cells: pd.DataFrame, best: pd.DataFrame, peak: Sequence[PeakRow] = ()) -> list[Advice]:
    """Return the advice for each device, kernel, timing mode and element type with a verified cell.

    Parameters
    ----------
    cells
        Rows of a data set.
    best
        Rows of `best_schema`, without variants that must not win.
    peak
        Measured peaks. A row of `best` without ``share_of_peak`` gets no share here either.
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
    """Return the fastest cell of the largest problem of a kernel, warm if that was swept."""
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
    """Return the advice for the group of `top`; `same_version` are the fastest of its VERSION."""
    main = tuple(top[list(GROUP)])
    group = groups[main]
    axes = axes_of(group)
    contests = {
        key: _contest(groups[key], axes)
        for key in same_version[list(GROUP)].itertuples(index=False, name=None)
    }
    alike = [key for key in contests if _class(key, groups) == _class(main, groups)]
    # The main group has the largest problem.
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
        of_peak=None if pd.isna(top["share_of_peak"]) else displayed_share(peak, cell),
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
    """Return the row of a launch, or None if it is not in the group."""
    own = group[(group[list(axes)] == list(launch)).all(axis=1)]
    return None if own.empty else own.loc[own["median_s"].idxmin()].to_dict()


def place(working_set_over_cache: float | None) -> str:
    """Return ``cache``, ``between``, ``memory`` or ``unknown``, see `Advice.place`.

    `working_set_over_cache` is the working set as a multiple of the last cache level.
    """
    if working_set_over_cache is None or pd.isna(working_set_over_cache):
        return "unknown"
    if working_set_over_cache <= INSIDE:
        return "cache"
    return "memory" if working_set_over_cache >= OUTSIDE else "between"


def _class(key: tuple[Any, ...], groups: Mapping[tuple[Any, ...], pd.DataFrame]) -> tuple[Any, ...]:
    """Return the properties that groups must share to get the same recommended launch."""
    named = dict(zip(GROUP, key, strict=True))
    where = place(groups[key]["working_set_over_cache"].iloc[0])
    size = (named["height"], named["width"]) if where == "unknown" else ()
    return where, *size, named["cache_state"], named["timing_mode"]


def _contest(group: pd.DataFrame, axes: Sequence[str]) -> Contest:
    ranked = group.sort_values("median_s", ascending=False)
    # A frame without columns yields no tuples.
    launches = [*ranked[list(axes)].itertuples(index=False, name=None)] or [()] * len(ranked)
    rows = ranked[["median_s", "threads_per_block"]].to_dict("records")
    return Contest.of(dict(zip(launches, rows, strict=True)))


def _cached(
    keys: Sequence[tuple[Any, ...]], groups: Mapping[tuple[Any, ...], pd.DataFrame]
) -> tuple[Any, ...] | None:
    """Return the warm group of the largest size that fits the cache, if other sizes do not fit."""
    places = {key: place(groups[key]["working_set_over_cache"].iloc[0]) for key in keys}
    state, height, width = (GROUP.index(c) for c in ("cache_state", "height", "width"))
    inside = [k for k in keys if places[k] == "cache" and k[state] == CACHE_STATES[0]]
    if not inside or set(places.values()) == {"cache"}:
        return None
    return max(inside, key=lambda k: k[height] * k[width])


def default_launch(launch: Launch, axes: Sequence[str], block: Mapping[str, int]) -> Launch | None:
    """Return `launch` with another block, or None if the kernel does not have such a block."""
    sides = [axis for axis in BLOCK_AXES if axis in axes]
    if not sides or not set(block) <= set(sides):
        return None
    return tuple(
        block.get(axis, 1) if axis in sides else value
        for axis, value in zip(axes, launch, strict=True)
    )
