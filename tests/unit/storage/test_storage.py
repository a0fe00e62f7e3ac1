"""Files that are written whole or not at all and checked when read, shards, packed records."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from fakes import FOLDER, INFO, FakeDevice, Fault, cell_tag, make_cells, measure_cells
from gpushmoo.analysis.aggregate import aggregate, opened
from gpushmoo.core.errors import BadParquetError, DamagedFileError, OpenedError, WriteError
from gpushmoo.core.schema import METADATA_KEY, SCHEMA_VERSION, Status, cell_schema
from gpushmoo.core.space import Condition
from gpushmoo.measuring.events import CellRun, CopySample, ShardResult
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.storage import store
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.store import (
    PACKED,
    check_table,
    is_complete_file,
    read_shard,
    read_table,
    unpacked,
    write_parquet,
)
from gpushmoo.storage.wholefile import (
    read_complete,
    read_json,
    replaced_folder,
    set_aside,
    write_atomic,
    write_json,
)
from hypothesis import given
from hypothesis import strategies as st
from older import with_former_names
from synthetic import flipped_in_a_page, write_shard

sys.path.append(str(ROOT / "experiments"))

from pack_record import pack

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


def full_disk(*_: Any) -> None:
    raise OSError(28, os.strerror(28))


def test_rows_keep_the_schema_and_only_verified_cells_have_a_bandwidth(table: pa.Table) -> None:
    assert table.schema.equals(cell_schema(AXES))
    table.validate(full=True)
    keys = table.column("cell_key").to_pylist()
    assert keys == sorted(keys)
    for field in table.schema:
        assert field.nullable or table.column(field.name).null_count == 0
    rows = table.to_pylist()
    assert {r["status"] for r in rows} >= {"ok", "wrong_result", "timeout", "out_of_resources"}
    timed = [n for n in table.column_names if n.startswith(("median", "bandwidth", "coverage"))]
    assert len(timed) == 7
    for row in rows:
        assert {row[n] is not None for n in timed} == {row["status"] == "ok"}
    [wrong] = [r for r in rows if r["status"] == "wrong_result"]
    assert len(wrong["samples_s"]) == 6
    assert wrong["wrong_words"] == wrong["verified_words"] == 32


def one_run(samples: list[float], status: Status | None = Status.OK) -> CellRun:
    cell = make_cells()[0]
    run = CellRun(cell, FOLDER.workload.launch(cell))
    run.samples_s, run.status, run.launches = samples, status, 1
    return run


def row_of(run: CellRun) -> dict[str, Any]:
    problem = run.cell.problem
    conditions = Condition("warm"), Condition("flushed"), Condition("warm", "isolated")
    copies = {
        (problem, met): [CopySample(1e-3 * place, 0.0)]
        for place, met in enumerate(conditions, start=1)
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


def test_odd_rows() -> None:
    row = row_of(one_run([1e-3] * 6))
    assert row["memcpy_gbs"] == pytest.approx(row["bandwidth_gbs"])
    assert row["vs_memcpy"] == pytest.approx(1.0)
    assert row["working_set_over_cache"] == (row["bytes_read"] + row["bytes_written"]) / INFO.cache
    run = one_run([], Status.TOO_MANY_THREADS)
    huge = replace(run.launch, block=(2**28, 2**28, 1))
    row = row_of(CellRun(run.cell, huge, status=run.status))
    assert row["threads_per_block"] == 2**31 - 1
    assert row["status"] == "too_many_threads"


def test_what_is_written_is_read_again(table: pa.Table, shard: Path) -> None:
    back, metadata = read_shard(shard)
    assert back.equals(table)
    assert metadata == {**METADATA, "schema_version": SCHEMA_VERSION}
    # Written again it replaces the old file.
    write_parquet(table.slice(0, 2), shard, METADATA)
    assert len(read_shard(shard)[0]) == 2
    assert [p.name for p in shard.parent.iterdir()] == [shard.name]


def test_failing_writes(table: pa.Table, shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(where: Path, *_: Any, **__: Any) -> None:
        Path(where).write_bytes(b"PAR1 half a file")
        full_disk()

    monkeypatch.setattr(store.pq, "ParquetWriter", refuse)
    with pytest.raises(WriteError) as caught:
        write_parquet(table.slice(0, 1), shard, METADATA)
    sentence = str(caught.value)
    assert sentence.startswith(f"'{shard}' cannot be written to ({os.strerror(28)})")
    assert "make room" in sentence
    assert list(shard.parent.iterdir()) == [shard]
    assert read_shard(shard)[0].equals(table)


def test_truncated_file_is_refused_at_every_length(shard: Path, tmp_path: Path) -> None:
    assert is_complete_file(shard)
    assert not is_complete_file(tmp_path / "absent.parquet")
    assert not is_complete_file(tmp_path)
    whole = shard.read_bytes()
    cut = tmp_path / "cut.parquet"
    lengths = {*range(64), *range(64, len(whole), 173), *range(len(whole) - 64, len(whole))}
    for length in lengths:
        cut.write_bytes(whole[:length])
        assert not is_complete_file(cut)
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


def test_rewritten_shards(table: pa.Table, shard: Path) -> None:
    before = shard.read_bytes()
    pq.write_table(pq.ParquetFile(shard).read(), shard)
    assert shard.read_bytes() != before
    back, metadata = read_shard(shard)
    assert back.cast(table.schema).equals(table)
    assert metadata == {**METADATA, "schema_version": SCHEMA_VERSION}


def rewritten(table: pa.Table, path: Path, payload: bytes) -> Path:
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: payload}), path)
    return path


def test_other_versions_columns_or_cells_are_refused(table: pa.Table, shard: Path) -> None:
    payload = json.dumps({"schema_version": SCHEMA_VERSION + 1}).encode()
    sentence = refused(rewritten(table, shard, payload))
    assert f"version {SCHEMA_VERSION + 1}" in sentence
    assert f"reads version {SCHEMA_VERSION}." in sentence
    write_parquet(table.drop_columns(["samples_s"]), shard, METADATA)
    assert "other columns" in refused(shard)
    write_parquet(pa.concat_tables([table, table.slice(0, 1)]), shard, METADATA)
    assert "twice" in refused(shard)
    pq.write_table(table, shard)
    assert "has no provenance metadata, so it is not a shard" in refused(shard)


WITHOUT_AXES = json.dumps({"schema_version": SCHEMA_VERSION}).encode()


def test_columns_that_an_older_shard_does_not_have_are_null(table: pa.Table, shard: Path) -> None:
    later = sorted(store.LATER_COLUMNS[4])
    assert {"overhead_s", "processor_s"} <= set(later)
    before = table.drop_columns(later)
    write_parquet(with_former_names(before), shard, METADATA | {"schema_version": 4})
    found, metadata = read_shard(shard)
    assert metadata["schema_version"] == 4
    assert found.schema.names == table.schema.names
    assert found.drop_columns(later).equals(before)
    assert all(found.column(name).null_count == len(table) for name in later)
    # As the schema of today it lacks them.
    write_parquet(before, shard, METADATA)
    assert "other columns" in refused(shard)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b"{}", WITHOUT_AXES])
def test_unreadable_provenance_is_refused(table: pa.Table, shard: Path, payload: bytes) -> None:
    assert "provenance" in refused(rewritten(table, shard, payload))


CONTENT = {"fits": [{"unit": "µs", "value": 0.1}], "more": None}
TEXT = b"All 48 cells ended as they may.\n"
WHOLE = {
    "a.svg": b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"></svg>\n',
    "a.html": b"<!doctype html>\n<html><body></body></html>\n",
    "a.pdf": b"%PDF-1.7\nstartxref\n9\n%%EOF",
    "a.txt": TEXT,
}


def written(folder: Path, name: str) -> Path:
    path = folder / name
    if path.suffix == ".json":
        write_json(path, CONTENT)
    else:
        write_atomic(path, WHOLE[path.name])
    return path


def test_a_file_holds_what_was_written_and_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path, "deep/params.json")
    assert json.loads(path.read_text()) == read_json(path) == CONTENT
    for name, data in WHOLE.items():
        path = written(tmp_path, name)
        assert path.read_bytes() == read_complete(path) == data


@pytest.mark.parametrize("name", ["a.json", *WHOLE])
def test_a_file_that_is_cut_off_is_noticed(tmp_path: Path, name: str) -> None:
    """At any length, but for the newline at its end; of a text only if nothing is left."""
    path = written(tmp_path, name)
    sound = path.read_bytes().rstrip()
    read = read_json if path.suffix == ".json" else read_complete
    for length in range(len(sound) if path.suffix != ".txt" else 1):
        path.write_bytes(sound[:length])
        with pytest.raises(DamagedFileError, match=r"^'.*' is (empty|truncated)") as caught:
            read(path)
        assert caught.value.files == (path,)
    path.unlink()
    with pytest.raises(DamagedFileError, match="No such file"):
        read(path)


@pytest.mark.parametrize("data", [b"[]\n", b"text\n", b"\xff", b"\0" * 40, b"{}{}"])
def test_what_is_no_object_of_json_is_noticed(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match="is truncated"):
        read_json(path)


def test_files_of_earlier_versions_with_a_sum_at_their_end_are_read(tmp_path: Path) -> None:
    path, digest = tmp_path / "a.json", "0" * 64
    path.write_text(json.dumps({**CONTENT, "sha256": digest}))
    assert read_json(path) == CONTENT
    for name, around in (
        ("a.svg", "<!-- sha256: {} -->\n"),
        ("a.html", "<!-- sha256: {} -->\n"),
        ("a.pdf", "\n%sha256: {}\n"),
        ("a.txt", "sha256: {}\n"),
    ):
        data = WHOLE[name] + around.format(digest).encode()
        (tmp_path / name).write_bytes(data)
        assert read_complete(tmp_path / name) == data


def test_a_file_is_synced_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    fsync, replace = os.fsync, os.replace

    def watched_sync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    def watched_replace(own: Path, path: Path) -> None:
        replace(own, path)
        done.append(path)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_replace)
    path = tmp_path / "peak.json"
    write_atomic(path, b"data")
    own, *rest = done
    assert own.name.startswith(".peak.json.")
    assert rest == [path, tmp_path]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    path = written(tmp_path, "a.json")

    monkeypatch.setattr(os, fails, full_disk)
    with pytest.raises(OSError, match="No space"):
        write_json(path, {"other": 1})
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [path]
    assert read_json(path) == CONTENT


def names_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_folder_goes_once_all_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "deep/dataset"
    with replaced_folder(out) as fresh:
        write_atomic(fresh / "in/old", TEXT)
    assert names_below(tmp_path) == {
        "deep",
        "deep/dataset",
        "deep/dataset/in",
        "deep/dataset/in/old",
    }
    synced = list[tuple[str, bool]]()
    fsync = os.fsync

    def watched_sync(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path.name, (out / "in/old").exists()))

    with replaced_folder(out) as fresh:
        (fresh / "in").mkdir()
        (fresh / "in/new").write_bytes(TEXT)
        monkeypatch.setattr(os, "fsync", watched_sync)
    assert {("in", True), ("new", True)} < set(synced)
    assert [name for name, old in synced if not old] == ["deep"]
    assert names_below(out) == {"in", "in/new"}
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("fails", ["filling", "fsync"])
def test_a_folder_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    out = tmp_path / "dataset"
    with replaced_folder(out) as fresh:
        write_atomic(fresh / "old", TEXT)

    def replace() -> None:
        with replaced_folder(out) as fresh:
            (fresh / "new").write_bytes(TEXT)
            if fails == "filling":
                full_disk()
            monkeypatch.setattr(os, fails, full_disk)

    with pytest.raises(OSError, match="No space"):
        replace()
    monkeypatch.undo()
    assert names_below(tmp_path) == {"dataset", "dataset/old"}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path, Path], str]:
    """What is on the terminal when a job that writes to a log reads a damaged file."""
    terminal = tmp_path / "terminal"

    def read(log: Path, damaged: Path) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup2", lambda *_: None)
            patch.setattr(
                os, "dup", lambda _: os.open(terminal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            )
            with pytest.raises(SystemExit), job_log(log, end=sys.exit):
                read_json(damaged)
        return terminal.read_text().removeprefix("gpushmoo: ").strip()

    return read


def test_a_damaged_file_is_named_set_aside_and_to_be_made_anew(
    tmp_path: Path, ended: Callable[[Path, Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, aside = (tmp_path / part / "peak.json" for part in ("summary", "quarantine/summary"))
    write_atomic(path, b"")
    assert ended(tmp_path / "logs/best.log", path) == (
        f"'{path}' is empty (damaged, or changed by another program). Set aside as '{aside}'; "
        "start the run again to create it again."
    )
    assert (aside.exists(), path.exists()) == (True, False)

    def read_only(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    path.write_bytes(b"")
    monkeypatch.setattr("gpushmoo.storage.wholefile.shutil.move", read_only)
    assert ended(tmp_path / "logs/best.log", path).endswith(
        " Not set aside (Read-only file system): remove it and start the run again."
    )
    assert path.exists()


def test_a_runs_files_are_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A run may be given relatively and through a link.
    (tmp_path / "big").mkdir()
    (tmp_path / "results").symlink_to("big")
    monkeypatch.chdir(tmp_path)
    run, record = Path("results/run"), tmp_path / "record" / "a.parquet"
    bad = run / "cells" / "copy" / "float" / "a.parquet"
    write_atomic(record, b"recorded")
    for number in range(3):
        write_atomic(bad, str(number).encode())
        [moved] = set_aside([bad, record, run / "../../record/a.parquet"], run)
        assert moved.is_relative_to(run / "quarantine")
        assert moved.read_text() == str(number)
        assert not bad.exists()
    assert record.read_text() == "recorded"
    assert names_below(run / "quarantine/cells/copy/float") == {
        "a.parquet",
        "a-2.parquet",
        "a-3.parquet",
    }
    assert set_aside([bad], run) == []


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
    """Pack the shards of the record."""
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
    aggregate(sorted(folder.rglob("*.parquet")), shards / "dataset")


def test_a_folder_within_a_record_is_found(shards: Path, record: Path) -> None:
    assert unpacked(record / "copy/float").parent.parent == unpacked(record)
    assert unpacked(shards / "copy") == shards / "copy"
    assert unpacked(record / "nothing").exists() is False
    with opened(record / "stream") as found:
        assert (found.name, found.shards) == ("stream", 1)
    with pytest.raises(OpenedError, match="nothing' does not exist"), opened(record / "nothing"):
        pass


def test_a_record_unpacks_once(shards: Path, record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = unpacked(record)
    with monkeypatch.context() as patched:
        patched.setattr("gpushmoo.storage.store.unpack", None)
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
