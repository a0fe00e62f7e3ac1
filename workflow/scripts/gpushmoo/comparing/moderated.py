"""Variances of few observations, shrunk towards what is usual for their class.

Smyth, Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments, Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, polygamma

Floats = npt.NDArray[np.float64]

# Fewer variances do not tell how much they differ beyond chance.
FEWEST = 8
# A variance under this share of the median one is a clock's grain; its logarithm would say much.
_LEAST_SHARE = 1e-5


@dataclass(frozen=True)
class UsualVariance:
    """The usual variance of a class, and for how many degrees of freedom it counts (or infinity).

    A cell's own variance is distributed as ``variance`` times F(own degrees, ``df``).
    """

    variance: float
    df: float


def fit_prior(variances: Floats, df: float, few_df: float | None = None) -> UsualVariance:
    """What is usual, from the `variances` of many cells, each of `df` degrees of freedom.

    By the method of moments of their logarithms (Smyth, section 6.2). Of fewer than FEWEST, or
    where most are zero, their mean, which counts as much as one of them, or for `few_df` degrees.
    Raises ValueError of none.
    """
    if not len(variances):
        raise ValueError("the usual variance of no cells")
    middle = float(np.median(variances))
    if len(variances) < FEWEST or not middle > 0.0:
        return UsualVariance(float(variances.mean()), df if few_df is None else few_df)
    z = np.log(np.maximum(variances, _LEAST_SHARE * middle))
    e = z - digamma(df / 2) + math.log(df / 2)
    mean = float(e.mean())
    beyond_chance = float(e.var(ddof=1)) - float(polygamma(1, df / 2))
    if beyond_chance <= 0.0:
        return UsualVariance(math.exp(mean), math.inf)
    prior_df = 2.0 * trigamma_inverse(beyond_chance)
    return UsualVariance(
        math.exp(mean + float(digamma(prior_df / 2)) - math.log(prior_df / 2)), prior_df
    )


def trigamma_inverse(value: float) -> float:
    """The y > 0 with trigamma(y) = `value` > 0, by Newton's method (Smyth, appendix)."""
    if value > 1e7:
        return 1.0 / math.sqrt(value)
    if value < 1e-6:
        return 1.0 / value
    y = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = float(polygamma(1, y))
        step = trigamma * (1.0 - trigamma / value) / float(polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


def moderated(prior: Floats, prior_df: Floats, own: Floats, df: float) -> tuple[Floats, Floats]:
    """Cells' own variances, of `df` degrees, shrunk towards their priors; the degrees of both.

    The posterior variance, Smyth's equation 2: (d₀ s₀² + d s²) / (d₀ + d). With `df` 0 nothing is
    known of the cell itself and the prior stands.
    """
    if df == 0:
        return prior.copy(), prior_df.copy()
    with np.errstate(invalid="ignore"):
        weight = np.where(np.isinf(prior_df), 1.0, prior_df / (prior_df + df))
    return weight * prior + (1.0 - weight) * own, prior_df + df
