"""docs/: pages are what the record says, and their links lead somewhere."""

import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import build
import pytest
from conftest import ROOT
from gpushmoo.comparing.false_alarms import Rate
from gpushmoo.core.paths import CHAPTERS
from gpushmoo.search.planner import RACE_REFERENCE_CELLS
from jinja2 import UndefinedError
from recompute import documents, h200, simulated, studies
from recompute.record import MissingError, Record, read_json, read_record
from recompute.words import Claims, whole_percent
from streamed_dot.analysis import PRINTED_GBS
from tesla_c1060.checks import PUBLISHED

DOCS = ROOT / "docs"
# What conf.py looks for in a page whose sections are elsewhere.
MOVED = "<!-- moved -->"


@pytest.fixture(scope="module")
def record() -> Record:
    return read_record()


@pytest.fixture(scope="module")
def computed(record: Record) -> tuple[dict[str, Any], Claims]:
    claims = Claims()
    return build.computed(record, claims), claims


def test_every_page_is_what_its_template_and_the_record_make(computed: tuple[Any, Claims]) -> None:
    values, claims = computed
    differing = [
        p for p in build.pages() if build.place(p).read_text() != build.rendered(p, values)
    ]
    assert differing == [], "run 'make docs'"
    assert claims.broken == []


def test_the_bound_on_false_alarms_is_of_all_pairs_that_it_stands_beside() -> None:
    told = studies.comparing(Claims())
    assert told["interval"] == whole_percent(Rate(0, told["pairs"]).interval[1])


@pytest.mark.parametrize("page", ["docs/method.md", "config/README.md"])
def test_pages_say_how_many_cells_a_race_keeps(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert re.findall(r"(\d+) of each decade of time", text) == [str(RACE_REFERENCE_CELLS)]


def test_a_sentence_that_is_no_longer_so_is_named(record: Record) -> None:
    slower = record.cells.copy()
    copies = slower["kernel"] == "global_copy"
    slower.loc[copies, ["bandwidth_gbs", "bandwidth_high_gbs"]] *= 0.9
    claims = Claims()
    h200.peak(replace(record, cells=slower), claims)
    assert claims.broken == ["The best copy is at least as fast as the runtime's own at 4 GiB."]


def test_cells_that_the_record_lacks_are_named(record: Record) -> None:
    with pytest.raises(MissingError, match="no verified cell of global_copy with width 7"):
        record.of("global_copy", width=7)


def test_a_value_that_nothing_computes_is_refused(computed: tuple[Any, Claims]) -> None:
    less = {name: value for name, value in computed[0].items() if name != "h200"}
    with pytest.raises(UndefinedError, match="h200"):
        build.rendered("h200.md", less)


def test_a_kept_simulation_is_what_the_code_computes(record: Record) -> None:
    machine = simulated.load_machine(simulated.DEVICES / "nvidia-h200.yaml")
    one = simulated.points(machine, record.of(simulated.KERNEL))[0]
    kept = read_json("nvidia-h200/simulated.json")["bus"][simulated.name_of(one)]
    assert kept == pytest.approx(simulated.predicted_gbs(machine, one, simulated.Level.BUS))


def test_paragraphs_are_filled_and_all_else_is_kept() -> None:
    text = "# A\n\nOne\ntwo 13 s.\n* item\n  goes on\n\n| a |\n| b |\n\n```sh\na\nb\n```\n"
    assert build.wrapped(text) == (
        "# A\n\nOne two 13 s.\n* item goes on\n\n| a |\n| b |\n\n```sh\na\nb\n```\n"
    )


def test_the_site_is_made_of_all_pages_without_a_warning(tmp_path: Path) -> None:
    """Links to pages, headings, files and images that are not there would be warnings."""
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-c", DOCS]
    done = subprocess.run([*command, ROOT, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    home = (tmp_path / "index.html").read_text()
    pages = [p for p in DOCS.glob("*.md") if MOVED not in p.read_text()]
    assert [p.stem for p in pages if f'href="docs/{p.stem}.html"' not in home] == []


def test_every_image_is_shown() -> None:
    pages = "".join(p.read_text() for p in (ROOT / "README.md", *DOCS.glob("*.md")))
    shown = set(re.findall(r"!\[[^]]*\]\([^)]*?([^/)]+)\)", pages))
    assert {image.name for image in (DOCS / "images").iterdir()} == shown


@pytest.mark.parametrize("folder", documents.FOLDERS)
def test_a_chapters_kernels_and_plots_are_named_and_its_rows_are_whole(folder: str) -> None:
    told = documents.told_by(folder)
    assert {key for row in told["names"] for key in row} <= {"theirs", "ours", "difference"}
    for row in told["answers"]:
        assert {"item", "says", "answer", "where"} <= set(row)
        assert set(row) <= {"item", "says", "answer", "where", "tolerance", "remark"}
        assert row["where"]
        assert row["answer"] in documents.ANSWERS
        # What is the same says to what, and what is not says why.
        assert ("tolerance" in row) == (row["answer"] == "same"), row["says"]
        assert row.get("tolerance") or row.get("remark"), row["says"]
    whole = (ROOT / "reports/chapters" / folder / documents.FILE).read_text()
    for kernel in import_module(f"{folder}.chapter").CHAPTER.kernels:
        assert kernel in whole
    for plot in (ROOT / "reports/chapters" / folder / "published").glob("*.csv"):
        assert plot.name in whole


def test_published_numbers_are_literals_in_published_alone() -> None:
    """Those with a fraction that no other number is likely to have."""
    printed = {text for texts in PUBLISHED.values() for text in texts.values()}
    printed |= {f"{value}" for value in PRINTED_GBS.values()}
    names = "|".join(re.escape(p) for p in printed if "." in p and len(p) > 3)
    pages = [build.place(page) for page in build.pages()]
    chapters = [p for p in CHAPTERS.rglob("*") if "tests" not in p.parts and p not in pages]
    sources = [*chapters, *DOCS.rglob("*.py"), *build.TEMPLATES.glob("*.md")]
    assert [
        f"{path}: {found}"
        for path in sources
        if path.suffix in {".py", ".typ", ".md"} and "published" not in path.parts
        for found in re.findall(rf"(?<![\d.])(?:{names})(?![\d.])", path.read_text())
    ] == []


@pytest.mark.parametrize(
    "reference",
    [
        {"kernel": "copy3d"},
        {"kernel": "copy2d_document", "variant": "element"},
        {"kernel": "copy2d_document", "axis": "block_x"},
        {"kernel": "copy2d_document", "dtype": "half"},
        {"kernel": "copy2d_document", "source": "TILE TILE_DIM"},
        {"function": "tesla_c1060.charts.no_such"},
        {"function": "tesla_c1060.no_such.thing"},
        {"slip": "no slip says this"},
        {"slip": "e"},
        {"remark": "no remark says this"},
        {"check": "no such quantity"},
        {"section": "No such heading", "page": "h200.md"},
        {"section": "The measured peak", "page": "no_such.md"},
        {"test": "test_no_such", "file": "tests/documents/test_docs.py"},
        {"file": "docs/no_such.md"},
        {"rumour": "x"},
        {"file": "README.md", "line": 3},
    ],
    ids=str,
)
def test_a_reference_to_what_is_not_there_is_named(reference: dict[str, Any]) -> None:
    with pytest.raises(MissingError, match=r"tesla_c1060: .* is not there"):
        documents.resolved("tesla_c1060", reference)
