"""Sampling rules on synthetic sequences; no device, no clock."""

import itertools
import math
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pytest
from gpushmoo.core.median import CONFIDENCE, median_interval
from gpushmoo.core.run_plan import MIN_SAMPLES, fully_sampled
from gpushmoo.core.space import Condition
from gpushmoo.measuring.rounds import shuffled
from gpushmoo.measuring.sample_length import (
    LASTING_S,
    LONG_S,
    LONGEST_S,
    MAX_FLUSHED,
    MAX_LAUNCHES,
    launches_of_cell,
    launches_of_group,
)
from gpushmoo.measuring.sampling import StoppingRule
from hypothesis import given
from hypothesis import strategies as st

TIMES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40)


def coverage_by_enumeration(n: int, k: int) -> float:
    """Share of all 2ⁿ below/above patterns in which the median is in [X(k), X(n+1−k)]."""
    below = [sum(pattern) for pattern in itertools.product((0, 1), repeat=n)]
    return sum(k <= b <= n - k for b in below) / 2**n


def order_statistic(n: int) -> int:
    """The k (from 1) whose order statistics the library takes for n samples."""
    return int(median_interval(range(n)).low) + 1


@pytest.mark.parametrize("n", range(1, 15))
def test_coverage_is_the_exact_probability(n: int) -> None:
    interval = median_interval(range(n))
    assert interval.coverage == pytest.approx(coverage_by_enumeration(n, order_statistic(n)))


@pytest.mark.parametrize("n", range(6, 15))
def test_interval_is_the_narrowest_that_reaches_95_percent(n: int) -> None:
    k = order_statistic(n)
    assert coverage_by_enumeration(n, k) >= CONFIDENCE
    assert 2 * (k + 1) > n or coverage_by_enumeration(n, k + 1) < CONFIDENCE


RULE = StoppingRule(min_samples=7, max_samples=20, relative_half_width=0.01, budget_s=5.0)
NOISY = [1.0, 2.0] * 20


@pytest.mark.parametrize(
    ("samples", "second_each", "stops"),
    [
        pytest.param([1.0] * 40, 0.0, {7}, id="steady: at the minimum"),
        pytest.param(NOISY, 0.0, {20}, id="noisy: at the maximum"),
        # With nine samples the interval drops the extreme on each side.
        pytest.param([1.0, 9.0] + [1.0] * 38, 0.0, {9}, id="an outlier keeps none going"),
        pytest.param([1.5, 1.2] + [1.0] * 38, 0.0, range(8, 20), id="settles"),
        pytest.param(NOISY, 0.5, {10}, id="the budget ends a noisy cell"),
        pytest.param(NOISY, 100.0, {7}, id="but never before the minimum"),
    ],
)
def test_where_cells_stop(samples: list[float], second_each: float, stops: Collection[int]) -> None:
    done = (n for n in range(41) if RULE.done(samples[:n], n * second_each))
    assert next(done) in stops


@pytest.mark.parametrize(("spread", "done"), [(0.0099, True), (0.0101, False)])
def test_interval_is_narrow_enough_up_to_the_configured_share(spread: float, done: bool) -> None:
    samples = [1.0 - spread, *[1.0] * 5, 1.0 + spread]
    assert RULE.done(samples, 0.0) is done


@pytest.mark.parametrize(
    ("launch_s", "launches"), [(1.0, 1), (50e-6, 1), (49e-6, 2), (20e-6, 4), (1e-9, 256), (0, 256)]
)
def test_only_short_launches_are_batched_if_each_is_timed(launch_s: float, launches: int) -> None:
    assert launches_of_group(launch_s, has_overhead=False) == launches
    # A flush before each keeps them few.
    assert launches_of_group(launch_s, Condition("flushed")) == min(launches, MAX_FLUSHED)


@given(st.floats(1e-7, 1.0), st.sampled_from([0.5, 1.0, 2.0]))
def test_a_row_lasts_long_enough_for_its_overhead(launch_s: float, factor: float) -> None:
    for kind in ("batched", "graph"):
        n = launches_of_group(launch_s, Condition("warm", kind), factor=factor)
        assert n in {2**i for i in range(9)}
        assert (n == 1) == (launch_s >= LONG_S)
        assert n * launch_s >= factor * LASTING_S or n in (1, MAX_LAUNCHES)
        assert n <= 2 or n * launch_s < 2 * factor * LASTING_S


