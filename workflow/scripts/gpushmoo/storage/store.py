"""Write Parquet files completely or not at all, check them when read, and unpack records.

A packed record, as in the repository, is a Parquet table with a row for each cell, shard after
shard. ``shard`` is the shard's path, and its first row has its provenance as JSON. Columns that
follow from others may be missing; they are computed again, bit for bit. The times of day of samples
are not kept. A column that is newer than the record is null.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core.errors import BadParquetError, WriteError
from ..core.median import median_intervals
from ..core.schema import (
    METADATA_KEY,
    RENAMED_COLUMNS,
    RENAMED_STATUSES,
    SCHEMA_VERSION,
    Status,
    cell_schema,
)
from ..core.space import Cell, Problem
from .room import unwritten
from .wholefile import whole_file

MAGIC = b"PAR1"
# Columns that files of an older schema do not have; they are null. These files have former names
# of columns and statuses, too (`with_present_names`).
LATER_COLUMNS: Mapping[int, frozenset[str]] = {
    4: frozenset({"overhead_s", "overhead_error_s", "processor_s", "events_s"}),
    5: frozenset(),
}
_FORMER_COLUMNS = {now: former for former, now in RENAMED_COLUMNS.items()}


def write_parquet(table: pa.Table, path: Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write `table` whole, with checksums and `metadata` as JSON. Raises WriteError."""
    beside = dict(table.schema.metadata or {})
    if metadata is not None:
        plain = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}, sort_keys=True)
        beside[METADATA_KEY] = plain.encode()
    # Arrow's copy of the schema would contain the metadata a second time.
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
    try:
        with whole_file(path) as own, pq.ParquetWriter(own, table.schema, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(beside)
    except OSError as err:
        raise WriteError(unwritten(path, err), path, err.errno) from err


def is_complete_file(path: Path) -> bool:
    """Return whether `path` begins and ends like a complete Parquet file, without reading data."""
    try:
        with path.open("rb") as f:
            head = f.read(4)
            f.seek(-8, os.SEEK_END)
            tail = f.read(8)
            size = f.tell()
    except OSError:
        return False
    footer = int.from_bytes(tail[:4], "little")
    return head == MAGIC and tail[4:] == MAGIC and footer + 12 <= size


@dataclass(frozen=True)
class Shard:
    """Shard whose provenance and columns are checked, but whose cells are not read yet."""

    path: Path
    schema: pa.Schema
    metadata: dict[str, Any]

    def table(self) -> pa.Table:
        """Read the cells and check them; raise BadParquetError, also for a duplicate cell."""
        with checked_file(self.path) as file:
            table = with_present_names(file.read())
        for place, field in enumerate(self.schema):
            if field.name not in table.column_names:
                table = table.add_column(place, field, pa.nulls(len(table), field.type))
        # A file by another program may have nullable columns.
        table = table.cast(self.schema)
        if len(table.column("cell_key").unique()) != len(table):
            raise BadParquetError(self.path, "contains a cell twice.")
        return table


def open_shard(path: Path) -> Shard:
    """Check a shard's provenance and columns; raise BadParquetError if they are not valid."""
    with checked_file(path) as file:
        schema = file.schema_arrow
        raw = _metadata_text(path, file)
    try:
        metadata = json.loads(raw)
        version = metadata["schema_version"]
        known = version in (SCHEMA_VERSION, *LATER_COLUMNS)
        expected = cell_schema(metadata["axes"]) if known else None
    except (ValueError, TypeError, KeyError) as err:
        raise BadParquetError(path, "has provenance metadata that cannot be read.") from err
    if expected is None:
        raise BadParquetError(
            path, f"has schema version {version}; this program reads version {SCHEMA_VERSION}."
        )
    names = expected.names
    if version in LATER_COLUMNS:
        later = LATER_COLUMNS[version]
        names = [_FORMER_COLUMNS.get(name, name) for name in names if name not in later]
    if schema.names != names:
        raise BadParquetError(path, "has other columns than its schema version requires.")
    return Shard(path, expected.with_metadata(schema.metadata), metadata)


def read_shard(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Read a shard's cells and its provenance; raise BadParquetError if it is damaged."""
    shard = open_shard(path)
    return shard.table(), shard.metadata


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read the table that a stage wrote with `schema`; raise BadParquetError if it differs."""
    with checked_file(path) as file:
        _metadata_text(path, file)
        table = with_present_names(file.read())
        if table.column_names != schema.names:
            raise BadParquetError(path, "has other columns than it should.")
        return table.replace_schema_metadata().cast(schema)


def with_present_names(table: pa.Table) -> pa.Table:
    """Return `table` with today's names of columns and statuses instead of former ones."""
    table = table.rename_columns([RENAMED_COLUMNS.get(name, name) for name in table.column_names])
    place = table.schema.get_field_index("status")
    if place < 0:
        return table
    statuses = table.column(place)
    for former in pc.unique(statuses).to_pylist():
        if former in RENAMED_STATUSES:
            now = RENAMED_STATUSES[former].value
            statuses = pc.if_else(pc.equal(statuses, former), now, statuses)
    return table.set_column(place, table.schema.field(place), statuses)


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the metadata that `write_parquet` stored; raise BadParquetError without any."""
    with checked_file(path) as file:
        metadata: dict[str, Any] = json.loads(_metadata_text(path, file))
    return metadata


def check_table(path: Path) -> None:
    """Raise BadParquetError unless all of the file can be read."""
    with checked_file(path) as file:
        file.read()


@contextmanager
def checked_file(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a complete file and check its pages; errors in the block become BadParquetError."""
    if not is_complete_file(path):
        raise BadParquetError(path, "is not a whole Parquet file (truncated or foreign).")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError) as err:
        reason = str(err).split("\n")[0]
        raise BadParquetError(path, f"cannot be read: {reason}") from err


def _metadata_text(path: Path, file: pq.ParquetFile) -> bytes:
    """Return the file's metadata as JSON; raise BadParquetError without any."""
    raw: bytes | None = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise BadParquetError(
            path,
            "has no provenance metadata, so it is not a shard of gpushmoo; remove it, or name a "
            "folder that contains only shards.",
        )
    return raw


# Packed records

Floats = npt.NDArray[np.float64]

PACKED = "packed.parquet"
# Folder next to a packed record with its shards, named after the record's digest.
UNPACKED = ".unpacked"
SHARD, PROVENANCE = "shard", "provenance"
KEY, MOMENTS = "cell_key", "sampled_at_s"
# Half of a 95 % interval of a normal distribution, in standard deviations.
NORMAL_HALF = 1.96
# Columns that are also known for cells that were not measured.
_WORKING_SET = "working_set_over_cache"
# Columns that follow from the others.
DERIVED = (
    "median_s",
    "median_low_s",
    "median_high_s",
    "group_low_s",
    "group_high_s",
    "coverage",
    "bandwidth_gbs",
    "bandwidth_low_gbs",
    "bandwidth_high_gbs",
    "sample_half_width",
    "vs_memcpy",
    "repeat_rsd",
    "repeat_medians_s",
    "repeat_samples",
    "repeat_memcpy_gbs",
    _WORKING_SET,
)
_CELL = ("kernel", "dtype", "variant", "height", "width", "cache_state", "timing_mode")


def unpacked(place: Path) -> Path:
    """Return the folder of shards that `place` names; unpack a record once, next to its file."""
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
    """Write the shards of a packed record into `folder`; raise BadParquetError or OSError."""
    with checked_file(packed) as file:
        table = with_present_names(file.read()).combine_chunks()
    starts = pc.indices_nonzero(table.column(PROVENANCE).is_valid()).to_pylist()
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        rows = table.slice(start, end - start)
        metadata = json.loads(rows.column(PROVENANCE)[0].as_py())
        path = folder / rows.column(SHARD)[0].as_py()
        cells = restored(rows, metadata["axes"], metadata["device"]["cache"])
        write_parquet(cells, path, metadata | {"schema_version": SCHEMA_VERSION})


def restored(rows: pa.Table, axes: Sequence[str], cache: int | None) -> pa.Table:
    """Return the cells of one shard with all columns, sorted; `cache` is the device's, in bytes."""
    ok = pc.equal(rows.column("status"), Status.OK).to_numpy()
    computed = {MOMENTS: np.full(len(rows), math.nan)}
    for name, values in _derived(rows.filter(pa.array(ok))).items():
        computed[name] = np.full(len(rows), math.nan)
        computed[name][ok] = values
    computed[_WORKING_SET] = _moved(rows) / (cache or math.nan)
    schema = cell_schema(axes)
    columns = []
    for field in schema:
        if field.name in rows.column_names:
            columns.append(rows.column(field.name).cast(field.type))
        elif field.name == KEY:
            columns.append(_keys(rows, axes))
        elif field.name in computed:
            columns.append(_column(computed[field.name], field.type))
        else:  # a column that did not exist yet
            columns.append(pa.nulls(len(rows), field.type))
    return pa.table(columns, schema=schema).sort_by(KEY)


def _derived(rows: pa.Table) -> dict[str, Floats]:
    """Compute DERIVED for ``ok`` cells of one repeat; NaN means null, or a list without entries."""
    samples = rows.column("samples_s")
    lengths = pc.list_value_length(samples).to_numpy()
    m = median_intervals(pc.list_flatten(samples).to_numpy(), lengths)
    gb = _moved(rows) * 1e-9
    copy = _numbers(rows, "memcpy_gbs")
    half = NORMAL_HALF * np.sqrt(overhead_variances(rows, m.median))
    with np.errstate(divide="ignore", invalid="ignore"):
        low = m.median * np.exp(-np.hypot(np.log(m.median / m.low), half))
        high = m.median * np.exp(np.hypot(np.log(m.high / m.median), half))
        low, high = (np.where(half > 0.0, *ends) for ends in ((low, m.low), (high, m.high)))
        return {
            "median_s": m.median,
            "median_low_s": low,
            "median_high_s": high,
            "group_low_s": m.low,
            "group_high_s": m.high,
            "coverage": m.coverage,
            "bandwidth_gbs": gb / m.median,
            "bandwidth_low_gbs": gb / high,
            "bandwidth_high_gbs": gb / low,
            "sample_half_width": (m.high - m.low) / (2.0 * m.median),
            "vs_memcpy": gb / m.median / copy,
            "repeat_rsd": np.full(len(rows), math.nan),
            "repeat_medians_s": m.median,
            "repeat_samples": lengths.astype(float),
            "repeat_memcpy_gbs": copy,
        }


def overhead_variances(rows: pa.Table, launch_s: Floats) -> Floats:
    """Return the variance of each log time that the error of the overhead causes; 0 without one.

    Parameters
    ----------
    rows : table
        Cells with the columns of `core.schema.Cells`.
    launch_s : array of shape (cells,)
        Seconds of a launch.
    """
    if "overhead_error_s" not in rows.column_names:
        return np.zeros(len(rows))
    error = np.nan_to_num(_numbers(rows, "overhead_error_s"))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = error / (_numbers(rows, "launches_per_sample") * launch_s)
    return np.where(error > 0.0, share**2, 0.0)


def _numbers(rows: pa.Table, name: str) -> Floats:
    """Return a column as floats, NaN for null."""
    values = pc.cast(rows.column(name), pa.float64(), safe=False)
    return np.asarray(values.to_numpy(), np.float64)


def _moved(rows: pa.Table) -> Floats:
    """Return the bytes read and written; NaN if none are declared."""
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
    """Return a computed column: null for NaN, or a list without entries."""
    known = ~np.isnan(values)
    if not pa.types.is_list(kind):
        return pa.array(values, mask=~known)
    offsets = np.concatenate([[0], np.cumsum(known)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values[known]).cast(kind.value_type))
