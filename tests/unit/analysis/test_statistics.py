"""Spreads, intervals and verdicts, held against brute force and against published formulas."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from statistics import median

import numpy as np
import pytest
from gpushmoo.analysis.statistics import (
    CLASS_CELLS,
    MIN_VARIANCES,
    SHARING_CELLS,
    ChangeEstimate,
    Classes,
    ClassSpread,
    Spreads,
    TypicalVariance,
    class_spreads,
    estimate,
    half_widths,
    moderated,
    replicated,
    run_spreads,
    shifts,
    trigamma_inverse,
    typical_variance_by_moments,
    typical_variance_by_quantiles,
    variance_within,
)
from gpushmoo.comparing.verdicts import (
    MIN_BLOCKS,
    Changes,
    ChangeVerdict,
    PairedChange,
    adjusted,
    alarms,
    believed_cells,
    block_changes,
    hodges_lehmann,
    judged,
    paired_change,
)
from gpushmoo.core.median import mean_interval
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import fdtri, polygamma
from scipy.stats import false_discovery_control, ttest_1samp
from scipy.stats import t as students_t

DELTA = 0.01
times = st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=9)


def test_what_cells_share_is_parted_from_their_own() -> None:
    n = SHARING_CELLS
    logs = np.array([[0.01, -0.01], [-0.01, 0.01]] * (n // 2)) + np.array([0.2, -0.2])
    found = replicated([logs], Classes(["c"] * n), ["r"] * n)
    assert found.shared == {"r": pytest.approx(2 * 0.2**2)}
    assert found.own == pytest.approx(2 * 0.01**2 * n / (n - 1))
    few = replicated([logs[1:]], Classes(["c"] * (n - 1)))
    assert few.shared == {}
    assert few.own.max() == pytest.approx(2 * 0.21**2)
    # Of 500 cells in four runs: three degrees of freedom, and the variance of four draws.
    shared = np.array([0.1, -0.05, 0.02, 0.0])
    logs = shared + np.random.default_rng(3).normal(0.0, 0.001, (500, 4))
    spreads = class_spreads(replicated([logs], Classes(["x"] * 500)))
    assert spreads.of("x").shared == pytest.approx(shared.var(ddof=1), rel=0.01)
    assert spreads.of("x").own == pytest.approx(1e-6, rel=0.2)
    change = estimate(np.zeros((1, 1)), Classes(["x"]), np.zeros(1), spreads, None)
    assert change.df[0] == pytest.approx(3.0, rel=0.01)
    assert change.error[0] == pytest.approx(math.sqrt(2.0 * shared.var(ddof=1)), rel=0.01)


def test_each_round_has_its_own_shared_variance_shrunk_towards_the_usual_one() -> None:
    n, rng = SHARING_CELLS, np.random.default_rng(4)
    drifts = {f"r{i}": 0.001 * (1.0 + 0.1 * i) for i in range(MIN_VARIANCES)} | {"hot": 0.05}
    shards = [
        replicated(
            [np.tile([drift, -drift], (n, 1)) + rng.normal(0.0, 1e-5, (n, 2))],
            Classes(["c"] * n),
            [name] * n,
        )
        for name, drift in drifts.items()
    ]
    spreads = run_spreads(shards)
    assert spreads is not None
    found = {name: one.variance for name, one in spreads.rounds.items()}
    assert found.keys() == drifts.keys()
    raw = {name: 2 * drift**2 for name, drift in drifts.items()}
    # One hot round widens its own cells' intervals most, and hardly those of others.
    others = [found[name] for name in drifts if name != "hot"]
    assert 10 * max(others) < found["hot"] <= raw["hot"]
    assert max(others) < 1e-4
    assert spreads.at(Classes(["c"]), ["hot"]).shared == pytest.approx(found["hot"])
    assert spreads.at(Classes(["c"]), ["unseen"]).shared == pytest.approx(spreads.other.variance)
    # Of a single round nothing else is known.
    single = run_spreads(shards[:1])
    assert single is not None
    assert single.rounds["r0"].variance == pytest.approx(raw["r0"], rel=0.05)


def test_a_usual_variance_does_not_jump_at_a_decade() -> None:
    rng = np.random.default_rng(2)
    logs_s = rng.uniform(-6.0, -4.0, 400)
    # Short launches are noisier.
    sizes = np.where(logs_s < -5.0, 0.01, 0.001)
    logs = sizes[:, None] * rng.standard_normal((400, 3))
    spreads = run_spreads([replicated([logs], Classes(["k"] * 400, logs_s))])
    assert spreads is not None
    places = np.linspace(-6.0, -4.0, 201)
    found = spreads.own.at(Classes(["k"] * 201, places)).own
    assert found[0] == pytest.approx(1e-4, rel=0.5)
    assert found[-1] == pytest.approx(1e-6, rel=0.5)
    assert np.abs(np.diff(np.log(found))).max() < 0.1


def test_moments_are_those_of_the_paper_and_of_few_cells_their_mean() -> None:
    """ē and its spread determine d₀ and s₀² by digamma and trigamma alone (section 6.2)."""
    variances = np.geomspace(1e-7, 1e-5, 40)
    usual = typical_variance_by_moments(variances, 4)
    e = np.log(variances) - float(polygamma(0, 2)) + math.log(2)
    beyond_chance = e.var(ddof=1) - float(polygamma(1, 2))
    assert float(polygamma(1, usual.df / 2)) == pytest.approx(beyond_chance)
    s0 = math.log(usual.variance) - float(polygamma(0, usual.df / 2)) + math.log(usual.df / 2)
    assert s0 == pytest.approx(e.mean())
    assert typical_variance_by_moments(np.full(40, 1e-6), 4).df == math.inf
    assert typical_variance_by_moments(np.array([1.0, 3.0]), 2) == TypicalVariance(2.0, 2)
    assert typical_variance_by_moments(np.array([1.0, 3.0]), 2, few_df=0.0).df == 0.0
    assert typical_variance_by_moments(np.zeros(MIN_VARIANCES), 2) == TypicalVariance(0.0, 2)
    assert typical_variance_by_moments(np.geomspace(1.0, 64.0, MIN_VARIANCES - 1), 2).df == 2
    assert typical_variance_by_moments(np.geomspace(1.0, 64.0, MIN_VARIANCES), 2).df != 2
    assert typical_variance_by_quantiles(np.array([1.0, 3.0]), 1) == TypicalVariance(2.0, 1.0)
    assert typical_variance_by_quantiles(np.array([1.0]), 1).df == 0.0
    few = typical_variance_by_quantiles(np.full(CLASS_CELLS - 1, 1.0), 1)
    assert (
        few
        == TypicalVariance(1.0, 1.0)
        != typical_variance_by_quantiles(np.full(CLASS_CELLS, 1.0), 1)
    )


@pytest.mark.parametrize("df", [1.0, 3.0])
@pytest.mark.parametrize("prior_df", [1.0, 4.0, 50.0])
def test_quantiles_find_a_usual_variance_again(df: float, prior_df: float) -> None:
    """Variances at the quantiles of s₀² F(d, d₀), the model of Smyth's section 3."""
    variances = 4e-6 * fdtri(df, prior_df, (np.arange(2000) + 0.5) / 2000)
    found = typical_variance_by_quantiles(variances, df)
    assert (found.variance, found.df) == (pytest.approx(4e-6, rel=0.01), prior_df)


