"""The statistics of comparisons, held against brute force and against published formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpushmoo.comparing.decisions import Changes, adjusted, alarms, believed_cells
from gpushmoo.comparing.moderated import (
    FEWEST,
    UsualVariance,
    fit_prior,
    moderated,
    trigamma_inverse,
)
from gpushmoo.comparing.shift import shift, shifts
from gpushmoo.comparing.spreads import ChangeEstimate, Spreads, estimate, replicated
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma
from scipy.stats import t as students_t
from scipy.stats import ttest_1samp

times = st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=9)


@given(times, times)
def test_the_shift_is_the_median_of_all_differences(
    first: list[float], second: list[float]
) -> None:
    every = sorted(b - a for a in first for b in second)
    n = len(every)
    expected = (every[(n - 1) // 2] + every[n // 2]) / 2
    assert shift(first, second) == pytest.approx(expected, abs=1e-12)


@given(times, times, st.floats(-3.0, 3.0))
def test_the_shift_follows_what_is_added_and_changes_sign(
    first: list[float], second: list[float], by: float
) -> None:
    assert shift(first, [x + by for x in second]) == pytest.approx(shift(first, second) + by)
    assert shift(second, first) == pytest.approx(-shift(first, second), abs=1e-12)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=5))
def test_many_shifts_are_each_as_one(cells: list[tuple[list[float], list[float]]]) -> None:
    sides = [[np.array(cell[i]) for cell in cells] for i in (0, 1)]
    lengths = [np.array([len(values) for values in side]) for side in sides]
    found = shifts(np.concatenate(sides[0]), lengths[0], np.concatenate(sides[1]), lengths[1])
    assert found.tolist() == pytest.approx([shift(a, b) for a, b in cells], abs=1e-12)


def test_one_outlier_does_not_move_the_shift_far() -> None:
    assert shift([1.0] * 7, [1.1] * 6 + [9.0]) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no samples"):
        shift([], [1.0])


@given(st.floats(1e-8, 1e9))
def test_the_inverse_of_trigamma_is_one(value: float) -> None:
    y = trigamma_inverse(value)
    assert float(polygamma(1, y)) == pytest.approx(value, rel=1e-3)


def test_the_usual_variance_is_found_again() -> None:
    """Variances drawn as s₀² F(d, d₀), the model of Smyth's section 3."""
    rng = np.random.default_rng(5)
    drawn = 4e-6 * rng.f(3, 7, 20_000)
    usual = fit_prior(drawn, 3)
    assert usual.variance == pytest.approx(4e-6, rel=0.1)
    assert usual.df == pytest.approx(7, rel=0.2)
    alike = fit_prior(4e-6 * rng.chisquare(3, 20_000) / 3, 3)
    assert alike.df > 100
    assert alike.variance == pytest.approx(4e-6, rel=0.05)


def test_the_moments_are_those_of_the_paper() -> None:
    """ē and its spread determine d₀ and s₀² by digamma and trigamma alone (section 6.2)."""
    variances = np.geomspace(1e-7, 1e-5, 40)
    usual = fit_prior(variances, 4)
    e = np.log(variances) - float(polygamma(0, 2)) + math.log(2)
    assert float(polygamma(1, usual.df / 2)) == pytest.approx(
        e.var(ddof=1) - float(polygamma(1, 2))
    )
    s0 = math.log(usual.variance) - float(polygamma(0, usual.df / 2)) + math.log(usual.df / 2)
    assert s0 == pytest.approx(e.mean())


def test_few_variances_and_zeros_give_their_mean() -> None:
    assert fit_prior(np.array([1.0, 3.0]), 2) == UsualVariance(2.0, 2)
    assert fit_prior(np.zeros(FEWEST), 2) == UsualVariance(0.0, 2)
    assert fit_prior(np.geomspace(1.0, 64.0, 7), 2).df == 2
    assert fit_prior(np.geomspace(1.0, 64.0, 8), 2).df != 2
    with pytest.raises(ValueError, match="no cells"):
        fit_prior(np.empty(0), 2)


def test_variances_are_shrunk_by_their_degrees_of_freedom() -> None:
    """Smyth's equation 2; infinitely many prior degrees leave nothing to the cell itself."""
    own = np.array([9.0, 9.0, 9.0])
    found, df = moderated(np.array([1.0, 1.0, 1.0]), np.array([3.0, 0.0, math.inf]), own, 1.0)
    assert found.tolist() == [3.0, 9.0, 1.0]
    assert df.tolist() == [4.0, 1.0, math.inf]
    prior, _ = moderated(np.array([1.0]), np.array([3.0]), np.array([math.nan]), 0)
    assert prior.tolist() == [1.0]


