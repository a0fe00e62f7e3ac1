"""Recorded shards in one file: what comes out of it is what went in."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import ROOT
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.opened import OpenedError, opened
from gpushmoo.storage.packed import PACKED, unpacked
from gpushmoo.storage.store import BadParquetError, read_shard, write_parquet
from synthetic import write_shard

sys.path.append(str(ROOT / "experiments"))

from pack_record import pack, verify

PATHS = ("copy/float/0000-of-0001.parquet", "stream/double/0000-of-0001.parquet")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder of shards whose kernels have other axes; some cells could not be measured."""
    folder = tmp_path / "shards"
    block = {"block_x": [8, 64], "block_y": [4, 32]}
    line = {"block_x": [64, 2048], "unroll": [1, 2], "passes": [1]}
    write_shard(folder / PATHS[0], "copy2d_coalesced", "float", axes=block)
    write_shard(folder / PATHS[1], "global_copy", "double", axes=line)
    return folder


@pytest.fixture
def record(shards: Path, tmp_path: Path) -> Path:
    """The same, packed."""
    folder = tmp_path / "record"
    shutil.copytree(shards, folder)
    pack(folder)
    return folder


def test_a_packed_record_is_one_file_and_unpacks_to_its_shards(shards: Path, record: Path) -> None:
    assert [p.name for p in record.glob("*") if p.is_dir()] == []
    folder = unpacked(record)
    for path in PATHS:
        (own, told), (cells, metadata) = read_shard(folder / path), read_shard(shards / path)
        assert told == metadata
        assert set(cells["status"].to_pylist()) == {"ok", "too_many_threads"}
        assert own.drop_columns("sampled_at_s").equals(cells.drop_columns("sampled_at_s"))
        assert own["sampled_at_s"].to_pylist() == [[]] * len(cells)
    verify(record, shards)
    aggregate(sorted(folder.rglob("*.parquet")), shards / "dataset")


def test_a_folder_within_a_record_is_found_and_others_are_left_alone(
    shards: Path, record: Path
) -> None:
    assert unpacked(record / "copy/float").parent.parent == unpacked(record)
    assert unpacked(shards / "copy") == shards / "copy"
    assert unpacked(record / "nothing").exists() is False
    with opened(record / "stream") as found:
        assert (found.name, len(found.shards)) == ("stream", 1)
    with pytest.raises(OpenedError, match="nothing' does not exist"), opened(record / "nothing"):
        pass


def test_a_record_is_unpacked_once_and_again_when_it_has_changed(
    shards: Path, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unpacked(record)
    with monkeypatch.context() as patched:
        patched.setattr("gpushmoo.storage.packed.unpack", None)
        assert unpacked(record) == first
    (shards / PATHS[1]).unlink()
    pack(shards)
    (shards / PACKED).replace(record / PACKED)
    assert not (unpacked(record) / PATHS[1]).exists()
    assert (first / PATHS[1]).exists()


def test_a_damaged_record_leaves_nothing_behind(record: Path) -> None:
    data = bytearray((record / PACKED).read_bytes())
    data[len(data) // 4] ^= 1
    (record / PACKED).write_bytes(data)
    with pytest.raises(BadParquetError, match="cannot be read"):
        unpacked(record)
    assert not list(record.glob(".unpacked/*"))


def test_what_does_not_follow_from_the_rest_is_kept(shards: Path, tmp_path: Path) -> None:
    path = shards / PATHS[0]
    cells, metadata = read_shard(path)
    rows: list[dict[str, Any]] = cells.to_pylist()
    one = next(row for row in rows if row["status"] == "ok")
    one["bandwidth_gbs"] *= 1 + 1e-15
    changed = pa.Table.from_pylist(rows, schema=cells.schema)
    assert not changed.equals(cells)
    write_parquet(changed, path, metadata)
    pack(shards)
    assert read_shard(unpacked(shards) / PATHS[0])[0]["bandwidth_gbs"].equals(
        changed["bandwidth_gbs"]
    )


def test_shards_with_other_sums_are_not_those_of_a_record(shards: Path, record: Path) -> None:
    cells, metadata = read_shard(shards / PATHS[0])
    write_parquet(cells, shards / PATHS[0], {**metadata, "more": 1})
    with pytest.raises(SystemExit, match="sums are not"):
        verify(record, shards)