@given(st.floats(1e-8, 1e9))
def test_the_inverse_of_trigamma_is_one(value: float) -> None:
    assert float(polygamma(1, trigamma_inverse(value))) == pytest.approx(value, rel=1e-3)


def test_classes_have_spreads_and_shrink_variances() -> None:
    names = ["calm"] * CLASS_CELLS + ["wild"] * CLASS_CELLS + ["rare"] * 3
    sizes = np.array([0.001] * CLASS_CELLS + [0.1] * CLASS_CELLS + [0.01] * 3)
    logs = sizes[:, None] * np.random.default_rng(9).standard_normal((len(names), 2))
    found = run_spreads([replicated([logs], Classes(names), range(len(names)))])
    assert found is not None
    spreads = found.own
    assert {name for name, _ in spreads.classes} == {"calm", "wild"}
    assert spreads.of("calm").own < 1e-5 < 1e-3 < spreads.of("wild").own
    assert spreads.of("rare").own == spreads.whole.own.variance
    # Smyth's equation 2; infinitely many prior degrees leave nothing to the cell itself.
    own = np.array([9.0, 9.0, 9.0])
    shrunk, df = moderated(np.array([1.0, 1.0, 1.0]), np.array([3.0, 0.0, math.inf]), own, 1.0)
    assert shrunk.tolist() == [3.0, 9.0, 1.0]
    assert df.tolist() == [4.0, 1.0, math.inf]
    prior, _ = moderated(np.array([1.0]), np.array([3.0]), np.array([math.nan]), 0)
    assert prior.tolist() == [1.0]


