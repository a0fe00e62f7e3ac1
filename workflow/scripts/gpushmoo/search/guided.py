"""A guided search: a model of the times so far chooses the next cells, and when to end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from .model import WARP, Posterior, Process, features_of
from .planner import (
    LEAST_SPREAD,
    Ask,
    Candidate,
    Floats,
    FullRule,
    Places,
    Planner,
    Prior,
    RacePlanner,
    SearchEnd,
    SearchMode,
    SearchSettings,
)

# By how much a cell is slower than twice the fastest time carries no information.
CLIP = math.log(2.0)
# The model's standard deviation is multiplied by this before the search may end: a process that is
# fitted to few times is too sure of itself.
CAUTION = 1.5
# A batch is no larger than a part of the group, or a small group would be measured before the model
# has been asked often enough.
FEWEST_BATCHES = 25
# How many times as many cells there are when the model is fitted again.
FIT_AGAIN = 1.2
# A group of fewer cells is raced: a model needs half of them before it says anything.
FEWEST_GUIDED = 24
_GRID = np.arange(-8.0, 8.001, 0.004)
_NORMAL = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _GRID])


class GuidedPlanner(Planner):
    """Expected improvement over a Gaussian process of the log times.

    After Jones, Schonlau and Welch 1998; the cells of a batch are chosen one after the other, each
    as if those before it had the times that are expected of them (Ginsbourger, Le Riche and
    Carraro 2010: kriging believer). Meanwhile cells that may be the fastest get their samples.
    The search begins with what was fast in `transfer`, which is one more feature of the model.
    """

    mode = SearchMode.GUIDED

    def __init__(
        self,
        candidates: Sequence[Candidate],
        settings: SearchSettings,
        rule: FullRule,
        seed: int,
        transfer: Sequence[Prior],
    ) -> None:
        super().__init__(len(candidates), settings, rule)
        expected = expected_of(candidates, transfer)
        self._process = Process(with_expected(features_of(candidates), expected))
        self._size = max(1, min(settings.batch, len(candidates) // FEWEST_BATCHES))
        # Of fewer times there is no spread.
        self._needed = max(2, settings.first)
        self._most_cells = max(1, math.ceil(settings.most_share * len(candidates)))
        drawn = np.random.default_rng(seed).permutation(len(candidates))
        self._first = first_of(whole_first(candidates, drawn), expected, settings.first)
        self._fitted = 0
        self._better: float | None = None
        self._ended = SearchEnd.OPEN

    def propose(self) -> list[Ask]:
        """See `Planner`."""
        fewest = self._settings.fewest
        new, reason = self._new()
        asks = self._further() + [Ask(place, fewest) for place in new]
        self._ended = SearchEnd.OPEN if asks else reason
        return asks

    def _new(self) -> tuple[list[int], SearchEnd]:
        """Cells without samples that are worth some; why the search ends where there is none."""
        left, measured = self.unmeasured, len(self.measured)
        room = max(0, self._most_cells - int(np.count_nonzero(self.taken)))
        if not len(left):
            self._better = 0.0
            return [], SearchEnd.EXHAUSTED
        if measured < self._needed:
            among = set(left.tolist())
            still = [place for place in self._first if place in among]
            return still[: min(self._needed - measured, room)], SearchEnd.BUDGET
        # The log times that the model sees.
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
        """The places of greatest expected improvement, each after those before it."""
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


def with_expected(features: Floats, expected: Floats | None) -> Floats:
    """The features and one more: the expectation from elsewhere, which the model weighs."""
    if expected is None:
        return features
    clipped = np.minimum(expected, CLIP)
    spread = float(np.std(clipped))
    if spread < LEAST_SPREAD:
        return features
    return np.column_stack([features, (clipped - np.mean(clipped)) / spread])


def whole_first(candidates: Sequence[Candidate], drawn: Places) -> Places:
    """The places as they were drawn, those first whose block is one that people would begin with.

    That has whole warps and rows of a power of two: on the recorded groups such blocks are near the
    fastest more often than others, and the model learns no less from them.
    """
    rows = np.array([c.block[0] for c in candidates])
    threads = np.array([c.threads for c in candidates])
    whole = (threads % WARP == 0) & (rows & (rows - 1) == 0)
    ordered: Places = drawn[np.argsort(~whole[drawn], kind="stable")]
    return ordered


def first_of(shuffled: Places, expected: Floats | None, first: int) -> list[int]:
    """The order in which cells are measured before there is a model.

    Half of the `first` ones are those expected to be fastest. The others are not, since the
    expectation may be wrong here.
    """
    if expected is None:
        return [int(place) for place in shuffled]
    fast = shuffled[np.argsort(expected[shuffled], kind="stable")][: (first + 1) // 2]
    return [int(place) for place in dict.fromkeys([*fast.tolist(), *shuffled.tolist()])]


def improvement(posterior: Posterior, best: float) -> Floats:
    """How much less than `best` each candidate is expected to be; more than 0."""
    deviation = np.sqrt(posterior.variance)
    z = (best - posterior.mean) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    gained: Floats = deviation * (z * normal(z) + density)
    return gained


def normal(z: Floats) -> Floats:
    """The normal distribution's probability under `z`, to six digits, without SciPy."""
    under: Floats = np.interp(z, _GRID, _NORMAL)
    return under