@given(st.sampled_from([1, 2, 64, 256]), st.floats(1e-7, 10.0))
def test_a_sample_ends_before_it_looks_like_a_hang(launches: int, launch_s: float) -> None:
    n = launches_of_cell(launches, launch_s)
    assert 1 <= n <= launches
    assert n == 1 or n * launch_s <= LONGEST_S
    assert n == launches or (n + 1) * launch_s > LONGEST_S


def test_launches_in_a_sample_are_limited() -> None:
    """What a sample costs rests on them; other tests read these numbers where the code does."""
    shortest, longest = 1e-9, 1.0
    assert launches_of_group(shortest, Condition("flushed")) == 4
    assert launches_of_group(shortest, Condition("warm", "isolated")) == 4
    stream = Condition("warm", "stream")
    assert [launches_of_group(s, stream) for s in (shortest, 1e-4, longest)] == [128, 16, 4]
    assert [launches_of_cell(n, 0.0625) for n in (4, 5, 64)] == [4, 4, 4]
    assert StoppingRule(7, 31, 0.002, 2.0).shared_among(31).max_samples == 6
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


@given(st.lists(st.integers(), max_size=30), st.integers(0, 2**32 - 1))
def test_round_is_a_permutation_that_the_seed_decides(items: list[int], seed: int) -> None:
    one, two = (list(shuffled(items, np.random.default_rng(seed))) for _ in range(2))
    assert one == two
    assert sorted(one) == sorted(items)


@given(st.integers(1, 20))
def test_repeats_share_the_samples_of_a_cell(repeats: int) -> None:
    rule = StoppingRule(7, 31, 0.002, 2.0)
    each = rule.shared_among(repeats)
    for mine, all_samples in ((each.min_samples, 7), (each.max_samples, 31)):
        fewest = 3 if repeats >= 3 and all_samples == 7 else MIN_SAMPLES
        assert mine >= fewest
        assert repeats * mine >= all_samples > repeats * (mine - 1) or mine == fewest
    assert each.budget_s * repeats == pytest.approx(2.0)
    assert each.relative_half_width == pytest.approx(0.002 * math.sqrt(repeats))
    assert each.gives_up is (repeats >= 3)


@pytest.mark.parametrize(
    ("samples", "gives_up", "stops"),
    [
        pytest.param(NOISY, True, 3, id="hopeless: at the minimum"),
        pytest.param(NOISY, False, 12, id="but with few repeats at the maximum"),
        pytest.param([1.0] * 12, True, MIN_SAMPLES, id="steady: once that counts"),
        # Half of the range is 0.015, times √(5/12) less than 0.01, times √(6/12) more.
        pytest.param([1.0, 1.03, 1.0] + [1.0, 1.03] * 9, True, 6, id="until it is out of reach"),
        pytest.param([1.0, 1.05, 1.0] + [1.0] * 9, True, 3, id="out of reach"),
    ],
)
def test_unsure_cells_are_given_up(samples: list[float], gives_up: bool, stops: int) -> None:
    rule = StoppingRule(3, 12, 0.01, 5.0, gives_up)
    assert next(n for n in range(41) if rule.done(samples[:n], 0.0)) == stops


@pytest.mark.parametrize(("repeats", "least"), [(2, 6), (3, 4), (5, 3)])
def test_later_repeats_measure_what_was_fully_sampled(repeats: int, least: int) -> None:
    """Not those that a search left at fewer, and none that ended in a fault."""
    counts = [least - 1, least, least + 1, 0, least]
    statuses = ["ok", "ok", "ok", "wrong_result", "timeout"]
    table = pa.table({"status": statuses, "samples_s": [[1.0] * n or None for n in counts]})
    measure = {"min_samples": 10, "repeats": repeats}
    rule = StoppingRule(10, 41, 0.01, 2.0).shared_among(repeats)
    assert rule.min_samples == least
    whole = fully_sampled(table, measure).to_pylist()
    assert whole == [False, True, True, False, False]
