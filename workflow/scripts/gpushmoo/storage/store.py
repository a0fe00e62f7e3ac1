"""Parquet files that are written whole or not at all, and checked when read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import UserError
from ..core.schema import METADATA_KEY, SCHEMA_VERSION, cell_schema
from .wholefile import DamagedFileError, whole_file

MAGIC = b"PAR1"
# Bytes of a text in memory, with its offset: most are names, the longest are UUIDs.
_TEXT_BYTES = 32


class NotWrittenError(UserError, OSError):
    """A file could not be written; one sentence that says what to do."""


class BadParquetError(DamagedFileError):
    """A file is no whole Parquet file of gpushmoo; one sentence that begins with its name."""


def write_parquet(table: pa.Table, path: Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write `table` whole, with checksums and `metadata` as JSON. Raises NotWrittenError."""
    beside = dict(table.schema.metadata or {})
    if metadata is not None:
        plain = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}, sort_keys=True)
        beside[METADATA_KEY] = plain.encode()
    # Arrow's copy of the schema would hold the metadata once more.
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
    try:
        with whole_file(path) as own, pq.ParquetWriter(own, table.schema, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(beside)
    except OSError as err:
        reason = os.strerror(err.errno) if err.errno else str(err)
        raise NotWrittenError(
            f"'{path}' could not be written ({reason}); make room or make it writable and start "
            "the run again: finished shards are kept."
        ) from err


def is_whole(path: Path) -> bool:
    """Whether `path` begins and ends like a whole Parquet file. Reads no data."""
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
    """A shard whose provenance and columns are checked; its cells are not read yet."""

    path: Path
    schema: pa.Schema
    metadata: dict[str, Any]
    # The estimated size in memory.
    n_bytes: int

    def table(self) -> pa.Table:
        """Read the cells and check them. Raises BadParquetError, also for a doubled cell."""
        with checked_file(self.path) as file:
            # A file by another program may have nullable columns.
            table = file.read().cast(self.schema)
        if len(table.column("cell_key").unique()) != len(table):
            raise BadParquetError(self.path, "holds a cell twice.")
        return table


def open_shard(path: Path) -> Shard:
    """Check a shard's provenance and columns. Raises BadParquetError."""
    with checked_file(path) as file:
        schema, n_bytes = file.schema_arrow, _bytes_in_memory(file.metadata)
        raw = _metadata_text(path, file)
    try:
        metadata = json.loads(raw)
        version = metadata["schema_version"]
        expected = cell_schema(metadata["axes"]) if version == SCHEMA_VERSION else None
    except (ValueError, TypeError, KeyError) as err:
        raise BadParquetError(path, "carries a provenance that cannot be read.") from err
    if expected is None:
        raise BadParquetError(
            path, f"has schema version {version}; this program reads version {SCHEMA_VERSION}."
        )
    if schema.names != expected.names:
        raise BadParquetError(path, "has other columns than its schema version says.")
    return Shard(path, expected.with_metadata(schema.metadata), metadata, n_bytes)


def read_shard(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """A shard's cells and its provenance. Raises BadParquetError."""
    shard = open_shard(path)
    return shard.table(), shard.metadata


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """The table that a stage wrote by `write_parquet` with `schema`. Raises BadParquetError."""
    with checked_file(path) as file:
        _metadata_text(path, file)
        if file.schema_arrow.names != schema.names:
            raise BadParquetError(path, "has other columns than it should.")
        return file.read().replace_schema_metadata().cast(schema)


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata that `write_parquet` stored. Raises BadParquetError."""
    with checked_file(path) as file:
        metadata: dict[str, Any] = json.loads(_metadata_text(path, file))
    return metadata


def check_table(path: Path) -> None:
    """Raise BadParquetError unless all of the file can be read."""
    with checked_file(path) as file:
        file.read()


@contextmanager
def checked_file(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a whole file and check its pages; errors in the block become BadParquetError."""
    if not is_whole(path):
        raise BadParquetError(path, "is not a whole Parquet file (truncated or foreign).")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError) as err:
        reason = str(err).split("\n")[0]
        raise BadParquetError(path, f"cannot be read: {reason}") from err


def _metadata_text(path: Path, file: pq.ParquetFile) -> bytes:
    """The metadata as JSON."""
    raw: bytes | None = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise BadParquetError(path, "carries no gpushmoo provenance; it is not ours.")
    return raw


def _bytes_in_memory(metadata: pq.FileMetaData) -> int:
    """An estimate from the numbers of values: sizes in the file depend on encodings."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(i) for group in groups for i in range(group.num_columns))
    return sum(
        c.num_values * (_TEXT_BYTES if c.physical_type == "BYTE_ARRAY" else 8) for c in columns
    )
