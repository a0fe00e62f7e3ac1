"""Parquet files: written whole or not at all, checked when read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .schema import METADATA_KEY, SCHEMA_VERSION, cell_schema

MAGIC = b"PAR1"
# Where a file keeps the digest of its content. Files of before that have none.
DIGEST_KEY = b"gpushmoo-content"


# Seconds that a result waits for room on a full disk before it is given up.
ROOM_LIMIT_S = 600.0
_ROOM_POLL_S = 0.5
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class NotWrittenError(Exception):
    """A result could not be written; one sentence that says what to do."""


class BadParquetError(Exception):
    """A file is not a whole Parquet file of ours; one sentence that names the file."""


def write_parquet(table: pa.Table, path: Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write `table` under a name of this process's own, then rename it to `path`.

    A killed or doubled writer can so never leave half a file or mix two. `metadata` is stored as
    JSON in the schema, with a digest of it and of the rows. Raises OSError (no space, read-only),
    leaving nothing behind.
    """
    if metadata is not None:
        payload = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}, sort_keys=True)
        digest = content_digest(table, payload.encode())
        table = table.replace_schema_metadata(
            {METADATA_KEY: payload.encode(), DIGEST_KEY: digest.encode()}
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        pq.write_table(table, own, compression="zstd", write_page_checksum=True)
        with own.open("rb") as f:
            os.fsync(f.fileno())
        os.replace(own, path)
    finally:
        own.unlink(missing_ok=True)


def content_digest(table: pa.Table, payload: bytes) -> str:
    """Digest of the rows, column by column, and of the JSON that goes with them.

    Pages carry checksums of their own; this also holds what stands beside them, such as a device's
    name. It does not depend on how the rows are cut into chunks and pages.
    """
    h = hashlib.sha256(payload)
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        # A list's type names its items, and Parquet calls them otherwise.
        kind = column.type.value_type if pa.types.is_list(column.type) else column.type
        h.update(f"{name}\0{kind}\0{len(column)}\0".encode())
        _feed(h, column)
    return h.hexdigest()[:32]


def _feed(h: Any, column: pa.Array) -> None:
    """Values to the digest; what stands in the place of a null does not count."""
    h.update(np.packbits(pc.is_valid(column).to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(column.type):
        h.update(pc.fill_null(pc.list_value_length(column), 0).to_numpy().tobytes())
        _feed(h, column.flatten())
    elif pa.types.is_string(column.type):
        filled = pc.fill_null(column, "")
        h.update(pc.binary_length(filled).to_numpy().tobytes())
        h.update("".join(filled.to_pylist()).encode())
    else:
        filled = column.drop_null()
        if pa.types.is_timestamp(filled.type):
            filled = filled.cast(pa.int64())
        h.update(filled.to_numpy(zero_copy_only=False).tobytes())


def write_result(
    table: pa.Table, path: Path, metadata: Mapping[str, Any], terminal: TextIO
) -> None:
    """Write what a job has measured, as `write_parquet` does; it is too dear to be dropped.

    On a full disk it waits for room, and says so once on `terminal`. Raises NotWrittenError.
    """
    deadline = time.monotonic() + ROOM_LIMIT_S
    told = False
    while True:
        try:
            return write_parquet(table, path, metadata)
        except OSError as err:
            reason = os.strerror(err.errno) if err.errno else str(err)
            if err.errno not in _FULL or time.monotonic() >= deadline:
                raise NotWrittenError(
                    f"'{path}' could not be written ({reason}); make room or make it writable and "
                    "start the run again: only this shard is measured again."
                ) from err
        if not told:
            terminal.write(
                f"gpushmoo: '{path}' could not be written ({reason}); it is measured and waits "
                f"{ROOM_LIMIT_S / 60:.0f} min for room: free some.\n"
            )
            terminal.flush()
            told = True
        time.sleep(_ROOM_POLL_S)


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
    stored = table.schema.metadata or {}
    raw = stored.get(METADATA_KEY)
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
    digest = stored.get(DIGEST_KEY)
    if digest is not None and digest.decode(errors="replace") != content_digest(table, raw):
        raise BadParquetError(f"'{path}' no longer holds what was written; a bit has flipped.")
    keys = table.column("cell_key")
    if len(keys.unique()) != len(keys):
        raise BadParquetError(f"'{path}' holds a cell twice.")
    return table, metadata
