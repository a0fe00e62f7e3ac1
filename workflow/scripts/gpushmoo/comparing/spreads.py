"""How far runs of the same thing lie apart: what a change has to be held against.

The unit is the run: samples of one run, and cells that drifted together, are no replicates of it.
The logarithm of a cell's time in run r is taken as μ(cell) + D(class, r) + e(cell, r). D is what
the cells of a class share in a run, such as another clock or another host; only as many runs as
there are tell its variance, whatever the number of cells. e is the cell's own; its usual variance
is that of its class, to which cells' own variances are shrunk (`moderated`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from ..core.median import CONFIDENCE
from .moderated import UsualVariance, fit_prior, moderated

Floats = npt.NDArray[np.float64]

# Cells of a class that tell what they share; with fewer it is counted as each cell's own.
SHARING_CELLS = 8


@dataclass(frozen=True)
class ClassSpread:
    """Variances between runs of log times of a class: the cells' own and the shared one.

    ``own.df`` says how much the usual variance counts, `shared_df` from how many runs less one the
    other is known (0: nothing shared is told apart).
    """

    own: UsualVariance
    shared: float
    shared_df: float


@dataclass(frozen=True)
class Spreads:
    """The spread of each class by name, and that of all cells together."""

    classes: Mapping[str, ClassSpread]
    whole: ClassSpread

    def of(self, name: str) -> ClassSpread:
        """That of the class `name`; of all cells where none was seen."""
        return self.classes.get(name, self.whole)

    def as_plain(self) -> dict[str, Any]:
        """As JSON holds it; infinity is null."""
        return {
            "classes": {name: _plain(spread) for name, spread in self.classes.items()},
            "whole": _plain(self.whole),
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Spreads:
        """What `as_plain` gave. Raises KeyError, TypeError, ValueError where it is none."""
        classes = {name: _class(value) for name, value in values["classes"].items()}
        return cls(classes, _class(values["whole"]))


def _plain(spread: ClassSpread) -> dict[str, float | None]:
    df = None if math.isinf(spread.own.df) else spread.own.df
    shared = {"shared": spread.shared, "shared_df": spread.shared_df}
    return {"own": spread.own.variance, "own_df": df, **shared}


def _class(value: Mapping[str, Any]) -> ClassSpread:
    df = math.inf if value["own_df"] is None else float(value["own_df"])
    own = UsualVariance(float(value["own"]), df)
    return ClassSpread(own, float(value["shared"]), float(value["shared_df"]))


@dataclass(frozen=True)
class Replicated:
    """What replicates of some cells tell: cells' own variances and each class's shared one.

    `own` has an entry for each cell, of `df` degrees of freedom; `classes` names the cells'.
    """

    own: Floats
    classes: Sequence[str]
    shared: Mapping[str, float]
    df: float

    def scaled(self, factor: float) -> Replicated:
        """The same with all variances times `factor`."""
        shared = {name: factor * value for name, value in self.shared.items()}
        return Replicated(factor * self.own, self.classes, shared, self.df)

    def spreads(self, few_df: float | None = None) -> Spreads:
        """What is usual for each class, and for all cells; `few_df` as in `fit_prior`."""
        names = np.array(self.classes, dtype=object)
        found = {}
        for name in sorted(set(self.classes)):
            own = fit_prior(self.own[names == name], self.df, few_df)
            shared_df = self.df if name in self.shared else 0.0
            found[name] = ClassSpread(own, self.shared.get(name, 0.0), shared_df)
        shared = max(self.shared.values(), default=0.0)
        whole_df = self.df if self.shared else 0.0
        return Spreads(found, ClassSpread(fit_prior(self.own, self.df, few_df), shared, whole_df))


def replicated(blocks: Sequence[Floats], classes: Sequence[str]) -> Replicated:
    """Part what replicates deviate by; each block is shape (cells, replicates), of the same cells.

    Within a block all columns measure the same. Raises ValueError where no block has two columns.
    """
    df = float(sum(block.shape[1] - 1 for block in blocks))
    if not df:
        raise ValueError("one replicate has no deviations")
    names = np.array(classes, dtype=object)
    own = np.zeros(len(names))
    shared: dict[str, float] = {}
    for block in blocks:
        rest = block - block.mean(axis=1, keepdims=True)
        for name in set(classes):
            places = np.flatnonzero(names == name)
            of_class, n = rest[places], len(places)
            if n >= SHARING_CELLS:
                drift = np.median(of_class, axis=0)
                drift -= drift.mean()
                shared[name] = shared.get(name, 0.0) + float((drift**2).sum()) / df
                of_class = (of_class - drift) * math.sqrt(n / (n - 1))
            own[places] += (of_class**2).sum(axis=1) / df
    return Replicated(own, classes, shared, df)


@dataclass(frozen=True)
class ChangeEstimate:
    """Changes of log times with what they are known to: standard error and degrees of freedom.

    An unknown change is NaN, an unknown error infinite.
    """

    change: Floats
    error: Floats
    df: Floats

    @property
    def half(self) -> Floats:
        """Half of the 95 % interval's width."""
        quantile: Floats = stdtrit(self.df, (1.0 + CONFIDENCE) / 2.0)
        return quantile * self.error

    @property
    def low(self) -> Floats:
        """Lower end of the 95 % interval."""
        return self.change - self.half

    @property
    def high(self) -> Floats:
        """Upper end of the 95 % interval."""
        return self.change + self.half

    def p_beyond(self, bound: float, sign: int) -> Floats:
        """p value of each change not being beyond `bound` in the direction of `sign`, one-sided."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num((sign * self.change - bound) / self.error, posinf=1e9, neginf=-1e9)
        p: Floats = np.where(np.isfinite(self.error), stdtr(self.df, -t), 1.0)
        return p


def estimate(
    changes: Floats,
    classes: Sequence[str],
    within: Floats,
    usual: Spreads | None,
    seen: Replicated | None,
) -> ChangeEstimate:
    """The mean change of each cell over pairs of runs; `changes` has the shape (cells, pairs).

    `usual` is what is known beforehand, `seen` what replicates of these very cells tell (variances
    of a run, as all here); of `usual` None that of `seen` is taken. Without both no error is known.
    `within` is the variance of a run's own median that its samples tell: an error is never smaller.
    """
    n = changes.shape[1]
    mean = changes.mean(axis=1)
    if usual is None:
        if seen is None:
            unknown = np.full(len(mean), np.inf)
            return ChangeEstimate(mean, unknown, np.ones(len(mean)))
        # The mean of a few of these very cells tells nothing that they do not tell themselves.
        usual = seen.spreads(few_df=0.0)
    spreads = [usual.of(name) for name in classes]
    prior = np.array([s.own.variance for s in spreads])
    prior_df = np.array([s.own.df for s in spreads])
    shared = np.array([s.shared for s in spreads])
    shared_df = np.array([s.shared_df for s in spreads])
    own_seen, df = (prior, 0.0) if seen is None else (seen.own, seen.df)
    own, own_df = moderated(prior, prior_df, own_seen, df)
    if usual is not None and seen is not None:
        here = np.array([seen.shared.get(name, np.nan) for name in classes])
        more = np.where(np.isnan(here), 0.0, df)
        total_df = np.maximum(shared_df + more, 1.0)
        shared = (shared_df * shared + more * np.nan_to_num(here)) / total_df
        shared_df = shared_df + more
    own = np.maximum(own, within)
    # Welch and Satterthwaite: the degrees of freedom of a sum of two estimated variances.
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = own**2 / own_df + np.where(shared_df > 0.0, shared**2 / shared_df, 0.0)
        whole_df = np.where(parts > 0.0, (own + shared) ** 2 / parts, 1e6)
    return ChangeEstimate(mean, np.sqrt(2.0 / n * (own + shared)), np.minimum(whole_df, 1e6))
