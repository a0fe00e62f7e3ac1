"""What is kept of Python files that were read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gpushmoo.core.python_digest import python_digest
from gpushmoo.planning import read_code
from gpushmoo.planning.read_code import CodeReader

SOURCE = b'import a.b\nfrom ..c import d\nrun("gpushmoo.core.space")\n'


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "kept" / "read.json"


def test_a_kept_file_is_not_parsed_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = CodeReader(path)
    read = first.read(SOURCE)
    assert read.digest == python_digest(SOURCE)
    assert read.imports == {(0, "a.b"), (2, "c.d"), (0, "gpushmoo.core.space")}
    first.keep()
    monkeypatch.delattr(read_code, "tree_digest")
    assert CodeReader(path).read(SOURCE) == read


def test_other_bytes_are_another_file(path: Path) -> None:
    reader = CodeReader(path)
    reader.read(SOURCE)
    reader.keep()
    assert CodeReader(path).read(SOURCE + b"more = 1\n").digest != reader.read(SOURCE).digest


@pytest.mark.parametrize("damage", [b"", b"{", b'{"files": 1}', b"\xff\0"])
def test_a_damaged_file_is_as_none(path: Path, damage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(damage)
    assert CodeReader(path).read(SOURCE).digest == python_digest(SOURCE)


def test_nothing_is_kept_where_python_keeps_no_byte_code(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    reader = CodeReader(path)
    reader.read(SOURCE)
    reader.keep()
    assert not path.exists()


def test_a_folder_that_cannot_be_made_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reader = CodeReader(tmp_path / "file" / "read.json")
    assert reader.read(SOURCE).digest == python_digest(SOURCE)
    reader.keep()
