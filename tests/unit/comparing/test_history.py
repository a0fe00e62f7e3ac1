"""Many runs as one history: what the summary, the report and the explorer say."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gpushmoo
import numpy as np
import pandas as pd
import pytest
from conftest import record
from gpushmoo.comparing.run_history import (
    HISTORY_SCHEMA,
    history_of,
    read_history,
    read_runs,
    run_history,
)
from gpushmoo.comparing.runs import RunCells
from gpushmoo.core.errors import CompareError, ConfigError
from gpushmoo.core.run_plan import PLAN_FILE
from gpushmoo.extras.explorer.explore import group_key, over_runs
from gpushmoo.extras.history.figure import history_figure
from gpushmoo.extras.history.page import history_page
from gpushmoo.interactive.shell import main
from gpushmoo.planning.config import read_earlier
from gpushmoo.planning.refusal import read_section
from gpushmoo.planning.settings import Settings
from gpushmoo.storage.dataset import PROVENANCE, runs_in
from gpushmoo.storage.store import read_table
from gpushmoo.storage.wholefile import read_complete
from histories import made, standing_for
from matplotlib.figure import Figure


def only(run: RunCells, rows: pd.Series) -> RunCells:
    return replace(run, cells=run.cells[rows])


def without_copy(run: RunCells) -> RunCells:
    return replace(run, cells=run.cells.assign(memcpy_gbs=np.nan))


def test_changes_go_from_the_first_to_the_last_run_of_a_group() -> None:
    runs = made(slower=0.05)
    runs[0] = only(runs[0], runs[0].cells["variant"] != "v0")
    first, *others = history_of(runs).changes()
    assert (first.group["variant"], first.runs) == ("v0", 7)
    assert first.change == pytest.approx(1 / 1.05 - 1, abs=0.003)
    assert first.copy_change == pytest.approx(0.0, abs=0.003)
    assert [one.runs for one in others] == [8, 8]
    assert all(abs(one.change) < 0.01 for one in others)
    # A machine that changed takes the copy along.
    for one in history_of(made(drift=0.05)).changes():
        assert one.change == pytest.approx(one.copy_change, abs=0.005)
        assert one.change < -0.04


def test_a_group_without_a_copy_has_no_change_of_it() -> None:
    found = history_of([without_copy(run) for run in made()])
    assert {one.copy_change for one in found.changes()} == {None}
    assert [row[-1] for row in found.change_rows()] == ["—"] * 3
    assert all(group["copy"] == [None] * 8 for group in over_runs(found)["groups"].values())


def test_rows_hold_the_best_of_each_run_also_of_recorded_ones(tmp_path: Path) -> None:
    runs = made(n=3)
    rows = history_of(runs).rows
    assert list(rows.columns) == HISTORY_SCHEMA.names
    assert len(rows) == 3 * 3
    assert set(rows["candidates"]) == {6}
    first = rows[(rows["number"] == 1) & (rows["variant"] == "v1")].iloc[0]
    cells = runs[0].cells
    assert first["bandwidth_gbs"] == cells[cells["variant"] == "v1"]["bandwidth_gbs"].max()
    assert first["params"] == "block=0"
    assert first["vs_memcpy"] == pytest.approx(first["bandwidth_gbs"] / first["memcpy_gbs"])
    places = [record(f"nvidia-h200-repeated/{run}") for run in ("r01", "r00")]
    found = gpushmoo.history(places, out=tmp_path)
    assert found.rows.drop_duplicates("number")["run"].tolist() == ["r00", "r01"]
    assert {path.stem for path in tmp_path.glob("*.svg")} == set(found.rows["kernel"])


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
    change: Callable[[list[RunCells]], list[RunCells]], sentence: str
) -> None:
    with pytest.raises(CompareError, match=sentence):
        history_of(change(made(n=3)))


def test_runs_come_in_the_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    standing_for(monkeypatch, {run.name: run for run in made(n=3)})
    for places, names in (
        (["r3", "r1", "r2"], ["r1", "r2", "r3"]),
        (["b/tue/r1", "a/mon/r1", "a/tue/r1"], ["b/tue/r1", "a/mon/r1", "a/tue/r1"]),
        (["a/r1", "b/r2"], ["r1", "r2"]),
        (["a/r1", "a/r1"], ["r1", "r1"]),
    ):
        assert [run.name for run in read_runs(places)] == names


def test_table_summary_and_pictures_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {run.name: run for run in made(slower=0.05, drift=0.1)}
    standing_for(monkeypatch, runs)
    out = tmp_path / "out"
    assert main(["history", *runs, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert read_complete(out / "summary.md").decode().startswith(printed.rstrip("\n"))
    assert "![made](made.svg)" in read_complete(out / "summary.md").decode()
    rows = read_table(out / "history.parquet", HISTORY_SCHEMA)
    assert rows.num_rows == 24
    assert printed.count("| 8 |") == 3
    svg = read_complete(out / "made.svg").decode()
    words = "".join(ElementTree.fromstring(svg).itertext())
    assert words.count("best (GB/s)") == words.count("copy (GB/s)") == 3


def test_what_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = {run.name: run for run in made(n=5)}
    runs["r2"] = replace(runs["r2"], provenance=[{"protocol_version": 0}])
    # Only groups of the run itself are shown.
    runs["r1"] = only(runs["r1"], runs["r1"].cells["variant"] != "v1")
    own = only(runs["r5"], runs["r5"].cells["variant"] != "v2")
    standing_for(monkeypatch, {**runs, "dataset": own})
    found = run_history(Path("dataset"), "mine", ["r3", "gone", "r2", "r1"])
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
    page = history_page(kept)
    assert page["sentences"] == [gone, other]
    assert len(page["rows"]) == 2
    monkeypatch.setattr("gpushmoo.extras.history.page._MAX_ROWS", 1)
    page = history_page(kept)
    assert len(page["rows"]) == 1
    assert page["sentences"][2].startswith("1 more")


def test_the_first_run_has_no_history_yet_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: list[Figure]
) -> None:
    runs = {run.name: run for run in made(n=3)}
    standing_for(monkeypatch, {**runs, "dataset": runs["r3"]})
    found = run_history(Path("dataset"), "mine", [])
    assert found.why == "There is no history: A history has two runs or more, not 1."
    kept = read_history(found.save(tmp_path / "h"))
    assert (kept.why, len(kept.rows)) == (found.why, 0)
    assert history_page(kept)["sentences"] == [found.why]
    assert over_runs(kept) == {"why": found.why, "runs": [], "groups": {}}
    history_figure([tmp_path / "h/history.parquet"], tmp_path / "history.svg")
    with pytest.raises(CompareError, match="does not exist"):
        run_history(Path("absent"), "mine", [])


def test_the_explorer_gets_each_group_by_its_names() -> None:
    found = history_of(made(slower=0.05))
    content = json.loads(json.dumps(over_runs(found)))
    assert [run["run"] for run in content["runs"]] == [f"r{i}" for i in range(1, 9)]
    assert content["runs"][0] == {"number": 1, "run": "r1", "day": "2026-01-01"}
    first = found.rows[found.rows["variant"] == "v0"].iloc[0]
    line = content["groups"][group_key(first.to_dict())]
    assert line["number"] == list(range(1, 9))
    assert line["best"][0] == pytest.approx(first["bandwidth_gbs"], rel=1e-4)


def settings(**asked: Any) -> Settings:
    return read_section(Settings, {"kernels": {"stream": {}}, "chapters": None, **asked})


def run_in(folder: Path, finished: bool = True) -> Path:
    (folder / "dataset").mkdir(parents=True)
    (folder / PLAN_FILE).touch()
    if finished:
        (folder / "dataset" / PROVENANCE).touch()
    return folder


def test_a_folder_of_runs_stands_for_its_finished_ones(tmp_path: Path) -> None:
    results = tmp_path / "results"
    # The first run of all has no folder of runs yet.
    assert read_earlier(settings(history=str(results)), results / "own") == []
    first, own = run_in(results / "a"), run_in(results / "own")
    run_in(results / "going", finished=False)
    (results / "planted" / "notes").mkdir(parents=True)
    (results / "file.txt").touch()
    mounted = run_in(results / "mounted", finished=False)
    (mounted / "dataset" / "data").mkdir()
    (mounted / "dataset" / "data" / PROVENANCE).touch()
    both = [str(first), str(mounted)]
    assert read_earlier(settings(history=str(results)), own) == both
    assert read_earlier(settings(history=[str(first), str(results)]), own) == both
    assert read_earlier(settings(history=str(own)), own) == []
    assert read_earlier(settings(), own) is None
    one = run_in(tmp_path / "one", finished=False)
    assert runs_in(one) == [one]
    assert runs_in(run_in(tmp_path / "other") / "dataset") == [tmp_path / "other" / "dataset"]
    shards = tmp_path / "shards"
    (shards / "copy" / "float").mkdir(parents=True)
    assert runs_in(shards) == [shards]


def test_a_place_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^history: 'nowhere' is not the folder of a run"):
        read_earlier(settings(history="nowhere"), tmp_path)
