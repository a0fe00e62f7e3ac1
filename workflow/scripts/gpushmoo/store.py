"""Parquet files: written whole or not at all, checked when read."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .schema import METADATA_KEY, SCHEMA_VERSION, cell_schema

MAGIC = b"PAR1"


class BadParquetError(Exception):
    """A file is not a whole Parquet file of ours; one sentence that names the file."""


def write_parquet(table: pa.Table, path: Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write `table` under a name of this process's own, then rename it to `path`.

    A killed or doubled writer can so never leave half a file or mix two. `metadata` is stored as
    JSON in the schema. Raises OSError (no space, read-only), leaving nothing behind.
    """
    if metadata is not None:
        payload = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}, sort_keys=True)
        table = table.replace_schema_metadata({METADATA_KEY: payload.encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        pq.write_table(table, own, compression="zstd", write_page_checksum=True)
        with own.open("rb") as f:
            os.fsync(f.fileno())
        os.replace(own, path)
    finally:
        own.unlink(missing_ok=True)


def is_whole(path: Path) -> bool:
    """Whether `path` begins and ends as a whole Parquet file does; cheap, reads no data."""
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


def read_shard(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """A shard's cells and its provenance. Raises BadParquetError naming the file and the fault."""
    if not is_whole(path):
        raise BadParquetError(f"'{path}' is not a whole Parquet file (truncated or foreign).")
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as err:
        reason = str(err).split("\n")[0]
        raise BadParquetError(f"'{path}' cannot be read: {reason}") from err
    raw = (table.schema.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise BadParquetError(f"'{path}' carries no gpushmoo provenance; it is not ours.")
    try:
        metadata = json.loads(raw)
        version = metadata["schema_version"]
        expected = cell_schema(metadata["axes"]) if version == SCHEMA_VERSION else None
    except (ValueError, TypeError, KeyError) as err:
        raise BadParquetError(f"'{path}' carries a provenance that cannot be read.") from err
    if expected is None:
        raise BadParquetError(
            f"'{path}' has schema version {version}; this program reads version {SCHEMA_VERSION}."
        )
    if not table.schema.remove_metadata().equals(expected):
        raise BadParquetError(f"'{path}' has other columns than its schema version says.")
    keys = table.column("cell_key")
    if len(keys.unique()) != len(keys):
        raise BadParquetError(f"'{path}' holds a cell twice.")
    return table, metadata
