"""Runs as they are compared: cells with logarithms of times, and what they were measured with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..analysis.aggregate import dataset_provenance
from ..analysis.opened import OpenedError, opened
from ..core.schema import DERIVED, GROUP, Status, is_axis
from ..storage.dataset import read_cells
from ..storage.store import BadParquetError
from .errors import CompareError
from .spreads import Floats

Wholes = npt.NDArray[np.int64]

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
PLACE = ["kernel", "dtype", "height", "width", "cache_state", "device_name"]


@dataclass(frozen=True)
class RunCells:
    """A run's cells, indexed by KEY, and what its shards say of how they were measured."""

    name: str
    cells: pd.DataFrame
    provenance: Sequence[Mapping[str, Any]]

    @cached_property
    def ok(self) -> pd.DataFrame:
        """The verified cells, with LOG_S and LOG_COPY (NaN where no copy was timed).

        LOG_COPY is the logarithm of the copy's bandwidth, so that the sum of both is that of the
        cell's time beside what the copy takes.
        """
        ok = self.cells[self.cells["status"] == Status.OK]
        copy = ok["copy_gbs"].to_numpy(np.float64, na_value=np.nan)
        return ok.assign(
            **{LOG_S: np.log(ok["median_s"].to_numpy(np.float64)), LOG_COPY: np.log(copy)}
        )

    @cached_property
    def repeats(self) -> int:
        """Repeats that every verified cell has; 0 without such a cell."""
        counts = [len(medians) for medians in self.ok["repeat_medians_s"]]
        return min(counts, default=0)

    @property
    def devices(self) -> set[str]:
        """The devices that measured."""
        return set(self.cells["device_uuid"])


def read_run(place: str | os.PathLike[str]) -> RunCells:
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
    states = typical.index.get_level_values("cache_state")
    return typical.assign(
        **{
            LOG_COPY: by_group[LOG_COPY].median(),
            "cache_state": states,
            "within_half_width": by_group["within_half_width"].agg(_half_width_of_mean),
            "repeat_medians_s": by_group["repeat_medians_s"].agg(_mean_of_each),
            "repeat_copy_gbs": by_group["repeat_copy_gbs"].agg(_median_of_each),
        }
    ).rename_axis([None] * len(GROUP))


def _half_width_of_mean(widths: pd.Series) -> float:
    return float(np.sqrt((widths.fillna(0.0) ** 2).sum()) / len(widths))


def _mean_of_each(repeats: pd.Series) -> Floats:
    """The geometric mean over cells of each repeat that all of them have."""
    n = min(map(len, repeats))
    mean: Floats = np.exp(np.mean([np.log(values[:n]) for values in repeats], axis=0))
    return mean


def _median_of_each(repeats: pd.Series) -> Floats:
    n = min(map(len, repeats))
    middle: Floats = np.median([values[:n] for values in repeats], axis=0)
    return middle


def copies(run: RunCells) -> pd.DataFrame:
    """The runtime's own copy in each PLACE: LOG_S, minus the logarithm of its bandwidth.

    LOG_CELL is that of the place's median cell time, by which its class is told; LOG_COPY is NaN.
    Where no cell has the bandwidth of a copy that is its peer, copies were timed all the same:
    LOG_S and LOG_CELL are then the logarithm of their seconds.
    """
    ok = run.ok[run.ok[LOG_COPY].notna()]
    if ok.empty:
        return _timed_copies(run)
    by_place = ok.groupby(PLACE, observed=True)
    log_s, log_cell = -by_place[LOG_COPY].median(), by_place[LOG_S].median()
    states = log_s.index.get_level_values("cache_state")
    columns = {LOG_S: log_s, LOG_CELL: log_cell, LOG_COPY: np.nan, "cache_state": states}
    return pd.DataFrame(columns, index=log_s.index)


def _timed_copies(run: RunCells) -> pd.DataFrame:
    """As `copies`, from what the shards tell of them."""
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
    log_s = pd.DataFrame(rows, columns=[*PLACE, LOG_S]).groupby(PLACE)[LOG_S].median()
    states = log_s.index.get_level_values("cache_state")
    columns = {LOG_S: log_s, LOG_CELL: log_s, LOG_COPY: np.nan, "cache_state": states}
    return pd.DataFrame(columns, index=log_s.index)


def classes_of(log_s: Floats, cache_states: Sequence[str]) -> list[str]:
    """Cells alike in their noise: of one cache state and one decade of seconds."""
    decades = np.floor(np.asarray(log_s) / np.log(10.0)).astype(int).tolist()
    return [f"{state}, 1e{decade} s" for state, decade in zip(cache_states, decades, strict=True)]


def within_variances(cells: pd.DataFrame) -> Floats:
    """Variance of each cell's log median that its samples tell."""
    half: Floats = cells["within_half_width"].fillna(0.0).to_numpy(np.float64)
    return (half / 1.96) ** 2


def flat(samples: pd.Series) -> tuple[Floats, Wholes]:
    """Logarithms of all samples in a row, and how many each cell has."""
    lengths = np.array([len(values) for values in samples], np.int64)
    joined = np.concatenate([*samples]) if len(samples) else np.empty(0)
    return np.log(joined), lengths
