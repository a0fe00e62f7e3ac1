"""Runs as they are compared: cells with logarithms of times, and what they were measured with."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.opened import OpenedError, opened
from ..analysis.run_quality import dataset_provenance
from ..analysis.statistics import Floats, normal_quantile
from ..core.median import coverage_of
from ..core.schema import DERIVED, GROUP, Status, is_axis
from ..storage.dataset import read_cells
from ..storage.store import BadParquetError
from . import CompareError

Place = str | os.PathLike[str]

# Of a data set all that is compared, beside the axes.
_COLUMNS = (
    *GROUP,
    *("cell_key", "status", "message", "median_s", "own_low_s", "own_high_s", "bandwidth_gbs"),
    *("copy_gbs", "samples_s", "repeat_samples", "repeat_medians_s", "repeat_copy_gbs"),
    *("within_half_width", "device_uuid"),
    *("bandwidth_low_gbs", "bandwidth_high_gbs", "measured_at"),
)
# By what cells of two runs are matched: one key may be measured on several models.
KEY = ["cell_key", "device_name"]
# Logarithms beside the columns of a data set: of seconds, and of the copy's GB/s.
LOG_S, LOG_COPY, LOG_CELL = (f"{DERIVED}{name}" for name in ("log_s", "log_copy", "log_cell"))
# Variance of a log median that its samples tell.
WITHIN = f"{DERIVED}within"
PLACE = ["kernel", "dtype", "height", "width", "cache_state", "device_name"]
# Of the differences of one kind.
_MOST_NAMED = 3


@dataclass(frozen=True)
class RunCells:
    """A run's cells, indexed by KEY, and what its shards say of how they were measured."""

    name: str
    cells: pd.DataFrame
    provenance: Sequence[Mapping[str, Any]]

    @cached_property
    def ok(self) -> pd.DataFrame:
        """The verified cells, with LOG_S, LOG_COPY (NaN where no copy was timed), and WITHIN.

        LOG_COPY is the logarithm of the copy's bandwidth, so that the sum of both is that of the
        cell's time beside what the copy takes.
        """
        ok = self.cells[self.cells["status"] == Status.OK]
        copy = ok["copy_gbs"].to_numpy(np.float64, na_value=np.nan)
        logs = {LOG_S: np.log(ok["median_s"].to_numpy(np.float64)), LOG_COPY: np.log(copy)}
        return ok.assign(**logs, **{WITHIN: _within_variances(ok)})

    @cached_property
    def repeats(self) -> int:
        """Repeats that every verified cell has; 0 without such a cell."""
        return min(map(len, self.ok["repeat_medians_s"]), default=0)

    @property
    def devices(self) -> set[str]:
        """The devices that measured."""
        return set(self.cells["device_uuid"])


def read_run(place: Place) -> RunCells:
    """The cells of a run, of a data set, or of a folder of shards. Raises CompareError."""
    try:
        with opened(Path(place).expanduser()) as found:
            cells = read_cells(found.dataset)
            provenance = dataset_provenance(found.dataset)
            name = found.name
    except (OpenedError, BadParquetError) as err:
        raise CompareError(str(err)) from err
    cells = cells[[c for c in cells.columns if c in _COLUMNS or is_axis(c)]].copy()
    cells = cells.set_index(KEY, drop=False).rename_axis([None, None])
    if not cells.index.is_unique:
        raise CompareError(
            f"'{place}' has cells that several devices of one model measured; compare runs in "
            "which each cell was measured by one."
        )
    return RunCells(name, cells.sort_index(), provenance)


def _within_variances(ok: pd.DataFrame) -> Floats:
    """Variance of each cell's log median that its samples tell; of single samples none: 0.

    Half of their interval is as many standard errors as its confidence says, which depends on how
    many samples a repeat has.
    """
    half = ok["within_half_width"].fillna(0.0).to_numpy(np.float64)
    counts = {int(n) for each in ok["repeat_samples"] for n in each}
    errors_of = {n: float(normal_quantile(coverage_of(n))) for n in counts}
    errors = np.array([np.mean([errors_of[n] for n in each]) for each in ok["repeat_samples"]])
    variances: Floats = np.divide(half, errors, out=np.zeros_like(half), where=errors > 0.0) ** 2
    return variances


def bests(run: RunCells, of: pd.Index) -> pd.DataFrame:
    """The fastest verified cell of each group among the cells `of`, indexed by GROUP.

    LOG_COPY is the median over the group's cells, which were sampled beside the same copies.
    """
    ok = run.ok.loc[run.ok.index.intersection(of)]
    ranked = ok.sort_values([LOG_S, "cell_key"]).drop_duplicates(list(GROUP))
    best = ranked.set_index(list(GROUP), drop=False).rename_axis([None] * len(GROUP))
    copies = ok.groupby(list(GROUP), observed=True)[LOG_COPY].median()
    return best.assign(**{LOG_COPY: copies.reindex(best.index)}).sort_index()


