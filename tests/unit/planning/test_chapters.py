"""Chapters: what breaks the contract is one sentence; a page that fails costs no report."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from gpushmoo.core.errors import ConfigError
from gpushmoo.planning.config import RunConfig, load_config
from gpushmoo.planning.flow import Flow
from rendering import render, spec
from synthetic import write_shard

CHAPTER = """
from gpushmoo.chapters import Chapter, ChapterError, ChapterPlan
from gpushmoo.core.keys import Section

class Options(Section):
    word: str = ""

class Notes(Chapter):
    document = "Notes"
    options = Options
    kernels = frozenset({"copy2d_coalesced"})

    def plan(self, options, run):
        return ChapterPlan(params=dict(options))

CHAPTER = Notes()
"""
PAGES = """
from gpushmoo.report.pages import Page

def page(measured):
    return Page({"cells": str(len(measured.cells))}, ["Noted."])
"""
LAYOUT = "#let pages(d, kit) = [= Notes\n There are #d.cells cells.]"
NAME = "notes_of_mine"
Make = Callable[..., Path]


@pytest.fixture
def make_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Writes a chapter's folder below one of the test's; what was imported is forgotten after."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def make(name: str = NAME, place: str = "mine", **changed: str) -> Path:
        folder = tmp_path / place / name
        folder.mkdir(parents=True)
        files = {"chapter.py": CHAPTER, "pages.py": PAGES}
        for file, text in (files | {"pages.typ": LAYOUT} | changed).items():
            (folder / file).write_text(text, encoding="utf-8")
        return folder

    yield make
    for module in set(sys.modules) - before:
        if module.startswith(NAME):
            del sys.modules[module]


def taken(raw: dict[str, Any], *folders: Path, **chapters: Any) -> RunConfig:
    asked = raw | {"chapter_folders": [*raw["chapter_folders"], *map(str, folders)]}
    return load_config(asked | {"chapters": raw["chapters"] | chapters}, ROOT)


def refused(raw: dict[str, Any], *folders: Path, **chapters: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        taken(raw, *folders, **chapters)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.endswith((".", "?"))
    return text


def test_a_chapter_joins_its_kernels(raw_config: dict[str, Any], make_chapter: Make) -> None:
    folder = make_chapter()
    chapters = taken(raw_config, folder.parent, **{NAME: {"word": "x"}}).chapters
    assert chapters[NAME].plan.params == {"word": "x"}
    assert NAME in taken(raw_config, folder.parent).chapters
    assert NAME not in taken(raw_config, folder.parent, **{NAME: None}).chapters
    assert NAME not in taken(raw_config | {"only": ["dot_host"]}, folder.parent).chapters
    chapters = load_config(raw_config, ROOT).chapters
    assert set(chapters) == {"streamed_dot", "tesla_c1060", "texture_shmoo"}
    for planned in chapters.values():
        assert planned.folder.chapter.document
        json.dumps([dict(planned.plan.reads), dict(planned.plan.params)])


def test_no_chapters_at_all_leave_nothing_of_theirs(raw_config: dict[str, Any]) -> None:
    flow = Flow(raw_config | {"chapters": None}, ask_device=False)
    assert flow.config.chapters == {}
    names = {figure.name for figure in flow.figures}
    assert {Path(file).stem for file in flow.figure_files} == names
    assert flow.chapter_products == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"nots": {}}, ["chapters: 'nots' is not known", "streamed_dot"]),
        ({NAME: {"word": 3}}, [f"chapters.{NAME}.word", "3", "a text"]),
        ({NAME: {"wrod": "x"}}, [f"chapters.{NAME}.wrod", "Did you mean 'word'?"]),
        ({NAME: []}, [f"chapters.{NAME}", "a mapping (lines of 'key: value') or null"]),
    ],
)
def test_what_a_chapter_is_told_fits_its_schema(
    raw_config: dict[str, Any], make_chapter: Make, asked: dict[str, Any], words: list[str]
) -> None:
    text = refused(raw_config, make_chapter().parent, **asked)
    assert [w for w in words if w not in text] == []


def test_a_chapter_may_refuse_what_is_asked(raw_config: dict[str, Any], make_chapter: Make) -> None:
    refusing = CHAPTER.replace("return ", "raise ChapterError('no word'); ")
    assert "no word." in refused(raw_config, make_chapter(**{"chapter.py": refusing}).parent)


def test_chapter_folders(raw_config: dict[str, Any], make_chapter: Make, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert NAME not in taken(raw_config, tmp_path / "empty").chapters
    nowhere = tmp_path / "nowhere"
    assert f"chapter_folders: '{nowhere}' is not a folder." in refused(raw_config, nowhere)
    two = [make_chapter(place=place).parent for place in ("a", "b")]
    assert f"chapter '{NAME}' exists twice, in" in refused(raw_config, *two)


FAULTS: list[tuple[dict[str, str], str]] = [
    ({"pages.py": PAGES.replace("str(len", "1 / 0 * (len")}, "pages.py:5: ZeroDivisionError"),
    ({"pages.py": "import no_such_module"}, "pages.py:1: ModuleNotFoundError"),
    ({"pages.py": PAGES.replace("str(", "object(*")}, "TypeError"),
    ({"pages.py": PAGES.replace('{"cells": str(len(measured.cells))}', "{1j: 2}")}, "TypeError"),
    ({"pages.py": "def page(measured): return 3"}, "page returns int, not a Page"),
    ({"pages.typ": "#let pages(d, kit) = [#d.nothing]"}, "pages.typ: "),
    ({"pages.typ": "#let pages(d"}, "pages.typ: "),
]


def test_a_page_that_fails_leaves_the_report_and_a_sentence_in_its_place(
    make_chapter: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = {f"{NAME}_{i}": fault for i, (_, fault) in enumerate(FAULTS)}
    folders = [make_chapter()]
    folders += [
        make_chapter(name, **changed) for name, (changed, _) in zip(faults, FAULTS, strict=True)
    ]

    def with_notes(*args: Any) -> dict[str, Any]:
        asked = spec(*args)
        told = {"reads": {}, "params": {}, "tells": [], "figures": []}
        notes = {folder.name: {**told, "folder": str(folder)} for folder in folders}
        return asked | {"chapters": asked["chapters"] | notes}

    monkeypatch.setattr("rendering.spec", with_notes)
    path = tmp_path / "shards" / "1.parquet"
    write_shard(path, "copy2d_coalesced", "float", axes={"block_x": [8, 16], "block_y": [4]})
    found = render(path.parent, tmp_path)
    assert found.chapter("tesla_c1060") is not None
    assert "Provenance" in found.text
    assert f"There are {found.chapter(NAME)['cells']} cells" in found.text
    assert "Noted." in found.text
    broken = {chapter["name"]: chapter["fault"] for chapter in found.facts["broken_chapters"]}
    assert set(broken) == set(faults)
    # As many as page one has room for.
    assert found.facts["more_faults"] == len(broken) - len(found.facts["findings"])
    assert broken[f"{NAME}_0"] in found.facts["findings"][0]["sentence"]
    for name, fault in faults.items():
        assert found.chapter(name) is None
        assert fault in broken[name]
        assert len(broken[name].splitlines()) == 1
        assert f": {name}" in found.text
