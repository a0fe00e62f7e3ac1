"""Unusable files leave the run's folder for its quarantine, however these are put together."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from gpushmoo.storage import quarantine
from gpushmoo.storage.quarantine import set_aside
from mounts import Mount

PARTS = ("cells", "dataset", "quarantine")
# A shard and a data set of two files.
SHARD = "cells/copy/float/0000-of-0001.parquet"
FILES = {
    SHARD: b"shard",
    "dataset/_sha256.json": b"list",
    "dataset/kernel=copy/dtype=float/part-0.parquet": b"cells",
}
Apart = Callable[[Path, str], None]


def fill(run: Path) -> None:
    for name, data in FILES.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(data)


def files_of(folder: Path) -> Mapping[str, bytes]:
    """What is found below a folder when links are followed."""
    return {
        str((Path(where) / name).relative_to(folder)): (Path(where) / name).read_bytes()
        for where, _, names in os.walk(folder, followlinks=True)
        for name in names
    }


@pytest.fixture(params=["mount", "link", "other device"])
def apart(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Apart:
    """Puts a folder of the run elsewhere than the rest."""
    replace = os.replace

    def put(run: Path, part: str) -> None:
        def refusing(path: Path, target: Path) -> None:
            if len({Path(p).is_relative_to(run / part) for p in (path, target)}) == 2:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            replace(path, target)

        if request.param == "mount":
            mount: Mount = request.getfixturevalue("mount")
            mount(run / part, "size=64k")
        elif request.param == "link":
            (tmp_path / "elsewhere").mkdir()
            run.mkdir()
            (run / part).symlink_to("../elsewhere")
        else:
            monkeypatch.setattr(quarantine.os, "replace", refusing)

    return put


@pytest.fixture
def run(tmp_path: Path) -> Path:
    fill(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("part", PARTS)
def test_files_are_set_aside_wherever_a_folder_of_the_run_lies(
    apart: Apart, part: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    apart(run, part)
    fill(run)
    elsewhere = files_of(tmp_path / "elsewhere")
    moved = set_aside([run / SHARD, run / "dataset"], run)
    assert moved == [run / "quarantine" / SHARD, run / "quarantine/dataset"]
    assert files_of(run / "quarantine") == FILES
    assert not (run / SHARD).exists()
    # A mount's own folder stays, empty.
    assert files_of(run / "dataset") == {}
    assert not (run / "dataset").is_symlink()
    if part == "dataset":
        # What the run's link named is not the run's.
        assert files_of(tmp_path / "elsewhere") == elsewhere
    fill(run)
    again = set_aside([run / SHARD, run / "dataset"], run)
    assert [path.name for path in again] == ["0000-of-0001-2.parquet", "dataset-2"]
    assert not [name for name in files_of(run) if "/." in name]


def test_a_run_may_be_given_relatively_and_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big/run").mkdir(parents=True)
    (tmp_path / "results").symlink_to("big")
    monkeypatch.chdir(tmp_path)
    run = Path("results/run")
    fill(run)
    assert set_aside([run / SHARD], run) == [run / "quarantine" / SHARD]
    assert not (run / SHARD).exists()


def test_what_lies_outside_or_is_gone_is_left_alone(tmp_path: Path, run: Path) -> None:
    fill(tmp_path / "record")
    assert set_aside([tmp_path / "record" / SHARD, run / "../record/dataset"], run) == []
    assert set_aside([run / "cells/none.parquet"], run) == []
    assert files_of(tmp_path / "record") == FILES
    assert files_of(run) == FILES


def test_what_another_job_moves_at_this_moment_is_left_to_it(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages that read a damaged data set find it at once."""

    def outrun(path: Path, target: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(quarantine.os, "replace", outrun)
    assert set_aside([run / "dataset"], run) == []


def test_a_copy_that_fails_keeps_the_file_where_it_is(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_device(path: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def full_disk(path: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(quarantine.os, "replace", other_device)
    monkeypatch.setattr(quarantine.shutil, "copy2", full_disk)
    with pytest.raises(OSError, match="No space left"):
        set_aside([run / SHARD], run)
    assert files_of(run) == FILES
