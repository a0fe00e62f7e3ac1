"""Guide a search: a model of the times so far chooses the next cells, and when to stop.

The model is a Gaussian process over features of launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .planner import (
    Candidate,
    Floats,
    FullRule,
    Places,
    Planner,
    RacePlanner,
    SampleRequest,
    SearchEnd,
    SearchMode,
    SearchSettings,
)

WARP = 32
SECTOR_BYTES = 32
# A column that correlates this closely with another one is left out.
ALIKE = 0.9999
# Axes that the columns of the block already contain.
IN_THE_BLOCK = frozenset({"block_x", "block_y", "block_z"})


def features_of(candidates: Sequence[Candidate]) -> Floats:
    """Return a row per candidate and a column per feature, with mean 0 and standard deviation 1.

    Time depends on whole warps, whole sectors and whole waves, which the axes alone do not show. So
    these are features, too. Constant columns, and columns that equal another one, are left out.
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
    """Return the block's sides and threads, the fill of its warps, and the sectors of its rows."""
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
    """Return the sectors that a full warp touches, relative to the fewest possible.

    `block_x` is the number of threads in a row.
    """
    period = np.lcm(block_x, WARP)
    thread = np.arange(period)
    row, column = np.divmod(thread, block_x)
    first = column * element_bytes // SECTOR_BYTES
    last = (column * element_bytes + element_bytes - 1) // SECTOR_BYTES
    # Threads are in the order of their addresses, so a sector is new unless the previous thread's
    # access ended in it. A warp starts over.
    begins = thread % WARP == 0
    again = np.zeros(period, dtype=bool)
    again[1:] = (row[1:] == row[:-1]) & (first[1:] == last[:-1]) & ~begins[1:]
    touched = (last - first + 1 - again).sum()
    return float(touched * SECTOR_BYTES / (period * element_bytes))


def _grid_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """Return elements per thread, their evenness, and the fill of multiprocessors and waves.

    Also return the turns of the busiest multiprocessor. With persistent blocks, time has cliffs at
    the same points as that number.
    """
    facts = [
        (c.blocks, c.threads, c.multiprocessors, max(1, c.height * c.width)) for c in candidates
    ]
    blocks, threads, multiprocessors, elements = np.array(facts, dtype=np.float64).T
    columns = [np.log2(np.maximum(1.0, blocks)), np.log2(blocks * threads / elements)]
    each = blocks / multiprocessors
    turns = elements / (blocks * threads)
    columns += [_fill(each), _fill(turns), np.log2(np.ceil(turns) * np.ceil(each))]
    if all(c.resident_blocks for c in candidates):
        resident = np.array([c.resident_blocks for c in candidates], dtype=np.float64)
        columns += [np.log2(resident * threads), _fill(blocks / (multiprocessors * resident))]
    return columns


def _fill(rounds: Floats) -> Floats:
    """Return the fill of `rounds` of work: 1.5 rounds need two and fill them to 0.75."""
    filled: Floats = rounds / np.maximum(1.0, np.ceil(rounds))
    return filled


def _axis_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """Return the logarithm of every other axis; 0 stays 0."""
    names = sorted({name for c in candidates for name, _ in c.params} - IN_THE_BLOCK)
    values = [np.array([dict(c.params).get(name, 0) for c in candidates]) for name in names]
    return [np.sign(v) * np.log2(1.0 + np.abs(v)) for v in values]


ROOT5 = math.sqrt(5.0)
# Priors of the hyperparameters: means of normal distributions of their logarithms, with deviation
# 1. Lengths are in standard deviations of a feature, amplitude and noise in those of the times. A
# few times do not determine a dozen lengths.
LENGTH = math.log(3.0)
AMPLITUDE = 0.0
NOISE = math.log(0.03)
JITTER = 1e-8
MAX_ITERATIONS = 25


@dataclass(frozen=True)
class Posterior:
    """Prediction of the Gaussian process for every candidate, given the times observed so far.

    Times are logarithms of seconds. Inside the process, they are shifted to mean 0 and divided by
    `unit`. The predicted covariance of candidates i and j, without noise and in units of `unit`
    squared, is their prior covariance minus ``half[:, i] @ half[:, j]``.

    Parameters
    ----------
    mean
        Predicted log time of each candidate, shape (candidates,).
    variance
        Variance of that prediction, with noise, shape (candidates,).
    half
        Inverse Cholesky factor of the observations' covariance, times their prior covariance with
        the candidates, shape (observations, candidates). `Process.followed` appends a row for each
        candidate that it assumes to be observed.
    unit
        Standard deviation of the observed log times, at least 0.001.
    """

    mean: Floats
    variance: Floats
    half: Floats
    unit: float


