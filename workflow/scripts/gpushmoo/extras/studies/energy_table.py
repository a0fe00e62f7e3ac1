"""Choose cells whose energy is worth measuring, and compare the energy of launches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from ...analysis.best import DEFAULT_BLOCKS, Advice, advice, default_launch, read_best
from ...core.median import MeanInterval, mean_interval
from ...core.schema import ENERGY_SCHEMA, Status, is_axis
from ...core.space import USUAL, ChosenCell, Condition, chosen_cell, to_plain
from ...storage.dataset import matching, read_medians
from ...storage.store import read_metadata, read_table
from ...storage.wholefile import write_json

# Reasons why a cell is chosen.
FASTEST = "fastest"
ADVISED = "advised"
OTHER_TIED = "tied, least like it"
MIDDLE = "median"
FASTEST_CACHED, SAME_CACHED = "fastest in cache", "the same in cache"
# A launch that is slower than the fastest by at most this share counts as equally fast.
TIED_SPEED = 0.01
Row = Mapping[str, Any]


@dataclass(frozen=True)
class EnergyTable:
    """Rows of ENERGY_SCHEMA, idle power in W before and after, and `why` if there are no rows."""

    rows: Sequence[Row]
    why: str | None
    device: str
    idle_w: Sequence[float]


@dataclass(frozen=True)
class EnergyGroup:
    """Launches of one kernel, type, variant and size; the fastest first."""

    rows: Sequence[Row]

    @property
    def fastest(self) -> Row:
        """The launch that moved the most bytes per second in its windows."""
        return self.rows[0]

    @property
    def cheapest(self) -> Row:
        """The launch that needs the fewest joules per gigabyte."""
        return min(self.rows, key=lambda row: row["joules_per_gb"])

    @property
    def tied(self) -> list[Row]:
        """Launches as fast as the fastest, by TIED_SPEED, including the fastest."""
        return [row for row in self.rows if row["gbs"] >= (1 - TIED_SPEED) * self.fastest["gbs"]]

    @property
    def front(self) -> list[Row]:
        """The Pareto front of speed and energy, the fastest first."""
        found: list[Row] = []
        for row in self.rows:
            if not found or row["joules_per_gb"] < found[-1]["joules_per_gb"]:
                found.append(row)
        return found


def read_energy(path: Path) -> EnergyTable:
    """Read the table that `energy` wrote; raise BadParquetError if it is not readable."""
    rows = read_table(path, ENERGY_SCHEMA).to_pylist()
    metadata = read_metadata(path)
    good = [row for row in rows if row["message"] is None]
    idle = [window["joules"] / window["seconds"] for window in metadata["idle"]]
    failed = next((row["message"] for row in rows), "no warm, batched cell moves bytes.")
    why = None if good else metadata["why"] or f"Energy was not measured: {failed}"
    return EnergyTable(good, why, metadata["device"].get("name", ""), idle)


def energy_groups(rows: Sequence[Row]) -> list[EnergyGroup]:
    """Return the groups of launches that compete, sorted so that a kernel's groups are adjacent."""

    def key(row: Row) -> tuple[Any, ...]:
        names = ("device_name", "kernel", "dtype", "height", "width", "variant")
        return tuple(row[name] for name in names)

    in_order = sorted(rows, key=lambda row: (key(row), -row["gbs"], row["cell_key"]))
    return [EnergyGroup(list(members)) for _, members in groupby(in_order, key)]


def joules_ratio(a: Row, b: Row) -> MeanInterval:
    """Return the ratio of joules per byte of `a` to `b` over the rounds, with a 95 % interval."""
    pairs = zip(_per_round(a), _per_round(b), strict=False)
    found = mean_interval([math.log(x / y) for x, y in pairs])
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return MeanInterval(math.exp(found.mean), low, high)


def differs_significantly(ratio: MeanInterval) -> bool:
    """Return whether a ratio differs significantly from 1: its 95 % interval does not contain 1."""
    return ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high


def launch_text(row: Row) -> str:
    """Return the launch in short: ``64 × 4`` for a block alone, otherwise parameters by name."""
    values = dict(part.split("=") for part in row["params"].split())
    if set(values) == {"block_x", "block_y"}:
        return f"{values['block_x']} × {values['block_y']}"
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "—"


def _per_round(row: Row) -> list[float]:
    windows = zip(row["window_j"], row["window_s"], row["window_gbs"], strict=True)
    return [joules / seconds / gbs for joules, seconds, gbs in windows]


def energy_cells(cells: pd.DataFrame, best: pd.DataFrame) -> list[ChosenCell]:
    """Choose a few launches of each kernel and type, for the representative problem.

    They are warm and batched, because energy is measured over a sequence of launches: the fastest,
    the recommended one, the tied launch that differs most from the fastest, and the common blocks.
    If none of these was swept, the launch of median speed is added. If a smaller problem fits the
    cache, its fastest launch and the one recommended for memory are added. `cells` and `best` are
    those of `advice`.
    """
    moving = cells[(cells["bytes_read"] + cells["bytes_written"]) > 0]
    best = best[best["kernel"].isin(set(moving["kernel"]))]
    found = {
        one.cell.key: one
        for a in advice(moving, best)
        if Condition(a.group["cache_state"], a.group["timing_mode"]) == USUAL
        # A launch that is chosen twice keeps the first reason.
        for one in reversed(list(_of_group(a, moving, best)))
    }
    order = attrgetter("kernel", "dtype", "variant", "problem", "params")
    return sorted(found.values(), key=lambda one: order(one.cell))


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


def unlike(row: Mapping[str, Any], other: Mapping[str, Any], axes: Sequence[str]) -> float:
    """Return how much two launches differ: the sum of log₂ of the parameters' ratios."""
    return sum(abs(math.log2((1 + row[axis]) / (1 + other[axis]))) for axis in axes)


def write_energy_cells(
    dataset: Path,
    best: Path,
    left_out: Collection[str],
    controls: Mapping[str, Collection[str]],
    out: Path,
) -> None:
    """Write `energy_cells` to `out`, without kernels in `left_out` and variants in `controls`."""
    cells = read_medians(dataset)
    tops = read_best(best, [name for name in cells if is_axis(name)])
    cells = cells[~cells["kernel"].isin(left_out)]
    pairs = zip(tops["kernel"], tops["variant"], strict=True)
    wanted = [k not in left_out and v not in controls.get(k, ()) for k, v in pairs]
    write_json(out, to_plain(energy_cells(cells, tops[pd.Series(wanted, tops.index, bool)])))
