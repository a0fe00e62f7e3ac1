"""docs/: pages are what the record says, and no number stands in them that nothing computes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import build
import pytest
from conftest import ROOT
from gpushmoo.simulation.compare_measured import points, predicted_gbs
from gpushmoo.simulation.machine import Level, load_machine
from jinja2 import UndefinedError
from recompute import documents, overview, peak, replication, simulated
from recompute.record import MissingError, Record, read_record
from recompute.slow import Slow, StaleError
from recompute.words import Claims

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def record() -> Record:
    return read_record()


@pytest.fixture(scope="module")
def told(record: Record) -> tuple[dict[str, Any], Claims]:
    claims = Claims()
    return build.computed(record, Slow(may_compute=False), claims), claims


def test_every_sentence_that_depends_on_the_data_is_so(told: tuple[Any, Claims]) -> None:
    assert told[1].broken == []


@pytest.mark.parametrize("page", build.pages())
def test_a_page_is_what_its_template_and_the_record_make(page: str, told: tuple[Any, Any]) -> None:
    assert (DOCS / page).read_text() == build.rendered(page, told[0]), "run 'make docs'"


def test_a_sentence_that_is_no_longer_so_is_named(record: Record) -> None:
    slower = record.cells.copy()
    copies = slower["kernel"] == "global_copy"
    slower.loc[copies, ["bandwidth_gbs", "bandwidth_high_gbs"]] *= 0.9
    claims = Claims()
    peak.values(replace(record, cells=slower), claims)
    assert [c.split(" [")[0] for c in claims.broken] == [
        "The best copy is no slower than the runtime's own at 4 GiB."
    ]


def test_repeats_are_told_where_there_are_some(record: Record) -> None:
    cells = record.cells.assign(between_spread=0.004)
    found = overview.values(replace(record, cells=cells))
    once = "`dot_host`, `dot_square` and `dot_streamed`"
    assert f"everything but {once} was measured 2 times" in found["covered"]
    assert "0.40 % (relative standard deviation" in found["between"]
    parts: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for shard in record.provenance:
        parts[shard["params"]["measure"]["repeats"] > 1].append(shard)
    found = overview.values(replace(record, provenance=parts[True]))
    assert "everything was measured 2 times" in found["covered"]
    found = overview.values(replace(record, provenance=parts[False]))
    assert "of the median of this one run" in found["covered"]


def test_recordings_are_told_by_the_devices_that_made_them(record: Record) -> None:
    lines = overview.values(record)["recordings"]
    assert sum(int(line[4]) for line in lines) == len(record.provenance)
    repeats = {line[0]: line[3] for line in lines}
    assert repeats["`dot_cublas` and `dot_resident`"] == repeats["all other kernels"] == "2"
    assert repeats["`dot_host`"] == repeats["`dot_square` and `dot_streamed`"] == "1"


def test_a_winner_that_the_record_does_not_have_is_named(record: Record, tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    shutil.copytree(record.folder / "benchmarks", folder)
    told = json.loads((folder / "winners.json").read_text())
    told["changed"][0]["now"] = told["changed"][0]["before"]
    (folder / "winners.json").write_text(json.dumps(told))
    claims = Claims()
    replication.values(replace(record, folder=tmp_path), claims)
    assert [c.split(" [")[0] for c in claims.broken] == [
        "The winners that are told are the fastest cells of the record."
    ]


def test_cells_that_the_record_lacks_are_named(record: Record) -> None:
    with pytest.raises(MissingError, match="no verified cell of global_copy with width 7"):
        record.of("global_copy", width=7)


def test_a_value_that_nothing_computes_is_refused(told: tuple[Any, Any]) -> None:
    less = {name: value for name, value in told[0].items() if name != "peak"}
    with pytest.raises(UndefinedError, match="peak"):
        build.rendered("h200.md", less)


def test_every_value_stands_in_a_page(told: tuple[Any, Any]) -> None:
    text = "".join((build.TEMPLATES / page).read_text() for page in build.pages())
    names = {f"{module}.{name}" for module, values in told[0].items() for name in values}
    assert {name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)} == set()


def test_a_kept_result_of_other_data_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "slow.json"
    assert Slow(True, file).get("sum", "of these data", lambda: 3) == 3
    assert Slow(False, file).get("sum", "of these data", lambda: 4) == 3
    with pytest.raises(StaleError, match="'sum' was computed from other data or code"):
        Slow(False, file).get("sum", "of others", lambda: 4)


def test_a_kept_simulation_is_what_the_code_computes(record: Record) -> None:
    machine = load_machine(simulated.DEVICE)
    one = points(machine, record.of(simulated.KERNEL))[0]
    kept = simulated.kept_of(record, Slow(may_compute=False))
    now = predicted_gbs(machine, one, Level.BUS)
    assert kept["bus"][simulated.name_of(one)] == pytest.approx(now)


def test_paragraphs_are_filled_and_all_else_is_kept() -> None:
    text = "# A\n\nOne\ntwo 13 s.\n* item\n  goes on\n\n| a |\n| b |\n\n```sh\na\nb\n```\n"
    assert build.wrapped(text) == (
        "# A\n\nOne two 13 s.\n* item goes on\n\n| a |\n| b |\n\n```sh\na\nb\n```\n"
    )


# The documents' names and claims


def test_every_figure_and_table_of_the_first_document_has_its_row() -> None:
    items = [row["item"] for row in documents.told_by("tesla_c1060")["answers"]]
    pictured = [item for item in items if item.startswith(("figure", "table"))]
    named = [*(f"figure {n}" for n in range(1, 37)), *(f"table {n}" for n in range(1, 7))]
    assert sorted(pictured) == sorted(named)
    drawn = [d.number for d in documents.DRAWINGS]
    assert sorted([*drawn, documents.LISTING[0]]) == list(range(1, 37))


@pytest.mark.parametrize("folder", documents.FOLDERS)
def test_a_chapters_kernels_and_plots_are_named_and_its_rows_are_whole(folder: str) -> None:
    told = documents.told_by(folder)
    assert {key for row in told["names"] for key in row} <= {"theirs", "ours", "difference"}
    assert {key for row in told["answers"] for key in row} == {"item", "says", "answer", "where"}
    assert all(row["where"] for row in told["answers"])
    whole = (ROOT / "reports/chapters" / folder / documents.FILE).read_text()
    for kernel in import_module(f"{folder}.chapter").CHAPTER.kernels:
        assert kernel in whole
    for plot in (ROOT / "reports/chapters" / folder / "published").glob("*.csv"):
        assert plot.name in whole


@pytest.mark.parametrize(
    "reference",
    [
        {"kernel": "copy3d"},
        {"kernel": "copy2d_document", "variant": "element"},
        {"kernel": "copy2d_document", "axis": "block_x"},
        {"kernel": "copy2d_document", "dtype": "half"},
        {"kernel": "copy2d_document", "source": "TILE TILE_DIM"},
        {"drawing": 37},
        {"function": "tesla_c1060.saturation.no_such"},
        {"function": "tesla_c1060.no_such.thing"},
        {"slip": "no slip says this"},
        {"slip": "e"},
        {"check": "no such quantity"},
        {"section": "No such heading", "page": "h200.md"},
        {"section": "The ceiling", "page": "no_such.md"},
        {"test": "test_no_such", "file": "documents/test_docs.py"},
        {"file": "docs/no_such.md"},
        {"rumour": "x"},
        {"file": "README.md", "line": 3},
    ],
    ids=str,
)
def test_a_reference_to_what_is_not_there_is_named(reference: dict[str, Any]) -> None:
    with pytest.raises(MissingError, match=r"tesla_c1060: .* is not there"):
        documents.resolved("tesla_c1060", reference)
