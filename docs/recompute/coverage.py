"""Coverage of intervals and of tied sets on simulated runs, by the library's own estimators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gpushmoo.analysis.statistics import Classes, half_widths, replicated, run_spreads

from .words import Claims

Floats = npt.NDArray[np.float64]
Draws = Callable[[np.random.Generator, tuple[int, ...]], Floats]

REPEATS = (2, 3, 5)
PAIRS, GROUPS, CELLS = 40, 25, 16
# Standard deviation of a cell's log time between repeats: 0.2 %.
NOISE = 0.002
# Mean log time of a cell over that of the fastest.
SLOWER = 0.005
SEED = 2009


@dataclass(frozen=True)
class Scenario:
    """A model of noise: cells of a group, drifts of groups, and how a cell's noise is drawn."""

    name: str
    drift: float = 0.0
    uneven: float = 0.0
    hot: int = 0
    cells: int = CELLS
    groups: int = GROUPS
    draw: Draws = np.random.Generator.standard_normal


def _heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw Student's t with 4 degrees of freedom, scaled to a variance of 1."""
    drawn: Floats = rng.standard_t(4, shape) / np.sqrt(2.0)
    return drawn


SCENARIOS = (
    Scenario("all assumptions are true, no drift"),
    Scenario("a drift of 1 % that each group's cells share", drift=0.01),
    Scenario("noise of cells differs by a factor of e (standard deviation)", uneven=1.0),
    Scenario("heavy tails: Student's t, 4 degrees of freedom", draw=_heavy),
    Scenario("4 of 25 groups drift by 2 %, the others by 0.1 %", drift=0.001, hot=4),
    Scenario("one group of 4 cells, drift of 0.2 %", drift=0.002, cells=4, groups=1),
)


def values(claims: Claims) -> dict[str, Any]:
    """Return a row for each scenario: the share of intervals that contain another run's time.

    `tied` is the share of tied sets that contain the truly fastest cell, over all rows.
    """
    found = [[_simulated(scenario, repeats) for repeats in REPEATS] for scenario in SCENARIOS]
    covered = [[share for share, _ in row] for row in found]
    claims.hold("Intervals cover 94 % or more with even noise.", min(map(min, covered[:2])) >= 0.94)
    claims.hold("Intervals cover nine of ten in each row.", min(map(min, covered)) >= 0.9)
    tied = [[share for _, share in row] for row in found]
    claims.hold("Tied sets contain the fastest cell.", min(map(min, tied)) >= 0.9)
    return {
        "repeats": REPEATS,
        "noise": f"{100 * NOISE:.1f} %",
        "pairs": PAIRS,
        "groups": GROUPS,
        "cells": CELLS,
        "rows": [
            [s.name, *map(_percent, shares)] for s, shares in zip(SCENARIOS, covered, strict=True)
        ],
        "tied": [
            [s.name, *map(_percent, shares)] for s, shares in zip(SCENARIOS, tied, strict=True)
        ],
        "least_tied": _percent(min(map(min, tied))),
        "slower": f"{100 * SLOWER:g} %",
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _simulated(scenario: Scenario, repeats: int) -> tuple[float, float]:
    """Coverage of another run's mean, and share of tied sets with the truly fastest cell."""
    rng = np.random.default_rng([SEED, repeats])
    shape = (scenario.groups, scenario.cells)
    covered, contained = [], []
    # As many groups in each scenario.
    for _ in range(PAIRS * GROUPS // scenario.groups):
        truth = SLOWER * rng.exponential(size=shape)
        sizes = NOISE * np.exp(scenario.uneven * rng.standard_normal(shape))
        drifts = np.where(np.arange(scenario.groups) < scenario.hot, 0.02, scenario.drift)
        first, second = (
            truth[..., None]
            + drifts[:, None, None] * rng.standard_normal((scenario.groups, 1, repeats))
            + sizes[..., None] * scenario.draw(rng, (*shape, repeats))
            for _ in range(2)
        )
        mean, own, whole = _intervals(first)
        covered.append(np.abs(second.mean(axis=2) - mean) <= whole)
        fastest = mean.argmin(axis=1)
        every = np.arange(scenario.groups)
        limit = mean[every, fastest] + own[every, fastest]
        best = truth.argmin(axis=1)
        contained.append(mean[every, best] - own[every, best] <= limit)
    return float(np.mean(covered)), float(np.mean(contained))


def _intervals(logs: Floats) -> Sequence[Floats]:
    """Mean, half-width within the group and of another run; `logs` is (groups, cells, repeats)."""
    n = logs.shape[1]
    classes = Classes(["simulated"] * n)
    shards = [replicated([of], classes, [group] * n) for group, of in enumerate(logs)]
    spreads = run_spreads(shards)
    assert spreads is not None
    parts = [
        half_widths(logs.shape[2], shard.own, np.zeros(n), spreads.at(classes, [group] * n))
        for group, shard in enumerate(shards)
    ]
    own, whole = (np.array(part) for part in zip(*parts, strict=True))
    return logs.mean(axis=2), own, whole
