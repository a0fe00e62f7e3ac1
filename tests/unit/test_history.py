"""Many runs as one history, with change points from a program that stands for otava."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import gpushmoo
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from gpushmoo.comparing import CompareError
from gpushmoo.comparing.history import (
    CHANGE_POINTS_SCHEMA,
    HISTORY_SCHEMA,
    History,
    history_of,
    read_runs,
    series_changes,
)
from gpushmoo.comparing.runs import RunCells
from gpushmoo.core.paths import ROOT
from gpushmoo.figures.timelines import draw_timelines
from gpushmoo.interactive.shell import main
from gpushmoo.storage.store import read_table
from gpushmoo.storage.wholefile import read_summed
from histories import made, otava_in, program_of


@pytest.fixture
def otava(tmp_path: Path) -> str:
    return otava_in(tmp_path)


def bests_of(found: History) -> pd.DataFrame:
    return found.changes[found.changes["quantity"] == "bandwidth_gbs"]


def test_a_slower_kernel_is_told_with_its_means_and_what_differs(otava: str) -> None:
    found = history_of(made(slower=0.05), otava)
    (change,) = bests_of(found).to_dict("records")
    assert (change["variant"], change["number"], change["run"]) == ("v0", 5, "r5")
    assert change["cause"] == "kernel"
    assert change["change"] == pytest.approx(1 / 1.05 - 1, abs=0.003)
    assert change["differences"] == ["code of made: old → new"]
    of_group = found.rows[found.rows["variant"] == "v0"]["bandwidth_gbs"]
    assert change["before"] == pytest.approx(of_group[:4].mean())
    assert change["after"] == pytest.approx(of_group[4:].mean())
    assert set(found.changes["quantity"]) == {"bandwidth_gbs", "over_copy"}


def test_a_machine_that_changed_is_told_from_a_kernel(otava: str) -> None:
    bests = bests_of(history_of(made(drift=0.05), otava))
    assert bests["cause"].tolist() == ["machine"] * 3
    both = bests_of(history_of(made(slower=0.1, drift=0.05), otava))
    assert dict(zip(both["variant"], both["cause"], strict=True)) == {
        "v0": "kernel and machine",
        "v1": "machine",
        "v2": "machine",
    }


def test_a_kernel_whose_change_the_machine_hides_is_told_by_the_copy(otava: str) -> None:
    found = history_of(made(slower=0.05, drift=-float(np.log(1.05))), otava)
    of_group = found.changes[found.changes["variant"] == "v0"]
    assert of_group["quantity"].tolist() == ["copy_gbs", "over_copy"]
    assert "* Beside the copy alone 1 group changed" in found.markdown()


# The best changed at the fifth run, and beside the copy so many runs later.
APART = """
import json
points = [("bandwidth_gbs", 4), ("over_copy", 4 + {apart})]
means = {{"mean_before": "2", "mean_after": "1"}}
told = [{{"changes": [{{"metric": name, "index": i, **means}}]}} for name, i in points]
print(json.dumps({{f"g{{i}}": told for i in range(3)}}))
"""


@pytest.mark.parametrize("apart", [-2, -1, 0, 1, 2])
def test_changes_one_run_apart_are_one_change(apart: int, tmp_path: Path) -> None:
    found = history_of(made(), program_of(APART.format(apart=apart), tmp_path / "otava"))
    near = abs(apart) <= 1
    assert set(bests_of(found)["cause"]) == {"kernel" if near else "not told apart"}
    assert ("Beside the copy alone 3 groups changed" in found.markdown()) != near


def test_nothing_is_told_apart_where_a_run_has_no_copy(otava: str) -> None:
    runs = made(slower=0.05)
    runs[2] = replace(runs[2], cells=runs[2].cells.assign(copy_gbs=np.nan))
    found = history_of(runs, otava)
    assert set(found.changes["quantity"]) == {"bandwidth_gbs"}
    assert found.changes["cause"].tolist() == ["not told apart"]
    assert "In 3 groups a run has no copy" in found.markdown()


def test_groups_without_a_copy_are_drawn(otava: str) -> None:
    runs = [replace(run, cells=run.cells.assign(copy_gbs=np.nan)) for run in made(slower=0.05)]
    found = history_of(runs, otava)
    figure = draw_timelines(found.rows, found.changes)
    drawn = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_ylabel() for ax in drawn].count("copy (GB/s)") == 3
    (change,) = found.changes["change"]
    words = f"{100 * change:.1f} %".replace("-", "−")
    assert [text.get_text() for ax in drawn for text in ax.texts] == [words]
    plt.close(figure)


def test_too_few_runs_are_told(otava: str) -> None:
    assert "3 groups in fewer than 4 runs" in history_of(made(n=3), otava).markdown()


def test_runs_of_the_same_thing_have_no_change_point(otava: str) -> None:
    found = history_of(made(), otava)
    assert found.changes.empty
    assert list(found.changes.columns) == CHANGE_POINTS_SCHEMA.names
    assert "Of 3 groups no best changed by 1.00 % or more." in found.markdown()


def test_a_group_that_some_runs_lack_counts_its_own_runs(otava: str) -> None:
    """The place that otava tells is one among the runs that have the group."""
    runs = made(slower=0.05)
    for i in (0, 5):
        cells = runs[i].cells
        runs[i] = replace(runs[i], cells=cells[cells["variant"] != "v0"])
    (change,) = bests_of(history_of(runs, otava)).to_dict("records")
    assert (change["number"], change["run"]) == (5, "r5")


def test_a_best_among_other_cells_is_told(otava: str) -> None:
    """A run that swept less has another best, of the same code."""
    runs = made(n=6)
    for i in (3, 4, 5):
        cells = runs[i].cells
        runs[i] = replace(runs[i], cells=cells[(cells["variant"] != "v1") | (cells["block"] > 1)])
    found = bests_of(history_of(runs, otava))
    assert [(c["variant"], c["run"]) for c in found.to_dict("records")] == [("v1", "r4")]
    assert found["differences"].tolist() == [["verified cells: 6 → 4"]]
    assert "| verified cells: 6 → 4 |" in history_of(runs, otava).markdown()


def test_rows_hold_the_best_of_each_run(otava: str) -> None:
    runs = made(n=3)
    rows = history_of(runs, otava).rows
    assert list(rows.columns) == HISTORY_SCHEMA.names
    assert len(rows) == 3 * 3
    assert set(rows["candidates"]) == {6}
    first = rows[(rows["number"] == 1) & (rows["variant"] == "v1")].iloc[0]
    cells = runs[0].cells
    of_group = cells[cells["variant"] == "v1"]
    assert first["bandwidth_gbs"] == of_group["bandwidth_gbs"].max()
    assert first["params"] == "block=0"
    assert first["over_copy"] == pytest.approx(first["bandwidth_gbs"] / first["copy_gbs"])


def test_runs_come_in_the_order_in_which_they_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = {run.name: run for run in made(n=3)}
    monkeypatch.setattr("gpushmoo.comparing.history.read_run", lambda place: runs[str(place)])
    assert [run.name for run in read_runs(["r3", "r1", "r2"])] == ["r1", "r2", "r3"]


def test_tables_summary_and_pictures_are_written(
    otava: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = {run.name: run for run in made(slower=0.05, drift=0.1)}
    monkeypatch.setattr("gpushmoo.comparing.history.read_run", lambda place: runs[str(place)])
    # Continuous integration sets it, and otava takes it for an option of its own.
    monkeypatch.setenv("BRANCH", "main")
    out = tmp_path / "out"
    assert main(["history", *runs, "--otava", otava, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert read_summed(out / "summary.md").decode().startswith(printed.rstrip("\n"))
    assert "![made](made.svg)" in read_summed(out / "summary.md").decode()
    assert "* The machine: the runtime's own copy changed from r5 on in 3 groups" in printed
    rows = read_table(out / "history.parquet", HISTORY_SCHEMA)
    changes = read_table(out / "change_points.parquet", CHANGE_POINTS_SCHEMA)
    assert rows.num_rows == 24
    assert changes.num_rows == printed.count("| r5 (5) |") + 3 + 1
    svg = read_summed(out / "made.svg").decode()
    words = "".join(ElementTree.fromstring(svg).itertext())
    assert words.count("best (GB/s)") == words.count("copy (GB/s)") == 3
    # Of the best and of the copy, in each panel.
    assert words.count(" %") == 6


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
def test_a_program_that_answers_otherwise_is_named(
    source: str, sentence: str, tmp_path: Path
) -> None:
    program = program_of(source, tmp_path / "other")
    with pytest.raises(CompareError, match=sentence) as told:
        series_changes([{"b": [1.0, 2.0]}], 0.01, program)
    assert "\n" not in str(told.value)
    assert "'" + program in str(told.value)


def test_without_the_program_a_sentence_says_how_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    recorded = str(ROOT / "reports/reference/nvidia-h200-repeated/r00")
    assert main(["history", recorded, recorded]) == 2
    said = capsys.readouterr().err
    assert "'otava' is not on the PATH" in said
    assert "pip install apache-otava" in said
    with pytest.raises(CompareError, match="is no program"):
        history_of(made(n=2), str(tmp_path / "none"))


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


def test_recorded_runs_are_read(otava: str, tmp_path: Path) -> None:
    folder = ROOT / "reports/reference/nvidia-h200-repeated"
    found = gpushmoo.history([folder / "r01", folder / "r00"], otava=otava, out=tmp_path)
    assert found.rows.drop_duplicates("number")["run"].tolist() == ["r00", "r01"]
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == sorted(
        f"{kernel}.svg" for kernel in set(found.rows["kernel"])
    )
    assert os.access(tmp_path / "summary.md", os.R_OK)
