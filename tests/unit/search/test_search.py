"""Searches of a group: what they ask, when they end, what they find, and their model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from gpushmoo.search.guided import (
    MIN_GUIDED,
    Posterior,
    Process,
    _fill,
    _sectors,
    features_of,
    improvement,
    normal,
    planner_for,
)
from gpushmoo.search.planner import (
    RACE_REFERENCE_CELLS,
    Candidate,
    Planner,
    RacePlanner,
    SearchEnd,
    SearchMode,
    SearchSettings,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.stats import norm

MAX_ROUNDS = 10_000


def blocks() -> list[Candidate]:
    """Every block of sides 4 to 64 on 1024 × 1024 floats."""
    return [
        Candidate(
            params=(("block_x", x), ("block_y", y)),
            block=(x, y, 1),
            blocks=-(-1024 // x) * -(-1024 // y),
            height=1024,
            width=1024,
            element_bytes=4,
            multiprocessors=132,
            resident_blocks=max(1, 2048 // (x * y)),
        )
        for x in range(4, 65, 4)
        for y in range(4, 65, 4)
        if x * y <= 1024
    ]


def line_of(count: int) -> list[Candidate]:
    """A group with one axis that is no block's side."""
    return [
        Candidate((("unroll", n),), (256, 1, 1), 512, 1, 1 << 20, 4, 132, None)
        for n in range(count)
    ]


def smooth_s(candidate: Candidate) -> float:
    """Seconds of a surface with one valley, at blocks of 32 × 8."""
    x, y = math.log2(candidate.block[0]), math.log2(candidate.block[1])
    return 1e-4 * (1.0 + 0.1 * (x - 5.0) ** 2 + 0.06 * (y - 3.0) ** 2 + 0.03 * (x - 5) * (y - 3))


BLOCKS = blocks()
SMOOTH_S = [smooth_s(c) for c in BLOCKS]


@dataclass
class Trial:
    """A search that was led to its end, and what it asked."""

    planner: Planner
    asked: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    rounds: int = 0


def led(
    planner: Planner,
    sample_s: Callable[[int], float],
    fails: Callable[[int], bool] = lambda place: False,
) -> Trial:
    """Answer until nothing is asked; `fails` tells which places give no time."""
    trial = Trial(planner)
    while asks := planner.propose():
        places = [ask.place for ask in asks]
        assert planner.verdict().ended is SearchEnd.OPEN
        assert len(set(places)) == len(places), "a place twice in one question"
        assert not set(places) & trial.failed, "a place that has failed"
        for ask in asks:
            assert ask.samples > 0
            if fails(ask.place):
                planner.fail(ask.place)
                trial.failed.add(ask.place)
            else:
                trial.asked[ask.place] = trial.asked.get(ask.place, 0) + ask.samples
                planner.tell(ask.place, [sample_s(ask.place) for _ in range(ask.samples)])
        trial.rounds += 1
        assert trial.rounds < MAX_ROUNDS, "a search without an end"
    return trial


def noisy(times_s: Sequence[float], spread: float, seed: int) -> Callable[[int], float]:
    """Samples around these times, with a normal relative error of `spread`."""
    draw = np.random.default_rng(seed)
    return lambda place: float(times_s[place] * math.exp(spread * draw.standard_normal()))


RULE = (6, 16)
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
@pytest.mark.parametrize("count", [1, 2, MIN_GUIDED, 40])
def test_of_equal_times_the_first_wins_and_of_faults_none(mode: str, count: int) -> None:
    trial = led(planner_of(mode, line_of(count)), lambda place: 1e-5)
    verdict = trial.planner.verdict()
    assert verdict.best == min(trial.asked)
    # Not one of them is known to be slower, and a time without any spread is known at once.
    assert set(trial.asked.values()) == {RULE[0]}
    consistent(trial, count)
    trial = led(planner_of(mode, line_of(count)), lambda place: 1e-5, lambda place: True)
    verdict = trial.planner.verdict()
    assert (verdict.best, verdict.measured, verdict.samples) == (None, 0, 0)
    assert len(trial.failed) == count


