"""Merge the repeats of a shard into one row per cell, with intervals that predict another run."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..core.median import CONFIDENCE
from ..core.schema import REPEAT_COLUMNS, Status
from ..storage.store import overhead_variances
from .statistics import (
    SHARING_CELLS,
    Classes,
    Floats,
    Places,
    Replicated,
    RunSpreads,
    half_widths,
    replicated,
    variance_within,
)

# A repeat with such a status says nothing about the cell, so the other repeats decide.
_NOT_MEASURED = frozenset({Status.THROTTLED, Status.DEVICE_LOST})
_LISTS = ("samples_s", "sampled_at_s", "events_s", "processor_s", *REPEAT_COLUMNS)


@dataclass(frozen=True)
class Repeated:
    """Cells of a shard that were measured in the same repeats, two or more.

    Attributes
    ----------
    tables
        Numbers of these repeats, counted from 0.
    rows
        Rows of the cells in the first repeat, shape (cells,).
    places
        Rows of the cells in each of `tables`.
    logs
        Natural logarithms of the medians in seconds, shape (cells, repeats).
    """

    tables: tuple[int, ...]
    rows: Places
    places: tuple[Places, ...]
    logs: Floats


def repeated_cells(tables: Sequence[pa.Table]) -> list[Repeated]:
    """Group the ``ok`` cells of the first of `tables`, one per repeat, by the repeats they have."""
    measured = [_ok_places(t) for t in tables]
    groups: dict[tuple[int, ...], list[str]] = {}
    for key in measured[0]:
        groups.setdefault(tuple(i for i, m in enumerate(measured) if key in m), []).append(key)
    medians = [t.column("median_s").to_numpy() for t in tables]
    repeated = []
    for used, keys in sorted(groups.items()):
        places = tuple(np.array([measured[i][k] for k in keys], np.int64) for i in used)
        logs = np.log([medians[i][p] for i, p in zip(used, places, strict=True)]).T
        repeated.append(Repeated(used, places[0], places, logs))
    return repeated


def _ok_places(table: pa.Table) -> dict[str, int]:
    statuses = table.column("status").to_pylist()
    keys = table.column("cell_key").to_pylist()
    return {k: i for i, (k, s) in enumerate(zip(keys, statuses, strict=True)) if s == Status.OK}


def shard_spread(tables: Sequence[pa.Table]) -> list[Replicated]:
    """Return the spread between the repeats of a shard, as input of `statistics.run_spreads`."""
    return [_replicated(tables[0], r) for r in repeated_cells(tables) if len(r.tables) > 1]


def _replicated(first: pa.Table, cells: Repeated) -> Replicated:
    rounds, classes = _rounds(first, cells.rows), _classes(first, cells.rows)
    return replicated([cells.logs], classes, rounds)


def _rounds(table: pa.Table, rows: Places) -> list[Hashable]:
    """Name the rounds of each row: one job samples all cells of a problem and condition."""
    kernel = ("kernel", "dtype")
    place = ("height", "width", "cache_state", "timing_mode")
    return _tuples(table, rows, (*kernel, *place, "measured_at"))


def _of_one_job(table: pa.Table, rows: Places) -> npt.NDArray[np.bool_]:
    """Return whether one job measured all cells of each row's group, and so in the same rounds."""
    groups = _tuples(table, rows, ("height", "width", "cache_state", "timing_mode", "variant"))
    moments: dict[Hashable, set[Hashable]] = {}
    for group, moment in zip(groups, _tuples(table, rows, ("measured_at",)), strict=True):
        moments.setdefault(group, set()).add(moment)
    return np.array([len(moments[group]) == 1 for group in groups])


def _classes(table: pa.Table, rows: Places) -> Classes:
    """Class cells by their noise: one kernel, one condition, and similar times."""
    seconds = table.column("median_s").to_numpy()[rows]
    names = _tuples(table, rows, ("kernel", "cache_state", "timing_mode"))
    return Classes(names, np.log10(seconds))


def _tuples(table: pa.Table, rows: Places, names: Sequence[str]) -> list[Hashable]:
    columns = (table.column(n).take(pa.array(rows)).to_pylist() for n in names)
    return list(zip(*columns, strict=True))


