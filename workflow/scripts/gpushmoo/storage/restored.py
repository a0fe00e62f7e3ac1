"""Columns of a measured cell that follow from its others, which a packed record leaves out.

A packed record is a Parquet table with a row for each cell, shard after shard. ``shard`` is where
the shard lay; its first row has its provenance, as JSON. A column that is missing is computed
again, bit for bit, but for the moments of the samples, which no record keeps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.median import median_intervals
from ..core.schema import Status, cell_schema
from ..core.space import Cell, Problem
from .store import checked_file, write_parquet

Floats = npt.NDArray[np.float64]

SHARD, PROVENANCE = "shard", "provenance"
KEY, MOMENTS = "cell_key", "sampled_at_s"
# Known of cells that were not measured as well.
_WORKING_SET = "working_set_over_cache"
_CELL = ("kernel", "dtype", "variant", "height", "width", "cache_state", "launch_kind")


def unpack(packed: Path, folder: Path) -> None:
    """Write the shards of a packed record into `folder`. Raises BadParquetError and OSError."""
    with checked_file(packed) as file:
        table = file.read().combine_chunks()
    starts = pc.indices_nonzero(table.column(PROVENANCE).is_valid()).to_pylist()
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        rows = table.slice(start, end - start)
        metadata = json.loads(rows.column(PROVENANCE)[0].as_py())
        path = folder / rows.column(SHARD)[0].as_py()
        write_parquet(restored(rows, metadata), path, metadata)


def restored(rows: pa.Table, metadata: Mapping[str, Any]) -> pa.Table:
    """The cells of one shard, with all columns of its schema, sorted by key."""
    axes, cache = metadata["axes"], metadata["device"]["cache"]
    ok = pc.equal(rows.column("status"), Status.OK).to_numpy()
    computed = {MOMENTS: np.full(len(rows), math.nan)}
    for name, values in derived(rows.filter(pa.array(ok)), cache).items():
        computed[name] = np.full(len(rows), math.nan)
        computed[name][ok] = values
    computed[_WORKING_SET] = _working_set(rows, cache)
    schema, columns = cell_schema(axes), []
    for field in schema:
        if field.name in rows.column_names:
            columns.append(rows.column(field.name).cast(field.type))
        elif field.name == KEY:
            columns.append(_keys(rows, axes))
        else:
            columns.append(_column(computed[field.name], field.type))
    return pa.table(columns, schema=schema).sort_by(KEY)


def derived(rows: pa.Table, cache: int | None) -> dict[str, Floats]:
    """What follows of ``ok`` cells of one repeat, bit for bit as `measuring.shard_file` writes it.

    NaN stands for null; of a list it is the only entry. `cache` is the device's, in bytes.
    """
    samples = rows.column("samples_s")
    lengths = pc.list_value_length(samples).to_numpy()
    m = median_intervals(pc.list_flatten(samples).to_numpy(), lengths)
    gb, copy = _moved(rows) * 1e-9, numbers(rows, "copy_gbs")
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "median_s": m.median,
            "median_low_s": m.low,
            "median_high_s": m.high,
            "own_low_s": m.low,
            "own_high_s": m.high,
            "coverage": m.coverage,
            "bandwidth_gbs": gb / m.median,
            "bandwidth_low_gbs": gb / m.high,
            "bandwidth_high_gbs": gb / m.low,
            "within_half_width": (m.high - m.low) / (2.0 * m.median),
            "over_copy": gb / m.median / copy,
            "between_spread": np.full(len(rows), math.nan),
            _WORKING_SET: _working_set(rows, cache),
            "repeat_medians_s": m.median,
            "repeat_samples": lengths.astype(float),
            "repeat_copy_gbs": copy,
        }


def numbers(rows: pa.Table, name: str) -> Floats:
    """A column as floats, NaN for null; of lists the only entry, NaN without one, inf for more."""
    column = rows.column(name)
    if pa.types.is_list(column.type):
        lengths = pc.list_value_length(column).to_numpy()
        padded = np.where(lengths == 0, math.nan, math.inf)
        padded[lengths == 1] = pc.list_flatten(column.filter(pa.array(lengths == 1))).to_numpy()
        return padded
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)


def _moved(rows: pa.Table) -> Floats:
    return numbers(rows, "bytes_read") + numbers(rows, "bytes_written")


def _working_set(rows: pa.Table, cache: int | None) -> Floats:
    return _moved(rows) / (cache or math.nan)


def _keys(rows: pa.Table, axes: list[str]) -> pa.Array:
    columns = [rows.column(name).to_pylist() for name in (*_CELL, *axes)]
    keys = []
    for kernel, dtype, variant, height, width, cache, kind, *values in zip(*columns, strict=True):
        params = tuple(zip(axes, values, strict=True))
        keys.append(Cell(kernel, dtype, variant, Problem(height, width), params, cache, kind).key)
    return pa.array(keys, pa.string())


def _column(values: Floats, kind: pa.DataType) -> pa.Array:
    """A computed column: null for NaN, or a list of no entry."""
    known = ~np.isnan(values)
    if not pa.types.is_list(kind):
        return pa.array(values, mask=~known)
    offsets = np.concatenate([[0], np.cumsum(known)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values[known]).cast(kind.value_type))
