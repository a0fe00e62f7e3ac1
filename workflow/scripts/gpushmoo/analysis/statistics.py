"""Estimate the spread between replicates of a measurement, and the intervals that follow from it.

A replicate is a repeat within a run, or a run among several runs. Samples of one replicate do not
count as replicates, and neither do cells that drifted together. The model of the logarithm of a
cell's time in replicate r is μ(cell) + D(r) + e(cell, r). D is the drift that cells share, for
example through another clock or another user of the machine. Its variance is known only as well as
the number of replicates allows, regardless of the number of cells. e is the variation of the cell
itself. A few replicates determine the variance of e badly for one cell, but the many cells of its
class determine a typical variance well. So each cell's variance is shrunk towards that of its
class: the moderated variance of limma (Smyth, Statistical Applications in Genetics and Molecular
Biology 3, 2004, article 3). A class is a name and a decade of time. Between the middles of decades
the typical variance is interpolated, so that no interval jumps as a cell's time passes 10 µs. All
variances are variances of natural logarithms of times, so they have no unit.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy

from ..core.median import CONFIDENCE

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# Fewest cells that a shared drift is estimated from. With fewer, it counts as each cell's own.
SHARING_CELLS = 8
# Fewest variances whose spread beyond chance is estimated: by moments, by quantiles.
MIN_VARIANCES, CLASS_CELLS = 8, 30
FEW_ROUNDS = 3
# Below this share of the median variance, the resolution of the clock dominates, and the logarithm
# would be an outlier.
_MIN_SHARE = 1e-5
# Candidate degrees of freedom of a typical variance. The last means practically infinite.
_PRIOR_DF = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 50.0, 1e6)
_MAX_DF = 1e6
_TINY = 1e-300
# Number of differences that are in memory at a time.
_MAX_DIFFERENCES = 2_000_000


@dataclass(frozen=True)
class TypicalVariance:
    """Typical variance of a class, and its weight in degrees of freedom (may be infinite).

    The estimate of a cell's own variance is distributed as ``variance`` times F(own degrees,
    ``df``).
    """

    variance: float
    df: float


@dataclass(frozen=True)
class ClassSpread:
    """Typical variance of the cells of a class, and the variance of the drift that they share.

    `shared_df` has the degrees of freedom of the latter; 0 if it was not estimated.
    """

    own: TypicalVariance
    shared: float
    shared_df: float


# A name for cells with similar noise, and a decade of their seconds.
Class = tuple[Hashable, int]


@dataclass(frozen=True)
class Classes:
    """Classes of cells whose noise is similar, so that they share an estimate of it.

    Attributes
    ----------
    names : sequence of length cells
        Name of each cell's class. Cells with the same name are compared.
    log10_s : array of shape (cells,), optional
        log10 of the seconds of a launch. If it is given, each decade of time is a class. Estimates
        pass smoothly from one decade to the next.
    """

    names: Sequence[Hashable]
    log10_s: Floats | None = None

    @property
    def logs(self) -> Floats:
        """Return log10 of each cell's time, zeros without times; shape (cells,)."""
        return np.zeros(len(self.names)) if self.log10_s is None else self.log10_s

    def of(self, kept: npt.NDArray[np.bool_]) -> Classes:
        """Return the cells for which `kept`, a mask of shape (cells,), is True."""
        names = [name for name, is_kept in zip(self.names, kept, strict=True) if is_kept]
        return Classes(names, self.logs[kept])

    def each(self) -> list[Class]:
        """Return the class of each cell: its name in `names`, and the decade of its time.

        For example, (name, -5) is the class of launches of 10 to 100 µs.
        """
        decades = np.floor(self.logs).astype(int).tolist()
        return list(zip(self.names, decades, strict=True))


@dataclass(frozen=True)
class Priors:
    """Typical variance and shared variance of each cell, each with degrees of freedom; (cells,)."""

    own: Floats
    own_df: Floats
    shared: Floats
    shared_df: Floats


