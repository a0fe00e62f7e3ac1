"""Runs compared with each other: verdicts, alarms, sentences, what is asked and what is refused."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpushmoo
import numpy as np
import pyarrow.parquet as pq
import pytest
from cells import Machine
from conftest import record
from gpushmoo.comparing.compare import (
    CHANGED_CELLS_SCHEMA,
    CHANGED_GROUPS_SCHEMA,
    DRIFT_SCHEMA,
    Comparison,
    compare,
    compare_runs,
    regression,
)
from gpushmoo.comparing.false_alarms import Rate, false_alarms_of
from gpushmoo.comparing.runs import (
    LOG_COPY,
    LOG_S,
    WITHIN,
    RunCells,
    group_means,
    known_file,
    known_spreads,
    levels_of,
    usual_spreads,
    verified_by_all,
)
from gpushmoo.core.errors import CompareError, ConfigError, RegressionError
from gpushmoo.core.median import median_interval
from gpushmoo.core.paths import ROOT
from gpushmoo.interactive.shell import main
from gpushmoo.planning.config import read_compared
from gpushmoo.planning.flow import Flow
from gpushmoo.planning.refusal import read_section
from gpushmoo.planning.settings import Settings
from gpushmoo.report.build import build_comparison, comparison_facts
from gpushmoo.storage.wholefile import read_complete, read_json
from scipy.stats import norm

CHANGED = {"slower", "faster"}


def verdicts(found: Comparison, column: str = "verdict") -> dict[str, str]:
    return dict(zip(found.groups["variant"], found.groups[column], strict=True))


def against(machine: Machine, n: int = 12, **second: Any) -> Comparison:
    """A run compared with another one, `second`, beside `n` runs of the same thing."""
    return compare_runs([machine.run("a")], [machine.run("b", **second)], machine.runs(n))


def test_planted_changes_and_no_others_are_found() -> None:
    found = against(Machine(1), slower={"v2": 0.05, "v0": -0.05})
    assert found.slower["variant"].tolist() == ["v2"]
    changed = {name: v for name, v in verdicts(found).items() if v in CHANGED}
    assert changed == {"v2": "slower", "v0": "faster"}
    cells = found.cells[found.cells["variant"] == "v2"]
    assert (cells["verdict"] == "slower").mean() > 0.9
    found = against(Machine(3, own=0.0005, noise=0.0005))
    assert set(found.groups["verdict"]) == set(found.cells["verdict"]) == {"same"}


def test_what_the_machine_did_is_no_verdict_and_is_told_apart() -> None:
    machine = Machine(4, drift=0.002)
    runs = [[machine.run(name, drift=drift)] for name, drift in (("a", 0.0), ("b", 0.2))]
    found = compare_runs(*runs, machine.runs(12))
    assert found.slower.empty
    assert set(found.groups["verdict"]) == {"undecided"}
    assert not CHANGED & set(verdicts(found, "group_mean_verdict").values())
    assert found.groups["change"].median() == pytest.approx(np.expm1(0.2), abs=0.02)
    assert found.groups["change_vs_memcpy"].abs().max() < 0.02
    assert found.drift["change"].tolist() == pytest.approx([np.expm1(0.2)], abs=0.01)
    assert "The machine itself changed" in found.markdown()
    assert found.headline.startswith("Undecided: 6 of 6 groups; changes below ")


def test_copies_tell_what_the_machine_did() -> None:
    machine = Machine(5)
    first, second = machine.run("a"), machine.run("b")
    second.cells["memcpy_gbs"] *= 1.2
    found = compare_runs([first], [second], machine.runs(12))
    assert set(found.groups["verdict"]) == {"undecided"}
    machine = Machine(6)
    runs = [machine.run("a"), machine.run("b", {"v1": 0.05}), *machine.runs(12)]
    for run in runs:
        run.cells["memcpy_gbs"] = np.nan
    found = compare_runs(runs[:1], runs[1:2], runs[2:])
    assert found.slower["variant"].tolist() == ["v1"]
    assert found.cells["change_vs_memcpy"].isna().all()
    assert "No copy of the runtime was timed" in found.markdown()
    # As of kernels that read more than they write.
    machine = Machine(7)
    place = {"height": 64, "width": 64, "cache_state": "warm"}
    timed = [[{**place, "seconds": [s, 1.1 * s, 0.9 * s]}] for s in (1e-3, 1.25e-3)]
    first, second = (machine.run(name, controls=c) for name, c in zip("ab", timed, strict=True))
    for run in (first, second):
        run.cells["memcpy_gbs"] = np.nan
    found = compare_runs([first], [second], machine.runs(12))
    assert found.drift["change"].tolist() == pytest.approx([0.25])


def test_a_group_is_told_by_all_of_its_cells_where_its_best_tells_nothing() -> None:
    machine = Machine(8)
    same = machine.runs(16)
    found = compare_runs([machine.run("a")], [machine.run("b", {"v2": 0.007})], same, delta=0.003)
    assert verdicts(found)["v2"] == "undecided"
    means = verdicts(found, "group_mean_verdict")
    assert {name for name, verdict in means.items() if verdict in CHANGED} == {"v2"}
    row = found.groups.set_index("variant").loc["v2"]
    assert row["group_mean_low"] < 0.007 < row["group_mean_high"]
    assert (
        row["group_mean_high"] - row["group_mean_low"]
        < (row["change_high"] - row["change_low"]) / 2
    )
    # It is named, though no best changed, and no alarm is raised for it.
    text = found.markdown()
    assert "| groups as a whole | 1 |" in text
    assert f"| slower: +{100 * row['group_mean_change']:.2f} % (" in text
    assert found.slower.empty


def test_the_typical_cell_is_the_mean_of_logarithms_with_its_repeats() -> None:
    (run,) = Machine(7, groups=2, cells=3).runs(1)
    typical = group_means(run, verified_by_all([run]))
    for (_, _, variant, *_), row in typical.iterrows():
        cells = run.ok[run.ok["variant"] == variant]
        assert row[LOG_S] == pytest.approx(np.log(cells["median_s"]).mean())
        assert row[LOG_COPY] == pytest.approx(np.log(cells["memcpy_gbs"].iloc[0]))
        each = np.log(np.stack(list(cells["repeat_medians_s"]))).mean(axis=0)
        assert np.log(row["repeat_medians_s"]) == pytest.approx(each)
        assert row[WITHIN] == pytest.approx(cells[WITHIN].iloc[0] / 3)


@pytest.mark.parametrize("counts", [(6, 6), (7, 7), (8, 12), (1, 1)])
def test_what_samples_tell_of_a_median_depends_on_their_number(counts: tuple[int, int]) -> None:
    """The interval of 6 to 12 samples has a confidence of 96 to 99 %; that of one tells nothing."""
    (run,) = Machine(3, cells=2).runs(1)
    run.cells["repeat_samples"] = [np.array(counts, np.int32)] * len(run.cells)
    coverages = [median_interval(range(n)).coverage for n in counts]
    errors = np.mean([norm.ppf((1 + coverage) / 2) for coverage in coverages])
    expected = (0.002 / errors) ** 2 if errors > 0 else 0.0
    assert run.ok[WITHIN].to_numpy() == pytest.approx(expected, rel=1e-9)


def test_pairs_tell_the_spread_else_repeats_and_one_repeat_nothing() -> None:
    machine = Machine(7, drift=0.003)
    first = [machine.run(f"a{i}") for i in range(4)]
    second = [machine.run(f"b{i}", {"v0": 0.05}) for i in range(4)]
    found = compare_runs(first, second)
    assert found.slower["variant"].tolist() == ["v0"]
    assert "4 pairs of runs alone" in found.markdown()
    machine = Machine(9)
    found = compare_runs([machine.run("a")], [machine.run("b", {"v0": 0.10})])
    assert "the repeats within both runs" in found.rests
    assert verdicts(found)["v0"] == "slower"
    machine = Machine(10)
    found = compare_runs([machine.run("a", repeats=1)], [machine.run("b", {"v0": 0.5}, repeats=1)])
    assert set(found.cells["verdict"]) == {"undecided"}
    assert found.groups["change_low"].isna().all()
    assert found.slower.empty
    assert "--noise-runs" in found.markdown()
    machine = Machine(18, groups=2, cells=8)
    runs = machine.runs(4)
    without = usual_spreads(levels_of([*runs, machine.run("odd", drift=1.0)]), (4,))
    beside = usual_spreads(levels_of(runs))
    assert without["cell"].whole.own.variance == pytest.approx(beside["cell"].whole.own.variance)


def test_it_is_told_where_other_devices_may_differ_more_than_is_known() -> None:
    machine = Machine(20)
    first, second, same = machine.run("a"), machine.run("b"), machine.runs(4)
    words = "A and B are of different devices but these of one"
    assert words not in compare_runs([first], [second], same).markdown()
    second.cells["device_uuid"] = "made-1"
    assert words in compare_runs([first], [second], same).markdown()
    same[0].cells["device_uuid"] = "made-1"
    assert words not in compare_runs([first], [second], same).markdown()


def test_a_device_that_somebody_measured_needs_no_other_runs() -> None:
    machine = Machine(2, own=0.0005)
    now = gpushmoo.PROTOCOL_VERSION
    first = machine.run("a", protocol_version=now)
    second = machine.run("b", {"v3": 0.1}, protocol_version=now)
    for run in (first, second):
        run.cells["device_name"] = "NVIDIA H200"
    known = known_spreads(first)
    assert known is not None
    # What is known of these times says nothing of others.
    earlier = [{"protocol_version": now - 1}]
    assert known_spreads(replace(first, provenance=earlier)) is None
    words = "7 repeated runs without a change on 1 NVIDIA H200 (2026-11-28), for warm launches of "
    assert known.words.startswith(words)
    plain = json.loads(known_file("NVIDIA H200").read_text())["kinds"]["cell"]["classes"]
    spread = known.spreads["cell"].classes["warm", -4]
    told = plain["warm, 1e-4 s"]
    assert (spread.own.variance, spread.shared) == (told["own"], told["shared"])
    found = compare_runs([first], [second])
    assert found.slower["variant"].tolist() == ["v3"]
    assert known.words in found.markdown()


@pytest.mark.parametrize(
    ("state", "factor", "alike"),
    [("warm", 1.0, False), ("flushed", 1.0, True), ("warm", 1e6, True)],
)
def test_known_spreads_are_not_used_for_launches_of_another_kind(
    state: str, factor: float, alike: bool
) -> None:
    ends = []
    for device in ("NVIDIA H200", "another one"):
        runs = Machine(2, own=0.0005).runs(2, protocol_version=gpushmoo.PROTOCOL_VERSION)
        for run in runs:
            times = run.cells.filter(regex="^(samples|repeat_medians|median)_s$").columns
            run.cells[times] = run.cells[times].map(lambda t: np.asarray(t) * factor)
            run.cells["device_name"], run.cells["cache_state"] = device, state
        ends.append(compare_runs(runs[:1], runs[1:]).cells[["change_low", "change_high"]])
    # On the other device, only the repeats show a spread.
    assert np.allclose(*ends) is alike


def failed(run: RunCells, keys: list[str], status: str = "wrong_result") -> RunCells:
    """The run with another status of these cells."""
    bad = run.cells["cell_key"].isin(keys)
    return replace(run, cells=run.cells.assign(status=np.where(bad, status, run.cells["status"])))


def unswept(run: RunCells, keys: list[str]) -> RunCells:
    return replace(run, cells=run.cells[~run.cells["cell_key"].isin(keys)])


def test_cells_that_one_side_lacks_are_counted_and_a_failed_best_is_a_loss() -> None:
    machine = Machine(11)
    first, second = machine.run("a"), machine.run("b")
    second = failed(unswept(second, ["0001", "0002"]), ["0003"])
    found = compare_runs([first], [second], machine.runs(4))
    assert len(found.cells) == len(first.cells) - 3
    groups = found.groups.set_index("variant")
    assert (groups.loc["v0", "only_a"], groups["only_b"].sum()) == (3, 0)
    text = found.markdown()
    assert "3 cells that A verified have no verified time in B" in text
    assert "block=3 (wrong_result)" in text
    assert "2 not swept" in text
    # A cell that was not swept is no loss; one that ended in a fault is.
    machine = Machine(12, own=0.001)
    first, second, same = machine.run("a"), machine.run("b"), machine.runs(12)
    lost = compare_runs([first], [failed(second, ["0000"])], same)
    assert lost.slower["variant"].tolist() == ["v0"]
    assert not lost.groups.set_index("variant").loc["v0", "winner_still_tied"]
    assert compare_runs([first], [unswept(second, ["0000"])], same).slower.empty
    machine = Machine(6)
    first, second = machine.run("a"), machine.run("b")
    odd, even = ([f"{i:04}" for i in range(begin, 12, 2)] for begin in (1, 0))
    found = compare_runs([failed(first, odd)], [failed(second, even)], machine.runs(12))
    assert verdicts(found, "group_mean_verdict")["v0"] == "undecided"
    assert (
        found.groups.set_index("variant")
        .loc["v0", ["group_mean_change", "group_mean_low"]]
        .isna()
        .all()
    )


def test_winners_and_tied_sets_are_compared() -> None:
    machine = Machine(13, own=0.0001, noise=0.0001)
    first = machine.run("a")
    found = compare_runs([first], [machine.run("b")], machine.runs(3)).groups
    assert found["winner_still_tied"].all()
    assert (found["tied_both"] <= found[["tied_a", "tied_b"]].min(axis=1)).all()
    assert (found["best_a"] == "block=0").all()
    expected = first.cells.groupby("variant")["bandwidth_gbs"].max()
    assert found.set_index("variant")["a_gbs"].to_dict() == expected.to_dict()


def held(run: RunCells, launches: int) -> RunCells:
    """The run with samples of so many launches, from whose times no overhead was subtracted."""
    return replace(run, cells=run.cells.assign(launches_per_sample=launches, overhead_s=np.nan))


def test_what_an_overhead_may_explain_is_undecided_and_named() -> None:
    """Launches of 0.2 ms: 5 µs for one launch or for eight differ by 2.2 % of the time."""
    machine = Machine(31, own=0.0002, noise=0.0002)
    first, second = machine.run("a"), machine.run("b", {"v0": 0.015, "v1": 0.05})
    alike = compare_runs([held(first, 1)], [held(second, 1)]).groups.set_index("variant")
    assert (alike["unlike"] == 0.0).all()
    assert alike["verdict"].loc[["v0", "v1", "v2"]].tolist() == ["slower", "slower", "same"]
    found = compare_runs([held(first, 8)], [held(second, 1)])
    groups = found.groups.set_index("variant")
    assert groups["unlike"].loc["v0"] == pytest.approx(5e-6 * (1 - 1 / 8) / 2e-4, rel=0.1)
    assert groups["verdict"].loc[["v0", "v1", "v2"]].tolist() == [
        "undecided",
        "slower",
        "undecided",
    ]
    assert groups["group_mean_verdict"].loc["v0"] == "undecided"
    assert set(found.cells.loc[found.cells["variant"] == "v0", "verdict"]) == {"undecided"}
    assert "6 groups have a different number of launches per sample" in found.markdown()
    # The overhead of one side alone is held, all of it.
    one = compare_runs([first], [held(second, 1)]).groups.set_index("variant")
    assert one["unlike"].loc["v0"] == pytest.approx(5e-6 / 2e-4, rel=0.1)
    # Of launches that are timed one by one each holds the same.
    flushed = [
        replace(run, cells=run.cells.assign(cache_state="flushed"))
        for run in (held(first, 1), held(second, 4))
    ]
    assert (compare_runs([flushed[0]], [flushed[1]]).groups["unlike"] == 0.0).all()


def test_the_pair_s_own_repeats_widen_what_is_known() -> None:
    machine = Machine(32, own=0.0002, noise=0.0002)
    runs = [machine.run(str(i)) for i in range(4)]
    first, second = machine.run("a", repeats=3), machine.run("b", repeats=3)
    calm = compare_runs([first], [second], runs).groups
    shifts = np.exp([-0.02, 0.0, 0.02])

    def shaken(run: RunCells, by: Any) -> RunCells:
        medians = [np.asarray(m) * by for m in run.cells["repeat_medians_s"]]
        return replace(run, cells=run.cells.assign(repeat_medians_s=medians))

    def width(of: RunCells) -> Any:
        groups = compare_runs([shaken(first, shifts)], [of], runs).groups
        return groups["change_high"] - groups["change_low"]

    calm_width = calm["change_high"] - calm["change_low"]
    assert (width(shaken(second, 1.0 / shifts)) > 3 * calm_width).all()
    # What the same repeats of both runs share is no part of the change.
    assert (width(shaken(second, shifts)) < 2 * calm_width).all()


def test_other_protocols_are_refused_and_other_settings_told() -> None:
    machine = Machine(14)
    first, second = machine.run("a"), machine.run("b")
    cells = second.cells.assign(device_name="Other").set_index(
        ["cell_key", "device_name"], drop=False
    )
    other, every = replace(second, cells=cells), list(second.cells["cell_key"])
    for words, sides in (
        ("different protocols", ([first], [machine.run("b", protocol_version=1)])),
        ("'a' on Made, 'b' on Other", ([first], [other])),
        ("'a' on Made, 'b' on Other", ([first], [first], [other, other])),
        ("1 runs before and 2 after", ([first], [first, first])),
        ("list two or more", ([first], [first], [first])),
        ("a and b have no verified cell in common", ([first], [failed(second, every)])),
        ("noise runs have no verified", ([first], [second], [first, failed(second, every)])),
    ):
        with pytest.raises(CompareError, match=words):
            compare_runs(*sides)
    with pytest.raises(CompareError, match="'c' is listed twice"):
        compare("a", "b", noise_runs=["c", "d", "./c"])
    machine = Machine(15)
    other = {"params": {"folder": "kernels/made", "dtype": "float", "measure": {"min_samples": 9}}}
    second = machine.run("b", kernel_digest="22", device={"driver": "13.1"}, **other)
    first = machine.run("a", kernel_digest="11", device={"driver": "13.0"})
    text = compare_runs([first], [second]).markdown()
    for line in ("driver: 13.0 → 13.1", "code of made: 11 → 22", "measure.min_samples of made: 7"):
        assert line in text


def test_what_is_saved_has_the_columns_of_the_schemas_and_guards(tmp_path: Path) -> None:
    machine = Machine(4)
    same, first = machine.runs(8), machine.run("a")
    found = compare_runs([first], [machine.run("b", {"v1": 0.1})], same)
    found.save(tmp_path)
    for name, schema in (
        ("cells", CHANGED_CELLS_SCHEMA),
        ("groups", CHANGED_GROUPS_SCHEMA),
        ("drift", DRIFT_SCHEMA),
    ):
        assert pq.read_schema(tmp_path / f"{name}.parquet").equals(schema)
    text = read_complete(tmp_path / "summary.md").decode()
    assert text == found.markdown()
    assert text.startswith("## A: a → B: b\n")
    with pytest.raises(
        RegressionError, match=r"1 of 6 groups' bests got significantly slower: made.*v1"
    ):
        regression(tmp_path / "groups.parquet", tmp_path / "regression.txt")
    assert not (tmp_path / "regression.txt").exists()
    compare_runs([first], [machine.run("b")], same).save(tmp_path)
    regression(tmp_path / "groups.parquet", tmp_path / "regression.txt")
    assert b"No best of 6 groups" in read_complete(tmp_path / "regression.txt")


def test_the_page_says_what_the_summary_says(tmp_path: Path) -> None:
    found = against(Machine(3), 8, slower={"v0": 0.1})
    build_comparison(found, tmp_path)
    assert read_complete(tmp_path / "compare.pdf").startswith(b"%PDF")
    assert "v0" in read_complete(tmp_path / "changes.svg").decode()
    assert read_json(tmp_path / "changes.json")["caption"].startswith("All 6 groups")
    facts = comparison_facts(found)
    assert facts["alarm"]
    assert facts["headline"] in found.markdown()
    assert [row[0] for row in facts["changed"]] == ["made, float, v0, 64 × 64, warm"]


def test_false_alarms_are_counted_by_pairs_that_share_no_run() -> None:
    machine = Machine(17, groups=2, cells=4)
    few, found = (false_alarms_of(machine.runs(n)) for n in (3, 5))
    assert len(found.pairs) == 10
    apart = [found.pairs[i][:2] for i in found.apart]
    assert apart == [("r00", "r01"), ("r02", "r03")]
    assert "of all 10 pairs" in found.markdown()
    # Three other runs tell the spread, one does not.
    rest = [some.pairs[0][2].rests for some in (few, found)]
    assert ["repeats within both runs" in words for words in rest] == [True, False]
    # Of no hit among n the upper end of Clopper's and Pearson's interval is 1 − (α/2)^(1/n).
    assert Rate(0, 20).interval == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))


@pytest.fixture(scope="module")
def made_runs() -> dict[str, RunCells]:
    machine = Machine(1, groups=3, cells=4)
    runs = {run.name: run for run in machine.runs(6)}
    return {**runs, "slow": machine.run("slow", {"v0": 0.1})}


@pytest.fixture
def shell(
    made_runs: dict[str, RunCells],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:
    """The command line's status and what it says of made runs, which stand for folders."""
    runs = made_runs
    for module in ("compare", "false_alarms"):
        patched = f"gpushmoo.comparing.{module}.read_run"
        monkeypatch.setattr(patched, lambda place: runs[str(place)])

    def compared(*arguments: str) -> tuple[int, str]:
        status = main(["compare", *arguments])
        return status, "".join(capsys.readouterr())

    return compared


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_tables_and_a_file_gets_markdown(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, raw = shell("r00", "slow")
    assert raw.startswith("## ")
    assert "|---|" in raw
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    assert shell("r00", "slow")[0] == 0
    shown = terminal.getvalue()
    assert "groups' bests" in shown
    assert not {"##", "**", "|---"} & {word for word in ("##", "**", "|---") if word in shown}


SAME = ["--noise-runs", *(f"r{i:02}" for i in range(2, 6))]


def test_a_guard_ends_with_1_where_a_group_got_slower(shell: Any, tmp_path: Path) -> None:
    status, text = shell("r00", "slow", "--fail-on-regression", *SAME)
    assert status == 1
    assert "**1 of 3 groups' bests got slower by more than 1.00 %.**" in text
    out = tmp_path / "out"
    status, text = shell("r00", "slow", "--out", str(out), *SAME)
    assert status == 0
    assert (out / "summary.md").read_text(encoding="utf-8").startswith(text)
    assert shell("r00", "r01", "--fail-on-regression", *SAME)[0] == 0
    assert shell("r00", "slow", "--fail-on-regression", "--threshold", "0.5", *SAME)[0] == 0
    several = ["--before", "r00", "r01", "--after", "slow", "slow"]
    status, text = shell("--fail-on-regression", *several, *SAME)
    assert status == 1
    assert "A: r00, r01 → B: slow, slow" in text
    status, text = shell("--fail-on-regression", "--noise-runs", "r00", "r01", "r02", "r03")
    assert status == 0
    assert "0 of 2" in text
    status, text = shell("r00", "slow", "--fail-on-regression", "--json", *SAME)
    assert status == 1
    assert [row["alarm"] for row in json.loads(text)["rows"]].count(True) == 1
    status, text = shell("--csv", "--noise-runs", "r00", "r01", "r02")
    assert text.splitlines()[0].endswith(",run_a,run_b")
    assert len(text.splitlines()) == 1 + 3 * 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["r00"], "compare takes two runs, or several"),
        (["r00", "r01", "--before", "r02"], "compare takes two runs, or several"),
        (["--before", "r00"], "1 runs before and 0 after"),
        (["--noise-runs", "r00"], "list two or more"),
        (["r00", "r01", "--threshold", "2"], "from 0 to 1"),
    ],
)
def test_what_is_asked_wrong_ends_with_2(shell: Any, arguments: list[str], words: str) -> None:
    status, text = shell(*arguments)
    assert status == 2
    assert words in text


