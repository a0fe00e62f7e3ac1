"""Outputs that cannot be written: one sentence with the remedy, and nothing is left behind."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from begun import run as run
from conftest import environment
from gpushmoo.core.errors import UserError, WriteError
from gpushmoo.interactive.commands import measuring
from gpushmoo.interactive.shell import main
from gpushmoo.storage.room import output, output_folder, unwritten
from mounts import Mount, fill
from test_answers import command_names
from test_answers import shards as shards  # fixtures
from test_answers import there as there

# Those of extras are there with their folders.
WORDS = [
    "new mine --in {}/x",
    "compare a b --out {}/x/y",
    "history r1 r2 r3 --out {}/x/y",
    "explore results/mine --out {}/x/y.html",
    "export results/mine --out {}/x/y --formats json",
    "sweep any --out {}/x/y",
]
COMMANDS = [words for words in WORDS if words.split()[0] in command_names()]


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_takes_nothing_is_one_sentence(
    words: str, kind: str, there: None, mount: Mount, capfd: pytest.CaptureFixture[str]
) -> None:
    place = Path("small")
    mount(place, "size=64k")
    if kind == "full":
        fill(place / "filler")
    else:
        mount(place, "ro")
    before = sorted(place.rglob("*"))
    assert main(words.format(place).split()) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "small/x" in said
    assert ("make room there" if kind == "full" else "make it writable") in said
    assert sorted(place.rglob("*")) == before


def test_what_was_there_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("kept", "replaced"):
        (out / name).write_text("old")

    def write(error: OSError | None) -> None:
        with output_folder(out, UserError) as fresh:
            (fresh / "replaced").write_text("new")
            if error:
                raise error

    for error in (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        shutil.Error([("from", "to", os.strerror(errno.ENOSPC))]),
    ):
        with pytest.raises(UserError, match=r"out.*No space left"):
            write(error)
        assert {p.name: p.read_text() for p in out.iterdir()} == {"kept": "old", "replaced": "old"}
    write(None)
    assert {p.name: p.read_text() for p in out.iterdir()} == {"kept": "old", "replaced": "new"}


def test_the_file_that_could_not_be_written_is_named(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for path, named in (
        (tmp_path / "out" / ".temporary" / "a.parquet", tmp_path / "out"),
        (Path("/elsewhere/a.parquet"), Path("/elsewhere/a.parquet")),
    ):
        with (
            pytest.raises(UserError, match=f"^'{named}' cannot be"),
            output(tmp_path / "out", UserError),
        ):
            raise WriteError(unwritten(path, full), path, full.errno)


def test_a_name_that_cannot_be_asks_for_another(
    there: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    for words in COMMANDS:
        assert main(words.format("file").split()) == 2
        assert "name another one" in capsys.readouterr().err


def test_a_summary_is_appended_whole_or_not(mount: Mount, tmp_path: Path) -> None:
    small = tmp_path / "small"
    mount(small, "size=64k")
    summary = small / "summary.md"
    summary.write_text("before\n")
    fill(small / "filler")
    # A part of it fits on the page that is taken already.
    with pytest.raises(UserError, match="make room there"):
        measuring._append(summary, "x" * 100_000)
    assert summary.read_text() == "before\n"


def test_a_file_that_was_only_tried_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise UserError("not measured")

    monkeypatch.setattr("gpushmoo.interactive.checkouts.ab_checkouts", fail)
    assert main(["ab", "main", "--markdown", str(tmp_path / "summary.md")]) == 2
    assert not any(tmp_path.iterdir())


def test_a_full_stdout_is_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpushmoo", "list", "kernels"],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "make room there" in done.stderr