@dataclass(frozen=True)
class Spreads:
    """The spread of each class, and that of all cells together."""

    classes: Mapping[Class, ClassSpread]
    whole: ClassSpread

    def of(self, name: Hashable, log10_s: float = 0.0) -> Priors:
        """Return the priors of one cell by its name and log10 of its seconds."""
        return self.at(Classes([name], np.array([log10_s])))

    def at(self, cells: Classes) -> Priors:
        """Return the priors of cells, interpolated between the middles of decades.

        A cell whose name is unknown gets the spread of all cells together.
        """
        out = np.tile(_row(self.whole), (len(cells.names), 1))
        for name, places in _places(cells.names).items():
            decades = sorted(decade for own, decade in self.classes if own == name)
            if decades:
                found = np.array([_row(self.classes[name, decade]) for decade in decades])
                out[places] = _between(np.array(decades) + 0.5, found, cells.logs[places])
        own, own_df, shared, shared_df = out.T
        return Priors(own, own_df, shared, shared_df)

    def covers(self, cells: Classes) -> npt.NDArray[np.bool_]:
        """Return whether each cell is of a class that was observed; shape (cells,)."""
        return np.array([each in self.classes for each in cells.each()], bool)


def _row(spread: ClassSpread) -> Floats:
    return np.array([spread.own.variance, spread.own.df, spread.shared, spread.shared_df])


def _between(middles: Floats, rows: Floats, logs: Floats) -> Floats:
    """Interpolate rows of `_row` to `logs`; beyond the first and last middle they stay constant."""
    own, own_df, shared, shared_df = rows.T
    out = np.zeros((len(logs), 4))
    out[:, 0] = np.exp(np.interp(logs, middles, np.log(np.maximum(own, _TINY))))
    out[:, 0][np.interp(logs, middles, own) == 0.0] = 0.0
    with np.errstate(divide="ignore"):
        out[:, 1] = 1.0 / np.interp(logs, middles, 1.0 / own_df)
    if (known := shared_df > 0.0).any():
        out[:, 2] = np.interp(logs, middles[known], shared[known])
        out[:, 3] = np.interp(logs, middles[known], shared_df[known])
    return out


@dataclass(frozen=True)
class Replicated:
    """Estimates from replicates of some cells: their own variances, and those of shared drifts.

    `own` has an entry for each cell, with `df` degrees of freedom. `shared` has one for each group
    of cells that drift together.
    """

    own: Floats
    classes: Classes
    shared: Mapping[Hashable, float]
    df: float


def replicated(
    blocks: Sequence[Floats], classes: Classes, sharing: Sequence[Hashable] | None = None
) -> Replicated:
    """Split the variation between replicates into a shared drift and a variance per cell.

    The drift of a group in a replicate is the median over its cells. The remaining variance is
    multiplied by n / (n − 1) for the n cells of the group, because the drift fits a part of it.

    Parameters
    ----------
    blocks
        Arrays of log times, shape (cells, replicates). The columns of one block repeat the same
        measurement. At least one block must have two columns.
    classes
        Name and time of each cell.
    sharing
        Name of the group of cells with which each cell drifts; by default its class.
    """
    df = float(sum(block.shape[1] - 1 for block in blocks))
    places = _places(classes.each() if sharing is None else sharing)
    own = np.zeros(len(classes.names))
    shared: dict[Hashable, float] = {}
    for block in blocks:
        rest = block - block.mean(axis=1, keepdims=True)
        for name, where in places.items():
            of_group = rest[where]
            n = len(where)
            if n >= SHARING_CELLS:
                drift = np.median(of_group, axis=0)
                drift -= drift.mean()
                shared[name] = shared.get(name, 0.0) + float((drift**2).sum()) / df
                of_group = (of_group - drift) * math.sqrt(n / (n - 1))
            own[where] += (of_group**2).sum(axis=1) / df
    return Replicated(own, classes, shared, df)