def test_recorded_shards_are_compared_with_themselves(tmp_path: Path) -> None:
    """Nothing changed: no verdict but same and undecided, and all cells are there."""
    recorded = record("nvidia-h200-gallery/gather_stride")
    found = gpushmoo.compare(recorded, recorded)
    assert (found.cells["change"] == 0.0).all()
    assert set(found.cells["verdict"]) <= {"same", "undecided"}
    assert found.groups["winner_still_tied"].all()
    assert found.differences == []
    with pytest.raises(CompareError, match="does not exist"):
        gpushmoo.compare(tmp_path / "none", recorded)
    with pytest.raises(CompareError, match="neither a data set nor shards"):
        gpushmoo.compare(tmp_path, recorded)


ASKED: Mapping[str, Any] = {
    "before": "kernels",
    "after": ["kernels"],
    "noise_runs": [],
    "threshold": 0.02,
    "fail_on_regression": False,
}


def settings(**changed: Any) -> Settings:
    return read_section(Settings, {"kernels": {"stream": {}}, "chapters": None, **ASKED, **changed})


def test_both_sides_or_none(monkeypatch: pytest.MonkeyPatch, raw_config: dict[str, Any]) -> None:
    monkeypatch.chdir(ROOT)
    asked = read_compared(settings(after=["docs"]))
    assert asked is not None
    assert (asked["a"], asked["b"], asked["threshold"]) == (["kernels"], ["docs"], 0.02)
    assert read_compared(settings(before=None, after=None)) is None
    for change, words in (
        ({"after": None}, "after: null, and before is not"),
        ({"after": ["kernels", "config"]}, "1 folders and 2"),
        ({"before": "no/such"}, "before: 'no/such' is not the folder"),
        ({"noise_runs": ["kernels"]}, "noise_runs: one run"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_compared(settings(**change))
    with pytest.raises(SystemExit, match="compare needs two runs"):
        Flow(raw_config, ask_device=False).compare_target(None)
