"""Recorded shards packed in one file, as the repository keeps them, and unpacked again.

A packed record is a Parquet table with a row for each cell, shard after shard. ``shard`` is the
shard's path; its first row has its provenance, as JSON. Columns that follow from others may be
missing; they are computed again, bit for bit. The moments of samples are not kept. A column that is
newer than the record is null.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.median import median_intervals
from ..core.schema import Status, cell_schema
from ..core.space import Cell, Problem
from .store import checked_file, write_parquet

Floats = npt.NDArray[np.float64]

PACKED = "packed.parquet"
# Next to a packed record: its shards, in a folder named after its digest.
UNPACKED = ".unpacked"
SHARD, PROVENANCE = "shard", "provenance"
KEY, MOMENTS = "cell_key", "sampled_at_s"
# Known of cells that were not measured as well.
_WORKING_SET = "working_set_over_cache"
# Columns that follow from the others.
DERIVED = (
    *("median_s", "median_low_s", "median_high_s", "own_low_s", "own_high_s", "coverage"),
    *("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "within_half_width", "vs_memcpy"),
    *("between_spread", "repeat_medians_s", "repeat_samples", "repeat_memcpy_gbs", _WORKING_SET),
)
_CELL = ("kernel", "dtype", "variant", "height", "width", "cache_state", "timing_mode")


def unpacked(place: Path) -> Path:
    """The folder of shards that `place` names; a record is unpacked once, next to its file."""
    for folder in (place, *place.parents):
        if (folder / PACKED).is_file():
            return _unpacked_once(folder / PACKED) / place.relative_to(folder)
        if folder.exists():
            break
    return place


def _unpacked_once(packed: Path) -> Path:
    with packed.open("rb") as f:
        columns = repr(cell_schema(())).encode()
        digest = hashlib.file_digest(f, lambda: hashlib.sha256(columns)).hexdigest()
    out = packed.parent / UNPACKED / digest[:16]
    if out.is_dir():
        return out
    fresh = out.with_name(f"{out.name}.{uuid4().hex}")
    try:
        unpack(packed, fresh)
        fresh.rename(out)
    except OSError:
        # Another process may have been faster.
        if not out.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out


def unpack(packed: Path, folder: Path) -> None:
    """Write the shards of a packed record into `folder`. Raises BadParquetError and OSError."""
    with checked_file(packed) as file:
        table = file.read().combine_chunks()
    starts = pc.indices_nonzero(table.column(PROVENANCE).is_valid()).to_pylist()
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        rows = table.slice(start, end - start)
        metadata = json.loads(rows.column(PROVENANCE)[0].as_py())
        path = folder / rows.column(SHARD)[0].as_py()
        cells = restored(rows, metadata["axes"], metadata["device"]["cache"])
        write_parquet(cells, path, metadata)


def restored(rows: pa.Table, axes: Sequence[str], cache: int | None) -> pa.Table:
    """The cells of one shard with all columns, sorted; `cache` is the device's, in bytes."""
    ok = pc.equal(rows.column("status"), Status.OK).to_numpy()
    computed = {MOMENTS: np.full(len(rows), math.nan)}
    for name, values in _derived(rows.filter(pa.array(ok))).items():
        computed[name] = np.full(len(rows), math.nan)
        computed[name][ok] = values
    computed[_WORKING_SET] = _moved(rows) / (cache or math.nan)
    schema, columns = cell_schema(axes), []
    for field in schema:
        if field.name in rows.column_names:
            columns.append(rows.column(field.name).cast(field.type))
        elif field.name == KEY:
            columns.append(_keys(rows, axes))
        elif field.name in computed:
            columns.append(_column(computed[field.name], field.type))
        else:  # a column that there was not yet
            columns.append(pa.nulls(len(rows), field.type))
    return pa.table(columns, schema=schema).sort_by(KEY)


def _derived(rows: pa.Table) -> dict[str, Floats]:
    """DERIVED of ``ok`` cells of one repeat; NaN stands for null, of a list for no entry."""
    samples = rows.column("samples_s")
    lengths = pc.list_value_length(samples).to_numpy()
    m = median_intervals(pc.list_flatten(samples).to_numpy(), lengths)
    gb, copy = _moved(rows) * 1e-9, _numbers(rows, "memcpy_gbs")
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
            "vs_memcpy": gb / m.median / copy,
            "between_spread": np.full(len(rows), math.nan),
            "repeat_medians_s": m.median,
            "repeat_samples": lengths.astype(float),
            "repeat_memcpy_gbs": copy,
        }


def _numbers(rows: pa.Table, name: str) -> Floats:
    """A column as floats, NaN for null."""
    values = pc.cast(rows.column(name), pa.float64(), safe=False)
    return np.asarray(values.to_numpy(), np.float64)


def _moved(rows: pa.Table) -> Floats:
    """Bytes read and written; not a number where none are declared."""
    moved = _numbers(rows, "bytes_read") + _numbers(rows, "bytes_written")
    return np.where(moved > 0, moved, math.nan)


def _keys(rows: pa.Table, axes: Sequence[str]) -> pa.Array:
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
