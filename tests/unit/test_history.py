"""Many runs as one history: change points, causes, what the summary, report and explorer say."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gpushmoo
import numpy as np
import pandas as pd
import pytest
from conftest import record
from gpushmoo.comparing import CompareError
from gpushmoo.comparing.history import (
    CHANGE_POINTS_SCHEMA,
    HISTORY_SCHEMA,
    History,
    history_of,
    read_history,
    read_runs,
    run_history,
    series_changes,
)
from gpushmoo.comparing.runs import RunCells
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.run_plan import PLAN_FILE
from gpushmoo.explorer.explore import group_key, over_runs
from gpushmoo.figures.runs import history_figure
from gpushmoo.interactive.shell import main
from gpushmoo.planning.config import read_earlier, refuse_without_otava
from gpushmoo.planning.refusal import read_section
from gpushmoo.planning.settings import Settings
from gpushmoo.report.pages import history_findings, history_page
from gpushmoo.storage.dataset import PROVENANCE, runs_in
from gpushmoo.storage.store import read_table
from gpushmoo.storage.wholefile import read_summed
from histories import made, otava_in, program_of
from matplotlib.figure import Figure


@pytest.fixture
def otava(tmp_path: Path) -> str:
    return otava_in(tmp_path)


def standing_for(monkeypatch: pytest.MonkeyPatch, runs: Mapping[str, RunCells]) -> None:
    """Have folders of these names read as runs; others cannot be."""

    def read(place: object) -> RunCells:
        name = Path(str(place)).name
        if name not in runs:
            raise CompareError(f"'{place}' does not exist; name a run's folder.")
        return runs[name]

    monkeypatch.setattr("gpushmoo.comparing.history.read_run", read)


def bests_of(found: History) -> pd.DataFrame:
    return found.changes[found.changes["quantity"] == "bandwidth_gbs"]


def only(run: RunCells, rows: pd.Series) -> RunCells:
    return replace(run, cells=run.cells[rows])


def without_copy(run: RunCells) -> RunCells:
    return replace(run, cells=run.cells.assign(memcpy_gbs=np.nan))


def test_a_slower_kernel_is_told_from_a_machine_that_changed(otava: str) -> None:
    found = history_of(made(slower=0.05), otava)
    (change,) = bests_of(found).to_dict("records")
    assert (change["variant"], change["number"], change["run"]) == ("v0", 5, "r5")
    assert change["cause"] == "kernel"
    assert change["change"] == pytest.approx(1 / 1.05 - 1, abs=0.003)
    assert change["differences"] == ["code of made: old → new"]
    of_group = found.rows[found.rows["variant"] == "v0"]["bandwidth_gbs"]
    assert change["before"] == pytest.approx(of_group[:4].mean())
    assert change["after"] == pytest.approx(of_group[4:].mean())
    assert set(found.changes["quantity"]) == {"bandwidth_gbs", "vs_memcpy"}
    bests = bests_of(history_of(made(drift=0.05), otava))
    assert bests["cause"].tolist() == ["machine"] * 3
    both = bests_of(history_of(made(slower=0.1, drift=0.05), otava))
    assert dict(zip(both["variant"], both["cause"], strict=True)) == {
        "v0": "kernel and machine",
        "v1": "machine",
        "v2": "machine",
    }
    # A kernel's change that the machine hides.
    found = history_of(made(slower=0.05, drift=-float(np.log(1.05))), otava)
    of_group = found.changes[found.changes["variant"] == "v0"]
    assert of_group["quantity"].tolist() == ["memcpy_gbs", "vs_memcpy"]
    assert "* Only relative to memcpy 1 group changed" in found.markdown()


# The best changed at the fifth run, and relative to memcpy so many runs later.
APART = """
import json
points = [("bandwidth_gbs", 4), ("vs_memcpy", 4 + {apart})]
means = {{"mean_before": "2", "mean_after": "1"}}
told = [{{"changes": [{{"metric": name, "index": i, **means}}]}} for name, i in points]
print(json.dumps({{f"g{{i}}": told for i in range(3)}}))
"""


@pytest.mark.parametrize("apart", [-2, -1, 1, 2])
def test_changes_one_run_apart_are_one_change(apart: int, tmp_path: Path) -> None:
    found = history_of(made(), program_of(APART.format(apart=apart), tmp_path / "otava"))
    near = abs(apart) <= 1
    assert set(bests_of(found)["cause"]) == {"kernel" if near else "not told apart"}
    assert ("Only relative to memcpy 3 groups changed" in found.markdown()) != near


def test_without_a_copy_or_with_few_runs_nothing_is_told_apart(otava: str) -> None:
    runs = made(slower=0.05)
    runs[2] = without_copy(runs[2])
    found = history_of(runs, otava)
    assert set(found.changes["quantity"]) == {"bandwidth_gbs"}
    assert found.changes["cause"].tolist() == ["not told apart"]
    assert "In 3 groups a run has no memcpy baseline" in found.markdown()
    groups = over_runs(history_of([without_copy(run) for run in runs], otava))["groups"].values()
    assert all(group["copy"] == [None] * 8 for group in groups)
    found = history_of(made(n=3), otava)
    assert found.changes.empty
    assert list(found.changes.columns) == CHANGE_POINTS_SCHEMA.names
    assert "Of 3 groups no best changed by 1.00 % or more." in found.markdown()
    assert "3 groups in fewer than 4 runs" in found.markdown()
    assert "in fewer than" not in history_of(made(n=4), otava).markdown()


def test_groups_and_cells_that_some_runs_lack_are_told(otava: str) -> None:
    """The place that otava tells is one among the runs that have the group."""
    runs = made(slower=0.05)
    for i in (0, 5):
        runs[i] = only(runs[i], runs[i].cells["variant"] != "v0")
    (change,) = bests_of(history_of(runs, otava)).to_dict("records")
    assert (change["number"], change["run"]) == (5, "r5")
    # A run that swept less has another best, of the same code.
    runs = made(n=6)
    for i in (3, 4, 5):
        cells = runs[i].cells
        runs[i] = only(runs[i], (cells["variant"] != "v1") | (cells["block"] > 1))
    found = history_of(runs, otava)
    (change,) = bests_of(found).to_dict("records")
    assert (change["variant"], change["run"]) == ("v1", "r4")
    assert change["differences"] == ["verified cells: 6 → 4"]
    assert "| verified cells: 6 → 4 |" in found.markdown()


def test_rows_hold_the_best_of_each_run_also_of_recorded_ones(otava: str, tmp_path: Path) -> None:
    runs = made(n=3)
    rows = history_of(runs, otava).rows
    assert list(rows.columns) == HISTORY_SCHEMA.names
    assert len(rows) == 3 * 3
    assert set(rows["candidates"]) == {6}
    first = rows[(rows["number"] == 1) & (rows["variant"] == "v1")].iloc[0]
    cells = runs[0].cells
    assert first["bandwidth_gbs"] == cells[cells["variant"] == "v1"]["bandwidth_gbs"].max()
    assert first["params"] == "block=0"
    assert first["vs_memcpy"] == pytest.approx(first["bandwidth_gbs"] / first["memcpy_gbs"])
    places = [record(f"nvidia-h200-repeated/{run}") for run in ("r01", "r00")]
    found = gpushmoo.history(places, otava=otava, out=tmp_path)
    assert found.rows.drop_duplicates("number")["run"].tolist() == ["r00", "r01"]
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(found.rows["kernel"])


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import sys; print('ERROR: no such test', file=sys.stderr); sys.exit(1)", "no such test"),
        ("print('No regressions found')", "status 0 and does not answer as otava"),
        ('print(\'{"g0": [{"changes": [{"metric": "b"}]}]}\')', "'index'"),
        ("print('[]')", "does not answer"),
        ("", "'g0'"),
    ],
)
def test_other_answers_are_named(source: str, sentence: str, tmp_path: Path) -> None:
    program = program_of(source, tmp_path / "other")
    with pytest.raises(CompareError, match=sentence) as told:
        series_changes([{"b": [1.0, 2.0]}], 0.01, program)
    assert "\n" not in str(told.value)
    assert "'" + program in str(told.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda runs: runs[:1], "two runs or more, not 1"),
        (lambda runs: [replace(run, cells=run.cells.assign(status="invalid")) for run in runs],
         "no verified cell"),
        (lambda runs: [*runs, replace(runs[0], name="old", provenance=[{"protocol_version": 0}])],
         "different protocols"),
    ],
)  # fmt: skip
def test_what_makes_no_history_is_refused(
    change: Callable[[list[RunCells]], list[RunCells]], sentence: str, otava: str
) -> None:
    with pytest.raises(CompareError, match=sentence):
        history_of(change(made(n=3)), otava)
    with pytest.raises(CompareError, match="threshold is 1"):
        history_of(made(n=2), otava, 1.5)


def test_runs_come_in_the_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    standing_for(monkeypatch, {run.name: run for run in made(n=3)})
    for places, names in (
        (["r3", "r1", "r2"], ["r1", "r2", "r3"]),
        (["b/tue/r1", "a/mon/r1", "a/tue/r1"], ["b/tue/r1", "a/mon/r1", "a/tue/r1"]),
        (["a/r1", "b/r2"], ["r1", "r2"]),
        (["a/r1", "a/r1"], ["r1", "r1"]),
    ):
        assert [run.name for run in read_runs(places)] == names


def test_tables_summary_and_pictures_are_written(
    otava: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {run.name: run for run in made(slower=0.05, drift=0.1)}
    standing_for(monkeypatch, runs)
    # Continuous integration sets it, and otava takes it for an option of its own.
    monkeypatch.setenv("BRANCH", "main")
    out = tmp_path / "out"
    assert main(["history", *runs, "--otava", otava, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert read_summed(out / "summary.md").decode().startswith(printed.rstrip("\n"))
    assert "![made](made.svg)" in read_summed(out / "summary.md").decode()
    assert "* The machine: the memcpy baseline changed from r5 on in 3 groups" in printed
    rows = read_table(out / "history.parquet", HISTORY_SCHEMA)
    changes = read_table(out / "change_points.parquet", CHANGE_POINTS_SCHEMA)
    assert rows.num_rows == 24
    assert changes.num_rows == printed.count("| r5 (5) |") + 3 + 1
    svg = read_summed(out / "made.svg").decode()
    words = "".join(ElementTree.fromstring(svg).itertext())
    assert words.count("best (GB/s)") == words.count("copy (GB/s)") == 3
    # Of the best and of the copy, in each panel.
    assert words.count(" %") == 6


def test_without_the_program_a_sentence_says_how_it_is_installed(
    tmp_path: Path, otava: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse_without_otava(otava)
    standing_for(monkeypatch, {run.name: run for run in made(n=2)})
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    # Where it is no part of what was asked there are the bests alone.
    assert main(["history", "r1", "r2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["rows"]), told["changes"]) == (6, [])
    assert main(["history", "r1", "r2"]) == 0
    said = capsys.readouterr().out
    assert "no best changed" not in said
    assert "'otava' is not on the PATH" in said
    assert "pip install apache-otava" in said
    with pytest.raises(CompareError, match="'otava' is not on the PATH"):
        history_of(made(n=2))
    with pytest.raises(CompareError, match="is no program"):
        history_of(made(n=2), str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"^otava: 'otava' is not on the PATH; change"):
        refuse_without_otava(None)


def test_what_is_left_out(otava: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = {run.name: run for run in made(n=5)}
    runs["r2"] = replace(runs["r2"], provenance=[{"protocol_version": 0}])
    # Only groups of the run itself are shown.
    runs["r1"] = only(runs["r1"], runs["r1"].cells["variant"] != "v1")
    own = only(runs["r5"], runs["r5"].cells["variant"] != "v2")
    standing_for(monkeypatch, {**runs, "dataset": own})
    found = run_history(Path("dataset"), "mine", ["r3", "gone", "r2", "r1"], otava, 0.01)
    named = found.rows[["variant", "run"]].itertuples(index=False, name=None)
    assert list(named) == [
        *(("v0", run) for run in ("r1", "r3", "mine")),
        *(("v1", run) for run in ("r3", "mine")),
    ]
    gone, other = found.left_out
    assert gone.startswith("gone is left out: 'gone' does not exist")
    assert other.startswith("r2 is left out: The runs were measured by different protocols")
    kept = read_history(found.save(tmp_path / "h"))
    assert kept.left_out == found.left_out
    assert f"* {gone}" in found.markdown()
    assert history_page(kept)["sentences"][1:3] == [gone, other]
    monkeypatch.setattr("gpushmoo.report.pages._MOST_ROWS", len(kept.change_rows()))
    assert not any("more change points" in said for said in history_page(kept)["sentences"])


def test_the_first_run_has_no_history_yet_and_says_so(
    otava: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: list[Figure]
) -> None:
    runs = {run.name: run for run in made(n=3)}
    standing_for(monkeypatch, {**runs, "dataset": runs["r3"]})
    found = run_history(Path("dataset"), "mine", [], otava, 0.01)
    assert found.why == "There is no history: A history has two runs or more, not 1."
    kept = read_history(found.save(tmp_path / "h"))
    assert (kept.why, len(kept.rows), len(kept.changes)) == (found.why, 0, 0)
    assert history_page(kept)["sentences"] == [found.why]
    assert history_findings(kept) == []
    assert over_runs(kept) == {"why": found.why, "runs": [], "groups": {}}
    history_figure([tmp_path / "h/history.parquet"], tmp_path / "history.svg")
    # A program that fails costs the history alone, a run that cannot be read is an error.
    failed = run_history(Path("dataset"), "mine", ["r1"], str(tmp_path / "none"), 0.01)
    assert "is no program; change points need Apache Otava" in str(failed.why)
    with pytest.raises(CompareError, match="does not exist"):
        run_history(Path("absent"), "mine", [], None, 0.01)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ({"slower": 0.05, "since": 5, "n": 9}, "the kernel changed, not the machine"),
        # Not recent, a gain, and no change.
        ({"slower": 0.05, "since": 5, "n": 10}, None),
        ({"slower": -0.05}, None),
        ({}, None),
        ({"drift": 0.05}, "the machine changed, as the memcpy baseline shows (2 more groups"),
        ({"slower": 0.1, "drift": 0.05}, "the kernel and the machine changed (2 more groups lost"),
    ],
)
def test_recent_losses_are_told(otava: str, runs: dict[str, Any], words: str | None) -> None:
    said = [finding.sentence for finding in history_findings(history_of(made(**runs), otava))]
    assert len(said) == (words is not None)
    assert words is None or words in said[0]


def test_the_explorer_gets_each_group_by_its_names(otava: str) -> None:
    found = history_of(made(slower=0.05), otava)
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


def settings(**asked: Any) -> Settings:
    return read_section(Settings, {"kernels": {"stream": {}}, "chapters": None, **asked})


def run_in(folder: Path, finished: bool = True) -> Path:
    (folder / "dataset").mkdir(parents=True)
    (folder / PLAN_FILE).touch()
    if finished:
        (folder / "dataset" / PROVENANCE).touch()
    return folder


def test_a_folder_of_runs_stands_for_its_finished_ones(tmp_path: Path) -> None:
    def earlier_runs(*folders: Path, otava: str | None = None) -> dict[str, Any]:
        return {"earlier": [*map(str, folders)], "otava": otava, "threshold": 0.01}

    results = tmp_path / "results"
    # The first run of all has no folder of runs yet.
    assert read_earlier(settings(history=str(results)), results / "own") == earlier_runs()
    first, own = run_in(results / "a"), run_in(results / "own")
    run_in(results / "going", finished=False)
    (results / "planted" / "notes").mkdir(parents=True)
    (results / "file.txt").touch()
    mounted = run_in(results / "mounted", finished=False)
    (mounted / "dataset" / "data").mkdir()
    (mounted / "dataset" / "data" / PROVENANCE).touch()
    found = read_earlier(settings(history=str(results)), own)
    assert found == earlier_runs(first, mounted)
    several = settings(history=[str(first), str(results)], otava="x")
    assert read_earlier(several, own) == earlier_runs(first, mounted, otava="x")
    assert read_earlier(settings(history=str(own)), own) == earlier_runs()
    assert read_earlier(settings(), own) is None
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
def test_bad_words_are_refused(asked: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^" + sentence):
        read_earlier(settings(**asked), tmp_path)
