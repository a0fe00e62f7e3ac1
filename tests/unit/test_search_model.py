"""What guided searches are made of: features, the process, transfer, the tally."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from gpushmoo.search.guided import expected_of, improvement, normal
from gpushmoo.search.model import Posterior, Process, _sectors, features_of, minimised
from gpushmoo.search.planner import Candidate, Prior
from gpushmoo.search.race import Tally
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import check_grad
from scipy.stats import norm
from search_cases import blocks_of, line_of

SIDES = range(4, 65, 4)


def test_features_are_finite_scaled_and_none_is_another_again() -> None:
    features = features_of(blocks_of(SIDES))
    assert np.isfinite(features).all()
    assert np.allclose(features.mean(axis=0), 0.0)
    assert np.allclose(features.std(axis=0), 1.0)
    alike = np.abs(np.corrcoef(features.T)) - np.eye(features.shape[1])
    assert alike.max() < 0.9999


def test_an_axis_of_its_own_is_the_one_feature_that_varies() -> None:
    """From 0 on; a group of one candidate has none."""
    features = features_of(line_of(30))
    assert features.shape == (30, 1)
    assert (np.diff(features[:, 0]) > 0).all()
    assert features_of(line_of(1)).shape == (1, 0)


def test_occupancy_that_is_not_told_is_no_feature() -> None:
    told = blocks_of(SIDES)
    untold = [replace(c, resident_per_unit=None) for c in told]
    assert features_of(untold).shape[1] < features_of(told).shape[1]


@pytest.mark.parametrize(
    ("block_x", "element_bytes", "over"),
    [
        (32, 4, 1.0),
        (64, 12, 1.0),
        # Eight rows of 16 bytes, each in a sector of its own.
        (4, 4, 2.0),
        # Every thread has a sector of its own, half of which is empty.
        (1, 16, 2.0),
    ],
)
def test_sectors_of_a_warp(block_x: int, element_bytes: int, over: float) -> None:
    assert _sectors(block_x, element_bytes) == pytest.approx(over)


@pytest.mark.parametrize("block_x", [3, 7, 12, 20, 33])
@pytest.mark.parametrize("element_bytes", [4, 12])
def test_sectors_are_those_that_counting_finds(block_x: int, element_bytes: int) -> None:
    found = set()
    period = math.lcm(block_x, 32)
    for thread in range(period):
        row, column = divmod(thread, block_x)
        for byte in range(column * element_bytes, (column + 1) * element_bytes):
            found.add((thread // 32, row, byte // 32))
    least = period * element_bytes / 32
    assert _sectors(block_x, element_bytes) == pytest.approx(len(found) / least)


def process_of(count: int = 40) -> tuple[Process, np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    x = draw.standard_normal((count, 3))
    places = np.arange(0, count, 2)
    values = np.sin(x[places, 0]) + 0.3 * x[places, 1]
    return Process(x), x, places, values


def test_the_gradient_is_that_of_the_loss() -> None:
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


def test_the_posterior_is_the_textbook_s() -> None:
    """Rasmussen and Williams 2006, equations 2.25 and 2.26, by SciPy's solver."""
    process, x, places, values = process_of()
    errors = np.full(len(values), 0.05)
    process.fit(places, values, errors)
    found = process.posterior(places, values, errors)
    unit, centre = values.std(), values.mean()
    lengths = np.exp(process._theta[:-2])
    amplitude, noise = np.exp(2 * process._theta[-2:])
    r = np.sqrt(5) * np.linalg.norm((x[:, None] - x[None]) / lengths, axis=2)
    k = amplitude * (1 + r + r**2 / 3) * np.exp(-r)
    own = k[np.ix_(places, places)] + np.diag(noise + (errors / unit) ** 2)
    factor = cho_factor(own)
    mean = centre + unit * k[:, places] @ cho_solve(factor, (values - centre) / unit)
    variance = unit**2 * (
        amplitude + noise - np.sum(k[:, places].T * cho_solve(factor, k[places]), axis=0)
    )
    assert np.allclose(found.mean, mean, atol=1e-5)
    assert np.allclose(found.variance, variance, rtol=1e-3, atol=1e-6)


