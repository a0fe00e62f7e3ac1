"""A group as a whole held against an earlier run: the mean of all cells that both verified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from gpushmoo.comparing.compare import Comparison, compare_runs
from gpushmoo.comparing.levels import verified_by_all
from gpushmoo.comparing.runs import LOG_COPY, LOG_S, wholes
from made_runs import Machine


def verdicts(found: Comparison) -> dict[str, str]:
    return dict(zip(found.groups["variant"], found.groups["whole_verdict"], strict=True))


def test_a_group_is_told_by_all_of_its_cells_where_its_best_tells_nothing() -> None:
    machine = Machine(8)
    same = machine.runs(16)
    found = compare_runs([machine.run("a")], [machine.run("b", {"v2": 0.007})], same, delta=0.003)
    bests = dict(zip(found.groups["variant"], found.groups["verdict"], strict=True))
    assert bests["v2"] == "undecided"
    assert verdicts(found)["v2"] == "slower"
    assert not {"slower", "faster"} & {v for k, v in verdicts(found).items() if k != "v2"}
    row = found.groups.set_index("variant").loc["v2"]
    assert row["whole_low"] < 0.007 < row["whole_high"]
    assert row["whole_high"] - row["whole_low"] < (row["change_high"] - row["change_low"]) / 2
    # It is named, though no best changed, and no alarm is raised for it.
    text = found.markdown()
    assert "| groups as a whole | 1 |" in text
    assert f"| slower: +{100 * row['whole']:.2f} % (" in text
    assert found.slower.empty


def test_what_the_machine_did_is_no_verdict_on_a_group() -> None:
    machine = Machine(4, drift=0.002)
    first, second = machine.run("a", drift=0.0), machine.run("b", drift=0.05)
    found = compare_runs([first], [second], machine.runs(12))
    assert not {"slower", "faster"} & set(verdicts(found).values())


def test_only_cells_that_both_verified_count() -> None:
    machine = Machine(5, own=0.0005, noise=0.0005)
    first, second = machine.run("a"), machine.run("b")
    slow = second.cells["block"] == 11
    # What failed in B would have made its mean smaller.
    second = replace(second, cells=second.cells.assign(status=np.where(slow, "timeout", "ok")))
    found = compare_runs([first], [second], machine.runs(12))
    assert set(verdicts(found).values()) == {"same"}


def test_a_group_without_a_common_cell_is_undecided() -> None:
    machine = Machine(6)
    first, second = machine.run("a"), machine.run("b")
    v0, even = first.cells["variant"] == "v0", first.cells["block"] % 2 == 0
    sides = [
        replace(run, cells=run.cells.assign(status=np.where(v0 & odd, "timeout", "ok")))
        for run, odd in ((first, even), (second, ~even))
    ]
    found = compare_runs([sides[0]], [sides[1]], machine.runs(12))
    assert verdicts(found)["v0"] == "undecided"
    assert found.groups.set_index("variant").loc["v0", ["whole", "whole_low"]].isna().all()


def test_the_typical_cell_is_the_mean_of_logarithms_with_its_repeats() -> None:
    (run,) = Machine(7, groups=2, cells=3).runs(1)
    typical = wholes(run, verified_by_all([run]))
    for (_, _, variant, *_), row in typical.iterrows():
        cells = run.ok[run.ok["variant"] == variant]
        assert row[LOG_S] == pytest.approx(np.log(cells["median_s"]).mean())
        assert row[LOG_COPY] == pytest.approx(np.log(cells["copy_gbs"].iloc[0]))
        each = np.log(np.stack(list(cells["repeat_medians_s"]))).mean(axis=0)
        assert np.log(row["repeat_medians_s"]) == pytest.approx(each)
        assert row["within_half_width"] == pytest.approx(0.002 / np.sqrt(3))
    assert isinstance(typical.index, pd.MultiIndex)
