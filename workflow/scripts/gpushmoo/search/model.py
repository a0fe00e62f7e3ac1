"""The model of a guided search: a Gaussian process over features of launches, by NumPy alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .planner import Candidate, Floats, Places

WARP = 32
SECTOR_BYTES = 32
# A column that correlates so closely with another one is left out.
ALIKE = 0.9999
# Axes that the block's own columns hold.
IN_THE_BLOCK = frozenset({"block_x", "block_y", "block_z"})


def features_of(candidates: Sequence[Candidate]) -> Floats:
    """A row for each candidate, a column for each feature, of mean 0 and standard deviation 1.

    On the axes alone a model misses what a launch is made of: whole warps, whole sectors, whole
    waves. Columns that are constant, or as good as another one, are left out.
    """
    columns = [*_block_columns(candidates), *_grid_columns(candidates), *_axis_columns(candidates)]
    kept: list[Floats] = []
    for column in columns:
        spread = float(np.std(column))
        if spread > 1e-9:
            scaled = (column - np.mean(column)) / spread
            if all(abs(float(np.mean(scaled * other))) < ALIKE for other in kept):
                kept.append(scaled)
    return np.column_stack(kept) if kept else np.zeros((len(candidates), 0))


def _block_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """The block's sides and threads, how full its warps are, and what its rows read."""
    block = np.array([c.block for c in candidates], dtype=np.int64)
    threads = block.prod(axis=1)
    warps = -(-threads // WARP)
    element_bytes = candidates[0].element_bytes
    rows = {int(x): _sectors(int(x), element_bytes) for x in np.unique(block[:, 0])}
    return [
        *np.log2(block.T),
        np.log2(threads),
        threads / (WARP * warps),
        np.log2([rows[int(x)] for x in block[:, 0]]),
        *np.log2(np.gcd(block.T, WARP)),
        np.log2(np.gcd(threads, WARP)),
    ]


def _sectors(block_x: int, element_bytes: int) -> float:
    """Sectors that a full warp touches in the mean over as many as it would have to.

    Of blocks with rows of `block_x` threads, where rows of blocks begin at a sector.
    """
    period = np.lcm(block_x, WARP)
    thread = np.arange(period)
    row, column = np.divmod(thread, block_x)
    first = column * element_bytes // SECTOR_BYTES
    last = (column * element_bytes + element_bytes - 1) // SECTOR_BYTES
    # Threads come in the order of their addresses, so a sector is new unless the last one ended in
    # it; a warp begins anew.
    begins = thread % WARP == 0
    again = np.zeros(period, dtype=bool)
    again[1:] = (row[1:] == row[:-1]) & (first[1:] == last[:-1]) & ~begins[1:]
    touched = (last - first + 1 - again).sum()
    return float(touched * SECTOR_BYTES / (period * element_bytes))


def _grid_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """Elements of a thread, how even they are, and how full multiprocessors and waves are.

    Also turns on the busiest multiprocessor: where blocks persist, time has cliffs as that has.
    """
    facts = [
        (c.blocks, c.threads, c.multiprocessors, max(1, c.height * c.width)) for c in candidates
    ]
    blocks, threads, multiprocessors, elements = np.array(facts, dtype=np.float64).T
    columns = [np.log2(np.maximum(1.0, blocks)), np.log2(blocks * threads / elements)]
    each, turns = blocks / multiprocessors, elements / (blocks * threads)
    columns += [_fill(each), _fill(turns), np.log2(np.ceil(turns) * np.ceil(each))]
    if all(c.resident_blocks for c in candidates):
        resident = np.array([c.resident_blocks for c in candidates], dtype=np.float64)
        columns += [np.log2(resident * threads), _fill(blocks / (multiprocessors * resident))]
    return columns


def _fill(rounds: Floats) -> Floats:
    """How full the rounds are that so many take: 1.5 rounds take two and fill them to 0.75."""
    filled: Floats = rounds / np.maximum(1.0, np.ceil(rounds))
    return filled


def _axis_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """The logarithm of every other axis; 0 stays 0."""
    names = sorted({name for c in candidates for name, _ in c.params} - IN_THE_BLOCK)
    values = [np.array([dict(c.params).get(name, 0) for c in candidates]) for name in names]
    return [np.sign(v) * np.log2(1.0 + np.abs(v)) for v in values]


ROOT5 = math.sqrt(5.0)
# Priors of the hyperparameters: means of normal distributions of their logarithms, with deviation
# 1. Lengths are in standard deviations of a feature, amplitude and noise in those of the times. Few
# times say little of a dozen lengths.
LENGTH, AMPLITUDE, NOISE = math.log(3.0), 0.0, math.log(0.03)
JITTER = 1e-8
STEPS = 25


@dataclass(frozen=True)
class Posterior:
    """Mean and variance of each candidate's time; the process scales times by their `unit`.

    `half` has a row for each observation: the covariance of two candidates is that before all
    observations less the product of their columns.
    """

    mean: Floats
    variance: Floats
    half: Floats
    unit: float


class Process:
    """Matérn 5/2 with a length for each feature (Rasmussen and Williams 2006, sections 4.2, 5.4).

    Hyperparameters are those of the greatest posterior density. They are kept between fits, so that
    a fit of a few times more is short.
    """

    def __init__(self, features: Floats) -> None:
        self._features = features
        self._prior = np.array([LENGTH] * features.shape[1] + [AMPLITUDE, NOISE])
        self._theta = self._prior.copy()

    def fit(self, places: Places, values: Floats, errors: Floats) -> None:
        """Take the hyperparameters that explain these values, with these standard errors, best."""
        y, _, unit = _standard(values)
        x, known = self._features[places], (errors / unit) ** 2 + JITTER
        self._theta = minimised(lambda theta: self._loss(theta, x, y, known), self._theta)

    def _loss(self, theta: Floats, x: Floats, y: Floats, known: Floats) -> tuple[float, Floats]:
        """The negative log posterior density and its gradient."""
        scaled = x * np.exp(-theta[:-2])
        amplitude, noise = np.exp(2.0 * theta[-2:])
        shape, slope = _matern(_squared(scaled, scaled))
        covariance = amplitude * shape
        covariance[np.diag_indices_from(covariance)] += noise + known
        inverse = np.linalg.inv(covariance)
        weights = inverse @ y
        sign, determinant = np.linalg.slogdet(covariance)
        away = theta - self._prior
        if sign <= 0.0:
            return math.inf, away
        loss = 0.5 * float(y @ weights + determinant + away @ away)
        outer = inverse - np.outer(weights, weights)
        pull = amplitude * outer * slope
        # Σ P_ij (x_i − x_j)² of each feature without a tensor of all differences.
        lengths = pull.sum(axis=1) @ scaled**2 - np.einsum("ij,ij->j", scaled, pull @ scaled)
        gradient = np.empty_like(theta)
        gradient[:-2] = lengths
        gradient[-2] = amplitude * np.sum(outer * shape)
        gradient[-1] = noise * np.trace(outer)
        return loss, gradient + away

    def posterior(self, places: Places, values: Floats, errors: Floats) -> Posterior:
        """What these values of these places say of all candidates, in the values' unit."""
        y, centre, unit = _standard(values)
        amplitude, noise = np.exp(2.0 * self._theta[-2:])
        cross = self._covariance(places)
        covariance = cross[:, places]
        covariance[np.diag_indices_from(covariance)] += noise + (errors / unit) ** 2 + JITTER
        factor = np.linalg.inv(np.linalg.cholesky(covariance))
        half = factor @ cross
        mean = centre + unit * ((factor @ y) @ half)
        variance = amplitude - np.einsum("ij,ij->j", half, half) + noise
        return Posterior(mean, unit**2 * np.maximum(variance, noise), half, unit)

    def followed(self, posterior: Posterior, place: int) -> Posterior:
        """The posterior had the candidate at `place` the time that is expected of it."""
        noise, unit = np.exp(2.0 * self._theta[-1]), posterior.unit
        row = self._covariance(np.array([place]))[0]
        row -= posterior.half[:, place] @ posterior.half
        row /= math.sqrt(max(float(row[place]), 0.0) + noise + JITTER)
        variance = np.maximum(posterior.variance - (unit * row) ** 2, unit**2 * noise)
        return Posterior(posterior.mean, variance, np.vstack([posterior.half, row]), unit)

    def _covariance(self, places: Places) -> Floats:
        """Of the times of these candidates with those of all."""
        scaled = self._features * np.exp(-self._theta[:-2])
        amplitude = np.exp(2.0 * self._theta[-2])
        covariance: Floats = amplitude * _matern(_squared(scaled[places], scaled))[0]
        return covariance


def _standard(values: Floats) -> tuple[Floats, float, float]:
    """Values of mean 0 and deviation 1, and what these were; equal values have the unit 1e-3."""
    centre, unit = float(np.mean(values)), max(float(np.std(values)), 1e-3)
    return (values - centre) / unit, centre, unit


def _squared(a: Floats, b: Floats) -> Floats:
    """Squared distances of the rows of `a` from those of `b`."""
    squares: Floats = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * (a @ b.T)
    return np.maximum(squares, 0.0, out=squares)


def _matern(squared: Floats) -> tuple[Floats, Floats]:
    """The correlation at these squared distances, and −2 times its slope over them."""
    far = ROOT5 * np.sqrt(squared)
    fall = np.exp(-far)
    slope = (5.0 / 3.0) * (1.0 + far) * fall
    return (1.0 + far) * fall + (5.0 / 3.0) * squared * fall, slope


def minimised(loss: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    """Where `loss`, which gives its value and gradient, is least near `start`.

    BFGS with steps that are halved until they lead down (Nocedal and Wright 2006, algorithm 6.1).
    """
    theta, (value, gradient) = start, loss(start)
    hessian = np.eye(len(start)) * 0.1
    for _ in range(STEPS):
        step = -hessian @ gradient
        step *= min(1.0, 1.0 / max(1e-12, float(np.abs(step).max())))
        slope = float(step @ gradient)
        for _ in range(8):
            further, slope_further = loss(theta + step)
            if further <= value + 1e-4 * slope:
                break
            step, slope = step / 2.0, slope / 2.0
        else:
            break
        change = slope_further - gradient
        curve = float(step @ change)
        if curve > 1e-10:
            turn = np.eye(len(start)) - np.outer(step, change) / curve
            hessian = turn @ hessian @ turn.T + np.outer(step, step) / curve
        gained = value - further
        theta, value, gradient = theta + step, further, slope_further
        if gained < 1e-3:
            break
    return theta
