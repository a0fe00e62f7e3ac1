"""A shard's file taken apart, to be changed and written again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from gpushmoo.core.schema import METADATA_KEY
from gpushmoo.storage.filesum import add_sum

Row = dict[str, Any]


@dataclass
class ShardFile:
    """A shard to be changed: rows as dictionaries, provenance, and the schema they had."""

    path: Path
    rows: list[Row]
    metadata: dict[str, Any]
    schema: pa.Schema

    @classmethod
    def read(cls, path: Path) -> ShardFile:
        """The shard in `path`, which is whole."""
        table = pq.ParquetFile(path).read()
        metadata = json.loads(table.schema.metadata[METADATA_KEY])
        return cls(path, table.to_pylist(), metadata, table.schema.remove_metadata())

    def table(self) -> pa.Table:
        """Rows and provenance as Arrow holds them."""
        table = pa.Table.from_pylist(self.rows, schema=self.schema)
        return table.replace_schema_metadata({METADATA_KEY: json.dumps(self.metadata).encode()})

    def write(self, with_sum: bool = True) -> None:
        """Write it where it was, with a sum that holds, or as other software would."""
        pq.write_table(self.table(), self.path, compression="zstd", write_page_checksum=with_sum)
        if with_sum:
            add_sum(self.path)


def key_of(row: Row, axes: list[str]) -> str:
    """The key that the row's own columns make."""
    what = [
        *(row["kernel"], row["dtype"], row["variant"], [row["height"], row["width"]]),
        *(sorted([a, row[a]] for a in axes), row["cache_state"]),
    ]
    return hashlib.blake2b(
        json.dumps(what, separators=(",", ":")).encode(), digest_size=8
    ).hexdigest()