def run_intervals(run: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of each cell of shards of log medians: mean, own half-width, whole half-width."""
    found = [
        replicated([logs], Classes(["class"] * len(logs)), [shard] * len(logs))
        for shard, logs in enumerate(run)
    ]
    spreads = run_spreads(found)
    assert spreads is not None
    parts = []
    for shard, (logs, f) in enumerate(zip(run, found, strict=True)):
        n = len(logs)
        priors = spreads.at(f.classes, [shard] * n)
        halves = half_widths(logs.shape[1], f.own, np.zeros(n), priors)
        parts.append((logs.mean(axis=1), *halves))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@pytest.mark.parametrize(("repeats", "drift", "uneven"), [(2, 0.05, 0.6), (3, 0.002, 0.6)])
def test_intervals_cover_another_run(repeats: int, drift: float, uneven: float) -> None:
    """The cells' own spread differs by a factor of e^uneven, as a log-normal."""
    rng = np.random.default_rng([repeats, int(drift * 1000)])
    sizes = 0.002 * np.exp(uneven * rng.standard_normal((400, 16)))

    def drawn() -> list[np.ndarray]:
        return [
            drift * rng.standard_normal(repeats)
            + size[:, None] * rng.standard_normal((len(size), repeats))
            for size in sizes
        ]

    mean, own, whole = run_intervals(drawn())
    other, _, _ = run_intervals(drawn())
    assert np.mean(np.abs(other - mean) <= whole) == pytest.approx(0.95, abs=0.02)
    assert np.median(own) < 0.01
    assert (np.median(whole) > 0.05) == (drift == 0.05)


def test_a_hot_group_is_covered_and_widens_no_other() -> None:
    """4 of 25 groups are placed again in each repeat, by 2 %; the others drift by 0.1 %."""
    rng, repeats, cells = np.random.default_rng(11), 3, 60
    drifts = [0.02] * 4 + [0.001] * 21

    def drawn() -> list[np.ndarray]:
        return [
            drift * rng.standard_normal(repeats) + rng.normal(0.0, 0.001, (cells, repeats))
            for drift in drifts
        ]

    held, apart, widths = [], [], []
    for _ in range(40):
        (mean, _, whole), (other, _, beside) = run_intervals(drawn()), run_intervals(drawn())
        held.append(np.abs(other - mean) <= whole)
        apart.append(np.abs(other - mean) > whole + beside)
        widths.append(whole)
    by_group = np.reshape(held, (40, 25, cells))
    assert by_group[:, :4].mean() >= 0.84
    assert by_group[:, 4:].mean() == pytest.approx(0.95, abs=0.02)
    assert np.mean(apart) <= 0.01
    assert np.median(np.reshape(widths, (40, 25, cells))[:, 4:]) < 0.006


def test_a_single_pair_of_repeats_has_the_interval_of_two_measurements() -> None:
    """Of two values with nothing beside them: 12.7 standard errors."""
    found = replicated([np.array([[0.01, -0.01]])], Classes(["c"]))
    spreads = run_spreads([found])
    assert spreads is not None
    assert spreads.own.whole.own == TypicalVariance(pytest.approx(2e-4), 0.0)
    assert (spreads.own.classes, spreads.rounds) == ({}, {})
    own, whole = half_widths(2, found.own, np.zeros(1), spreads.at(found.classes, ["r"]))
    assert own == pytest.approx(12.706 * 0.01, rel=1e-4)
    assert whole == pytest.approx(math.sqrt(2.0) * own)
    assert run_spreads([]) is None
    assert run_spreads([replicated([np.zeros((0, 2))], Classes([]))]) is None


@pytest.mark.parametrize(
    ("repeats", "of_class", "of_samples"),
    [
        pytest.param(1, 1e-4, 0.0, id="measured once: known as well as its class"),
        pytest.param(2, 1e-8, 2e-4, id="samples that scatter more than repeats are believed"),
    ],
)
def test_what_a_cell_is_known_by(repeats: int, of_class: float, of_samples: float) -> None:
    spreads = Spreads({}, ClassSpread(TypicalVariance(of_class, 1e6), 0.0, 0.0))
    own, _ = half_widths(repeats, np.zeros(1), np.array([of_samples]), spreads.of("c"))
    assert own == pytest.approx(1.96 * 0.01, rel=1e-3)


def test_clocks_without_a_difference_and_medians_have_variances() -> None:
    logs = np.zeros((50, 2))
    logs[:3] = [[1e-3, -1e-3]] * 3
    _, _, whole = run_intervals([logs])
    assert np.isfinite(whole).all()
    assert (whole > 0).all()
    ends, coverage = np.array([0.0196, 0.0196, 0.0]), np.array([0.95, 0.0, 0.95])
    found = variance_within(np.exp(-ends), np.exp(ends), coverage)
    assert found == pytest.approx([1e-4, 0.0, 0.0], rel=1e-3)


def test_pairs_have_students_intervals_with_what_is_known_beforehand() -> None:
    """Of one cell, of which nothing else is known, nothing can be shrunk."""
    changes = np.array([[0.01, 0.03, 0.02, 0.05]])
    # A change is of two runs.
    seen = replicated([changes / math.sqrt(2.0)], Classes(["x"]))
    found = estimate(changes, Classes(["x"]), np.zeros(1), None, seen)
    expected = ttest_1samp(changes[0], 0.0)
    low, high = expected.confidence_interval(0.95)
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))
    assert 2 * found.p_beyond(0.0, 1)[0] == pytest.approx(expected.pvalue)
    usual = Spreads({}, ClassSpread(TypicalVariance(0.0, math.inf), 0.01, 3.0))
    n, alike = SHARING_CELLS, Classes(["x"] * SHARING_CELLS)
    seen = replicated([np.tile([0.3, -0.3], (n, 1))], alike)
    assert seen.shared == {("x", 0): pytest.approx(0.18)}
    found = estimate(np.zeros((n, 2)), alike, np.zeros(n), usual, seen)
    assert found.error[0] == pytest.approx(math.sqrt((3 * 0.01 + 0.18) / 4))
    assert found.df[0] == pytest.approx(4.0)
    usual = class_spreads(replicated([np.zeros((9, 3))], Classes(["x"] * 9)))
    found = estimate(np.zeros((1, 1)), Classes(["x"]), np.array([0.02]), usual, None)
    assert found.error[0] == pytest.approx(math.sqrt(0.04))