class Process:
    """Gaussian process with a Matérn 5/2 kernel and a length for each feature.

    See Rasmussen and Williams 2006, sections 4.2 and 5.4. The hyperparameters maximize the
    posterior density. They are kept between fits, so that a fit with a few more times is fast.
    """

    def __init__(self, features: Floats) -> None:
        self._features = features
        self._prior = np.array([LENGTH] * features.shape[1] + [AMPLITUDE, NOISE])
        self._theta = self._prior.copy()

    def fit(self, places: Places, values: Floats, errors: Floats) -> None:
        """Fit the hyperparameters to these values with these standard errors.

        Parameters
        ----------
        places
            Candidates that were observed, shape (observations,).
        values, errors
            Their log times and standard errors, shape (observations,).
        """
        y, _, unit = _standard(values)
        x = self._features[places]
        known = (errors / unit) ** 2 + JITTER
        # Other measuring processes do not need SciPy, which takes long to import.
        from scipy.optimize import minimize

        options = {"maxiter": MAX_ITERATIONS, "ftol": 1e-4}
        arguments = {"jac": True, "method": "L-BFGS-B", "options": options}
        self._theta = minimize(self._loss, self._theta, (x, y, known), **arguments).x

    def _loss(self, theta: Floats, x: Floats, y: Floats, known: Floats) -> tuple[float, Floats]:
        """Return the negative log posterior density and its gradient."""
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
        # Compute Σ P_ij (x_i − x_j)² of each feature without a tensor of all differences.
        lengths = pull.sum(axis=1) @ scaled**2 - np.einsum("ij,ij->j", scaled, pull @ scaled)
        gradient = np.empty_like(theta)
        gradient[:-2] = lengths
        gradient[-2] = amplitude * np.sum(outer * shape)
        gradient[-1] = noise * np.trace(outer)
        return loss, gradient + away

    def posterior(self, places: Places, values: Floats, errors: Floats) -> Posterior:
        """Return the posterior of all candidates given these values, in the values' unit.

        The arguments are those of `fit`.
        """
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
        """Return the posterior as if the candidate at `place` had its expected time."""
        noise = np.exp(2.0 * self._theta[-1])
        unit = posterior.unit
        row = self._covariance(np.array([place]))[0]
        row -= posterior.half[:, place] @ posterior.half
        row /= math.sqrt(max(float(row[place]), 0.0) + noise + JITTER)
        variance = np.maximum(posterior.variance - (unit * row) ** 2, unit**2 * noise)
        return Posterior(posterior.mean, variance, np.vstack([posterior.half, row]), unit)

    def _covariance(self, places: Places) -> Floats:
        """Return the covariance of these candidates' times with those of all candidates."""
        scaled = self._features * np.exp(-self._theta[:-2])
        amplitude = np.exp(2.0 * self._theta[-2])
        covariance: Floats = amplitude * _matern(_squared(scaled[places], scaled))[0]
        return covariance


def _standard(values: Floats) -> tuple[Floats, float, float]:
    """Return values of mean 0 and deviation 1, and the original two; constants get unit 1e-3."""
    centre = float(np.mean(values))
    unit = max(float(np.std(values)), 1e-3)
    return (values - centre) / unit, centre, unit


def _squared(a: Floats, b: Floats) -> Floats:
    """Return squared distances of the rows of `a` to those of `b`."""
    squares: Floats = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * (a @ b.T)
    return np.maximum(squares, 0.0, out=squares)


def _matern(squared: Floats) -> tuple[Floats, Floats]:
    """Return the correlation at these squared distances, and −2 times its slope."""
    far = ROOT5 * np.sqrt(squared)
    fall = np.exp(-far)
    slope = (5.0 / 3.0) * (1.0 + far) * fall
    return (1.0 + far) * fall + (5.0 / 3.0) * squared * fall, slope


# For a cell slower than this multiple of the fastest time, the excess carries no information.
CLIP = math.log(2.0)
# Before the search may stop, the model's standard deviation is multiplied by this: a process that
# is fitted to few times underestimates it.
CAUTION = 1.5
# A batch is at most this part of the group, so that the model is queried several times even in a
# small group.
MIN_BATCHES = 25
# The model is fitted again when the number of cells has grown by this factor.
FIT_AGAIN = 1.2
# A smaller group is raced: the model would need half of its cells before it is useful.
MIN_GUIDED = 24
_GRID = np.arange(-8.0, 8.001, 0.004)
_NORMAL = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _GRID])


