"""A run beside earlier ones: its stage, the report's page, the explorer's lines, the planning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gpushmoo.comparing import CompareError
from gpushmoo.comparing.history import History, history_of, read_history, read_runs, run_history
from gpushmoo.comparing.runs import RunCells
from gpushmoo.core.run_plan import PLAN_FILE
from gpushmoo.core.schema import GROUP
from gpushmoo.explorer.payload import group_key, over_runs
from gpushmoo.figures.timelines import MOST_PANELS, history_figure
from gpushmoo.planning.config import read_earlier, refuse_without_otava
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.report.study_pages import history_findings, history_page
from gpushmoo.storage.dataset import PROVENANCE, runs_in
from histories import made, otava_in
from matplotlib.figure import Figure
from test_figures import assert_readable

ASKED: dict[str, Any] = {"history": None, "otava": None, "delta": 0.01}


@pytest.fixture
def otava(tmp_path: Path) -> str:
    return otava_in(tmp_path)


@pytest.fixture
def told(otava: str, tmp_path: Path) -> Path:
    """The folder of a history of eight runs, the last four of them with a slower v0."""
    return history_of(made(slower=0.05), otava).save(tmp_path / "history")


def standing_for(monkeypatch: pytest.MonkeyPatch, runs: Mapping[str, RunCells]) -> None:
    """Have folders of these names read as runs; others cannot be."""

    def read(place: object) -> RunCells:
        name = Path(str(place)).name
        if name not in runs:
            raise CompareError(f"'{place}' does not exist; name a run's folder.")
        return runs[name]

    monkeypatch.setattr("gpushmoo.comparing.history.read_run", read)


# The stage


def test_a_run_stands_beside_earlier_ones_in_the_order_of_time(
    otava: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {run.name: run for run in made(slower=0.05)}
    own = runs.pop("r8")
    standing_for(monkeypatch, {**runs, "dataset": own})
    found = run_history(Path("dataset"), "mine", ["r3", "r1", "r2", *runs], otava, 0.01)
    assert found.why is None
    assert found.rows.drop_duplicates("number")["run"].tolist()[-1] == "mine"
    assert set(found.changes["variant"]) == {"v0"}


def test_what_cannot_be_taken_in_is_named_and_costs_nothing(
    otava: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = {run.name: run for run in made(n=5)}
    runs["r2"] = replace(runs["r2"], provenance=[{"protocol_version": 0}])
    standing_for(monkeypatch, {**runs, "dataset": runs["r5"]})
    found = run_history(Path("dataset"), "mine", ["r1", "gone", "r2", "r3"], otava, 0.01)
    assert found.rows.drop_duplicates("number")["run"].tolist() == ["r1", "r3", "mine"]
    gone, other = found.left_out
    assert gone.startswith("gone is left out: 'gone' does not exist")
    assert other.startswith("r2 is left out: The runs were measured by different protocols")
    saved = found.save(tmp_path / "h")
    kept = read_history(saved)
    assert kept.left_out == found.left_out
    assert f"* {gone}" in found.markdown()
    assert history_page(kept)["sentences"][1:3] == [gone, other]


def test_only_groups_of_the_run_are_shown(otava: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {run.name: run for run in made(n=4)}
    own = replace(runs["r4"], cells=runs["r4"].cells[runs["r4"].cells["variant"] == "v1"])
    other = replace(runs["r2"], cells=runs["r2"].cells[runs["r2"].cells["variant"] == "v2"])
    standing_for(monkeypatch, {**runs, "r2": other, "dataset": own})
    found = run_history(Path("dataset"), "mine", ["r1", "r2", "r3"], otava, 0.01)
    assert set(found.rows["variant"]) == {"v1"}
    assert found.rows["run"].tolist() == ["r1", "r3", "mine"]


def test_the_first_run_has_no_history_yet_and_says_so(
    otava: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: list[Figure]
) -> None:
    standing_for(monkeypatch, {"dataset": made(n=1)[0]})
    found = run_history(Path("dataset"), "mine", [], otava, 0.01)
    assert found.why == "There is no history: A history has two runs or more, not 1."
    saved = found.save(tmp_path / "h")
    kept = read_history(saved)
    assert (kept.why, len(kept.rows), len(kept.changes)) == (found.why, 0, 0)
    assert found.markdown() == f"**{found.why}**\n"
    assert history_page(kept)["sentences"] == [found.why]
    assert history_findings(kept) == []
    assert over_runs(kept) == {"why": found.why, "runs": [], "groups": {}}
    history_figure([saved / "history.parquet"], tmp_path / "history.svg")
    note = json.loads((tmp_path / "history.json").read_text(encoding="utf-8"))
    assert note["caption"] == found.why


def test_a_program_that_fails_costs_the_history_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = {run.name: run for run in made(n=3)}
    standing_for(monkeypatch, {**runs, "dataset": runs["r3"]})
    found = run_history(Path("dataset"), "mine", ["r1"], str(tmp_path / "none"), 0.01)
    assert found.why is not None
    assert "is no program; change points need Apache Otava" in found.why


def test_a_run_of_its_own_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    standing_for(monkeypatch, {})
    with pytest.raises(CompareError, match="does not exist"):
        run_history(Path("dataset"), "mine", [], None, 0.01)


def test_runs_of_one_name_have_as_much_of_their_path_as_tells_them_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (run,) = made(n=1)
    monkeypatch.setattr("gpushmoo.comparing.history.read_run", lambda place: run)
    places = ["a/mon/local", "a/tue/local", "b/tue/local"]
    assert [r.name for r in read_runs(places)] == ["a/mon/local", "a/tue/local", "b/tue/local"]
    assert [r.name for r in read_runs(["a/x", "b/y"])] == ["x", "y"]
    assert [r.name for r in read_runs(["a/x", "a/x"])] == ["x", "x"]


# The report


def findings(runs: list[RunCells], otava: str) -> list[str]:
    return [finding.sentence for finding in history_findings(history_of(runs, otava))]


def test_the_first_page_tells_of_recent_losses_alone(otava: str) -> None:
    assert len(findings(made(slower=0.05, since=5, n=9), otava)) == 1
    assert findings(made(slower=0.05, since=5, n=10), otava) == []
    # A gain.
    assert findings(made(slower=-0.05), otava) == []
    assert findings(made(), otava) == []


def test_the_first_page_says_whose_the_largest_loss_is_and_how_many_lost_less(otava: str) -> None:
    (machine,) = findings(made(drift=0.05), otava)
    assert "the machine changed, as the runtime's own copy shows" in machine
    assert machine.endswith("(2 more groups lost less).")
    (both,) = findings(made(slower=0.1, drift=0.05), otava)
    assert "the kernel and the machine changed" in both


def many(found: History, copies: int) -> History:
    """The same history of so many sizes, each with larger changes than the one before."""
    rows = [found.rows.assign(height=64 << i, width=64 << i) for i in range(copies)]
    changes = [
        found.changes.assign(
            height=64 << i, width=64 << i, change=found.changes["change"] * (1 + i)
        )
        for i in range(copies)
    ]

    return History(
        pd.concat(rows, ignore_index=True), pd.concat(changes, ignore_index=True), found.delta
    )


def test_groups_that_changed_most_are_drawn_where_all_have_no_room(
    told: Path, tmp_path: Path, written: list[Figure]
) -> None:
    found = many(read_history(told), 20)
    svg = tmp_path / "history.svg"
    history_figure([found.save(tmp_path / "h") / "history.parquet"], svg)
    titles = [ax.get_title(loc="left") for ax in written[0].axes if ax.get_title(loc="left")]
    assert len(titles) == MOST_PANELS
    assert all(f"{64 << i}² elements" in " ".join(titles) for i in range(8, 20))
    assert_readable(written[0])
    caption = json.loads(svg.with_suffix(".json").read_text(encoding="utf-8"))["caption"]
    assert caption.endswith("Of 60 groups the 12 whose bests changed most.")
    page = history_page(found)
    assert len(page["rows"]) == 15
    assert page["sentences"][-1].startswith("5 more change points are in history/")
    # The largest first.
    assert page["rows"][0][0].startswith(f"made, float, v0, {64 << 19} × {64 << 19}")


# The explorer


def test_the_explorer_gets_each_group_by_its_names(told: Path) -> None:
    found = read_history(told)
    content = json.loads(json.dumps(over_runs(found)))
    assert [run["run"] for run in content["runs"]] == [f"r{i}" for i in range(1, 9)]
    assert content["runs"][0] == {"number": 1, "run": "r1", "day": "2026-01-01"}
    first = found.rows[found.rows["variant"] == "v0"].iloc[0]
    line = content["groups"][group_key(first.to_dict())]
    assert line["number"] == list(range(1, 9))
    assert line["best"][0] == pytest.approx(first["bandwidth_gbs"], rel=1e-4)
    (change,) = [c for c in line["changes"] if c["of"] == "best"]
    assert (change["number"], change["run"], change["cause"]) == (5, "r5", "kernel")
    assert change["differences"] == ["code of made: old → new"]
    others = [group for key, group in content["groups"].items() if "v0" not in key]
    assert [group["changes"] for group in others] == [[], []]


def test_a_group_without_a_copy_has_nulls(otava: str) -> None:

    runs = [replace(run, cells=run.cells.assign(copy_gbs=np.nan)) for run in made(n=3)]
    content = over_runs(history_of(runs, otava))
    assert all(group["copy"] == [None] * 3 for group in content["groups"].values())
    assert len(GROUP) == len(next(iter(content["groups"])).split("\n"))


# The planning


def run_in(folder: Path, finished: bool = True) -> Path:
    (folder / "dataset").mkdir(parents=True)
    (folder / PLAN_FILE).touch()
    if finished:
        (folder / "dataset" / PROVENANCE).touch()
    return folder


def earlier_runs(*folders: Path, otava: str | None = None) -> dict[str, Any]:
    return {"earlier": [*map(str, folders)], "otava": otava, "delta": 0.01}


def test_a_folder_of_runs_stands_for_its_finished_ones_without_the_run_itself(
    tmp_path: Path,
) -> None:
    results = tmp_path / "results"
    first, own = run_in(results / "a"), run_in(results / "own")
    run_in(results / "going", finished=False)
    (results / "notes").mkdir()
    (results / "file.txt").touch()
    mounted = run_in(results / "mounted", finished=False)
    (mounted / "dataset" / "data").mkdir()
    (mounted / "dataset" / "data" / PROVENANCE).touch()
    found = read_earlier({**ASKED, "history": str(results)}, own)
    assert found == earlier_runs(first, mounted)
    several = {**ASKED, "history": [str(first), str(results)], "otava": "x"}
    assert read_earlier(several, own) == earlier_runs(first, mounted, otava="x")
    assert read_earlier({**ASKED, "history": str(own)}, own) == earlier_runs()
    assert read_earlier(ASKED, own) is None


def test_the_first_run_of_all_has_no_folder_of_runs_yet(tmp_path: Path) -> None:
    own = tmp_path / "results" / "own"
    asked = {**ASKED, "history": str(own.parent)}
    assert read_earlier(asked, own) == earlier_runs()
    (own.parent / "planted" / "notes").mkdir(parents=True)
    assert read_earlier(asked, own) == earlier_runs()


def test_one_run_a_data_set_and_shards_stand_for_themselves(tmp_path: Path) -> None:
    one = run_in(tmp_path / "one", finished=False)
    assert runs_in(one) == [one]
    assert runs_in(run_in(tmp_path / "other") / "dataset") == [tmp_path / "other" / "dataset"]
    shards = tmp_path / "shards"
    (shards / "copy" / "float").mkdir(parents=True)
    assert runs_in(shards) == [shards]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"history": "nowhere"}, "history: 'nowhere' is not the folder of a run, of runs or of"),
        ({"otava": "x"}, "otava: it finds change points in a history, and history is null."),
    ],
)
def test_bad_words_on_a_history_are_refused(
    asked: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="^" + sentence):
        read_earlier({**ASKED, **asked}, tmp_path)


def test_a_missing_program_is_told_before_anything_is_measured(
    tmp_path: Path, otava: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_without_otava(otava)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match=r"^otava: 'otava' is not on the PATH; change"):
        refuse_without_otava(None)