def merged(tables: Sequence[pa.Table], spread: RunSpreads | None) -> pa.Table:
    """Return one row for each cell of the first of `tables`, which are the repeats of one shard.

    A cell that failed in a later repeat gets the status of that repeat, and its message names the
    repeat. `spread` is the spread of the whole run. If it is None, the run has one repeat and the
    rows stay as they are.
    """
    if spread is None:
        return tables[0]
    columns = {name: _values(tables[0], name) for name in _CHANGED}
    lists = {name: tables[0].column(name).to_pylist() for name in _LISTS}
    repeated = repeated_cells(tables)
    drifts = _drifts(tables, repeated)
    for cells in repeated:
        _fill(columns, lists, tables, cells, spread, drifts)
    _condemn(columns, tables)
    out = tables[0]
    for name, values in (columns | lists).items():
        place = out.schema.get_field_index(name)
        field = out.schema.field(place)
        out = out.set_column(place, field, pa.array(values, field.type, from_pandas=True))
    return out


_TIMES = ("median_s", "median_low_s", "median_high_s", "coverage", "group_low_s", "group_high_s")
_BANDS = ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs")
_CHANGED = (
    "status",
    "message",
    "memcpy_gbs",
    "vs_memcpy",
    "sample_half_width",
    "repeat_rsd",
    "overhead_s",
    "overhead_error_s",
    *_TIMES,
    *_BANDS,
)


def _values(table: pa.Table, name: str) -> Any:
    if pa.types.is_floating(table.schema.field(name).type):
        return table.column(name).to_numpy().copy()
    return table.column(name).to_pylist()


def _fill(
    columns: dict[str, Any],
    lists: dict[str, list[Any]],
    tables: Sequence[pa.Table],
    cells: Repeated,
    spread: RunSpreads,
    drifts: Mapping[Hashable, Floats],
) -> None:
    """Set the columns of `cells` from all of their repeats.

    If a cell lacks some repeats, the others represent all, less the drift that cells of their
    rounds share. A cell that no later repeat was planned to measure lost a race in its own rounds.
    So its interval for comparisons is the interval of its samples.
    """
    repeats = cells.logs.shape[1]
    first = tables[0]
    rows = cells.rows
    variances = np.zeros(len(rows))
    if repeats > 1:
        variances = _replicated(first, cells).own
    within = np.mean([_within(tables[i], p) for i, p in _used(cells)], axis=0)
    priors = spread.at(_classes(first, rows), _rounds(first, rows))
    # The spread between repeats includes this error, too. With few repeats, the larger of both
    # counts.
    shared = np.maximum(priors.shared, _of_overhead(tables, cells))
    group_half, run_half = half_widths(repeats, variances, within, replace(priors, shared=shared))
    # Cells of the same rounds share a drift, which does not affect their differences. Other cells
    # share less.
    group_half = np.where(_of_one_job(first, rows), group_half, run_half)
    center = cells.logs.mean(axis=1)
    shift = np.zeros(len(rows))
    if repeats < len(tables):
        used = list(cells.tables)
        none = np.zeros(len(tables))
        shift = np.array([drifts.get(r, none)[used].mean() for r in _rounds(first, rows)])
        center -= shift
    if cells.tables == (0,) and len(tables) > 1:
        later = pa.concat_arrays([c for t in tables[1:] for c in t.column("cell_key").chunks])
        is_asked = pc.is_in(first.column("cell_key").take(pa.array(rows)), later).to_numpy()
        low, high = (first.column(n).to_numpy()[rows] for n in ("group_low_s", "group_high_s"))
        group_half = np.where(is_asked, group_half, np.log(high / low) / 2.0)
    for name, values in zip(
        _TIMES,
        (
            np.exp(center),
            np.exp(center - run_half),
            np.exp(center + run_half),
            CONFIDENCE,
            np.exp(center - group_half),
            np.exp(center + group_half),
        ),
        strict=True,
    ):
        columns[name][rows] = values
    read, written = (first.column(n).to_numpy()[rows] for n in ("bytes_read", "bytes_written"))
    gb = np.where(read + written > 0, read + written, math.nan) * 1e-9
    for band, time in zip(_BANDS, ("median_s", "median_high_s", "median_low_s"), strict=True):
        columns[band][rows] = gb / columns[time][rows]
    copies = np.array([tables[i].column("memcpy_gbs").to_numpy()[p] for i, p in _used(cells)])
    columns["memcpy_gbs"][rows] = np.exp(np.log(copies).mean(axis=0))
    # The memcpy baselines drift with the cells.
    ratios = columns["bandwidth_gbs"][rows] / columns["memcpy_gbs"][rows]
    columns["vs_memcpy"][rows] = ratios * np.exp(-shift) if shift.any() else ratios
    for name, power in (("overhead_s", 1), ("overhead_error_s", 2)):
        each = [tables[i].column(name).to_numpy()[p] ** power for i, p in _used(cells)]
        columns[name][rows] = (np.mean(each, axis=0) / repeats ** (power - 1)) ** (1 / power)
    halves = [tables[i].column("sample_half_width").to_numpy()[p] for i, p in _used(cells)]
    columns["sample_half_width"][rows] = np.mean(halves, axis=0) / math.sqrt(repeats)
    if repeats > 1:
        columns["repeat_rsd"][rows] = cells.logs.std(axis=1, ddof=1)
    for name in _LISTS:
        parts = [tables[i].column(name).take(pa.array(p)).to_pylist() for i, p in _used(cells)]
        for row, *of_repeats in zip(rows.tolist(), *parts, strict=True):
            known = None not in of_repeats
            lists[name][row] = [v for part in of_repeats for v in part] if known else None