def expected_of(candidates: Sequence[Candidate], priors: Sequence[Prior]) -> Floats | None:
    """The logarithm of how much slower than the best each candidate was elsewhere.

    Several priors of the same launch parameters count as their geometric mean. A candidate whose
    parameters were not measured elsewhere (values of some axes follow from the device) is as slow
    as the one with the nearest parameters, by the sum of the differences of their logarithms. None
    where no prior has the candidates' axes. Raises ValueError for a prior faster than the best.
    """
    names = [name for name, _ in candidates[0].params]
    known: dict[tuple[tuple[str, int], ...], list[float]] = {}
    for prior in priors:
        if not 1.0 <= prior.slower < math.inf:
            raise ValueError(f"a cell cannot be {prior.slower} times as slow as the fastest")
        if [name for name, _ in prior.params] == names:
            known.setdefault(prior.params, []).append(math.log(prior.slower))
    if not known:
        return None
    means = {params: sum(found) / len(found) for params, found in known.items()}
    places = np.array([_logarithms(params) for params in means])
    slower = np.array(list(means.values()))
    return np.array(
        [
            means[c.params]
            if c.params in means
            else slower[np.argmin(np.abs(places - _logarithms(c.params)).sum(axis=1))]
            for c in candidates
        ]
    )


def _logarithms(params: Iterable[tuple[str, int]]) -> Floats:
    values = np.array([value for _, value in params], dtype=np.float64)
    logarithms: Floats = np.sign(values) * np.log2(1.0 + np.abs(values))
    return logarithms


def planner_for(
    candidates: Sequence[Candidate],
    settings: SearchSettings,
    rule_samples: tuple[int, int],
    seed: int,
    transfer: Sequence[Prior] | None = None,
    half_width: float = 0.01,
) -> Planner:
    """A planner of one group, whose candidates differ in their launch alone.

    `rule_samples` are the fewest and the most samples of a cell that may be the fastest; between
    them it is full where half of the 95 % interval is at most the share `half_width` of its median.
    Of equal arguments and equal samples equal questions follow. Raises ValueError for the mode
    `all`, in which nothing is planned, and where there are no candidates.
    """
    if not candidates:
        raise ValueError("a search among no candidates")
    if settings.mode == SearchMode.ALL:
        raise ValueError(f"nothing is planned in the mode '{settings.mode}'")
    rule = (*rule_samples, half_width)
    if settings.mode == SearchMode.RACE or len(candidates) < FEWEST_GUIDED:
        return RacePlanner(len(candidates), settings, rule)
    return GuidedPlanner(candidates, settings, rule, seed, transfer or ())
