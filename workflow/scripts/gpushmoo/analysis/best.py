"""The tied best cells of each group: those whose 95 % interval overlaps the fastest cell's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ..core.schema import (
    BEST_COLUMNS,
    CORE_COLUMNS,
    GROUP,
    PARAMS,
    Status,
    best_schema,
    is_axis,
)
from ..storage.dataset import as_frame, partitions, read_cells, with_axes_noted
from ..storage.store import read_table, write_parquet
from .ceiling import CeilingRow, read_ceiling, share_of_ceiling
from .edges import Limits, edges
from .fastest import axes_of, params_text

ANY = Limits()

# Of a dataset all that the best sets are made of, beside the axes.
_COLUMNS = frozenset(BEST_COLUMNS) | {
    *("status", "median_s", "own_low_s", "own_high_s", "bytes_read", "bytes_written")
}


def best_of_dataset(
    dataset: Path,
    ceiling: Sequence[CeilingRow] = (),
    host_fed: Collection[str] = (),
    limits: Limits = ANY,
) -> pa.Table:
    """`best_table` of a dataset, a kernel and dtype at a time: no group has more than one."""
    tables = [
        best_table(read_cells(dataset, where, _COLUMNS), ceiling, host_fed, limits)
        for where in partitions(dataset)
    ]
    return pa.concat_tables(tables)


def write_best(
    dataset: Path,
    ceiling: Path,
    host_fed: Collection[str],
    limits: Mapping[str, Any],
    out: Path,
) -> None:
    """Write `best_of_dataset` as Parquet to `out`; `ceiling` is the file of `measure_ceiling`."""
    best = best_of_dataset(dataset, read_ceiling(ceiling), host_fed, Limits(**limits))
    write_parquet(best.cast(with_axes_noted(best.schema)), out, {})


def read_best(path: Path, axes: Collection[str]) -> pd.DataFrame:
    """What `write_best` has written of a data set with these `axes`, and the column PARAMS."""
    best = as_frame(read_table(path, best_schema(axes)))
    swept = [axis for axis in best.columns if is_axis(axis)]
    rows = best.to_dict("records")
    texts = [params_text(row, [a for a in swept if pd.notna(row[a])]) for row in rows]
    return best.assign(**{PARAMS: pd.Series(texts, best.index, object)})


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
    ceiling: Sequence[CeilingRow] = (),
    host_fed: Collection[str] = (),
    limits: Limits = ANY,
) -> pa.Table:
    """One row for each tied cell of each group, the fastest first (`best_schema`).

    The axes are all those of which `cells` have a column.

    The data of the kernels in `host_fed` come over a bus: they have no share of the ceiling, which
    is the device's own memory. `limits` say how far axes can go (see `edges`).
    """
    rows: list[dict[str, Any]] = []
    for _, group in cells.groupby(list(GROUP), sort=True, observed=True):
        tied = tied_best(group)
        if tied.empty:
            continue
        axes = axes_of(group)
        rows_of = () if group["kernel"].iloc[0] in host_fed else ceiling
        fastest = tied["median_s"].iloc[0]
        edge = ", ".join(edges(tied.iloc[0], group, axes, limits))
        candidates = int((group["status"] == Status.OK).sum())
        for place, (_, cell) in enumerate(tied.iterrows()):
            rows.append(
                {name: cell[name] for name in BEST_COLUMNS if name in CORE_COLUMNS}
                | {axis: int(cell[axis]) for axis in axes}
                | {
                    "over_copy": None if pd.isna(cell["over_copy"]) else cell["over_copy"],
                    "share_of_ceiling": share_of_ceiling(rows_of, cell),
                    "slower_than_best": float(cell["median_s"] / fastest - 1.0),
                    "is_fastest": place == 0,
                    "tied": len(tied),
                    "candidates": candidates,
                    "edge": edge,
                }
            )
    return pa.Table.from_pylist(rows, schema=best_schema(filter(is_axis, cells.columns)))
