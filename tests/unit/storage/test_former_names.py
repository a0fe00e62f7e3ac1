"""Files with former names of columns and statuses are read with today's."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gpushmoo import open_run
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.core.errors import BadParquetError
from gpushmoo.core.schema import RENAMED_COLUMNS, RENAMED_STATUSES, cell_schema
from gpushmoo.extras.watching.view import _read_shard
from gpushmoo.storage.dataset import read_cells, read_medians
from gpushmoo.storage.store import (
    LATER_COLUMNS,
    PACKED,
    open_shard,
    read_shard,
    read_table,
    unpacked,
    write_parquet,
)
from older import made_older, with_former_names
from synthetic import write_shard

AXES = {"block_x": [8, 64], "block_y": [4, 32, 64, 128]}
STATUSES = [now.value for now in RENAMED_STATUSES.values()]
OLD_COLUMNS = RENAMED_COLUMNS.keys() - {"slower_than_best"}


def test_each_former_name_has_its_present_one() -> None:
    """The names that files of versions 4 and 5 have, and nothing else has."""
    assert {old: now.value for old, now in RENAMED_STATUSES.items()} == {
        "false_time": "timing_mismatch",
        "unproposed": "not_searched",
        "lost_device": "device_lost",
        "resources": "out_of_resources",
    }
    assert RENAMED_COLUMNS == {
        "own_low_s": "group_low_s",
        "own_high_s": "group_high_s",
        "within_half_width": "sample_half_width",
        "between_spread": "repeat_rsd",
        "slower_than_best": "slowdown",
    }


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A shard some of whose cells ended with each status that has a former name."""
    path = tmp_path / "cells/copy/float/0000-of-0001.parquet"
    write_shard(path, "copy2d_coalesced", "float", axes=AXES)
    table, metadata = read_shard(path)
    rows = table.to_pylist()
    refused = [row for row in rows if row["status"] != "ok"]
    assert len(refused) >= len(STATUSES)
    for row, status in zip(refused, STATUSES, strict=False):
        row["status"] = status
    write_parquet(pa.Table.from_pylist(rows, schema=table.schema), path, metadata)
    return path


@pytest.mark.parametrize("version", [4, 5])
def test_an_older_shard_is_read_with_todays_names(shard: Path, version: int) -> None:
    table, _ = read_shard(shard)
    made_older(shard, version)
    written = pq.read_table(shard)
    assert set(written.column_names) >= OLD_COLUMNS
    assert RENAMED_STATUSES.keys() <= set(written["status"].to_pylist())
    found, metadata = read_shard(shard)
    assert metadata["schema_version"] == version
    assert found.schema.equals(table.schema)
    later = [*LATER_COLUMNS[version]]
    assert found.drop_columns(later).equals(table.drop_columns(later))
    watched = _read_shard(shard, 0.0)
    assert {cell.status for cell in watched.cells} == {"ok", *STATUSES, "too_many_threads"}
    assert set(watched.cells[0].params) == AXES.keys()


def test_a_shard_of_todays_schema_has_no_former_name(shard: Path) -> None:
    table, metadata = read_shard(shard)
    write_parquet(with_former_names(table), shard, metadata)
    with pytest.raises(BadParquetError, match="other columns"):
        open_shard(shard)


def test_a_record_is_unpacked_with_todays_names(shard: Path, tmp_path: Path) -> None:
    table, _ = read_shard(shard)
    record = tmp_path / "record"
    record.mkdir()
    pq.write_table(with_former_names(packed(shard)), record / PACKED)
    (found,) = unpacked(record).rglob("*.parquet")
    assert pq.read_table(found).column_names == cell_schema(AXES).names
    assert read_shard(found)[0]["status"].equals(table["status"])
    assert read_shard(found)[0]["group_low_s"].equals(table["group_low_s"])


def packed(shard: Path) -> pa.Table:
    """The rows of a packed record with one shard and all its columns."""
    table = pq.read_table(shard)
    provenance = [pq.read_metadata(shard).metadata[b"gpushmoo"].decode(), *[None] * len(table)]
    names = pa.array([shard.name] * len(table))
    return table.append_column("shard", names).append_column(
        "provenance", pa.array(provenance[: len(table)], pa.string())
    )


def test_an_older_data_set_is_read_with_todays_names(shard: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    aggregate([shard], dataset)
    cells, medians = read_cells(dataset), read_medians(dataset)
    few = read_cells(dataset, {"status": "ok"}, ["group_low_s"])
    best = open_run(tmp_path).best
    (part,) = dataset.rglob("*.parquet")
    old = with_former_names(pq.ParquetFile(part).read())
    assert set(old.column_names) >= OLD_COLUMNS
    pq.write_table(old, part)
    pd.testing.assert_frame_equal(read_cells(dataset), cells)
    pd.testing.assert_frame_equal(read_medians(dataset), medians)
    pd.testing.assert_frame_equal(read_cells(dataset, {"status": "ok"}, ["group_low_s"]), few)
    assert set(few) == {"group_low_s", *AXES}
    run = open_run(tmp_path)
    assert set(STATUSES) <= run.statuses.keys()
    pd.testing.assert_frame_equal(run.best, best)


def test_an_older_table_of_a_stage_is_read_with_todays_names(tmp_path: Path) -> None:
    table = pa.table({"slowdown": [0.0], "tied": [1]})
    write_parquet(with_former_names(table), tmp_path / "best.parquet", {})
    assert pq.read_schema(tmp_path / "best.parquet").names == ["slower_than_best", "tied"]
    assert read_table(tmp_path / "best.parquet", table.schema).equals(table)