def test_few_cells_in_pairs_have_the_interval_of_students_t() -> None:
    """Of one cell, of which nothing else is known, nothing can be shrunk."""
    changes = np.array([[0.01, 0.03, 0.02, 0.05]])
    seen = replicated([changes], ["x"]).scaled(0.5)
    found = estimate(changes, ["x"], np.zeros(1), None, seen)
    expected = ttest_1samp(changes[0], 0.0)
    low, high = expected.confidence_interval(0.95)
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))
    assert 2 * found.p_beyond(0.0, 1)[0] == pytest.approx(expected.pvalue)


def test_what_cells_share_counts_as_often_as_there_are_runs() -> None:
    rng = np.random.default_rng(3)
    shared = rng.normal(0.0, 0.1, 4)
    logs = shared + rng.normal(0.0, 0.001, (500, 4))
    found = replicated([logs], ["x"] * 500)
    spread = found.spreads().of("x")
    assert spread.shared == pytest.approx(shared.var(ddof=1), rel=0.01)
    assert spread.own.variance == pytest.approx(1e-6, rel=0.2)
    change = estimate(np.zeros((1, 1)), ["x"], np.zeros(1), found.spreads(), None)
    assert change.df[0] == pytest.approx(3.0, rel=0.01)
    assert change.error[0] == pytest.approx(math.sqrt(2.0 * shared.var(ddof=1)), rel=0.01)


def test_a_cell_is_believed_at_the_share_of_groups_that_changed() -> None:
    """Half of the groups changed: within them 2.5 % have to do, and not 5 %."""
    p = np.array([1e-4, 0.04, 0.9, 0.9])
    assert believed_cells(p, ["a", "a", "b", "b"]).tolist() == [True, False, False, False]
    assert believed_cells(p[:2], ["a", "a"]).tolist() == [True, True]


def test_no_error_is_smaller_than_what_the_samples_tell() -> None:
    usual = replicated([np.zeros((9, 3))], ["x"] * 9).spreads()
    found = estimate(np.zeros((1, 1)), ["x"], np.array([0.02]), usual, None)
    assert found.error[0] == pytest.approx(math.sqrt(0.04))


def test_spreads_come_back_from_plain_values() -> None:
    rng = np.random.default_rng(4)
    found = replicated([rng.normal(0.0, 1.0, (40, 3))], ["x"] * 30 + ["y"] * 10).spreads()
    assert Spreads.from_plain(found.as_plain()) == found
    assert found.of("unseen") == found.whole


def test_one_replicate_is_refused() -> None:
    with pytest.raises(ValueError, match="one replicate"):
        replicated([np.zeros((5, 1))], ["x"] * 5)


def changes_of(raw: list[float], over_copy: list[float], error: float = 0.002) -> Changes:
    errors, df = np.full(len(raw), error), np.full(len(raw), 20.0)
    return Changes(
        ChangeEstimate(np.array(raw), errors, df), ChangeEstimate(np.array(over_copy), errors, df)
    )


def test_both_ways_of_looking_have_to_agree() -> None:
    changes = changes_of([0.05, 0.05, 0.05, 0.0], [0.05, 0.0, -0.05, 0.05])
    assert (changes.p < 0.05).tolist() == [True, False, False, False]
    assert alarms(changes, 0.01).tolist() == [True, False, False, False]


@pytest.mark.parametrize(("p", "alarm"), [(0.024, True), (0.026, False)])
def test_an_alarm_is_raised_at_one_in_forty_beyond_delta(p: float, alarm: bool) -> None:
    changes = changes_of([math.log1p(0.01) + 0.002 * float(students_t(20).isf(p))], [1.0])
    assert alarms(changes, 0.01).tolist() == [alarm]


def test_an_alarm_is_corrected_for_the_number_of_groups() -> None:
    """One change at the edge is an alarm alone, and none among a hundred groups."""
    edge = math.log1p(0.01) + 2.2 * 0.002
    assert alarms(changes_of([edge], [edge]), 0.01).tolist() == [True]
    many = [edge] + [0.0] * 99
    assert not alarms(changes_of(many, many), 0.01).any()


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.integers(1, 4))
def test_cells_are_believed_in_groups_that_changed_alone(values: list[float], groups: int) -> None:
    p = np.array(values)
    names = [i % groups for i in range(len(p))]
    believed = believed_cells(p, names)
    for name in set(names):
        inside = np.array([n == name for n in names])
        simes = min(adjusted(p[inside]))
        assert not believed[inside].any() or simes <= 0.05
    # What is believed is never less probable than what is not, in the same group.
    for a in range(len(p)):
        for b in range(len(p)):
            if names[a] == names[b] and believed[a] and p[b] <= p[a]:
                assert believed[b]