@pytest.mark.parametrize("seed", range(4))
def test_a_guided_search_finds_the_valley_of_a_smooth_surface(seed: int) -> None:
    trial = led(planner_of("guided", BLOCKS, seed), noisy(SMOOTH_S, 0.003, seed))
    verdict = trial.planner.verdict()
    assert verdict.best is not None
    assert SMOOTH_S[verdict.best] <= 1.01 * min(SMOOTH_S)
    assert verdict.ended is SearchEnd.STOP
    assert verdict.measured <= len(BLOCKS) / 2
    assert verdict.better_probability is not None
    assert verdict.better_probability < SearchSettings().better_probability


@pytest.mark.parametrize("seed", range(4))
def test_a_race_keeps_the_fastest_and_drops_the_rest(seed: int) -> None:
    count = 400
    times_s = 1e-5 * np.random.default_rng(seed).permutation(1.0 + 0.1 * np.arange(count))
    best = int(np.argmin(times_s))
    trial = led(planner_of("race", line_of(count), seed), noisy(times_s, 0.01, seed))
    verdict = trial.planner.verdict()
    assert verdict.best == best
    assert RULE[0] <= trial.asked[best] <= RULE[1]
    assert sorted(trial.asked.values())[count // 4] == 1
    # Reference cells: all 90 below 0.1 ms, and of the decade above as many as there may be.
    assert abs(sum(n >= RULE[0] for n in trial.asked.values()) - 90 - RACE_REFERENCE_CELLS) <= 2
    assert (verdict.mode, verdict.better_probability) == ("race", None)


@pytest.mark.parametrize("seed", range(8))
def test_one_lucky_sample_of_noisy_cells_does_not_decide_a_race(seed: int) -> None:
    """The noise is ten times the difference between neighbours, far beyond `NEAR`."""
    count = 200
    times_s = 1e-5 * np.random.default_rng(seed).permutation(1.0 + 0.01 * np.arange(count))
    trial = led(planner_of("race", line_of(count), seed), noisy(times_s, 0.1, seed))
    best = int(np.argmin(times_s))
    assert trial.asked[best] >= RULE[0]
    verdict = trial.planner.verdict()
    assert verdict.best is not None
    # Within three standard errors of a median of all samples.
    assert times_s[verdict.best] <= (1.0 + 3 * 1.25 * 0.1 / np.sqrt(RULE[1])) * times_s[best]


def test_the_same_seed_asks_the_same_and_another_something_else() -> None:
    asked = [
        led(planner_of("guided", BLOCKS, seed), noisy(SMOOTH_S, 0.01, 5)).asked
        for seed in (1, 1, 2)
    ]
    assert list(asked[0].items()) == list(asked[1].items())
    assert list(asked[0]) != list(asked[2])


def test_budgets_end_a_search_even_before_there_is_a_model() -> None:
    # Without any shape nothing is learnt, so that only the budget can end it early.
    times_s = 1e-5 * np.random.default_rng(0).uniform(1.0, 1.5, len(BLOCKS))
    trial = led(planner_of("guided", BLOCKS, max_share=0.2), lambda place: float(times_s[place]))
    verdict = trial.planner.verdict()
    assert verdict.ended is SearchEnd.BUDGET
    assert verdict.measured == math.ceil(0.2 * len(BLOCKS))
    consistent(trial, len(BLOCKS))
    planner = planner_of("guided", line_of(40), max_share=0.1)
    for place in range(6):
        planner.tell(place, [1e-5] * RULE[1])
    assert planner.propose() == []
    verdict = planner.verdict()
    assert (verdict.ended, verdict.better_probability) == (SearchEnd.BUDGET, None)


def test_what_comes_first_is_whole_warps_and_an_axis_is_a_feature() -> None:
    for ask in planner_of("guided", BLOCKS).propose():
        assert BLOCKS[ask.place].threads % 32 == 0
        assert BLOCKS[ask.place].block[0] in (4, 8, 16, 32, 64)
    # From 0 on; a group of one candidate has none.
    features = features_of(line_of(30))
    assert features.shape == (30, 1)
    assert (np.diff(features[:, 0]) > 0).all()
    assert features_of(line_of(1)).shape == (1, 0)


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


def test_odd_samples_few_candidates_and_no_mode() -> None:
    planner = planner_of("race", line_of(3))
    planner.tell(0, [1e-6] * 20)
    planner.tell(1, [])
    assert {ask.place for ask in planner.propose()} == {1, 2}
    planner.tell(1, [1e-5, 1e-5])
    planner.fail(0)
    verdict = planner.verdict()
    assert (verdict.best, verdict.measured, verdict.samples) == (1, 1, 22)
    assert verdict.ended is SearchEnd.OPEN
    assert planner_of("guided", line_of(MIN_GUIDED - 1)).verdict().mode == "race"
    assert planner_of("guided", line_of(MIN_GUIDED)).verdict().mode == "guided"


@pytest.mark.parametrize(
    ("block_x", "element_bytes"), [(1, 16), (3, 4), (4, 4), (32, 4), (33, 4), (20, 12), (1, 1)]
)
def test_sectors_are_those_that_counting_finds(block_x: int, element_bytes: int) -> None:
    period = math.lcm(block_x, 32)
    found = {
        (thread // 32, thread // block_x, (thread % block_x * element_bytes + byte) // 32)
        for thread in range(period)
        for byte in range(element_bytes)
    }
    least = period * element_bytes / 32
    assert _sectors(block_x, element_bytes) == pytest.approx(len(found) / least)
    assert _fill(np.array([0.5, 1.5, 2.0])).tolist() == [0.5, 0.75, 1.0]


def process_of(count: int = 40) -> tuple[Process, np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    x = draw.standard_normal((count, 3))
    places = np.arange(0, count, 2)
    values = np.sin(x[places, 0]) + 0.3 * x[places, 1]
    return Process(x), x, places, values


def test_the_process_has_its_gradient_and_knows_more_after_a_measurement() -> None:
    process, x, places, values = process_of()
    y = (values - values.mean()) / values.std()
    known = np.full(len(y), 1e-3)
    for theta in (np.zeros(5), np.array([0.3, -0.5, 1.0, 0.2, -1.5])):
        loss = process._loss(theta, x[places], y, known)
        error = check_grad(
            lambda t: process._loss(t, x[places], y, known)[0],
            lambda t: process._loss(t, x[places], y, known)[1],
            theta,
        )
        assert error < 1e-4 * (1.0 + np.abs(loss[1]).max())
    process, _, places, values = process_of()
    errors = np.full(len(values), 1e-6)
    process.fit(places, values, errors)
    before = process.posterior(places, values, errors)
    scaled = process.posterior(places, 9 * values, 9 * np.full(len(values), 0.5))
    alike = process.posterior(places, values, np.full(len(values), 0.5))
    assert scaled.variance == pytest.approx(81 * alike.variance)
    after = process.followed(before, 5)
    assert np.array_equal(after.mean, before.mean)
    assert after.variance[5] < before.variance[5]
    assert (after.variance <= before.variance + 1e-12).all()


def test_expected_improvement_and_the_normal_distribution_are_scipy_s() -> None:
    z = np.linspace(-7.0, 7.0, 501)
    assert np.allclose(normal(z), norm.cdf(z), atol=1e-6)
    posterior = Posterior(z, np.full(501, 0.25), np.zeros((0, 501)), 1.0)
    u = (0.3 - z) / 0.5
    assert np.allclose(
        improvement(posterior, 0.3), 0.5 * (u * norm.cdf(u) + norm.pdf(u)), atol=1e-5
    )


def test_a_cell_is_full_as_measuring_has_it() -> None:
    race = RacePlanner(3, SearchSettings(), (6, 16, 0.01))
    race.tell(0, [1.0] * 6)
    assert race.wanted(0) == 0
    race.tell(1, [1.0, 2.0, 3.0])
    assert race.wanted(1) == 2
    race.tell(1, [1.0, 2.0, 3.0])
    assert race.wanted(1) == 3
    race.tell(1, [1.0, 2.0, 3.0] * 3)
    assert race.wanted(1) == 1
    assert race.wanted(2) == 2
    race.fail(2)
    assert race.wanted(2) == 0
    race = RacePlanner(4, SearchSettings(), (6, 16, 0.01))
    for place, seconds in enumerate((1.0, 1.005, 2.0)):
        race.tell(place, [seconds * f for f in (0.99, 1.0, 1.01)])
    assert race.front().tolist() == [0, 1]
    assert (race.measured.tolist(), race.unmeasured.tolist()) == ([0, 1, 2], [3])