def wholes(run: RunCells, of: pd.Index) -> pd.DataFrame:
    """The typical of the verified cells `of` of each group, indexed by GROUP.

    LOG_S is their mean, so that what all of them changed by is known better than what one did;
    LOG_COPY is their median. The repeats are those of the mean and of the median.
    """
    ok = run.ok.loc[run.ok.index.intersection(of)]
    by_group = ok.groupby(list(GROUP), observed=True)
    typical = by_group[[LOG_S]].mean()
    return typical.assign(
        **{
            LOG_COPY: by_group[LOG_COPY].median(),
            WITHIN: by_group[WITHIN].sum() / by_group.size() ** 2,
            "cache_state": typical.index.get_level_values("cache_state"),
            "repeat_medians_s": by_group["repeat_medians_s"].agg(
                lambda repeats: np.exp(np.log(_common_repeats(repeats)).mean(axis=0))
            ),
            "repeat_copy_gbs": by_group["repeat_copy_gbs"].agg(
                lambda repeats: np.median(_common_repeats(repeats), axis=0)
            ),
        }
    ).rename_axis([None] * len(GROUP))


def _common_repeats(repeats: pd.Series) -> Floats:
    """The values of the repeats that all cells have, shape (cells, repeats)."""
    n = min(map(len, repeats))
    return np.array([values[:n] for values in repeats], np.float64)


def copies(run: RunCells) -> pd.DataFrame:
    """The runtime's own copy in each PLACE: LOG_S, minus the logarithm of its bandwidth.

    LOG_CELL is that of the place's median cell time, by which its class is told; LOG_COPY is NaN.
    Where no cell has the bandwidth of a copy that is its peer, copies were timed all the same:
    LOG_S and LOG_CELL are then the logarithm of their seconds.
    """
    ok = run.ok[run.ok[LOG_COPY].notna()]
    if ok.empty:
        log_s = log_cell = _timed_copies(run)
    else:
        by_place = ok.groupby(PLACE, observed=True)
        log_s, log_cell = -by_place[LOG_COPY].median(), by_place[LOG_S].median()
    states = log_s.index.get_level_values("cache_state")
    columns = {LOG_S: log_s, LOG_CELL: log_cell, LOG_COPY: np.nan, WITHIN: 0.0}
    return pd.DataFrame(columns | {"cache_state": states}, index=log_s.index)


def _timed_copies(run: RunCells) -> pd.Series:
    rows = [
        (
            Path(shard["params"]["folder"]).name,
            shard["params"]["dtype"],
            *(control[name] for name in ("height", "width", "cache_state")),
            shard["device"]["name"],
            float(np.log(np.median(control["seconds"]))),
        )
        for shard in run.provenance
        for control in shard["controls"]
        if control["seconds"]
    ]
    return pd.DataFrame(rows, columns=[*PLACE, LOG_S]).groupby(PLACE)[LOG_S].median()


def refuse_unlike(sides: Sequence[Sequence[RunCells]]) -> None:
    """Raise CompareError where samples mean something else, or nothing is common."""
    runs = [run for side in sides for run in side]
    protocols = {run.name: {shard["protocol_version"] for shard in run.provenance} for run in runs}
    if len(set.union(*protocols.values())) > 1:
        told = ", ".join(f"'{n}' by {min(versions)}" for n, versions in protocols.items())
        raise CompareError(f"The runs were measured by different protocols ({told}).")
    names = [{name for run in side for name in run.cells["device_name"]} for side in sides]
    if not set.intersection(*names):
        models = [", ".join(sorted(side)) for side in names]
        same = f", the runs of the same thing on {models[2]}" if models[2:] else ""
        raise CompareError(
            f"A was measured on {models[0]} and B on {models[1]}{same}; compare one model."
        )


def differences(
    first: Sequence[RunCells], second: Sequence[RunCells], kernels: Collection[str]
) -> list[str]:
    """What A and B were measured, built or run by where both differ, a line each.

    Only of shards of these `kernels`.
    """
    a, b = (_facts(side, kernels) for side in (first, second))
    return [
        f"{name}: {_named(a[name])} → {_named(b[name])}"
        for name in a
        if name in b and a[name] != b[name]
    ]


def _named(values: set[str]) -> str:
    shown = sorted(values)[:_MOST_NAMED]
    return ", ".join(shown) + (f" and {len(values) - len(shown)} more" if values > {*shown} else "")


def _facts(runs: Sequence[RunCells], kernels: Collection[str]) -> dict[str, set[str]]:
    facts: dict[str, set[str]] = {}
    for shard in (shard for run in runs for shard in run.provenance):
        kernel = str(shard["params"]["folder"]).rsplit("/", 1)[-1]
        if kernel in kernels:
            for name, value in _of_shard(shard, kernel):
                facts.setdefault(name, set()).add(value)
    return facts


def _of_shard(shard: Mapping[str, Any], kernel: str) -> Iterator[tuple[str, str]]:
    device, host, params = shard.get("device", {}), shard.get("host", {}), shard["params"]
    for name, value in (
        ("device", device.get("uuid")),
        ("driver", device.get("driver")),
        ("runtime", device.get("runtime")),
        ("host", host.get("name")),
        ("system", host.get("system")),
        ("gpushmoo", shard.get("gpushmoo")),
        (f"code of {kernel}", shard.get("kernel_digest")),
        ("seed of the data", params.get("seed")),
        ("thread limit", params.get("thread_limit")),
    ):
        if value is not None:
            yield name, str(value)
    for variant, options in (shard.get("builds") or {}).items():
        yield f"compiler options of {kernel}, {params['dtype']}, {variant}", str(options)
    for name, value in params["measure"].items():
        yield f"measure.{name} of {kernel}", json.dumps(value, sort_keys=True)
