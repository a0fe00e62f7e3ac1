"""What is said of two runs: verdicts, alarms, what is refused and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from gpushmoo.comparing.compare import Comparison, compare_runs
from gpushmoo.comparing.decisions import Changes, alarms
from gpushmoo.comparing.errors import CompareError
from gpushmoo.comparing.false_alarms import Rate, false_alarms_of
from gpushmoo.comparing.levels import levels_of, usual_spreads
from gpushmoo.comparing.runs import RunCells
from gpushmoo.comparing.spreads import ChangeEstimate
from gpushmoo.comparing.tables import (
    CHANGED_CELLS_SCHEMA,
    CHANGED_GROUPS_SCHEMA,
    DRIFT_SCHEMA,
)
from gpushmoo.storage.wholefile import read_summed
from made_runs import Machine
from scipy.stats import t


def verdicts(found: Comparison) -> dict[str, str]:
    return dict(zip(found.groups["variant"], found.groups["verdict"], strict=True))


def test_planted_groups_and_no_others_are_slower() -> None:
    machine = Machine(1)
    found = compare_runs([machine.run("a")], [machine.run("b", {"v2": 0.05})], machine.runs(12))
    assert verdicts(found)["v2"] == "slower"
    assert found.slower["variant"].tolist() == ["v2"]
    rest = found.groups[found.groups["variant"] != "v2"]
    assert not rest["verdict"].isin(["slower", "faster"]).any()
    cells = found.cells[found.cells["variant"] == "v2"]
    assert (cells["verdict"] == "slower").mean() > 0.9


def test_a_gain_is_faster_and_no_alarm() -> None:
    machine = Machine(2)
    found = compare_runs([machine.run("a")], [machine.run("b", {"v0": -0.05})], machine.runs(12))
    assert verdicts(found)["v0"] == "faster"
    assert found.slower.empty


def test_what_is_surely_within_delta_is_the_same() -> None:
    machine = Machine(3, own=0.0005, noise=0.0005)
    found = compare_runs([machine.run("a")], [machine.run("b")], machine.runs(12), delta=0.01)
    assert set(found.groups["verdict"]) == {"same"}
    assert set(found.cells["verdict"]) == {"same"}


def test_what_the_machine_did_is_no_verdict_and_is_told_apart() -> None:
    machine = Machine(4, drift=0.002)
    found = compare_runs(
        [machine.run("a", drift=0.0)], [machine.run("b", drift=0.2)], machine.runs(12)
    )
    assert found.slower.empty
    assert set(found.groups["verdict"]) == {"undecided"}
    assert found.groups["change"].median() == pytest.approx(np.expm1(0.2), abs=0.02)
    assert found.groups["beside_copy"].abs().max() < 0.02
    assert found.drift["change"].tolist() == pytest.approx([np.expm1(0.2)], abs=0.01)
    assert "The machine itself changed" in found.markdown()


def test_a_copy_that_changes_alone_accuses_no_cell() -> None:
    machine = Machine(5, copied=1.0)
    first, second = machine.run("a"), machine.run("b")
    second.cells["copy_gbs"] *= 1.2
    found = compare_runs([first], [second], machine.runs(12))
    assert set(found.groups["verdict"]) == {"undecided"}


def test_without_a_copy_the_raw_change_decides() -> None:
    machine = Machine(6)
    runs = [machine.run("a"), machine.run("b", {"v1": 0.05}), *machine.runs(12)]
    for run in runs:
        run.cells["copy_gbs"] = np.nan
    found = compare_runs(runs[:1], runs[1:2], runs[2:])
    assert found.slower["variant"].tolist() == ["v1"]
    assert found.cells["beside_copy"].isna().all()
    assert "No copy of the runtime was timed" in found.markdown()


@pytest.mark.parametrize("groups", [1, 40])
def test_an_alarm_has_a_chance_of_one_in_forty_where_nothing_changed(groups: int) -> None:
    """Of `groups` one changed: it alarms beyond the quantile of its share of 2.5 %, not before."""
    error, df = np.full(groups, 0.002), np.full(groups, 20.0)
    for factor, alarm in ((1.001, True), (0.999, False)):
        change = np.zeros(groups)
        change[0] = np.log1p(0.01) + factor * t.isf(0.025 / groups, 20.0) * 0.002
        of = ChangeEstimate(change, error, df)
        assert alarms(Changes(of, of), 0.01).tolist() == [alarm] + [False] * (groups - 1)


def test_copies_that_are_no_peers_of_the_cells_tell_what_the_machine_did() -> None:
    """As of kernels that read more than they write."""
    machine = Machine(7)
    place = {"height": 64, "width": 64, "cache_state": "warm"}
    timed = [[{**place, "seconds": [s, 1.1 * s, 0.9 * s]}] for s in (1e-3, 1.25e-3)]
    first, second = (machine.run(name, controls=c) for name, c in zip("ab", timed, strict=True))
    for run in (first, second):
        run.cells["copy_gbs"] = np.nan
    found = compare_runs([first], [second], machine.runs(12))
    assert found.drift["change"].tolist() == pytest.approx([0.25])


@pytest.mark.hunt
@pytest.mark.parametrize("drifts", [(0.0, 0.01), (0.0,), (0.01,)], ids=str)
def test_runs_of_the_same_thing_raise_few_alarms_even_at_the_smallest_delta(
    drifts: Sequence[float],
) -> None:
    """At most one in forty is promised where nothing changed; more than 4 of 40 has p < 0.003."""
    alarmed = 0
    for seed in range(40):
        drift = drifts[seed % len(drifts)]
        machine = Machine(seed, groups=5, cells=4, drift=drift, copied=0.0)
        same = machine.runs(6)
        found = compare_runs([machine.run("a")], [machine.run("b")], same, delta=1e-9)
        alarmed += bool(len(found.slower))
    assert alarmed <= 4


def test_several_pairs_tell_the_spread_themselves() -> None:
    machine = Machine(7, drift=0.003)
    first = [machine.run(f"a{i}") for i in range(4)]
    second = [machine.run(f"b{i}", {"v0": 0.05}) for i in range(4)]
    found = compare_runs(first, second)
    assert found.slower["variant"].tolist() == ["v0"]
    assert "4 pairs of runs alone" in found.markdown()
    single = compare_runs(first[:1], second[:1], machine.runs(5)).groups
    assert (found.groups["change_high"] < 1.0).all()
    assert single["change_high"].notna().all()


def test_more_pairs_make_intervals_narrower() -> None:
    machine = Machine(8)
    same = machine.runs(8)
    first, second = machine.runs(6), machine.runs(6)
    widths = []
    for n in (1, 6):
        groups = compare_runs(first[:n], second[:n], same).groups
        widths.append((groups["change_high"] - groups["change_low"]).median())
    assert widths[1] < widths[0] / 2


def test_repeats_tell_the_spread_where_nothing_else_does() -> None:
    machine = Machine(9)
    found = compare_runs([machine.run("a")], [machine.run("b", {"v0": 0.10})])
    assert "the repeats within both runs" in found.told.rests
    assert verdicts(found)["v0"] == "slower"


def test_single_repeats_decide_nothing() -> None:
    machine = Machine(10)
    found = compare_runs([machine.run("a", repeats=1)], [machine.run("b", {"v0": 0.5}, repeats=1)])
    assert set(found.cells["verdict"]) == {"undecided"}
    assert found.groups["change_low"].isna().all()
    assert found.slower.empty
    assert "--same" in found.markdown()


def without(run: RunCells, keys: list[str], status: str | None = None) -> RunCells:
    """The run without the cells, or with another status of theirs."""
    cells = run.cells.copy()
    if status is None:
        return RunCells(run.name, cells[~cells["cell_key"].isin(keys)], run.provenance)
    cells.loc[cells["cell_key"].isin(keys), "status"] = status
    return RunCells(run.name, cells, run.provenance)


def test_cells_of_one_side_are_counted_and_named() -> None:
    machine = Machine(11)
    first, second = machine.run("a"), machine.run("b")
    second = without(without(second, ["0001", "0002"]), ["0003"], "wrong_result")
    found = compare_runs([first], [second], machine.runs(4))
    assert len(found.cells) == len(first.cells) - 3
    groups = found.groups.set_index("variant")
    assert groups.loc["v0", "only_a"] == 3
    assert groups["only_b"].sum() == 0
    text = found.markdown()
    assert "3 cells that A verified have no verified time in B" in text
    assert "block=3 (wrong_result)" in text
    assert "2 not swept" in text


def test_a_best_that_fails_afterwards_makes_its_group_slower() -> None:
    """A cell that was not swept is no loss; one that ended in a fault is."""
    machine = Machine(12, own=0.001)
    first, second, same = machine.run("a"), machine.run("b"), machine.runs(12)
    lost = compare_runs([first], [without(second, ["0000"], "wrong_result")], same)
    assert lost.slower["variant"].tolist() == ["v0"]
    assert not lost.groups.set_index("variant").loc["v0", "winner_held"]
    left_out = compare_runs([first], [without(second, ["0000"])], same)
    assert left_out.slower.empty


def test_winners_and_tied_sets_are_compared() -> None:
    machine = Machine(13, own=0.0001, noise=0.0001)
    first, second = machine.run("a"), machine.run("b")
    found = compare_runs([first], [second], machine.runs(3)).groups
    assert found["winner_held"].all()
    assert (found["tied_both"] <= found[["tied_a", "tied_b"]].min(axis=1)).all()
    assert (found["best_a"] == "block=0").all()


def test_other_protocols_and_other_devices_are_refused() -> None:
    machine = Machine(14)
    first = machine.run("a")
    with pytest.raises(CompareError, match="different protocols"):
        compare_runs([first], [machine.run("b", protocol_version=2)])
    other = machine.run("b")
    cells = other.cells.assign(device_name="Other").set_index(
        ["cell_key", "device_name"], drop=False
    )
    with pytest.raises(CompareError, match="A was measured on Made and B on Other"):
        compare_runs([first], [RunCells("b", cells, other.provenance)])
    same = [RunCells(f"r{i}", cells, other.provenance) for i in range(2)]
    with pytest.raises(CompareError, match="the runs of the same thing on Other"):
        compare_runs([first], [first], same)
    with pytest.raises(CompareError, match="A has 1 runs and B 2"):
        compare_runs([first], [first, first])
    with pytest.raises(CompareError, match="name two or more"):
        compare_runs([first], [first], [first])
    with pytest.raises(CompareError, match="no verified cell in common"):
        compare_runs([first], [without(other, other.cells["cell_key"].tolist(), "timeout")])


def test_settings_that_differ_are_told() -> None:
    machine = Machine(15)
    other = {"params": {"folder": "kernels/made", "dtype": "float", "measure": {"min_samples": 9}}}
    second = machine.run("b", kernel_digest="22", device={"driver": "13.1"}, **other)
    first = machine.run("a", kernel_digest="11", device={"driver": "13.0"})
    text = compare_runs([first], [second]).markdown()
    for line in ("driver: 13.0 → 13.1", "code of made: 11 → 22", "measure.min_samples of made: 7"):
        assert line in text


def test_it_is_told_where_other_devices_may_differ_more_than_is_known() -> None:
    machine = Machine(20)
    first, second, same = machine.run("a"), machine.run("b"), machine.runs(4)
    words = "A and B are of different devices and these of one"
    assert words not in compare_runs([first], [second], same).markdown()
    second.cells["device_uuid"] = "made-1"
    assert words in compare_runs([first], [second], same).markdown()
    same[0].cells["device_uuid"] = "made-1"
    assert words not in compare_runs([first], [second], same).markdown()


def test_what_is_saved_has_the_columns_of_the_schemas(tmp_path: Path) -> None:
    machine = Machine(16)
    found = compare_runs([machine.run("a")], [machine.run("b")], machine.runs(3))
    found.save(tmp_path)
    for name, schema in (
        ("cells", CHANGED_CELLS_SCHEMA),
        ("groups", CHANGED_GROUPS_SCHEMA),
        ("drift", DRIFT_SCHEMA),
    ):
        assert pq.read_schema(tmp_path / f"{name}.parquet").equals(schema)
    text = read_summed(tmp_path / "summary.md").decode()
    assert text == found.markdown()
    assert text.startswith("## b against a\n")


def test_false_alarms_are_counted_by_pairs_that_share_no_run() -> None:
    machine = Machine(17, groups=3, cells=4)
    runs = machine.runs(6)
    found = false_alarms_of(runs)
    assert len(found.pairs) == 15
    assert [found.pairs[i][:2] for i in found.apart] == [
        ("r00", "r01"),
        ("r02", "r03"),
        ("r04", "r05"),
    ]
    assert "of all 15 pairs" in found.markdown()
    with pytest.raises(CompareError, match="two or more"):
        false_alarms_of(runs[:1])


def test_the_interval_of_a_rate_is_that_of_clopper_and_pearson() -> None:
    """Of no hit among n the upper end is 1 − (α/2)^(1/n)."""
    low, high = Rate(0, 20).interval
    assert (low, high) == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))


def test_a_pair_has_no_say_in_its_own_spread() -> None:
    machine = Machine(18, groups=2, cells=8)
    runs = machine.runs(4)
    levels = levels_of(runs)
    outlier = levels_of([*runs, machine.run("odd", drift=1.0)])
    left_out = usual_spreads(outlier, (4,))
    assert left_out["cell"].whole.own.variance == pytest.approx(
        usual_spreads(levels)["cell"].whole.own.variance
    )


def test_bests_of_groups_are_those_of_all_verified_cells() -> None:
    machine = Machine(19)
    run = machine.run("a")
    groups = compare_runs([run], [run], machine.runs(3)).groups
    expected = run.cells.groupby("variant")["bandwidth_gbs"].max()
    pd.testing.assert_series_equal(
        groups.set_index("variant")["a_gbs"], expected, check_names=False
    )