def _places(names: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Return the indices at which each name occurs."""
    places: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def typical_variance_by_moments(
    variances: Floats, df: float, few_df: float | None = None, fewest: int = MIN_VARIANCES
) -> TypicalVariance:
    """Estimate the typical variance by the moments of the logarithms (Smyth 2004, section 6.2).

    If there are fewer than `fewest` variances, or most are zero, the result is their mean.

    Parameters
    ----------
    variances
        Variance of each cell, shape (cells,).
    df
        Degrees of freedom of each.
    few_df
        Degrees of freedom of the mean in that case; by default `df`, as many as one cell has.
    fewest
        Smallest number of variances for the method of moments.
    """
    middle = float(np.median(variances))
    if len(variances) < fewest or not middle > 0.0:
        return TypicalVariance(float(variances.mean()), df if few_df is None else few_df)
    z = np.log(np.maximum(variances, _MIN_SHARE * middle))
    e = z - scipy.special.digamma(df / 2) + math.log(df / 2)
    mean = float(e.mean())
    beyond_chance = float(e.var(ddof=1)) - float(scipy.special.polygamma(1, df / 2))
    if beyond_chance <= 0.0:
        return TypicalVariance(math.exp(mean), math.inf)
    half_df = trigamma_inverse(beyond_chance)
    variance = math.exp(mean + float(scipy.special.digamma(half_df)) - math.log(half_df))
    return TypicalVariance(variance, 2.0 * half_df)


def typical_variance_by_quantiles(variances: Floats, df: float) -> TypicalVariance:
    """Estimate the typical variance from the median and the 95th percentile of `variances`.

    Repeats within a run follow each other so closely that the resolution of the clock makes many
    variances zero, which have no logarithm. So moments do not work here. Fewer than CLASS_CELLS
    variances get the smallest degrees of freedom.
    """
    middle, high = np.quantile(variances, [0.5, 0.95])
    if len(variances) < CLASS_CELLS or not middle > 0.0:
        few_df = min(_PRIOR_DF) if len(variances) > 1 else 0.0
        return TypicalVariance(float(variances.mean()), few_df)
    ratios = {
        d: scipy.special.fdtri(df, d, 0.95) / scipy.special.fdtri(df, d, 0.5) for d in _PRIOR_DF
    }
    prior_df = min(_PRIOR_DF, key=lambda d: abs(math.log(ratios[d] * middle / high)))
    return TypicalVariance(float(middle / scipy.special.fdtri(df, prior_df, 0.5)), prior_df)


def trigamma_inverse(value: float) -> float:
    """Return the y > 0 with trigamma(y) = `value` > 0, by Newton's method (Smyth, appendix)."""
    if value > 1e7:
        return 1.0 / math.sqrt(value)
    if value < 1e-6:
        return 1.0 / value
    y = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = float(scipy.special.polygamma(1, y))
        step = trigamma * (1.0 - trigamma / value) / float(scipy.special.polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


@dataclass(frozen=True)
class RunSpreads:
    """Spreads between the repeats of a run.

    Attributes
    ----------
    own
        Typical variances of classes.
    rounds
        Variance, with degrees of freedom, of the drift that cells of the same rounds share.
    other
        The same for rounds with too few cells to estimate it.
    """

    own: Spreads
    rounds: Mapping[Hashable, TypicalVariance]
    other: TypicalVariance

    def at(self, cells: Classes, rounds: Sequence[Hashable]) -> Priors:
        """Return the priors of cells that were sampled in these rounds."""
        found = [self.rounds.get(name, self.other) for name in rounds]
        shared, df = np.array([(f.variance, f.df) for f in found], np.float64).reshape(-1, 2).T
        return replace(self.own.at(cells), shared=shared, shared_df=df)


def run_spreads(shards: Sequence[Replicated]) -> RunSpreads | None:
    """Return the spreads between repeats of a run from all its shards; None without repeats.

    Each round gets a separate shared variance, shrunk towards the typical one of all rounds: a bad
    placement of buffers slows one group and not all.
    """
    shards = [shard for shard in shards if len(shard.own)]
    if not shards:
        return None
    own = np.concatenate([shard.own for shard in shards])
    each = [name for shard in shards for name in shard.classes.each()]
    df = min(shard.df for shard in shards)
    classes = {
        name: ClassSpread(typical_variance_by_quantiles(own[where], df), 0.0, 0.0)
        for name, where in _places(each).items()
        if len(where) >= CLASS_CELLS and isinstance(name, tuple)
    }
    whole = ClassSpread(typical_variance_by_quantiles(own, df), 0.0, 0.0)
    rounds = [(name, value, s.df) for s in shards for name, value in s.shared.items()]
    return RunSpreads(Spreads(classes, whole), *_moderated_rounds(rounds))


def _moderated_rounds(
    rounds: Sequence[tuple[Hashable, float, float]],
) -> tuple[dict[Hashable, TypicalVariance], TypicalVariance]:
    """Return each round's shrunk variance, and the typical one; `rounds` are (name, value, df)."""
    if not rounds:
        return {}, TypicalVariance(0.0, 0.0)
    variances, dfs = (np.array([r[i] for r in rounds], np.float64) for i in (1, 2))
    df = float(dfs.min())
    n = len(rounds)
    # One unsteady round among few must not widen all intervals. Three rounds suffice to see that
    # they differ beyond chance. The mean of two counts like one other round, and a single one does
    # not count.
    usual = typical_variance_by_moments(variances, df, df * (n - 1) / n, FEW_ROUNDS)
    prior, prior_df = np.full(len(rounds), usual.variance), np.full(len(rounds), usual.df)
    shrunk = [
        moderated(prior[i : i + 1], prior_df[i : i + 1], variances[i : i + 1], dfs[i])
        for i in range(len(rounds))
    ]
    found = [TypicalVariance(float(variance[0]), float(df[0])) for variance, df in shrunk]
    return {r[0]: one for r, one in zip(rounds, found, strict=True)}, usual


def class_spreads(found: Replicated, few_df: float | None = None) -> Spreads:
    """Return the spreads between runs, each class from its own cells.

    The drift has a variance per class. A class that was not seen gets the largest of these.
    `few_df` is that of `typical_variance_by_moments`.
    """
    classes = {
        name: ClassSpread(
            typical_variance_by_moments(found.own[where], found.df, few_df),
            found.shared.get(name, 0.0),
            found.df if name in found.shared else 0.0,
        )
        for name, where in _places(found.classes.each()).items()
        if isinstance(name, tuple)
    }
    whole = typical_variance_by_moments(found.own, found.df, few_df)
    shared = max(found.shared.values(), default=0.0)
    return Spreads(classes, ClassSpread(whole, shared, found.df if found.shared else 0.0))


def moderated(prior: Floats, prior_df: Floats, own: Floats, df: float) -> tuple[Floats, Floats]:
    """Shrink variances of cells towards their priors; return variances and degrees of freedom.

    The posterior variance is (d₀ s₀² + d s²) / (d₀ + d), equation 2 of Smyth (2004). With `df` 0
    nothing is known about the cell itself, and the prior is returned.

    Parameters
    ----------
    prior, prior_df
        Typical variance of each cell and its degrees of freedom, shape (cells,).
    own
        Estimated variance of each cell, shape (cells,).
    df
        Degrees of freedom of each of `own`.
    """
    if df == 0:
        return prior.copy(), prior_df.copy()
    with np.errstate(invalid="ignore"):
        weight = np.where(np.isinf(prior_df), 1.0, prior_df / (prior_df + df))
    return weight * prior + (1.0 - weight) * own, prior_df + df


def summed(own: Floats, own_df: Floats, shared: Floats, shared_df: Floats) -> Floats:
    """Return the Welch–Satterthwaite degrees of freedom of the sum of two estimated variances."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = own**2 / own_df + np.where(shared_df > 0.0, shared**2 / shared_df, 0.0)
        df = np.where(parts > 0.0, (own + shared) ** 2 / parts, own_df)
    return np.minimum(df, _MAX_DF)


def t_quantile(df: Floats) -> Floats:
    """Return half of a 95 % interval in standard errors, for Student's t with `df` degrees."""
    quantile: Floats = scipy.special.stdtrit(df, (1.0 + CONFIDENCE) / 2.0)
    return quantile


def half_widths(
    repeats: int, variances: Floats, within: Floats, priors: Priors
) -> tuple[Floats, Floats]:
    """Return half-widths of two 95 % intervals of cells' mean log medians, each of shape (cells,).

    The first is the interval for comparisons within a group: it leaves out the drift that all cells
    of the same rounds share. The second predicts another run with the same number of repeats. That
    run has the same variance again, so this interval is √2 times as wide, and includes the drift.

    Parameters
    ----------
    repeats
        Number of repeats that the means are over.
    variances
        Variances of cells as in `Replicated`; ignored for a single repeat.
    within
        Variance of a repeat's median, estimated from its samples. The larger of both counts.
    priors
        Typical and shared variances of the cells.
    """
    own, own_df = moderated(priors.own, priors.own_df, variances, repeats - 1)
    own, own_df = np.maximum(own, within), np.maximum(own_df, 1.0)
    whole_df = summed(own, own_df, priors.shared, priors.shared_df)
    return (
        t_quantile(own_df) * np.sqrt(own / repeats),
        t_quantile(whole_df) * np.sqrt(2.0 * (own + priors.shared) / repeats),
    )


def variance_within(low: Floats, high: Floats, coverage: Floats) -> Floats:
    """Return the variance of log medians from intervals of their samples; 0 if `coverage` is 0.

    `low` and `high` are the ends in seconds and `coverage` the confidence, all of shape (cells,).
    """
    z = normal_quantile(coverage)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.where(z > 0.0, np.log(high / low) / 2.0 / z, 0.0)
    variance: Floats = half**2
    return variance


def normal_quantile(coverage: Floats | float) -> Floats:
    """Return half of an interval of this confidence in standard errors; at most that of 99.9 %."""
    z: Floats = scipy.special.ndtri((1.0 + np.clip(coverage, 0.0, 0.999)) / 2.0)
    return z


@dataclass(frozen=True)
class ChangeEstimate:
    """Changes of log times (NaN: unknown), standard errors (infinite: unknown), and degrees."""

    change: Floats
    error: Floats
    df: Floats

    @property
    def low(self) -> Floats:
        """Lower end of the 95 % interval."""
        return self.change - t_quantile(self.df) * self.error

    @property
    def high(self) -> Floats:
        """Upper end of the 95 % interval."""
        return self.change + t_quantile(self.df) * self.error

    def p_beyond(self, bound: Floats | float, sign: int) -> Floats:
        """Return one-sided p values of the hypothesis that a change does not exceed `bound`.

        With `sign` 1, a change exceeds the bound upwards; with -1, its negative does.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num((sign * self.change - bound) / self.error, posinf=1e9, neginf=-1e9)
        p: Floats = np.where(np.isfinite(self.error), scipy.special.stdtr(self.df, -t), 1.0)
        return p


def estimate(
    changes: Floats,
    classes: Classes,
    within: Floats,
    usual: Spreads | None,
    seen: Replicated | None,
) -> ChangeEstimate:
    """Estimate the mean change of each cell's log time over pairs of runs.

    Parameters
    ----------
    changes
        Change of each cell in each pair, shape (cells, pairs).
    classes
        Name and time of each cell.
    within
        Variance of a run's median that its samples show; an error is never smaller.
    usual
        Spreads between runs that are known beforehand. If None, those of `seen` are used.
    seen
        Estimates from replicates of these cells. If both are None, the error is infinite.
    """
    n = changes.shape[1]
    mean = changes.mean(axis=1)
    if usual is None and seen is None:
        return ChangeEstimate(mean, np.full(len(mean), np.inf), np.ones(len(mean)))
    # The mean of a few of these same cells adds no information about them.
    here = None if seen is None else class_spreads(seen, few_df=0.0).at(classes)
    prior = here if usual is None else usual.at(classes)
    assert prior is not None
    own, own_df = prior.own, prior.own_df
    if seen is not None:
        own, own_df = moderated(own, own_df, seen.own, seen.df)
    own = np.maximum(own, within)
    shared, shared_df = prior.shared, prior.shared_df
    if usual is not None and here is not None:
        shared_df = prior.shared_df + here.shared_df
        with np.errstate(invalid="ignore"):
            both = prior.shared_df * prior.shared + here.shared_df * here.shared
            shared = np.where(shared_df > 0.0, both / shared_df, 0.0)
    df = summed(own, own_df, shared, shared_df)
    return ChangeEstimate(mean, np.sqrt(2.0 / n * (own + shared)), df)


def shifts(first: Floats, n_first: Places, second: Floats, n_second: Places) -> Floats:
    """Return the Hodges–Lehmann shift of each cell: the median of all second[j] − first[i].

    For logarithms of times it estimates the log of the ratio. One outlier in four samples moves it
    little (breakdown point 29 %). With normal samples it needs 5 % more of them than the difference
    of means (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963).

    Parameters
    ----------
    first, second
        Samples of all cells, one cell after the other.
    n_first, n_second
        Number of samples of each cell, shape (cells,). The shift is NaN if one is 0.
    """
    out = np.full(len(n_first), np.nan)
    begins = np.cumsum(n_first) - n_first, np.cumsum(n_second) - n_second
    for a, b in np.unique(np.column_stack([n_first, n_second]), axis=0).tolist():
        if not a or not b:
            continue
        places = np.flatnonzero((n_first == a) & (n_second == b))
        step = max(1, _MAX_DIFFERENCES // (a * b))
        for start in range(0, len(places), step):
            some = places[start : start + step]
            x = first[begins[0][some][:, None] + np.arange(a)]
            y = second[begins[1][some][:, None] + np.arange(b)]
            differences = (y[:, :, None] - x[:, None, :]).reshape(len(some), a * b)
            out[some] = np.median(differences, axis=1)
    return out
