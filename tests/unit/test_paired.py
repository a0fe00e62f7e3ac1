"""The change between two versions that were sampled alternately: estimates, intervals, verdicts."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from statistics import median

import numpy as np
import pytest
from gpushmoo.comparing.paired import (
    LEAST_BLOCKS,
    PairedChange,
    PairedVerdict,
    block_changes,
    hodges_lehmann,
    judged,
    paired_change,
)
from hypothesis import given
from hypothesis import strategies as st

DELTA = 0.01
CELLS, BLOCKS, NOISE = 400, 8, 0.003


def drawn(shift: float, seed: int, cells: int = CELLS) -> list[np.ndarray]:
    """Changes of cells, each of BLOCKS blocks."""
    rng = np.random.default_rng(seed)
    return list(np.log1p(shift) + NOISE * rng.standard_normal((cells, BLOCKS)))


def verdicts(shift: float, seed: int = 1) -> list[PairedVerdict]:
    return [j.verdict for j in judged([paired_change(c, DELTA) for c in drawn(shift, seed)])]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_the_estimate_is_the_median_of_all_means_of_two(values: list[float]) -> None:
    means = [(x + y) / 2 for x, y in combinations_with_replacement(values, 2)]
    assert hodges_lehmann(np.array(values)) == pytest.approx(median(means), abs=1e-12)


@given(st.floats(0.5, 2.0), st.floats(-0.1, 0.1), st.integers(0, 2**32 - 1))
def test_a_steady_drift_is_in_no_change(ratio: float, drift: float, seed: int) -> None:
    """Log seconds that grow by the same amount from sample to sample, A B B A and mirrored."""
    at = np.arange(4 * 6).reshape(6, 4)
    begin = np.random.default_rng(seed).uniform(-9, -5)
    logs = begin + drift * at
    mirrored = np.arange(6) % 2 == 1
    outer, inner = logs[:, [0, 3]], logs[:, [1, 2]]
    a = np.where(mirrored[:, None], inner, outer)
    b = np.where(mirrored[:, None], outer, inner) + np.log(ratio)
    assert block_changes(np.exp(a), np.exp(b)) == pytest.approx(np.full(6, np.log(ratio)), abs=1e-9)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    truth = np.log1p(0.02)
    changes = [paired_change(c, DELTA) for c in drawn(0.02, 7, 2000)]
    held = np.mean([c.low <= truth <= c.high for c in changes])
    assert held == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_changed_few_are_told_to_be_others(seed: int) -> None:
    told = verdicts(0.0, seed)
    assert PairedVerdict.SAME in told
    assert sum(v in (PairedVerdict.SLOWER, PairedVerdict.FASTER) for v in told) <= 2


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0.03, PairedVerdict.SLOWER), (-0.03, PairedVerdict.FASTER), (0.001, PairedVerdict.SAME)],
)
def test_what_is_planted_is_found(shift: float, verdict: PairedVerdict) -> None:
    told = verdicts(shift)
    assert told.count(verdict) > 0.99 * CELLS


def test_beyond_is_what_is_slower_by_more_than_delta() -> None:
    for shift, expected in ((0.0, 0), (0.01, 0), (0.05, CELLS)):
        found = judged([paired_change(c, DELTA) for c in drawn(shift, 3)])
        assert sum(j.beyond for j in found) == pytest.approx(expected, abs=0.01 * CELLS)


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 0.5), st.floats(-0.05, 0.05))
def test_what_is_beyond_is_slower(seed: int, noise: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    changes = [shift + noise * rng.standard_normal(LEAST_BLOCKS) for _ in range(20)]
    for told in judged([paired_change(c, DELTA) for c in changes]):
        assert not told.beyond or told.verdict is PairedVerdict.SLOWER
        assert told.change.low <= told.change.high


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0.0, PairedVerdict.SAME), (0.02, PairedVerdict.SLOWER), (-0.02, PairedVerdict.FASTER)],
)
def test_blocks_without_any_spread_have_a_verdict(shift: float, verdict: PairedVerdict) -> None:
    [told] = judged([paired_change(np.full(4, shift), DELTA)])
    assert told.verdict is verdict
    assert told.beyond == (shift > DELTA)


@pytest.mark.parametrize(("p", "told"), [(0.049, True), (0.051, False)])
def test_one_verdict_in_twenty_may_be_wrong_and_one_in_forty_that_is_beyond(
    p: float, told: bool
) -> None:
    of_change = PairedChange(0.02, 0.01, 0.03, p_other=p, p_same=1.0, p_beyond=p / 2)
    [found] = judged([of_change])
    assert (found.verdict is PairedVerdict.SLOWER, found.beyond) == (told, told)
    [found] = judged([replace(of_change, p_same=p)])
    assert (found.verdict is PairedVerdict.SAME) == told


def test_too_few_blocks_and_no_cells() -> None:
    with pytest.raises(ValueError, match="3 blocks; an interval needs 4"):
        paired_change(np.zeros(3), DELTA)
    assert judged([]) == []
