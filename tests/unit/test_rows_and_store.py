"""The contract between the stages: rows of the schema, files that are whole or not there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import FOLDER, INFO, FakeDevice, Fault, cell_tag, make_cells, measure_cells
from gpushmoo.core.schema import (
    METADATA_KEY,
    SCHEMA_VERSION,
    Status,
    cell_schema,
)
from gpushmoo.core.space import Condition
from gpushmoo.measuring.events import CellRun, ShardResult
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.storage import store
from gpushmoo.storage.store import (
    BadParquetError,
    NotWrittenError,
    check_table,
    is_whole,
    read_shard,
    read_table,
    write_parquet,
)
from hypothesis import given
from hypothesis import strategies as st
from synthetic import flipped_in_a_page

AXES = ["threads", "chunks"]
METADATA = {"axes": AXES, "params": {"folder": "kernels/tiny", "dtype": "float"}}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Cells of every kind of end that the fake device knows."""
    cells = make_cells(heights=(4, 8), threads=(1, 2, 65))
    faults = [
        Fault(cell_tag(cells[0]), "run", 1, "lazy"),
        *(Fault(cell_tag(cells[1]), "sample", nth, "slow") for nth in (4, 5)),
        Fault(cell_tag(cells[2]), "bind", 0, "refused"),
    ]
    outcome = measure_cells(FakeDevice(faults=faults, oversized=frozenset([8])), cells)
    return cell_table(outcome.result, FOLDER.workload, INFO, AXES)


@pytest.fixture
def shard(table: pa.Table, tmp_path: Path) -> Path:
    path = tmp_path / "cells" / "0000-of-0001.parquet"
    write_parquet(table, path, METADATA)
    return path


def refused(path: Path) -> str:
    """What reading `path` is refused with: one line that names the file; here without it."""
    with pytest.raises(BadParquetError) as caught:
        read_shard(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "")


# Rows


def test_rows_keep_the_schema_and_are_sorted_by_key(table: pa.Table) -> None:
    assert table.schema.equals(cell_schema(AXES))
    table.validate(full=True)
    keys = table.column("cell_key").to_pylist()
    assert keys == sorted(keys)
    for field in table.schema:
        assert field.nullable or table.column(field.name).null_count == 0


def test_only_verified_cells_have_a_bandwidth(table: pa.Table) -> None:
    rows = table.to_pylist()
    assert {r["status"] for r in rows} >= {"ok", "wrong_result", "timeout", "resources"}
    timed = [n for n in table.column_names if n.startswith(("median", "bandwidth", "coverage"))]
    assert len(timed) == 7
    for row in rows:
        assert {row[n] is not None for n in timed} == {row["status"] == "ok"}


def test_samples_of_failed_cells_are_kept(table: pa.Table) -> None:
    wrong = [r for r in table.to_pylist() if r["status"] == "wrong_result"]
    assert [len(r["samples_s"]) for r in wrong] == [6]
    assert wrong[0]["wrong_words"] == wrong[0]["verified_words"] == 32


def one_run(samples: list[float], status: Status | None = Status.OK) -> CellRun:
    cell = make_cells()[0]
    run = CellRun(cell, FOLDER.workload.launch(cell))
    run.samples_s, run.status, run.launches = samples, status, 1
    return run


def row_of(run: CellRun) -> dict[str, Any]:
    problem = run.cell.problem
    copies = {
        (problem, Condition("warm")): [(0.0, 1e-3)],
        (problem, Condition("flushed")): [(0.0, 2e-3)],
        (problem, Condition("warm", "isolated")): [(0.0, 3e-3)],
    }
    result = ShardResult({run.cell.key: run}, copies)
    row: dict[str, Any] = cell_table(result, FOLDER.workload, INFO, AXES).to_pylist()[0]
    return row


