"""Searches of a group: what they ask, when they end, what they find."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpushmoo.search.guided import FEWEST_GUIDED, planner_for
from gpushmoo.search.planner import Candidate, Prior, SearchEnd, SearchMode, SearchSettings
from gpushmoo.search.race import Planner
from hypothesis import given, settings
from hypothesis import strategies as st
from search_cases import Trial, blocks_of, led, line_of, never, noisy, smooth_s

RULE = (6, 16)
SIDES = range(4, 65, 4)
MODES = st.sampled_from(["race", "guided"])


def planner_of(mode: str, candidates: list[Candidate], seed: int = 0, **more: float) -> Planner:
    return planner_for(candidates, SearchSettings(mode, **more), RULE, seed)


def consistent(trial: Trial, count: int) -> None:
    """The verdict tells what was asked, and the best is not one that was never told."""
    verdict = trial.planner.verdict()
    told = set(trial.asked) - trial.failed
    assert verdict.candidates == count
    assert verdict.measured == len(told)
    assert verdict.samples == sum(trial.asked.values())
    assert (verdict.best in told) if told else verdict.best is None
    assert verdict.ended is not SearchEnd.OPEN
    chance = verdict.better_probability
    assert chance is None or 0.0 <= chance <= count
    if verdict.mode == SearchMode.GUIDED:
        assert chance is not None or not told


@settings(max_examples=40)
@given(
    mode=MODES,
    count=st.integers(1, 60),
    seed=st.integers(0, 99),
    spread=st.sampled_from([0.0, 0.001, 0.05]),
    levels=st.integers(1, 5),
    failing=st.floats(0.0, 1.0),
)
def test_a_search_asks_what_it_may_and_ends(
    mode: str, count: int, seed: int, spread: float, levels: int, failing: float
) -> None:
    """Of any times, tied ones too, of cells that fail by chance, at once or after samples."""
    draw = np.random.default_rng(seed)
    times_s = 1e-5 * (1 + draw.integers(0, levels, count))
    chance = np.random.default_rng(seed + 1)
    trial = led(
        planner_of(mode, line_of(count), seed),
        noisy(times_s, spread, seed),
        lambda place: bool(chance.random() < failing / 4),
    )
    assert max(trial.asked.values(), default=0) <= RULE[1]
    assert set(trial.asked) | trial.failed <= set(range(count))
    consistent(trial, count)


@pytest.mark.parametrize("mode", ["race", "guided"])
@pytest.mark.parametrize("count", [1, 2, FEWEST_GUIDED, 40])
def test_equal_times_are_all_tied_and_the_first_wins(mode: str, count: int) -> None:
    trial = led(planner_of(mode, line_of(count)), lambda place: 1e-5)
    verdict = trial.planner.verdict()
    assert verdict.best == min(trial.asked)
    # Not one of them is known to be slower, and a time without any spread is known at once.
    assert set(trial.asked.values()) == {RULE[0]}
    consistent(trial, count)


@pytest.mark.parametrize("mode", ["race", "guided"])
def test_where_every_cell_fails_there_is_no_best(mode: str) -> None:
    trial = led(planner_of(mode, line_of(30)), lambda place: 1e-5, lambda place: True)
    verdict = trial.planner.verdict()
    assert (verdict.best, verdict.measured, verdict.samples) == (None, 0, 0)
    assert len(trial.failed) == 30


@pytest.mark.parametrize("seed", range(8))
def test_a_guided_search_finds_the_valley_of_a_smooth_surface(seed: int) -> None:
    candidates = blocks_of(SIDES)
    times_s = [smooth_s(c) for c in candidates]
    trial = led(planner_of("guided", candidates, seed), noisy(times_s, 0.003, seed))
    verdict = trial.planner.verdict()
    assert verdict.best is not None
    assert times_s[verdict.best] <= 1.01 * min(times_s)
    assert verdict.ended is SearchEnd.STOP
    assert verdict.measured <= len(candidates) / 2
    assert verdict.better_probability is not None
    assert verdict.better_probability < SearchSettings().better_probability


@pytest.mark.parametrize("seed", range(8))
def test_a_race_keeps_the_fastest_and_drops_the_rest(seed: int) -> None:
    count = 60
    times_s = 1e-5 * np.random.default_rng(seed).permutation(1.0 + 0.1 * np.arange(count))
    best = int(np.argmin(times_s))
    trial = led(planner_of("race", line_of(count), seed), noisy(times_s, 0.01, seed))
    verdict = trial.planner.verdict()
    assert verdict.best == best
    assert RULE[0] <= trial.asked[best] <= RULE[1]
    assert sorted(trial.asked.values())[count // 2] == SearchSettings().fewest
    assert (verdict.mode, verdict.better_probability) == ("race", None)


def test_the_same_seed_asks_the_same_and_another_something_else() -> None:
    candidates = blocks_of(SIDES)
    times_s = [smooth_s(c) for c in candidates]
    asked = [
        led(planner_of("guided", candidates, seed), noisy(times_s, 0.01, 5)).asked
        for seed in (1, 1, 2)
    ]
    assert list(asked[0].items()) == list(asked[1].items())
    assert list(asked[0]) != list(asked[2])


def test_a_budget_of_cells_ends_a_search() -> None:
    candidates = blocks_of(SIDES)
    # Without any shape nothing is learnt, so that only the budget can end it early.
    times_s = 1e-5 * np.random.default_rng(0).uniform(1.0, 1.5, len(candidates))
    trial = led(
        planner_of("guided", candidates, most_share=0.2), lambda place: float(times_s[place])
    )
    verdict = trial.planner.verdict()
    assert verdict.ended is SearchEnd.BUDGET
    assert verdict.measured == math.ceil(0.2 * len(candidates))
    consistent(trial, len(candidates))


def test_a_budget_may_end_a_search_before_there_is_a_model() -> None:
    planner = planner_of("guided", line_of(40), most_share=0.1)
    for place in range(6):
        planner.tell(place, [1e-5] * RULE[1])
    assert planner.propose() == []
    verdict = planner.verdict()
    assert (verdict.ended, verdict.better_probability) == (SearchEnd.BUDGET, None)


def test_a_search_has_not_ended_while_it_asks() -> None:
    candidates = blocks_of(SIDES)
    times_s = [smooth_s(c) for c in candidates]
    sample_s = noisy(times_s, 0.003, 0)
    planner = planner_of("guided", candidates)
    while asks := planner.propose():
        assert planner.verdict().ended is SearchEnd.OPEN
        for ask in asks:
            planner.tell(ask.place, [sample_s(ask.place) for _ in range(ask.samples)])
    assert planner.verdict().ended is SearchEnd.STOP


def test_blocks_of_whole_warps_and_rows_of_a_power_of_two_come_first() -> None:
    candidates = blocks_of(SIDES)
    for ask in planner_of("guided", candidates).propose():
        assert candidates[ask.place].threads % 32 == 0
        assert candidates[ask.place].block[0] in (4, 8, 16, 32, 64)


def test_where_nothing_is_learnt_every_cell_is_measured_once() -> None:
    times_s = 1e-5 * np.random.default_rng(0).uniform(1.0, 1.5, 40)
    trial = led(
        planner_of("guided", line_of(40), better_probability=0.0),
        lambda place: float(times_s[place]),
    )
    verdict = trial.planner.verdict()
    assert verdict.ended is SearchEnd.EXHAUSTED
    assert (verdict.measured, verdict.better_probability) == (40, 0.0)
    assert verdict.best == int(np.argmin(times_s))


def test_more_samples_than_were_asked_count_and_none_are_no_progress() -> None:
    planner = planner_of("race", line_of(3))
    planner.tell(0, [1e-5] * 20)
    planner.tell(1, [])
    assert {ask.place for ask in planner.propose()} == {1, 2}
    assert planner.verdict().samples == 20
    assert planner.verdict().ended is SearchEnd.OPEN


@pytest.mark.parametrize("bad", [0.0, -1e-6, math.nan, math.inf])
@pytest.mark.parametrize("mode", ["race", "guided"])
def test_no_time_is_refused(bad: float, mode: str) -> None:
    planner = planner_of(mode, line_of(40))
    with pytest.raises(ValueError, match="no time of a launch"):
        planner.tell(0, [1e-5, bad])
    assert planner.verdict().samples == 0


def test_a_cell_that_fails_after_samples_is_out() -> None:
    planner = planner_of("race", line_of(2))
    planner.tell(0, [1e-6, 1e-6])
    planner.tell(1, [1e-5, 1e-5])
    planner.fail(0)
    verdict = planner.verdict()
    assert (verdict.best, verdict.measured, verdict.samples) == (1, 1, 4)


def test_few_candidates_are_raced_and_for_all_there_is_no_planner() -> None:
    assert planner_of("guided", line_of(FEWEST_GUIDED - 1)).verdict().mode == "race"
    assert planner_of("guided", line_of(FEWEST_GUIDED)).verdict().mode == "guided"
    with pytest.raises(ValueError, match="nothing is planned in the mode 'all'"):
        planner_of("all", line_of(3))
    with pytest.raises(ValueError, match="no candidates"):
        planner_of("race", [])


def from_elsewhere(candidates: list[Candidate], wrong: bool) -> list[Prior]:
    times_s = np.array([smooth_s(c) for c in candidates])
    slower = times_s / times_s.min()
    return [
        Prior(c.params, float(s))
        for c, s in zip(candidates, slower[::-1] if wrong else slower, strict=True)
    ]


def test_what_was_fast_elsewhere_is_measured_first() -> None:
    candidates = blocks_of(SIDES)
    fastest = int(np.argmin([smooth_s(c) for c in candidates]))
    priors = from_elsewhere(candidates, wrong=False)
    planner = planner_for(candidates, SearchSettings("guided"), RULE, 0, priors)
    first = [ask.place for ask in planner.propose()]
    assert first[0] == fastest
    assert len(first) == SearchSettings().first


@pytest.mark.parametrize("seed", range(4))
def test_what_was_fast_elsewhere_does_not_mislead_for_long(seed: int) -> None:
    candidates = blocks_of(SIDES)
    times_s = [smooth_s(c) for c in candidates]
    priors = from_elsewhere(candidates, wrong=True)
    planner = planner_for(candidates, SearchSettings("guided"), RULE, seed, priors)
    verdict = led(planner, noisy(times_s, 0.003, seed), never).planner.verdict()
    assert verdict.best is not None
    assert times_s[verdict.best] <= 1.01 * min(times_s)
