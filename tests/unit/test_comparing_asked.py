"""How a comparison is asked for: on the command line, from Python, by the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpushmoo
import pytest
from gpushmoo.comparing.compare import compare_runs
from gpushmoo.comparing.errors import CompareError
from gpushmoo.comparing.guarding import SlowerError, guard
from gpushmoo.comparing.known import file_name, known_spreads, write_spreads
from gpushmoo.comparing.runs import RunCells
from gpushmoo.core.paths import ROOT
from gpushmoo.interactive.shell import main
from gpushmoo.planning.config import read_compared
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.planning.flow import Flow
from gpushmoo.report.comparison import build_comparison, comparison_facts
from gpushmoo.storage.wholefile import read_json, read_summed
from made_runs import Machine

RECORDED = ROOT / "reports/reference/nvidia-h200-gallery"
ASKED: Mapping[str, Any] = {
    "before": "kernels",
    "after": ["kernels"],
    "same": [],
    "delta": 0.02,
    "guard": False,
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, RunCells]:
    """Runs by name, which stand for folders of theirs."""
    machine = Machine(1)
    runs = {run.name: run for run in machine.runs(8)}
    runs["slow"] = machine.run("slow", {"v0": 0.1})
    for module in ("compare", "false_alarms"):
        monkeypatch.setattr(f"gpushmoo.comparing.{module}.read_run", lambda place: runs[str(place)])
    return runs


SAME = ["--same", "r02", "r03", "r04", "r05", "r06", "r07"]


def test_a_guard_ends_with_1_where_a_group_got_slower(
    made: dict[str, RunCells], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "r00", "slow", "--guard", *SAME]) == 1
    assert "**1 of 6 groups' bests got slower by more than 1.00 %.**" in capsys.readouterr().out
    assert main(["compare", "r00", "slow", *SAME]) == 0
    assert main(["compare", "r00", "r01", "--guard", *SAME]) == 0
    assert main(["compare", "r00", "slow", "--guard", "--delta", "0.5", *SAME]) == 0


def test_several_runs_of_both_are_named_by_flags(
    made: dict[str, RunCells], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--a", "r00", "--b", "slow", "--a", "r01", "--b", "slow", "--guard", *SAME]
    assert main(["compare", *flags]) == 1
    assert "slow, slow against r00, r01" in capsys.readouterr().out


def test_what_is_asked_wrong_ends_with_2_and_a_sentence(
    made: dict[str, RunCells], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, words in (
        (["r00"], "compare takes two runs, not 1"),
        (["r00", "r01", "--a", "r02"], "either by --a and --b or without a flag"),
        (["--a", "r00"], "A has 1 runs and B 0"),
        (["--aa", "r00"], "name two or more"),
        (["--aa", "r00", "r01", "--same", "r02"], "--aa takes its runs without a flag"),
        (["r00", "r01", "--delta", "2"], "between 0 and 1"),
    ):
        assert main(["compare", *arguments]) == 2
        assert words in capsys.readouterr().err


def test_tables_and_summary_are_written_where_they_are_wanted(
    made: dict[str, RunCells], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "out", tmp_path / "told.md"
    assert main(["compare", "r00", "r01", "--out", str(out), "--markdown", str(file), *SAME]) == 0
    assert file.read_text(encoding="utf-8") == capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == [
        "cells.parquet",
        "drift.parquet",
        "groups.parquet",
        "summary.md",
    ]


def test_false_alarms_are_told(
    made: dict[str, RunCells], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--aa", *[f"r{i:02}" for i in range(4)], "--guard"]) == 0
    assert "0 of 2" in capsys.readouterr().out


def test_recorded_shards_are_compared_with_themselves() -> None:
    """Nothing changed: no verdict but same and undecided, and all cells are there."""
    found = gpushmoo.compare(RECORDED, RECORDED)
    assert (found.cells["change"] == 0.0).all()
    assert set(found.cells["verdict"]) <= {"same", "undecided"}
    assert found.groups["winner_held"].all()
    assert found.told.differences == []


def test_folders_without_cells_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompareError, match="does not exist"):
        gpushmoo.compare(tmp_path / "none", RECORDED)
    with pytest.raises(CompareError, match="neither a data set nor shards"):
        gpushmoo.compare(tmp_path, RECORDED)


def test_known_spreads_are_written_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(2)
    file = write_spreads(machine.runs(5), tmp_path / "known_spreads")
    assert file.name == file_name("Made") == "made.json"
    monkeypatch.setattr("gpushmoo.comparing.known.files", lambda _: tmp_path)
    known = known_spreads(machine.run("a"))
    assert known is not None
    assert known.words == "5 runs of one and the same thing on 1 Made (2026-01-01)"
    found = compare_runs([machine.run("a")], [machine.run("b", {"v3": 0.1})])
    assert found.slower["variant"].tolist() == ["v3"]
    assert known.words in found.markdown()
    other = machine.run("b")
    other.cells["device_name"] = "Other"
    with pytest.raises(CompareError, match="2 device models"):
        write_spreads([machine.run("a"), other], tmp_path)


def test_the_page_says_what_the_summary_says(tmp_path: Path) -> None:
    machine = Machine(3)
    found = compare_runs([machine.run("a")], [machine.run("b", {"v0": 0.1})], machine.runs(8))
    build_comparison(found, ROOT / "reports", tmp_path)
    assert read_summed(tmp_path / "compare.pdf").startswith(b"%PDF")
    assert "v0" in read_summed(tmp_path / "changes.svg").decode()
    assert read_json(tmp_path / "changes.json")["caption"].startswith("All 6 groups")
    facts = comparison_facts(found)
    assert facts["alarm"]
    assert facts["headline"] in found.markdown()
    assert [row[0] for row in facts["changed"]] == ["made, float, v0, 64 × 64, warm"]


def test_the_guard_of_a_run_names_the_groups(tmp_path: Path) -> None:
    machine = Machine(4)
    same = machine.runs(8)
    first = machine.run("a")
    compare_runs([first], [machine.run("b", {"v1": 0.1})], same).save(tmp_path)
    with pytest.raises(SlowerError, match=r"1 of 6 groups' bests surely got slower: made.*v1"):
        guard(tmp_path / "groups.parquet", tmp_path / "guard.txt")
    assert not (tmp_path / "guard.txt").exists()
    compare_runs([first], [machine.run("b")], same).save(tmp_path)
    guard(tmp_path / "groups.parquet", tmp_path / "guard.txt")
    assert b"No best of 6 groups" in read_summed(tmp_path / "guard.txt")


def test_a_configuration_names_both_sides_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    asked = read_compared(ASKED)
    assert asked is not None
    assert (asked.a, asked.b, asked.delta) == (("kernels",), ("kernels",), 0.02)
    assert read_compared({**ASKED, "before": None, "after": None}) is None
    for change, words in (
        ({"after": None}, "after: null, and before is not"),
        ({"after": ["kernels", "config"]}, "1 folders and 2"),
        ({"before": "no/such"}, "before: 'no/such' is not the folder"),
        ({"same": ["kernels"]}, "same: one run"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_compared({**ASKED, **change})


def test_the_target_without_runs_says_how_to_name_them(raw_config: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="compare needs two runs"):
        Flow(raw_config, ask_device=False).compare_target(None)