@given(st.lists(st.tuples(times, times), min_size=1, max_size=5), st.floats(-3.0, 3.0))
def test_a_shift_is_a_median(cells: list[tuple[list[float], list[float]]], by: float) -> None:
    sides = [[np.array(cell[i]) for cell in cells] for i in (0, 1)]
    lengths = [np.array([len(values) for values in side]) for side in sides]
    a, b = map(np.concatenate, sides)
    found = shifts(a, lengths[0], b, lengths[1])
    expected = [median(y - x for x in first for y in second) for first, second in cells]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert shifts(b, lengths[1], a, lengths[0]) == pytest.approx(-found, abs=1e-12)
    assert shifts(a, lengths[0], b + by, lengths[1]) == pytest.approx(found + by)
    assert np.isnan(shifts(a[:0], np.array([0]), b, lengths[1][:1])).all()


def changes_of(raw: list[float], vs_memcpy: list[float], error: float = 0.002) -> Changes:
    errors, df = np.full(len(raw), error), np.full(len(raw), 20.0)
    estimates = (ChangeEstimate(np.array(v), errors, df) for v in (raw, vs_memcpy))
    return Changes(*estimates, np.zeros(len(raw)))


def test_both_ways_agree_and_cells_are_believed_by_their_groups() -> None:
    changes = changes_of([0.05, 0.05, 0.05, 0.0], [0.05, 0.0, -0.05, 0.05])
    assert (changes.p < 0.05).tolist() == [True, False, False, False]
    assert alarms(changes, DELTA).tolist() == [True, False, False, False]
    # Half of the groups changed: within them 2.5 % have to do, and not 5 %.
    p = np.array([1e-4, 0.04, 0.9, 0.9])
    assert believed_cells(p, ["a", "a", "b", "b"]).tolist() == [True, False, False, False]
    assert believed_cells(p[:2], ["a", "a"]).tolist() == [True, True]


@pytest.mark.parametrize("groups", [1, 40])
@pytest.mark.parametrize(("factor", "alarm"), [(1.001, True), (0.999, False)])
def test_an_alarm_has_a_chance_of_one_in_forty(groups: int, factor: float, alarm: bool) -> None:
    """Of `groups` one changed: it alarms beyond the quantile of its share of 2.5 %, not before."""
    change = [math.log1p(DELTA) + factor * float(students_t(20).isf(0.025 / groups)) * 0.002]
    change += [0.0] * (groups - 1)
    assert alarms(changes_of(change, change), DELTA).tolist() == [alarm] + [False] * (groups - 1)


