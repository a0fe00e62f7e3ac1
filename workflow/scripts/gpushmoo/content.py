"""A digest of what a table holds, whatever chunks, batches and pages its rows are cut into."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class ContentDigest:
    """Takes the rows batch by batch, and with them the JSON that goes along.

    Pages of a Parquet file carry checksums of their own; this also holds what stands beside them,
    such as a device's name. What stands in the place of a null does not count.
    """

    def __init__(self, payload: bytes) -> None:
        """`payload` is the JSON beside the rows."""
        self._payload = hashlib.sha256(payload)
        self._columns: dict[str, list[Any]] = {}
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows; every batch has the same columns."""
        self._rows += len(batch)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            # Where values are, how long they are, and what they are: each in order of the rows.
            hashes = self._columns.setdefault(name, [hashlib.sha256() for _ in range(4)])
            _feed(hashes, column)

    def hexdigest(self) -> str:
        """32 hexadecimal digits."""
        whole = self._payload.copy()
        whole.update(f"\0{self._rows}".encode())
        for name, hashes in self._columns.items():
            whole.update(f"\0{name}\0".encode() + b"".join(h.digest() for h in hashes))
        return whole.hexdigest()[:32]


def _feed(hashes: list[Any], column: pa.Array) -> None:
    valid, lengths, values, _ = hashes
    valid.update(pc.is_valid(column).cast(pa.uint8()).to_numpy().tobytes())
    held = column.drop_null()
    if pa.types.is_list(held.type):
        lengths.update(pc.list_value_length(held).to_numpy().tobytes())
        _feed([hashes[3], lengths, values, hashes[3]], held.flatten())
    elif pa.types.is_string(held.type):
        lengths.update(pc.binary_length(held).to_numpy().tobytes())
        values.update("".join(held.to_pylist()).encode())
    else:
        plain = held.cast(pa.int64()) if pa.types.is_timestamp(held.type) else held
        values.update(plain.to_numpy(zero_copy_only=False).tobytes())


def content_digest(table: pa.Table, payload: bytes) -> str:
    """The digest of a whole table."""
    digest = ContentDigest(payload)
    for batch in table.to_batches():
        digest.add(batch)
    return digest.hexdigest()