class GuidedPlanner(Planner):
    """Planner by expected improvement over a Gaussian process of the log times.

    It follows Jones, Schonlau and Welch 1998. The cells of a batch are chosen one after the other,
    each as if the previous ones had their expected times (kriging believer; Ginsbourger, Le Riche
    and Carraro 2010). Meanwhile cells that may be the fastest get their samples.
    """

    mode = SearchMode.GUIDED

    def __init__(
        self, candidates: Sequence[Candidate], settings: SearchSettings, rule: FullRule, seed: int
    ) -> None:
        super().__init__(len(candidates), settings, rule)
        self._process = Process(features_of(candidates))
        self._size = max(1, min(settings.batch, len(candidates) // MIN_BATCHES))
        # With fewer times there is no spread.
        self._needed = max(2, settings.first)
        self._most_cells = max(1, math.ceil(settings.max_share * len(candidates)))
        drawn = np.random.default_rng(seed).permutation(len(candidates))
        self._first = whole_first(candidates, drawn)
        self._fitted = 0
        self._better: float | None = None
        self._ended = SearchEnd.OPEN

    def propose(self) -> list[SampleRequest]:
        """Propose further samples of known cells, then cells that are new and promising."""
        fewest = self._settings.fewest
        new, reason = self._new()
        asks = self._further() + [SampleRequest(place, fewest) for place in new]
        self._ended = SearchEnd.OPEN if asks else reason
        return asks

    def _new(self) -> tuple[list[int], SearchEnd]:
        """Return promising cells without samples, and the reason to stop if no cell is left."""
        left = self.unmeasured
        measured = len(self.measured)
        room = max(0, self._most_cells - int(np.count_nonzero(self.taken)))
        if not len(left):
            self._better = 0.0
            return [], SearchEnd.EXHAUSTED
        if measured < self._needed:
            among = set(left.tolist())
            still = [place for place in self._first.tolist() if place in among]
            return still[: min(self._needed - measured, room)], SearchEnd.BUDGET
        # The log times that the model is fitted to.
        places = self.measured
        values = np.minimum(self.log_s[places], self.log_s.min() + CLIP)
        errors = self.standard_errors()
        if len(places) >= FIT_AGAIN * self._fitted:
            self._process.fit(places, values, errors)
            self._fitted = len(places)
        posterior = self._process.posterior(places, values, errors)
        # The summed probability that a cell beats the best by more than the tolerance.
        bound = float(self.log_s.min()) + math.log1p(-self._settings.tolerance)
        deviation = CAUTION * np.sqrt(posterior.variance[left])
        self._better = float(normal((bound - posterior.mean[left]) / deviation).sum())
        if self._better < self._settings.better_probability:
            return [], SearchEnd.STOP
        count = min(self._size, room, len(left))
        return self._batch(posterior, left, values, count), SearchEnd.BUDGET

    def _batch(self, posterior: Posterior, left: Places, values: Floats, count: int) -> list[int]:
        """Return the places of greatest expected improvement, each given those before it."""
        best = float(values.min())
        open_places = np.zeros(len(posterior.mean), dtype=bool)
        open_places[left] = True
        chosen: list[int] = []
        for _ in range(count):
            gain = np.where(open_places, improvement(posterior, best), -1.0)
            place = int(np.argmax(gain))
            chosen.append(place)
            open_places[place] = False
            best = min(best, float(posterior.mean[place]))
            posterior = self._process.followed(posterior, place)
        return chosen

    def _end(self) -> tuple[float | None, SearchEnd]:
        return self._better, self._ended


def whole_first(candidates: Sequence[Candidate], drawn: Places) -> Places:
    """Return the candidates' indices with commonly fast block shapes first, else in drawn order.

    These blocks consist of whole warps, and their width is a power of two. In the recorded groups
    they are near the fastest more often than others, and the model learns as much from them.

    Parameters
    ----------
    candidates
        The cells that the search may measure.
    drawn
        Indices of `candidates` in random order.
    """
    rows = np.array([c.block[0] for c in candidates])
    threads = np.array([c.threads for c in candidates])
    whole = (threads % WARP == 0) & (rows & (rows - 1) == 0)
    ordered: Places = drawn[np.argsort(~whole[drawn], kind="stable")]
    return ordered


def improvement(posterior: Posterior, best: float) -> Floats:
    """Return the expected amount by which each candidate is below `best`; more than 0."""
    deviation = np.sqrt(posterior.variance)
    z = (best - posterior.mean) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    gained: Floats = deviation * (z * normal(z) + density)
    return gained


def normal(z: Floats) -> Floats:
    """Return the normal distribution's probability below `z`, to six digits, without SciPy."""
    under: Floats = np.interp(z, _GRID, _NORMAL)
    return under


def planner_for(
    candidates: Sequence[Candidate],
    settings: SearchSettings,
    rule_samples: tuple[int, int],
    seed: int,
    half_width: float = 0.01,
) -> Planner:
    """Return a planner of one group, whose candidates differ in their launch only.

    Equal arguments and equal samples lead to equal requests.

    Parameters
    ----------
    candidates
        Cells of the group.
    settings
        Search mode and limits.
    rule_samples
        Fewest and most samples of a cell that may be the fastest.
    seed
        Seed of all draws.
    half_width
        Between these numbers, a cell is full if half of the 95 % interval of its median is at most
        this share of the median.
    """
    rule = (*rule_samples, half_width)
    if settings.mode == SearchMode.RACE or len(candidates) < MIN_GUIDED:
        return RacePlanner(len(candidates), settings, rule)
    return GuidedPlanner(candidates, settings, rule, seed)