def test_following_a_place_is_measuring_what_was_expected() -> None:
    process, _, places, values = process_of()
    errors = np.full(len(values), 1e-6)
    process.fit(places, values, errors)
    before = process.posterior(places, values, errors)
    after = process.followed(before, 5, float(values.std()))
    assert np.array_equal(after.mean, before.mean)
    assert after.variance[5] < before.variance[5]
    assert (after.variance <= before.variance + 1e-12).all()


def test_bfgs_finds_the_least_of_a_curved_valley() -> None:
    def loss(t: np.ndarray) -> tuple[float, np.ndarray]:
        slope = 2.0 * np.array([1.0, 10.0]) * (t - np.array([1.0, -2.0]))
        return float((t[0] - 1.0) ** 2 + 10.0 * (t[1] + 2.0) ** 2), slope

    assert minimised(loss, np.zeros(2)) == pytest.approx([1.0, -2.0], abs=0.02)


def test_expected_improvement_and_the_normal_distribution_are_scipy_s() -> None:
    z = np.linspace(-7.0, 7.0, 501)
    assert np.allclose(normal(z), norm.cdf(z), atol=1e-6)
    posterior = Posterior(z, np.full(501, 0.25), np.zeros((0, 501)))
    u = (0.3 - z) / 0.5
    assert np.allclose(
        improvement(posterior, 0.3), 0.5 * (u * norm.cdf(u) + norm.pdf(u)), atol=1e-5
    )


def test_what_is_expected_from_elsewhere() -> None:
    """The mean of several priors, the nearest where there is none; other axes say nothing."""
    group = line_of(4)
    priors = [
        Prior((("unroll", 0),), 1.0),
        Prior((("unroll", 1),), 2.0),
        Prior((("unroll", 1),), 8.0),
    ]
    expected = expected_of(group, priors)
    assert expected is not None
    assert np.exp(expected) == pytest.approx([1.0, 4.0, 4.0, 4.0])
    assert expected_of(group, [Prior((("grid", 0),), 1.0)]) is None
    assert expected_of(group, []) is None
    with pytest.raises(ValueError, match=r"0\.5 times as slow"):
        expected_of(group, [Prior((("unroll", 0),), 0.5)])


def test_a_cell_is_full_as_measuring_has_it() -> None:
    tally = Tally(3, (6, 16, 0.01))
    tally.tell(0, [1.0] * 6)
    assert tally.wanted(0, 2) == 0
    tally.tell(1, [1.0, 2.0, 3.0])
    assert tally.wanted(1, 2) == 2
    tally.tell(1, [1.0, 2.0, 3.0])
    assert tally.wanted(1, 2) == 3
    tally.tell(1, [1.0, 2.0, 3.0] * 3)
    assert tally.wanted(1, 2) == 1
    assert tally.wanted(2, 2) == 2
    tally.fail(2)
    assert tally.wanted(2, 2) == 0


def test_the_front_holds_who_may_be_the_fastest() -> None:
    tally = Tally(4, (6, 16, 0.01))
    for place, seconds in enumerate((1.0, 1.005, 2.0)):
        tally.tell(place, [seconds * f for f in (0.99, 1.0, 1.01)])
    assert tally.front().tolist() == [0, 1]
    assert (tally.measured.tolist(), tally.unmeasured.tolist(), tally.best) == ([0, 1, 2], [3], 0)


def test_a_search_imports_neither_scipy_nor_pandas() -> None:
    """They take longer to import than a guided search of a large group takes."""
    program = """
import sys
import gpushmoo.search.guided
print(sorted({"scipy", "pandas", "sklearn"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_candidate_s_threads() -> None:
    assert Candidate((), (8, 4, 2), 1, 1, 1, 4, 1, None).threads == 64
