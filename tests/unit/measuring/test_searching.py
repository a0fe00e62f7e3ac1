"""Searches in the measuring process, on a device whose every time is known."""

import math
from collections import Counter
from dataclasses import dataclass

import pytest
from fakes import FOLDER, INFO, FakeDevice, Fault, Tag, cell_tag, make_cells, measure_by
from gpushmoo.core.run_plan import fully_sampled
from gpushmoo.core.schema import FAULTS, LIMITS, Status
from gpushmoo.core.space import Cell, CellGroup
from gpushmoo.measuring.events import ShardResult
from gpushmoo.measuring.rounds import LEFT_OUT
from gpushmoo.measuring.sampling import StoppingRule
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.measuring.verify import CellSteps
from gpushmoo.report.method import searched_findings
from gpushmoo.search.planner import SearchEnd, SearchMode, SearchSettings
from jobs import sampling_of

FASTEST = 40
CELLS = make_cells(threads=tuple(range(1, 65)), chunks=(1,))
RULE = StoppingRule(6, 9, 0.01, 1e9)


@dataclass
class Valley(FakeDevice):
    """Faster towards one number of threads, a little unsteady, with both variants alike."""

    def seconds(self, tag: Tag, nth_sample: int, launches: int) -> float:
        """Return the seconds of one launch."""
        away = math.log2(tag[2] / FASTEST)
        return 1e-3 * (1.0 + 0.3 * away**2) * (1.0 + 1e-4 * math.sin(7 * nth_sample + tag[2]))


def searched(
    device: FakeDevice, mode: SearchMode, repeat: int = 1, repeats: int = 1
) -> ShardResult:
    search = SearchSettings(mode, reference_cells=4)
    sampling = sampling_of(RULE, search, repeat=repeat, repeats=repeats)
    return measure_by(device, CELLS, sampling).result


def statuses(result: ShardResult) -> Counter[Status | None]:
    return Counter(run.status for run in result.runs.values())


def fastest(result: ShardResult, group: CellGroup) -> Cell:
    ok = [r for r in result.runs.values() if r.status is Status.OK and r.cell.group == group]
    return min(ok, key=lambda run: sorted(run.samples_s)[len(run.samples_s) // 2]).cell


def test_a_guided_search_leaves_cells_out_and_tells_how_it_ended() -> None:
    result = searched(Valley(), SearchMode.GUIDED)
    found = statuses(result)
    assert set(found) == {Status.OK, Status.NOT_SEARCHED}
    assert Status.NOT_SEARCHED not in FAULTS | LIMITS
    assert found[Status.NOT_SEARCHED] > found[Status.OK]
    for group in {cell.group for cell in CELLS}:
        assert abs(fastest(result, group)["threads"] - FASTEST) <= 2
    for run in result.runs.values():
        if run.status is Status.NOT_SEARCHED:
            assert (run.samples_s, run.bound, run.message) == ([], None, LEFT_OUT)
        else:
            assert run.verified_words
            assert len(run.samples_s) >= 2
    assert {s.group for s in result.searches} == {cell.group for cell in CELLS}
    for told in result.searches:
        runs = [r for r in result.runs.values() if r.cell.group == told.group]
        measured = [r for r in runs if r.status is Status.OK]
        assert (told.verdict.candidates, told.verdict.measured) == (len(runs), len(measured))
        assert told.verdict.samples == sum(len(r.samples_s) for r in measured)
        assert told.verdict.ended is SearchEnd.STOP


def test_a_race_measures_all_and_samples_the_slow_ones_little() -> None:
    result = searched(Valley(), SearchMode.RACE)
    assert set(statuses(result)) == {Status.OK}
    samples = {r.cell["threads"]: len(r.samples_s) for r in result.runs.values()}
    assert samples[FASTEST] >= RULE.min_samples
    assert sorted(samples.values())[len(samples) // 2] == 1


@pytest.mark.parametrize("samples", [6, 9])
@pytest.mark.parametrize("mode", SearchMode)
def test_a_spent_budget(mode: SearchMode, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellSteps, "is_late", samples == 6)
    monkeypatch.setitem(globals(), "RULE", StoppingRule(6, 9, 1e-9, 1e9))
    assert max(len(r.samples_s) for r in searched(Valley(), mode).runs.values()) == samples


@pytest.mark.parametrize("kind", ["failed", "wrong"])
def test_a_cell_that_fails_costs_its_search_that_cell_alone(kind: str) -> None:
    fast = [c for c in CELLS if c["threads"] in (FASTEST - 1, FASTEST, FASTEST + 1)]
    faults = [Fault(cell_tag(c), "run", n, kind) for c in fast for n in (0, 1)]
    result = searched(Valley(faults=faults), SearchMode.GUIDED)
    found = statuses(result)
    assert not found[None]
    assert found[Status.LAUNCH_FAILED] + found[Status.WRONG_RESULT] <= len(fast)
    for group in {cell.group for cell in CELLS}:
        assert 2 <= abs(fastest(result, group)["threads"] - FASTEST) <= 4


def test_a_lost_process_is_replaced_and_the_search_goes_on() -> None:
    result = searched(Valley(lost_at=100), SearchMode.GUIDED)
    assert set(statuses(result)) == {Status.OK, Status.NOT_SEARCHED}
    for group in {cell.group for cell in CELLS}:
        assert abs(fastest(result, group)["threads"] - FASTEST) <= 2


def test_a_later_repeat_searches_nothing_and_measures_what_was_not_outrun() -> None:
    result = searched(Valley(), SearchMode.GUIDED, 1, 2)
    table = cell_table(result, FOLDER.workload, INFO, ["chunks", "threads"])
    again = table.filter(fully_sampled(table, {"min_samples": 12, "repeats": 2}))
    assert 2 <= len(again) < statuses(result)[Status.OK]
    assert min(again.column("median_s").to_pylist()) == min(
        s for s in table.column("median_s").to_pylist() if s is not None
    )
    result = searched(Valley(), SearchMode.GUIDED, 2, 2)
    assert set(statuses(result)) == {Status.OK}
    assert not result.searches


def test_the_report_says_what_was_left_out_and_how_sure_that_is() -> None:
    search = {"measured": 5, "candidates": 100, "better_probability": 0.03, "ended": "stop"}
    search |= {"mode": "guided"}
    params = {"measure": {"search": {"tolerance": 0.01}}}
    told = [{"params": params, "searches": [search, {**search, "measured": 9, "ended": "budget"}]}]
    [sentence] = searched_findings(told)
    assert "in the typical group 7.0 % of them, at most 9.0 %" in sentence
    assert "faster by more than 1.0 % has a probability of 3.0 %" in sentence
    assert "1 of 2 searches ended" in sentence
    assert searched_findings([{"params": params}]) == []
    # Cells of a race that have no sample failed, unless its time was over.
    race = {**search, "mode": "race"}
    assert searched_findings([{"params": params, "searches": [race]}]) == []
    late = {**race, "ended": "budget"}
    assert len(searched_findings([{"params": params, "searches": [late]}])) == 1
