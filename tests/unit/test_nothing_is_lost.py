"""Processes killed, disks full, two writers of one file: what was measured stays."""

from __future__ import annotations

import io
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fakes import FOLDER, INFO, FakeDevice, make_cells, measure_cells
from gpushmoo import store
from gpushmoo.rows import cell_table
from gpushmoo.store import NotWrittenError, read_shard, write_parquet, write_result

CELLS = make_cells(heights=(4, 8))
AXES = ["threads", "chunks"]
METADATA = {"axes": AXES, "params": {"folder": "kernels/tiny", "dtype": "float"}}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return cell_table(measure_cells(FakeDevice(), CELLS).result, FOLDER.workload, INFO, AXES)


class Disk:
    """Refuses the first writes with an error, then lets them pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusals: int, code: int) -> None:
        self.left, self._code = refusals, code
        self._write = store.pq.write_table
        monkeypatch.setattr(store.pq, "write_table", self)
        monkeypatch.setattr(store, "_ROOM_POLL_S", 0.0)

    def __call__(self, table: pa.Table, where: Path, **options: Any) -> None:
        if self.left > 0:
            self.left -= 1
            Path(where).write_bytes(b"PAR1 half a file")
            raise OSError(self._code, os.strerror(self._code))
        self._write(table, where, **options)


@pytest.mark.parametrize("code", [28, 122], ids=["no space", "quota"])
def test_a_result_waits_for_room_and_says_so_once(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    Disk(monkeypatch, 3, code)
    terminal, path = io.StringIO(), tmp_path / "a.parquet"
    write_result(table, path, METADATA, terminal)
    assert read_shard(path)[0].equals(table)
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]
    assert terminal.getvalue() == (
        f"gpushmoo: '{path}' could not be written ({os.strerror(code)}); it is measured and waits "
        "10 min for room: free some.\n"
    )


@pytest.mark.parametrize(("code", "limit_s"), [(28, 0.0), (30, 600.0), (5, 600.0)])
def test_a_result_that_cannot_be_written_is_named_with_what_to_do(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, limit_s: float
) -> None:
    monkeypatch.setattr(store, "ROOM_LIMIT_S", limit_s)
    disk = Disk(monkeypatch, 100, code)
    path = tmp_path / "a.parquet"
    with pytest.raises(NotWrittenError) as caught:
        write_result(table, path, METADATA, io.StringIO())
    assert str(caught.value) == (
        f"'{path}' could not be written ({os.strerror(code)}); make room or make it writable and "
        "start the run again: only this shard is measured again."
    )
    assert disk.left == 99
    assert list(tmp_path.iterdir()) == []


def _write_often(table: pa.Table, path: Path, start: Any) -> None:
    start.wait()
    for _ in range(50):
        write_parquet(table, path, METADATA)


def test_two_jobs_of_one_shard_leave_the_whole_file_of_one_of_them(
    table: pa.Table, tmp_path: Path
) -> None:
    path = tmp_path / "0000-of-0001.parquet"
    tables = [table, table.slice(0, 3)]
    spawned = multiprocessing.get_context("spawn")
    start = spawned.Barrier(len(tables) + 1)
    writers = [spawned.Process(target=_write_often, args=(t, path, start)) for t in tables]
    for writer in writers:
        writer.start()
    start.wait(timeout=60)
    seen = 0
    while any(w.is_alive() for w in writers) or not seen:
        if path.exists():
            assert len(read_shard(path)[0]) in {len(t) for t in tables}
            seen += 1
    assert [w.exitcode for w in writers] == [0, 0]
    assert any(read_shard(path)[0].equals(t) for t in tables)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
