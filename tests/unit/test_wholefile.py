"""Files that carry a sum of themselves: written whole, and refused whatever happened to them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from gpushmoo.storage.joblog import job_log
from gpushmoo.storage.wholefile import (
    DamagedFileError,
    read_json,
    read_summed,
    replaced_folder,
    set_aside,
    write_json,
    write_summed,
    write_whole,
)
from mounts import Mount

CONTENT = {"fits": [{"unit": "µs", "value": 0.1}], "more": None}
SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>\n'
TEXT = b"All 48 cells ended as they may.\n"


def written(folder: Path, name: str) -> Path:
    path = folder / name
    if path.suffix == ".json":
        write_json(path, CONTENT)
    else:
        write_summed(path, SVG if path.suffix == ".svg" else TEXT)
    return path


def test_other_programs_read_what_carries_a_sum(tmp_path: Path) -> None:
    path = written(tmp_path, "deep/params.json")
    assert read_json(path) == CONTENT
    told = json.loads(path.read_text())
    assert len(told.pop("sha256")) == 64
    assert told == CONTENT
    assert ElementTree.parse(written(tmp_path, "a.svg")).getroot().tag.endswith("svg")
    path = written(tmp_path, "verdict.txt")
    assert path.read_bytes().startswith(TEXT)
    assert read_summed(path) == TEXT


@pytest.mark.parametrize("name", ["a.json", "a.svg", "a.pdf", "a.txt"])
def test_no_damage_is_passed_over(tmp_path: Path, name: str) -> None:
    """Cut off at any length, any bit flipped, more at its end, another program's, or gone."""
    path = written(tmp_path, name)
    sound = path.read_bytes()
    flipped = [
        sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :]
        for place in range(len(sound))
    ]
    cut = [sound[:length] for length in range(len(sound))]
    foreign = [sound + b"\n", sound + sound, b"{}\n", b"[]", bytes(len(sound))]
    for data in [*flipped, *cut, *foreign]:
        path.write_bytes(data)
        with pytest.raises(DamagedFileError, match=r"^'.*' is (empty|no longer)") as caught:
            read_summed(path)
        assert caught.value.files == (path,)
    path.unlink()
    with pytest.raises(DamagedFileError, match="No such file"):
        read_summed(path)


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    path = tmp_path / "ceiling.json"
    write_whole(path, b"data")
    own, *rest = done
    assert own.name.startswith(".ceiling.json.")
    assert rest == [path, tmp_path]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = written(tmp_path, "a.json")

    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, full_disk)
    with pytest.raises(OSError, match="No space"):
        write_json(path, {"other": 1})
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [path]
    assert read_json(path) == CONTENT


def names_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_folder_goes_when_all_of_the_new_one_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep/dataset"
    with replaced_folder(out) as fresh:
        write_whole(fresh / "in/old", TEXT)
    assert names_below(tmp_path) == {
        *("deep", "deep/dataset", "deep/dataset/in", "deep/dataset/in/old")
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
def test_a_folder_that_fails_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    out = tmp_path / "dataset"
    with replaced_folder(out) as fresh:
        write_whole(fresh / "old", TEXT)

    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

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
    """What stands on the terminal when a job that writes to a log reads a damaged file."""
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
    path, aside = (tmp_path / part / "ceiling.json" for part in ("summary", "quarantine/summary"))
    write_whole(path, b"")
    assert ended(tmp_path / "logs/best.log", path) == (
        f"'{path}' is empty (damaged, or changed by another program). Set aside as '{aside}'; "
        "start the run again to make it anew."
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


# What is set aside


def test_files_of_the_run_are_set_aside_and_others_stay(tmp_path: Path) -> None:
    run, record = tmp_path / "run", tmp_path / "record" / "a.parquet"
    bad = run / "cells" / "copy" / "float" / "a.parquet"
    write_whole(record, b"recorded")
    for number in range(3):
        write_whole(bad, str(number).encode())
        [moved] = set_aside([bad, record, run / "../record/a.parquet"], run)
        assert moved.is_relative_to(run / "quarantine")
        assert moved.read_text() == str(number)
        assert not bad.exists()
    assert record.read_text() == "recorded"
    assert names_below(run / "quarantine/cells/copy/float") == {
        *("a.parquet", "a-2.parquet", "a-3.parquet")
    }
    assert set_aside([bad], run) == []


@pytest.mark.parametrize("part", ["cells", "dataset", "quarantine"])
def test_files_are_set_aside_wherever_a_folder_of_the_run_lies(
    mount: Mount, part: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    mount(run / part, "size=64k")
    shard, cells = Path("cells/copy/float/a.parquet"), Path("dataset/data/part-0.parquet")
    for path in (shard, cells):
        write_whole(run / path, TEXT)
    moved = set_aside([run / shard, (run / cells).parent], run)
    assert moved == [run / "quarantine" / shard, run / "quarantine/dataset/data"]
    assert (run / "quarantine" / cells).read_bytes() == (moved[0]).read_bytes() == TEXT
    assert not (run / shard).exists()
    assert not (run / cells).exists()


def test_a_run_may_be_given_relatively_and_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").symlink_to("big")
    (tmp_path / "big").mkdir()
    monkeypatch.chdir(tmp_path)
    run = Path("results/run")
    write_whole(run / "a.json", TEXT)
    assert set_aside([run / "a.json"], run) == [run / "quarantine/a.json"]
    assert not (run / "a.json").exists()
