"""Shards into one hive-partitioned dataset."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..schema import METADATA_KEY, cell_schema
from ..store import BadParquetError, read_shard

PARTITION = ("kernel", "dtype")


class AggregateError(Exception):
    """The shards do not make one dataset; one sentence. `files` are those at fault."""

    def __init__(self, sentence: str, files: Sequence[Path] = ()) -> None:
        """Remember the files that must not be used."""
        super().__init__(sentence)
        self.files = tuple(files)


@dataclass(frozen=True)
class ShardFile:
    """A read shard."""

    path: Path
    table: pa.Table
    metadata: dict[str, Any]


def read_shards(paths: Sequence[Path]) -> list[ShardFile]:
    """Read and check every shard. Raises AggregateError naming each file that is not whole."""
    shards, bad = [], {}
    for path in sorted(paths):
        try:
            table, metadata = read_shard(path)
        except BadParquetError as err:
            bad[path] = str(err)
        else:
            shards.append(ShardFile(path, table, metadata))
    if bad:
        raise AggregateError(" ".join(bad.values()) + " Nothing of it was used.", list(bad))
    return shards


def aggregate(paths: Sequence[Path], out: Path, one_model: bool = False) -> None:
    """Write the dataset ``out/kernel=…/dtype=…/part-0.parquet`` from shards.

    Every file has the same columns (the union of all axes, null where a kernel has none), so that
    a reader needs no schema merging; kernel and dtype stand in the path. Provenance of the shards
    goes along in each file's metadata. Raises AggregateError for a bad or doubled shard, and for
    shards of several device models if they are all to be of `one_model`.
    """
    shards = read_shards(paths)
    if not shards:
        raise AggregateError("There are no shards to aggregate.")
    schema = cell_schema({axis for s in shards for axis in s.metadata["axes"]})
    _refuse_doubles(shards)
    if one_model:
        _refuse_mixture(shards)
    fresh = out.with_name(f".{out.name}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        for kernel, dtype in sorted({_partition(s) for s in shards}):
            mine = [s for s in shards if _partition(s) == (kernel, dtype)]
            table = pa.concat_tables([_widen(s.table, schema) for s in mine])
            table = table.sort_by("cell_key").drop_columns(list(PARTITION))
            meta = json.dumps({"shards": [s.metadata for s in mine]}, sort_keys=True)
            folder = fresh / f"kernel={kernel}" / f"dtype={dtype}"
            folder.mkdir(parents=True)
            table = table.replace_schema_metadata({METADATA_KEY: meta.encode()})
            pq.write_table(table, folder / "part-0.parquet", compression="zstd")
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _partition(shard: ShardFile) -> tuple[str, str]:
    params = shard.metadata["params"]
    return Path(params["folder"]).name, params["dtype"]


def _widen(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(f.name) if f.name in table.column_names else pa.nulls(len(table), f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _refuse_doubles(shards: Sequence[ShardFile]) -> None:
    """The same cell measured twice on one device must not count twice."""
    seen: dict[tuple[str, str], Path] = {}
    for shard in shards:
        keys = shard.table.column("cell_key").to_pylist()
        devices = shard.table.column("device_uuid").to_pylist()
        for key in zip(keys, devices, strict=True):
            if key in seen:
                raise AggregateError(
                    f"Cell {key[0]} stands in '{seen[key]}' and in '{shard.path}'; "
                    "neither was used.",
                    [seen[key], shard.path],
                )
            seen[key] = shard.path


def _refuse_mixture(shards: Sequence[ShardFile]) -> None:
    """A sweep of which each of two device models has a part would look whole and be none."""
    of: dict[str, list[Path]] = {}
    for shard in shards:
        for model in set(shard.table.column("device_name").to_pylist()):
            of.setdefault(model, []).append(shard.path)
    if len(of) < 2:
        return
    most = max(sorted(of), key=lambda model: len(of[model]))
    others = [(m, path) for m in sorted(of) if m != most for path in of[m]]
    named = ", ".join(f"'{path}' on '{model}'" for model, path in others)
    raise AggregateError(
        f"The run was measured on '{most}', but {named}; a run is of one device model. "
        "Nothing was used: ask the scheduler for one model.",
        [path for _, path in others],
    )


def dataset_provenance(dataset: Path) -> list[dict[str, Any]]:
    """Provenance of every shard in a dataset, in the order of the files."""
    found: list[dict[str, Any]] = []
    for path in sorted(dataset.rglob("*.parquet")):
        raw = pq.read_schema(path).metadata[METADATA_KEY]
        found += json.loads(raw)["shards"]
    return found