@given(st.lists(st.floats(1e-6, 1.0), min_size=6, max_size=30))
def test_bandwidth_is_the_bytes_moved_over_the_median(samples: list[float]) -> None:
    row = row_of(one_run(samples))
    moved = row["bytes_read"] + row["bytes_written"]
    assert moved == 2 * 4 * 8 * 4
    assert row["bandwidth_gbs"] == pytest.approx(moved / np.median(samples) / 1e9)
    assert row["bandwidth_low_gbs"] <= row["bandwidth_gbs"] <= row["bandwidth_high_gbs"]
    assert row["bandwidth_low_gbs"] == pytest.approx(moved / row["median_high_s"] / 1e9)
    assert row["samples_s"] == samples


def test_copy_of_the_same_bytes_in_the_same_time_has_the_same_bandwidth() -> None:
    row = row_of(one_run([1e-3] * 6))
    assert row["copy_gbs"] == pytest.approx(row["bandwidth_gbs"])
    assert row["over_copy"] == pytest.approx(1.0)
    assert row["working_set_over_cache"] == (row["bytes_read"] + row["bytes_written"]) / INFO.cache


def test_a_block_larger_than_any_device_has_is_a_row_too() -> None:
    run = one_run([], Status.TOO_MANY_THREADS)
    huge = replace(run.launch, block=(2**28, 2**28, 1))
    row = row_of(CellRun(run.cell, huge, status=run.status))
    assert row["threads_per_block"] == 2**31 - 1
    assert row["status"] == "too_many_threads"


def test_cell_that_was_never_ended_is_no_row() -> None:
    with pytest.raises(ValueError, match="never ended"):
        row_of(one_run([], status=None))


@pytest.mark.parametrize("name", ["height", "status", "blocks"])
def test_axis_with_the_name_of_a_core_column_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"axis '{name}'.*rename"):
        cell_schema(["threads", name])


# Files


def test_what_is_written_is_read_again(table: pa.Table, shard: Path) -> None:
    back, metadata = read_shard(shard)
    assert back.equals(table)
    assert metadata == {**METADATA, "schema_version": SCHEMA_VERSION}
    # Written again it replaces the old file.
    write_parquet(table.slice(0, 2), shard, METADATA)
    assert len(read_shard(shard)[0]) == 2
    assert [p.name for p in shard.parent.iterdir()] == [shard.name]


