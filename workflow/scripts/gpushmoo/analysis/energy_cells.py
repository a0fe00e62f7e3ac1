"""The cells whose energy is worth measuring: those that speed cannot tell apart, and usual ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.schema import Status, is_axis
from ..core.space import CACHE_STATES, Cell, ChosenCell, Problem, to_plain
from ..storage.dataset import matching, read_medians
from ..storage.wholefile import write_json
from .advice import DEFAULT_BLOCKS, Advice, advice, default_launch
from .best import read_best

# Why a cell was chosen.
FASTEST, ADVISED, OTHER_TIED, MIDDLE = "fastest", "advised", "tied, least like it", "median"
FASTEST_CACHED, SAME_CACHED = "fastest in cache", "the same in cache"


def energy_cells(cells: pd.DataFrame, best: pd.DataFrame) -> list[ChosenCell]:
    """Of each kernel and type, of the problem that stands for the others, a few launches.

    The fastest, the one that is advised, the tied one that is least like the fastest, and the usual
    blocks; where none of these was swept, the launch of median speed. Where a size fits the cache
    too, the fastest there and what is advised for memory. `cells` and `best` as of `advice`.
    """
    moving = cells[(cells["bytes_read"] + cells["bytes_written"]) > 0]
    best = best[best["kernel"].isin(set(moving["kernel"]))]
    found = {
        one.cell.key: one
        for a in advice(moving, best)
        if a.group["cache_state"] == CACHE_STATES[0]
        # What is chosen twice keeps the first reason.
        for one in reversed(list(_of_group(a, moving, best)))
    }
    return sorted(found.values(), key=_order)


def _order(one: ChosenCell) -> tuple[Any, ...]:
    cell = one.cell
    return cell.kernel, cell.dtype, cell.variant, cell.problem, cell.params


def _of_group(a: Advice, cells: pd.DataFrame, best: pd.DataFrame) -> Iterator[ChosenCell]:
    group = matching(cells, a.group)
    rows = group[group["status"] == Status.OK].sort_values(["median_s", "cell_key"])
    launches = {tuple(row[axis] for axis in a.axes): row for row in rows.to_dict("records")}
    keys = set(matching(best, a.group)["cell_key"])
    tied = [row for row in launches.values() if row["cell_key"] in keys]
    yield chosen_cell(tied[0], a.axes, FASTEST)
    yield chosen_cell(a.cell, a.axes, ADVISED)
    if len(tied) > 1:
        yield chosen_cell(
            max(tied[1:], key=lambda r: unlike(r, tied[0], a.axes)), a.axes, OTHER_TIED
        )
    launch = tuple(a.cell[axis] for axis in a.axes)
    usual = {name: default_launch(launch, a.axes, block) for name, block in DEFAULT_BLOCKS.items()}
    swept = {name: launches[at] for name, at in usual.items() if at is not None and at in launches}
    for name, row in (swept or {MIDDLE: rows.to_dict("records")[len(rows) // 2]}).items():
        yield chosen_cell(row, a.axes, name)
    if a.in_cache is not None:
        yield chosen_cell(a.in_cache.best, a.axes, FASTEST_CACHED)
        if a.in_cache.cost is not None:
            there = {**a.in_cache.best, **{axis: a.cell[axis] for axis in a.axes}}
            yield chosen_cell(there, a.axes, SAME_CACHED)


def chosen_cell(row: Mapping[str, Any], axes: Sequence[str], role: str) -> ChosenCell:
    """The cell of a row of a data set whose group has these axes."""
    names = {name: str(row[name]) for name in ("kernel", "dtype", "variant", "cache_state")}
    problem = Problem(int(row["height"]), int(row["width"]))
    params = tuple((axis, int(row[axis])) for axis in sorted(axes))
    return ChosenCell(Cell(**names, problem=problem, params=params), role)


def unlike(row: Mapping[str, Any], other: Mapping[str, Any], axes: Sequence[str]) -> float:
    """How far apart two launches are: factors between their parameters, as sums of logarithms."""
    return sum(abs(math.log2((1 + row[axis]) / (1 + other[axis]))) for axis in axes)


def write_energy_cells(
    dataset: Path,
    best: Path,
    left_out: Collection[str],
    controls: Mapping[str, Collection[str]],
    out: Path,
) -> None:
    """Write the file of `energy_cells` of a run.

    Kernels that are `left_out` are not asked, and of each of the others none of its `controls`,
    variants that are not to win.
    """
    cells = read_medians(dataset)
    tops = read_best(best, [name for name in cells if is_axis(name)])
    cells = cells[~cells["kernel"].isin(left_out)]
    pairs = zip(tops["kernel"], tops["variant"], strict=True)
    wanted = [k not in left_out and v not in controls.get(k, ()) for k, v in pairs]
    write_json(out, to_plain(energy_cells(cells, tops[pd.Series(wanted, tops.index, bool)])))