@given(st.lists(st.floats(0.0, 1.0), max_size=12))
def test_p_values_are_adjusted_as_scipy_does(values: list[float]) -> None:
    p = np.array(values)
    expected = false_discovery_control(p) if values else p
    assert adjusted(p).tolist() == expected.tolist()


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.integers(1, 4))
def test_cells_are_believed_in_groups_that_changed_alone(values: list[float], groups: int) -> None:
    p, names = np.array(values), np.arange(len(values)) % groups
    believed = believed_cells(p, names.tolist())
    for name in set(names.tolist()):
        inside = names == name
        assert not believed[inside].any() or min(adjusted(p[inside])) <= 0.05
        # What is believed is never less probable than what is not, in the same group.
        if believed[inside].any():
            assert believed[inside][p[inside] <= p[inside & believed].max()].all()


@given(times)
def test_the_estimate_is_the_median_of_all_means_of_two(values: list[float]) -> None:
    means = [(x + y) / 2 for x, y in combinations_with_replacement(values, 2)]
    assert hodges_lehmann(np.array(values)) == pytest.approx(median(means), abs=1e-12)


@given(st.floats(0.5, 2.0), st.floats(-0.1, 0.1), st.floats(-9.0, -5.0))
def test_a_steady_drift_is_in_no_change(ratio: float, drift: float, begin: float) -> None:
    """Log seconds that grow by the same amount from sample to sample, A B B A and mirrored."""
    logs = begin + drift * np.arange(4 * 6).reshape(6, 4)
    mirrored = (np.arange(6) % 2 == 1)[:, None]
    outer, inner = logs[:, [0, 3]], logs[:, [1, 2]]
    a = np.where(mirrored, inner, outer)
    b = np.where(mirrored, outer, inner) + np.log(ratio)
    assert block_changes(np.exp(a), np.exp(b)) == pytest.approx(np.full(6, np.log(ratio)), abs=1e-9)


def test_a_paired_change_is_judged_by_students_t() -> None:
    changes = np.array([0.01, 0.03, 0.02, 0.05])
    found, margin = paired_change(changes, DELTA), math.log1p(DELTA)
    interval = ttest_1samp(changes, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    above, below = (
        {b: float(ttest_1samp(changes, b, alternative=how).pvalue) for b in (margin, -margin)}
        for how in ("greater", "less")
    )
    assert found.p_other == pytest.approx(float(ttest_1samp(changes, 0.0).pvalue))
    assert found.p_same == pytest.approx(max(above[-margin], below[margin]))
    assert found.p_beyond == pytest.approx(above[margin])
    with pytest.raises(ValueError, match="3 blocks; an interval needs 4"):
        paired_change(np.zeros(MIN_BLOCKS - 1), DELTA)


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0.0, ChangeVerdict.SAME), (0.02, ChangeVerdict.SLOWER), (-0.02, ChangeVerdict.FASTER)],
)
@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_what_is_planted_is_found(shift: float, verdict: ChangeVerdict, noise: float) -> None:
    rng = np.random.default_rng(1)
    drawn = shift + noise * rng.standard_normal((200, 8))
    found = judged([paired_change(changes, DELTA) for changes in drawn])
    assert sum(each == (verdict, shift > DELTA) for each in found) > 195
    assert judged([]) == []


@pytest.mark.parametrize(("p", "is_shown"), [(0.049, True), (0.051, False)])
def test_one_verdict_in_twenty_may_be_wrong(p: float, is_shown: bool) -> None:
    change = PairedChange(0.02, 0.01, 0.03, p_other=p, p_same=1.0, p_beyond=p / 2)
    [(verdict, beyond)] = judged([change])
    assert (verdict is ChangeVerdict.SLOWER, beyond) == (is_shown, is_shown)
    [(verdict, _)] = judged([replace(change, p_same=p)])
    assert (verdict is ChangeVerdict.SAME) == is_shown


@pytest.mark.parametrize("n", range(2, 32))
def test_the_interval_of_a_mean_is_student_s(n: int) -> None:
    values = [float(i * i % 7) for i in range(n)]
    interval = mean_interval(values)
    half = students_t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)
    assert interval.high == pytest.approx(np.mean(values) + half, rel=1e-4)
    assert interval.low == pytest.approx(np.mean(values) - half, rel=1e-4, abs=1e-4)
