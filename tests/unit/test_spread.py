"""Intervals that cover another run: their coverage on drawn runs, and what they rest on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from gpushmoo.analysis.spread import (
    CLASS_CELLS,
    ROUND_CELLS,
    Spread,
    Usual,
    deviations,
    half_widths,
    spread_of,
    variance_within,
)
from gpushmoo.core.median import median_interval
from hypothesis import given
from hypothesis import strategies as st

SHARDS, CELLS = 150, 16


def drawn_run(
    rng: np.random.Generator, truth: np.ndarray, sizes: np.ndarray, drift: float, repeats: int
) -> list[np.ndarray]:
    """Log medians of each shard, shape (cells, repeats): truth, what is shared, what is own."""
    return [
        truth[i][:, None]
        + drift * rng.standard_normal(repeats)
        + sizes[i][:, None] * rng.standard_normal((CELLS, repeats))
        for i in range(SHARDS)
    ]


def intervals(run: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, half-width of the whole interval and of the own one, for all cells of a run."""
    names, rounds = ["class"] * CELLS, ["rounds"] * CELLS
    found = [deviations(logs, rounds, names) for logs in run]
    spread = spread_of(found)
    assert spread is not None
    halves = [
        half_widths(logs, d.own, np.zeros(CELLS), names, spread)
        for logs, d in zip(run, found, strict=True)
    ]
    means = np.concatenate([logs.mean(axis=1) for logs in run])
    whole, own = (np.concatenate([getattr(h, n) for h in halves]) for n in ("whole", "own"))
    return means, whole, own


@pytest.mark.parametrize(
    ("repeats", "drift", "uneven"), [(2, 0.0, 0.4), (2, 0.05, 0.6), (3, 0.002, 0.6), (5, 0.05, 0.0)]
)
def test_two_drawn_runs_agree_as_often_as_95_percent_intervals_do(
    repeats: int, drift: float, uneven: float
) -> None:
    rng = np.random.default_rng([repeats, int(drift * 1000), int(uneven * 10)])
    truth = rng.uniform(-1.0, 1.0, (SHARDS, CELLS))
    # The cells' own spread differs by a factor of e^uneven, as a log-normal.
    sizes = 0.002 * np.exp(uneven * rng.standard_normal((SHARDS, CELLS)))
    (a, half_a, _), (b, half_b, _) = (
        intervals(drawn_run(rng, truth, sizes, drift, repeats)) for _ in range(2)
    )
    away = np.abs(a - b)
    # What a shard's cells share is one draw of 150, so that these shares themselves scatter.
    slack = 0.05 if drift > 0.01 else 0.0
    assert np.mean(away > half_a + half_b) <= 0.02
    assert 0.80 - slack <= np.mean([away <= half_a, away <= half_b]) <= 0.92
    covered = np.mean(np.abs(a - truth.ravel()) <= half_a)
    assert 0.92 - 2 * slack <= covered <= 0.98


def test_cells_are_compared_without_what_they_share() -> None:
    rng = np.random.default_rng(5)
    truth = np.zeros((SHARDS, CELLS))
    sizes = np.full((SHARDS, CELLS), 0.001)
    _, whole, own = intervals(drawn_run(rng, truth, sizes, drift=0.1, repeats=2))
    assert np.median(own) < 0.003
    assert np.median(whole) > 0.1


def test_what_all_cells_share_is_told_from_what_is_their_own() -> None:
    own = np.array([[0.01, -0.01], [-0.01, 0.01]] * (ROUND_CELLS // 2))
    shared = np.array([0.2, -0.2])
    found = deviations(own + shared, ["r"] * ROUND_CELLS, ["c"] * ROUND_CELLS)
    assert found.drift == pytest.approx(2 * 0.2**2)
    n = ROUND_CELLS
    assert found.own == pytest.approx(2 * 0.01**2 * n / (n - 1))


def test_few_cells_count_what_they_share_as_their_own() -> None:
    logs = np.tile([0.2, -0.2], (ROUND_CELLS - 1, 1))
    found = deviations(logs, ["r"] * len(logs), ["c"] * len(logs))
    assert found.drift is None
    assert found.own == pytest.approx(2 * 0.2**2)


def test_a_single_pair_of_repeats_has_the_interval_of_two_measurements() -> None:
    """Of two values with nothing beside them: 12.7 standard errors."""
    logs = np.array([[0.01, -0.01]])
    found = deviations(logs, ["r"], ["c"])
    spread = spread_of([found])
    assert spread == Spread({}, Usual(pytest.approx(2e-4), 0.0), 0.0, 0.0)
    half = half_widths(logs, found.own, np.zeros(1), ["c"], spread)
    assert half.own == pytest.approx(12.706 * 0.01, rel=1e-4)
    assert half.whole == pytest.approx(half.own)


@pytest.mark.parametrize(
    ("repeats", "of_class", "of_samples"),
    [
        pytest.param(1, 1e-4, 0.0, id="measured once: known as well as its class"),
        pytest.param(2, 1e-8, 2e-4, id="samples that scatter more than repeats are believed"),
    ],
)
def test_what_a_cell_is_known_by(repeats: int, of_class: float, of_samples: float) -> None:
    spread = Spread({"c": Usual(of_class, 1e6)}, Usual(1.0, 1e6), 0.0, 0.0)
    half = half_widths(np.zeros((1, repeats)), np.zeros(1), np.array([of_samples]), ["c"], spread)
    assert half.own == pytest.approx(1.96 * 0.01, rel=1e-3)


def test_one_repeat_tells_no_deviations() -> None:
    with pytest.raises(ValueError, match="one repeat"):
        deviations(np.zeros((3, 1)), [1, 1, 1], [1, 1, 1])
    assert spread_of([]) is None
    assert spread_of([deviations(np.zeros((0, 2)), [], [])]) is None


def test_a_class_has_its_own_spread_when_it_has_cells_enough() -> None:
    rng = np.random.default_rng(9)
    names = ["calm"] * CLASS_CELLS + ["wild"] * CLASS_CELLS + ["rare"] * 3
    sizes = np.array([0.001] * CLASS_CELLS + [0.1] * CLASS_CELLS + [0.01] * 3)
    logs = sizes[:, None] * rng.standard_normal((len(names), 2))
    spread = spread_of([deviations(logs, range(len(names)), names)])
    assert spread is not None
    assert set(spread.classes) == {"calm", "wild"}
    assert spread.usual("calm").variance < 1e-5 < 1e-3 < spread.usual("wild").variance
    assert spread.usual("rare") == spread.whole


def test_clocks_that_show_no_difference_give_intervals_all_the_same() -> None:
    logs = np.zeros((50, 2))
    logs[:3] = [[1e-3, -1e-3]] * 3
    found = deviations(logs, range(50), ["c"] * 50)
    spread = spread_of([found])
    assert spread is not None
    half = half_widths(logs, found.own, np.zeros(50), ["c"] * 50, spread)
    assert np.isfinite(half.whole).all()
    assert (half.whole > 0).all()


@given(st.lists(st.floats(1.0, 1.5), min_size=6, max_size=40))
def test_variance_of_a_median_follows_from_its_interval(samples: list[float]) -> None:
    m = median_interval(samples)
    found = variance_within(*(np.array([v]) for v in (m.low, m.high, m.coverage)))[0]
    assert found >= 0.0
    assert (found == 0.0) == (m.low == m.high)


def test_one_sample_tells_nothing_of_its_spread() -> None:
    assert variance_within(np.array([1.0]), np.array([1.0]), np.array([0.0])) == 0.0
