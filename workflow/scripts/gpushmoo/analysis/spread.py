"""How far the medians of repeats lie apart, and the intervals that follow from it.

The unit is the repeat: samples of one repeat are no independent replicates of a run. The logarithm
of a cell's median in repeat p is taken as μ(cell) + D(rounds, p) + e(cell, p). D is what all cells
of the same rounds share, such as another clock or a neighbour on the machine; e is the cell's own.
Two repeats know the variance of e of one cell badly (one degree of freedom), but many cells of its
class know its usual size, so each is shrunk towards that: the posterior variance of limma (Smyth,
Statistical Applications in Genetics and Molecular Biology 3, 2004, equation 2).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import fdtri, ndtri, stdtrit

from ..core.median import CONFIDENCE

Floats = npt.NDArray[np.float64]

# Cells of the same rounds that tell what they share; with fewer it is counted as each cell's own.
ROUND_CELLS = 8
# Cells that tell the usual spread of their class; with fewer the whole run tells it.
CLASS_CELLS = 30
# Degrees of freedom that a class's usual spread may count for; the last stands for any number.
_PRIOR_DF = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 50.0, 1e6)


@dataclass(frozen=True)
class Usual:
    """The usual variance of a cell's own deviations, and for how many degrees of freedom it counts.

    Variances are those of logarithms of times.
    """

    variance: float
    df: float


@dataclass(frozen=True)
class Spread:
    """What the repeats of a whole run tell: each class's usual spread, and that of what is shared.

    `drift_df` counts shards times repeats less one: rounds of one shard are close in time, so that
    they are one observation. 0: nothing is known of what is shared.
    """

    classes: Mapping[Hashable, Usual]
    whole: Usual
    drift_variance: float
    drift_df: float

    def usual(self, name: Hashable) -> Usual:
        """The usual spread of the class `name`, of the whole run where it has too few cells."""
        return self.classes.get(name, self.whole)


@dataclass(frozen=True)
class Deviations:
    """How far the repeats of a shard's cells lie apart; all have equally many repeats.

    `own` are the variances of the cells' own deviations, `names` the cells' classes, `drift` the
    mean variance of what all cells of a round share (None where no round has enough cells);
    `repeats` is the number of repeats of each cell.
    """

    own: Floats
    names: Sequence[Hashable]
    drift: float | None
    repeats: int


def deviations(logs: Floats, rounds: Sequence[Hashable], names: Sequence[Hashable]) -> Deviations:
    """Part the deviations of log medians, shape (cells, repeats), in shared ones and cells' own.

    `rounds` says which cells were sampled in the same rounds. Raises ValueError for one repeat.
    """
    repeats = logs.shape[1]
    if repeats < 2:
        raise ValueError("one repeat has no deviations")
    rest = logs - logs.mean(axis=1, keepdims=True)
    variances = np.empty(len(rest))
    shared = []
    where: dict[Hashable, list[int]] = {}
    for place, name in enumerate(rounds):
        where.setdefault(name, []).append(place)
    for places in where.values():
        round_rest = rest[places]
        n = len(places)
        if n >= ROUND_CELLS:
            drift = np.median(round_rest, axis=0)
            drift -= drift.mean()
            shared.append(float((drift**2).sum()) / (repeats - 1))
            round_rest = (round_rest - drift) * math.sqrt(n / (n - 1))
        variances[places] = (round_rest**2).sum(axis=1) / (repeats - 1)
    return Deviations(variances, names, float(np.mean(shared)) if shared else None, repeats)


def spread_of(shards: Sequence[Deviations]) -> Spread | None:
    """The spread of a run from all its shards; None without a cell that has two repeats."""
    shards = [d for d in shards if len(d.own)]
    if not shards:
        return None
    by_class: dict[Hashable, list[float]] = {}
    for d in shards:
        for name, value in zip(d.names, d.own, strict=True):
            by_class.setdefault(name, []).append(float(value))
    df = min(d.repeats for d in shards) - 1
    classes = {
        name: _usual(np.array(values), df)
        for name, values in by_class.items()
        if len(values) >= CLASS_CELLS
    }
    whole = _usual(np.concatenate([d.own for d in shards]), df)
    drifts = [d for d in shards if d.drift is not None]
    drift_df = float(sum(d.repeats - 1 for d in drifts))
    weighted = sum((d.repeats - 1) * (d.drift or 0.0) for d in drifts)
    return Spread(classes, whole, weighted / drift_df if drift_df else 0.0, drift_df)


def _usual(variances: Floats, df: int) -> Usual:
    """Fit s² / s₀² ~ F(df, d₀) to the median and the 95th percentile of `variances`.

    Quantiles and not logarithms, since a clock's grain makes some variances zero.
    """
    middle, high = np.quantile(variances, [0.5, 0.95])
    if len(variances) < CLASS_CELLS or not middle > 0.0:
        # Too few to tell the shape: the mean, which is to count as little as a cell's own.
        return Usual(float(variances.mean()), min(_PRIOR_DF) if len(variances) > 1 else 0.0)
    ratios = [fdtri(df, d, 0.95) / fdtri(df, d, 0.5) for d in _PRIOR_DF]
    prior = min(_PRIOR_DF, key=lambda d: abs(math.log(ratios[_PRIOR_DF.index(d)] * middle / high)))
    return Usual(float(middle / fdtri(df, prior, 0.5)), prior)


@dataclass(frozen=True)
class HalfWidths:
    """Half-widths of the 95 % intervals of log medians, one for each cell.

    `own` leaves out what all cells of the same rounds share, to compare these; `whole` has it.
    """

    own: Floats
    whole: Floats


def half_widths(
    logs: Floats, variances: Floats, within: Floats, names: Sequence[Hashable], spread: Spread
) -> HalfWidths:
    """Half-widths of the intervals of the means of log medians, `logs`: shape (cells, repeats).

    `variances` are those of `deviations` (ignored for a single repeat), `within` the variance of a
    repeat's median that its samples tell. The larger of both says how well a mean is known.
    """
    repeats = logs.shape[1]
    usual = [spread.usual(name) for name in names]
    prior_df = np.array([u.df for u in usual])
    prior = np.array([u.variance for u in usual])
    df = prior_df + (repeats - 1)
    measured = (repeats - 1) * (variances if repeats > 1 else 0.0)
    known = (prior_df * prior + measured) / np.maximum(df, 1)
    known = np.maximum(known, within) / repeats
    df = np.maximum(df, 1.0)
    drift = spread.drift_variance / repeats
    total = known + drift
    # Welch and Satterthwaite: the degrees of freedom of a sum of two estimated variances.
    shares = known**2 / df + (drift**2 / spread.drift_df if spread.drift_df else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole_df = np.where(shares > 0.0, total**2 / shares, df)
    return HalfWidths(_t(df) * np.sqrt(known), _t(whole_df) * np.sqrt(total))


def _t(df: Floats) -> Floats:
    quantile: Floats = stdtrit(df, (1.0 + CONFIDENCE) / 2.0)
    return quantile


def variance_within(low: Floats, high: Floats, coverage: Floats) -> Floats:
    """Variance of a log median whose interval from its samples is `low` to `high`.

    `coverage` is that interval's confidence; an interval of one sample (0) tells nothing: 0.
    """
    z = ndtri((1.0 + np.clip(coverage, 0.0, 0.999)) / 2.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.where(z > 0.0, np.log(high / low) / 2.0 / z, 0.0)
    variance: Floats = half**2
    return variance
