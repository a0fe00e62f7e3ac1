"""Rows sorted by way of the disk: the same rows in the same order as in memory, nothing left."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import examples
from gpushmoo.analysis.aggregate import AggregateError, aggregate
from gpushmoo.analysis.external_sort import KeySorter
from gpushmoo.analysis.run_quality import dataset_provenance
from gpushmoo.core.space import Problem
from gpushmoo.storage.store import read_shard, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import other_device, write_shard

SCHEMA = pa.schema([("cell_key", pa.string()), ("place", pa.int64())])
# Of no row in memory; every batch becomes a run.
TINY = 1

READING = {"at_s": 1.0, "sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "reasons": []}


def key(number: int) -> str:
    return hashlib.blake2b(str(number).encode(), digest_size=8).hexdigest()


def batches_of(sizes: list[int], distinct: int) -> list[pa.RecordBatch]:
    """Batches of these sizes whose keys come again after `distinct` rows."""
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [range(first, last) for first, last in pairwise(ends)]
    return [
        pa.record_batch([[key(p % distinct) for p in part], list(part)], schema=SCHEMA)
        for part in parts
    ]


@settings(max_examples=examples(30))
@given(
    sizes=st.lists(st.integers(0, 40), max_size=8),
    distinct=st.integers(1, 60),
    ranges=st.integers(1, 60),
)
def test_order_is_that_of_a_stable_sort_however_much_fits(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], distinct: int, ranges: int
) -> None:
    folder = tmp_path_factory.mktemp("sort") / "runs"
    batches = batches_of(sizes, distinct)
    with KeySorter(SCHEMA, folder, ranges, TINY) as sorter:
        for batch in batches:
            sorter.add(batch)
        found = [row for table in sorter.tables() for row in table.to_pylist()]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert found == sorted(rows, key=lambda r: r["cell_key"])
    assert not folder.exists()


def test_what_fits_touches_no_disk_and_an_abandoned_sort_leaves_nothing(tmp_path: Path) -> None:
    for room in (2**20, TINY):
        with KeySorter(SCHEMA, tmp_path / "runs", 10, room) as sorter:
            for batch in batches_of([30, 20], 50):
                sorter.add(batch)
            assert (tmp_path / "runs").exists() == (room == TINY)
            assert room == TINY or [len(t) for t in sorter.tables()] == [50]
        assert not (tmp_path / "runs").exists()


def test_ranges_are_about_as_large_as_runs(tmp_path: Path) -> None:
    batches = batches_of(20 * [500], 10_000)
    size = sum(b.nbytes for b in batches)
    with KeySorter(SCHEMA, tmp_path / "runs", size, size // 10) as sorter:
        for batch in batches:
            sorter.add(batch)
        tables = list(sorter.tables())
    assert max(t.nbytes for t in tables) < size / 10
    assert len(tables) == 20


# The dataset by way of the disk

AXES = {"block_x": [8, 16, 32], "block_y": [1, 2, 4]}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two devices of one name, two dtypes; each cell of float stands once for each device."""
    folder = tmp_path_factory.mktemp("shards")
    sizes = [[Problem(64, 64)], [Problem(128, 128)]]
    made = []
    for i, problems in enumerate(sizes):
        for number in (1, 2):
            made.append(
                write_shard(
                    folder / f"{i}-{number}.parquet",
                    "copy2d_coalesced",
                    "float",
                    problems=problems,
                    axes=AXES,
                    info=other_device(number),
                )
            )
        path = folder / f"double-{i}.parquet"
        made.append(write_shard(path, "copy2d_coalesced", "double", problems=problems, axes=AXES))
    return made


def rows_of(dataset: Path) -> dict[str, list[dict[str, object]]]:
    paths = sorted(dataset.rglob("*.parquet"))
    return {str(p.relative_to(dataset)): pq.ParquetFile(p).read().to_pylist() for p in paths}


def test_dataset_is_the_same_by_way_of_the_disk(shards: list[Path], tmp_path: Path) -> None:
    aggregate(shards, tmp_path / "memory")
    for name in ("disk", "again"):
        aggregate(shards, tmp_path / name, run_bytes=20_000)
    assert rows_of(tmp_path / "disk") == rows_of(tmp_path / "memory")
    file = "kernel=copy2d_coalesced/dtype=float/part-0.parquet"
    assert pq.read_metadata(tmp_path / "disk" / file).num_row_groups > 1
    files = [p for p in sorted((tmp_path / "disk").rglob("*")) if p.is_file()]
    assert len(files) == 3
    for path in files:
        again = tmp_path / "again" / path.relative_to(tmp_path / "disk")
        assert again.read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "disk", "memory"]


@pytest.mark.parametrize("run_bytes", [5_000, 20_000, 2**20])
def test_doubled_cell_is_found_however_much_fits(
    shards: list[Path], tmp_path: Path, run_bytes: int
) -> None:
    twin = tmp_path / "twin.parquet"
    table, metadata = read_shard(shards[1])
    one = table.slice(5, 1)
    axes = {name: one.column(name).to_pylist() for name in AXES}
    params = metadata["params"] | {"axes": axes, "variants": one.column("variant").to_pylist()}
    write_parquet(one, twin, metadata | {"params": params})
    with pytest.raises(AggregateError) as caught:
        aggregate([*shards, twin], tmp_path / "dataset", run_bytes)
    sentence = str(caught.value)
    expected = (table.column("cell_key")[5].as_py(), str(shards[1]), str(twin))
    assert [text in sentence for text in expected] == [True, True, True]
    assert [p.name for p in tmp_path.iterdir()] == ["twin.parquet"]


def test_provenance_stands_beside_the_partitions_without_readings(
    shards: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "read.parquet"
    table, metadata = read_shard(shards[0])
    write_parquet(table, path, {**metadata, "readings": [READING]})
    aggregate([path, *shards[1:]], tmp_path / "dataset")
    found = dataset_provenance(tmp_path / "dataset")
    assert [p["params"]["dtype"] for p in found] == 2 * ["double"] + 4 * ["float"]
    assert not any("readings" in p for p in found)
    assert [p["device"]["uuid"] for p in found[2:]].count(metadata["device"]["uuid"]) == 2
    footers = [pq.read_metadata(p).metadata for p in (tmp_path / "dataset").rglob("*.parquet")]
    assert not any(b"gpushmoo" in (footer or {}) for footer in footers)