@pytest.mark.parametrize("code", [28, 30], ids=["no space", "read-only"])
def test_failing_write_is_said_and_leaves_the_old_file_and_nothing_else(
    table: pa.Table, shard: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(where: Path, *_: Any, **__: Any) -> None:
        Path(where).write_bytes(b"PAR1 half a file")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(store.pq, "ParquetWriter", refuse)
    with pytest.raises(NotWrittenError) as caught:
        write_parquet(table.slice(0, 1), shard, METADATA)
    assert str(caught.value) == (
        f"'{shard}' could not be written ({os.strerror(code)}); make room or make it writable and "
        "start the run again: finished shards are kept."
    )
    assert list(shard.parent.iterdir()) == [shard]
    assert read_shard(shard)[0].equals(table)


def test_the_provenance_stands_in_the_file_once(table: pa.Table, tmp_path: Path) -> None:
    """Arrow's own copy of the schema, in base64, would hold it again."""
    path = tmp_path / "a.parquet"
    write_parquet(table, path, {**METADATA, "told": 3000 * "once "})
    assert pq.read_metadata(path).metadata.keys() == {METADATA_KEY}
    assert read_shard(path)[0].schema.remove_metadata() == table.schema


def test_truncated_file_is_refused_at_every_length(shard: Path, tmp_path: Path) -> None:
    assert is_whole(shard)
    assert not is_whole(tmp_path / "absent.parquet")
    assert not is_whole(tmp_path)
    whole = shard.read_bytes()
    cut = tmp_path / "cut.parquet"
    lengths = {*range(64), *range(64, len(whole), 173), *range(len(whole) - 64, len(whole))}
    for length in lengths:
        cut.write_bytes(whole[:length])
        assert not is_whole(cut)
        assert "truncated" in refused(cut)


def pages_of(path: Path) -> tuple[int, int]:
    """Where the rows' pages begin and end in a file; statistics and the footer follow."""
    groups = pq.read_metadata(path)
    columns = [groups.row_group(0).column(i) for i in range(groups.num_columns)]
    return 4, max(c.data_page_offset for c in columns)


@given(where=st.floats(0.0, 1.0, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_page_is_refused(
    table: pa.Table, tmp_path_factory: pytest.TempPathFactory, where: float, bit: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.parquet"
    write_parquet(table, path, METADATA)
    data = bytearray(path.read_bytes())
    begin, end = pages_of(path)
    data[begin + int(where * (end - begin))] ^= 1 << bit
    path.write_bytes(data)
    # Of a page's own header a bit may be without effect.
    with contextlib.suppress(BadParquetError):
        assert read_shard(path)[0].equals(table)
    with contextlib.suppress(BadParquetError):
        assert read_table(path, table.schema).equals(table)


def test_what_a_stage_wrote_is_checked_as_a_shard_is(table: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "best.parquet"
    write_parquet(table, path, {})
    assert read_table(path, table.schema).equals(table)
    with pytest.raises(BadParquetError, match="other columns than it should"):
        read_table(path, table.schema.remove(0))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(BadParquetError, match="truncated") as caught:
        read_table(path, table.schema)
    assert caught.value.path == path
    path.write_bytes(flipped_in_a_page(whole))
    for read in (lambda p: read_table(p, table.schema), check_table):
        with pytest.raises(BadParquetError, match=r"cannot be read: .*CRC"):
            read(path)


def by_pyarrow(shard: Path) -> None:
    pq.write_table(pq.ParquetFile(shard).read(), shard)


def by_duckdb(shard: Path) -> None:
    told = pq.read_metadata(shard).metadata[METADATA_KEY].decode().replace("'", "''")
    duckdb.sql(
        f"copy (select * from read_parquet('{shard}')) to '{shard}.new' "
        f"(format parquet, kv_metadata {{{METADATA_KEY.decode()}: '{told}'}})"
    )
    Path(f"{shard}.new").replace(shard)


@pytest.mark.parametrize("rewritten", [by_pyarrow, by_duckdb])
def test_a_shard_that_another_program_wrote_anew_is_taken(
    table: pa.Table, shard: Path, rewritten: Callable[[Path], None]
) -> None:
    before = shard.read_bytes()
    rewritten(shard)
    assert shard.read_bytes() != before
    back, metadata = read_shard(shard)
    assert back.cast(table.schema).equals(table)
    assert metadata == {**METADATA, "schema_version": SCHEMA_VERSION}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\0\0\0\0PAR1", b"x" * 999])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.parquet"
    path.write_bytes(content)
    refused(path)


def rewritten(table: pa.Table, path: Path, payload: bytes) -> Path:
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: payload}), path)
    return path


def test_other_schema_version_is_refused_with_both_versions(table: pa.Table, shard: Path) -> None:
    payload = json.dumps({"schema_version": SCHEMA_VERSION + 1}).encode()
    sentence = refused(rewritten(table, shard, payload))
    assert f"version {SCHEMA_VERSION + 1}" in sentence
    assert f"reads version {SCHEMA_VERSION}." in sentence


def test_shards_of_other_columns_cells_or_programs_are_refused(
    table: pa.Table, shard: Path
) -> None:
    write_parquet(table.drop_columns(["samples_s"]), shard, METADATA)
    assert "other columns" in refused(shard)
    write_parquet(pa.concat_tables([table, table.slice(0, 1)]), shard, METADATA)
    assert "twice" in refused(shard)
    pq.write_table(table, shard)
    assert "carries no gpushmoo provenance" in refused(shard)


WITHOUT_AXES = json.dumps({"schema_version": SCHEMA_VERSION}).encode()


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b"{}", WITHOUT_AXES])
def test_unreadable_provenance_is_refused(table: pa.Table, shard: Path, payload: bytes) -> None:
    assert "provenance" in refused(rewritten(table, shard, payload))