def _drifts(tables: Sequence[pa.Table], repeated: Sequence[Repeated]) -> dict[Hashable, Floats]:
    """Return each repeat's drift from the mean of all, by rounds, from cells with all repeats."""
    whole = next((cells for cells in repeated if len(cells.tables) == len(tables)), None)
    if whole is None:
        return {}
    rest = pd.DataFrame(whole.logs - whole.logs.mean(axis=1, keepdims=True))
    groups = rest.groupby(pd.Series(_rounds(tables[0], whole.rows)))
    found = {
        name: group.median().to_numpy() for name, group in groups if len(group) >= SHARING_CELLS
    }
    return {name: drift - drift.mean() for name, drift in found.items()}


def _used(cells: Repeated) -> list[tuple[int, Places]]:
    return list(zip(cells.tables, cells.places, strict=True))


def _of_overhead(tables: Sequence[pa.Table], cells: Repeated) -> Floats:
    """Return the variance of each log median due to the overhead's error, the mean of repeats."""
    found = []
    for i, places in _used(cells):
        rows = tables[i].take(pa.array(places))
        found.append(overhead_variances(rows, rows.column("median_s").to_numpy()))
    mean: Floats = np.mean(found, axis=0)
    return mean


def _within(table: pa.Table, places: Places) -> Floats:
    """Return the variance of each log median, estimated from the samples of this repeat."""
    low, high, coverage = (
        table.column(n).to_numpy()[places] for n in ("group_low_s", "group_high_s", "coverage")
    )
    return variance_within(low, high, coverage)


def _condemn(columns: dict[str, Any], tables: Sequence[pa.Table]) -> None:
    """Give a cell that failed in a later repeat the status and message of that repeat."""
    rows = {key: row for row, key in enumerate(tables[0].column("cell_key").to_pylist())}
    for number, table in enumerate(tables[1:], start=2):
        names = ("cell_key", "status", "message")
        for key, status, message in zip(*(table.column(n).to_pylist() for n in names), strict=True):
            row = rows[key]
            faulty = status != Status.OK and status not in _NOT_MEASURED
            if faulty and columns["status"][row] == Status.OK:
                columns["status"][row] = status
                columns["message"][row] = f"in repeat {number}: {message}"
                for name in (*_TIMES, *_BANDS, "vs_memcpy", "sample_half_width", "repeat_rsd"):
                    columns[name][row] = math.nan
