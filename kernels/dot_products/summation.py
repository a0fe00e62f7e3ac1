"""Compute exact dot products, and rigorous tolerances for sums in any order.

Sources: N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., SIAM 2002 (section
3.1 for γ and dot products, chapter 4 for orders of summation); T. Ogita, S. M. Rump and S. Oishi,
*Accurate sum and dot product*, SIAM J. Sci. Comput. 26 (2005) 1955–1988, for ill-conditioned data.

A `dtype` is float32 or float64. Every function raises ValueError for another one, for a negative
count of terms or roundings, and for less than one leaf, thread, lane or partial sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Pairs processed at a time: the temporaries stay in the cache, and a bin's sum below 2^53.
CHUNK = 2**14
# Number of pairs from which compiling for a second pays, as the loop is then ten times faster.
COMPILED_FROM = 2**23
# Pairs whose bins are added as int64, less than 3·2^36 each: together they stay below 2^62.
_SEGMENT = 2**24

# A significand in [1/2, 1) is split into three digits of 18 bits, a product into five columns.
_DIGIT = 18
_COLUMNS = 5
# The sum of two exponents of `frexp`: −1073 is that of the smallest double, 1024 of the largest.
_MIN_EXPONENT = -2 * 1073
_BINS = 2 * 1024 - _MIN_EXPONENT + 1
# Exact sums are integers in units of 2^−_GRAIN, the last column's weight in the lowest bin.
_GRAIN = -_MIN_EXPONENT + 2 * 3 * _DIGIT


@dataclass(frozen=True)
class Reference:
    """Exact result of a dot product of `terms` products, in the unit of one product.

    `value` is rounded to nearest from the exact sum, and `magnitude` from Σ |x_i·y_i|.
    `uncertainty` bounds |value − exact|: at most half a unit in the last place, 0 if `value` is
    exact, inf if finite products add up to more than the largest double. If NaN or inf in the input
    decide, `value` is NaN or ±inf, `magnitude` is NaN or inf, and `uncertainty` is 0.
    """

    value: float
    magnitude: float
    uncertainty: float
    terms: int


@dataclass(frozen=True)
class Tolerance:
    """Largest distance of a finite result from the reference, and whether it may overflow."""

    absolute: float
    overflow: bool


def reference_dot(x: Array, y: Array) -> Reference:
    """Return Σ x_i·y_i of vectors (n,), both float32 or both float64, added without rounding.

    Every product is an integer times a power of two and is added as such, over the whole range of
    exponents. So no product under- or overflows, and the only rounding is the last one, of the
    ratio of two integers. ``uncertainty`` is the distance of ``value`` from that ratio, rounded up.
    A pair takes 20 to 40 ns, a tenth of that from COMPILED_FROM pairs on, and a few MB for any n.

    The result is NaN if a product is NaN (NaN in the input, 0·inf) or if both +inf and −inf occur,
    ±inf if a product is ±inf through its input, and 0.0 for n = 0. A finite sum beyond the range of
    doubles is ±inf.

    Raises
    ------
    ValueError
        If the arrays are not one-dimensional, of one length, and of one of the two types.
    """
    if x.ndim != 1 or x.shape != y.shape or x.dtype != y.dtype:
        shapes = f"{x.dtype} {x.shape} and {y.dtype} {y.shape}"
        raise ValueError(f"expected two vectors of one type and length, got {shapes}")
    _format(x.dtype)
    special = _special_sum(x, y)
    if special != 0:
        return Reference(special, abs(special), 0.0, x.size)
    positive, negative = _exact_sums(x, y)
    exact = positive - negative
    value = _rounded(exact)
    return Reference(value, _rounded(positive + negative), _distance(exact, value), x.size)


def _special_sum(x: Array, y: Array) -> float:
    """Return the sum of products with NaN or inf in a factor: ±inf or NaN, or 0.0 without any."""
    total = 0.0
    with np.errstate(invalid="ignore"):
        for start in range(0, x.size, CHUNK):
            a, b = x[start : start + CHUNK], y[start : start + CHUNK]
            which = ~(np.isfinite(a) & np.isfinite(b))
            total += float(np.sum(a[which] * b[which]))
    return total


def _digits(significand: Array) -> tuple[Array, Array, Array]:
    """Return three integers below 2^18, most significant first, for a value in [0, 1)."""
    rest = significand * 2.0**_DIGIT
    first = np.floor(rest)
    rest = (rest - first) * 2.0**_DIGIT
    second = np.floor(rest)
    return first, second, (rest - second) * 2.0**_DIGIT


def _exact_sums(x: Array, y: Array) -> tuple[int, int]:
    """Return sums of the positive and of the negated negative products, in units of 2^−_GRAIN."""
    positive = 0
    negative = 0
    binned = _binned if x.size < COMPILED_FROM else _compiled_binned
    for start in range(0, x.size, _SEGMENT):
        bins = binned(x[start : start + _SEGMENT], y[start : start + _SEGMENT])
        positive += _joined(bins[:, :_BINS])
        negative += _joined(bins[:, _BINS:])
    return positive, negative


def _binned(x: Array, y: Array) -> npt.NDArray[np.int64]:
    """Add columns of the products by exponent (positive products, then negative ones).

    This is schoolbook multiplication: 53 bits fit in three digits of 18. A column is the sum of at
    most three products of digits, less than 3·2^36, so that `bincount`'s doubles add a chunk
    exactly.
    """
    bins = np.zeros((_COLUMNS, 2 * _BINS), np.int64)
    for start in range(0, x.size, CHUNK):
        a = x[start : start + CHUNK].astype(np.float64)
        b = y[start : start + CHUNK].astype(np.float64)
        a_part, a_exponent = np.frexp(np.abs(a))
        b_part, b_exponent = np.frexp(np.abs(b))
        where = (a_exponent + b_exponent).astype(np.intp) - _MIN_EXPONENT
        where += (np.signbit(a) ^ np.signbit(b)) * _BINS
        (a0, a1, a2), (b0, b1, b2) = _digits(a_part), _digits(b_part)
        middle = a0 * b2 + a1 * b1 + a2 * b0
        columns = (a0 * b0, a0 * b1 + a1 * b0, middle, a1 * b2 + a2 * b1, a2 * b2)
        for row, column in zip(bins, columns, strict=True):
            row += np.bincount(where, column, 2 * _BINS).astype(np.int64)
    return bins


def _compiled_binned(x: Array, y: Array) -> npt.NDArray[np.int64]:
    """Fill the bins of `_binned` with all cores."""
    from .host_loops import binned

    return binned(x, y, (_COLUMNS, 2 * _BINS), _MIN_EXPONENT)


def _joined(bins: npt.NDArray[np.int64]) -> int:
    """Return the number that bins (column, exponent) represent, in units of 2^−_GRAIN."""
    used = np.argwhere(bins)
    return sum(int(bins[c, e]) << (int(e) + _DIGIT * (_COLUMNS - 1 - int(c))) for c, e in used)


def _rounded(units: int) -> float:
    """Return the double nearest to `units`·2^−_GRAIN; Python rounds a ratio of integers once."""
    try:
        return units / (1 << _GRAIN)
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def _distance(units: int, value: float) -> float:
    """Return the distance of `value` from `units`·2^−_GRAIN, rounded up; 0.0 only if equal."""
    if math.isinf(value):
        return math.inf
    apart = abs(Fraction(units, 1 << _GRAIN) - Fraction(value))
    return math.nextafter(float(apart), math.inf) if apart else 0.0


def _padded(bound: float) -> float:
    """Return `bound`, increased for the dozen roundings to double of its computation."""
    return bound * (1 + 2**-48) + 16 * math.ulp(0.0)


def _format(dtype: npt.DTypeLike) -> np.finfo[Any]:
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"expected float32 or float64, got {kind}")
    return np.finfo(kind)


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Return the largest relative error of rounding to nearest: 2^−24 or 2^−53 for float64."""
    return float(_format(dtype).eps) / 2


def gamma(depth: int, unit_roundoff: float) -> float:
    """Return γ = depth·u / (1 − depth·u), or inf if depth·u ≥ 1 (Higham, Lemma 3.1).

    A product of `depth` factors (1 + δ) or 1 / (1 + δ) with |δ| ≤ u is 1 + θ with |θ| ≤ γ.
    """
    _check_least(0, depth=depth)
    share = depth * unit_roundoff
    return share / (1 - share) if share < 1 else math.inf


def dot_bound(depth: int, dtype: npt.DTypeLike, magnitude: float, terms: int) -> float:
    """Return the largest absolute error of a dot product with `depth` roundings per product.

    It is γ(depth)·`magnitude` + (1 + γ(depth))·`terms`·η/2, rounded up. Every computed product
    reaches the result through at most `depth` factors (1 + δ): its own rounding, and one of each
    addition that it goes through; a fused multiply-add rounds once for both, and counts once. So
    Lemma 3.1 bounds its relative change by γ (Higham, sections 3.1 and 4.2, for any order). Each of
    the `terms` products or fused operations may also lose half of η, the smallest subnormal;
    additions lose nothing there. This assumes rounding to nearest, no overflow, and gradual
    underflow (no flushing of subnormals to zero).

    Parameters
    ----------
    depth
        Roundings of a product on its way into the result.
    dtype
        Type of all intermediate values.
    magnitude
        Σ |x_i·y_i|, rounded to nearest.
    terms
        Number of products.
    """
    _check_least(0, terms=terms)
    growth = gamma(depth, unit_roundoff(dtype))
    if not (math.isfinite(growth) and math.isfinite(magnitude)):
        return math.inf
    lost = (1 + growth) * (terms / 2) * float(_format(dtype).smallest_subnormal)
    return _padded(growth * magnitude + lost)


def sequential_depth(n: int) -> int:
    """Return n: the first of `n` products is rounded and then goes through n − 1 additions.

    Fused multiply-adds onto 0 have the same depth: the first product goes through n of them.
    """
    _check_least(0, n=n)
    return n


def pairwise_depth(n: int, leaf: int = 1) -> int:
    """Return min(n, leaf) + ceil(log2(ceil(n / leaf))): sequential leaves, then a tree.

    It is valid for leaves of `leaf` products under a balanced tree, and for halving until no part
    has more than `leaf` products.
    """
    _check_least(0, n=n)
    _check_least(1, leaf=leaf)
    return sequential_depth(min(n, leaf)) + _levels(-(-n // leaf))


def blocked_depth(terms_per_thread: int, threads: int, lanes: int, partials: int) -> int:
    """Return the depth of sums by threads, lanes and blocks; 0 without terms.

    It is ceil(terms / lanes) + (lanes − 1) + ceil(log2 threads) + (partials − 1), in that order: a
    thread distributes its terms to `lanes` accumulators, each of which adds its share sequentially
    (the product's own rounding and one less additions). It adds the accumulators sequentially. The
    threads of a block add up as a tree. The `partials` sums of the blocks (and of other streams and
    devices) are added sequentially, in any order. A sum onto 0 does not round. This is an upper
    bound if a stage has less to add, or adds as a tree. `terms_per_thread` are the products of the
    thread with the most, over all of its lanes.
    """
    _check_least(0, terms_per_thread=terms_per_thread)
    _check_least(1, threads=threads, lanes=lanes, partials=partials)
    if terms_per_thread == 0:
        return 0
    share = sequential_depth(-(-terms_per_thread // lanes))
    return share + lanes - 1 + _levels(threads) + partials - 1


def _levels(n: int) -> int:
    """Return ceil(log2 n), and 0 for n = 0: levels of a balanced tree over n leaves."""
    return (n - 1).bit_length() if n else 0


def _check_least(least: int, **given: int) -> None:
    for name, value in given.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def tolerance(reference: Reference, depth: int, dtype: npt.DTypeLike) -> Tolerance:
    """Return the allowed difference of a correct dot product with `depth` roundings per product.

    It is `dot_bound`, plus the reference's uncertainty, plus one rounding of the result to `dtype`
    (for example to store it). Partial sums are at most `magnitude` plus that bound. If this exceeds
    the largest number of `dtype`, a partial sum may overflow, regardless of the whole sum;
    `absolute` remains valid for results that did not. It is exact if NaN or inf in the input
    decide.
    """
    bound = dot_bound(depth, dtype, reference.magnitude, reference.terms)
    if not math.isfinite(reference.value) and reference.uncertainty == 0:
        return Tolerance(0.0, False)
    info = _format(dtype)
    last = unit_roundoff(dtype) * (abs(reference.value) + bound) + float(info.smallest_subnormal)
    absolute = _padded(bound + reference.uncertainty + last)
    return Tolerance(absolute, reference.magnitude + bound >= float(info.max))


def agrees(result: float, reference: Reference, tolerance: Tolerance) -> bool:
    """Return whether `result` can be the dot product that `reference` describes.

    NaN agrees with NaN, and an infinity with the same one only, unless the tolerance allows for an
    overflow. In that case ±inf and NaN (an overflow to each side) agree with any finite sum,
    because an order of summation that overflows is not wrong. Finite results agree with finite
    references within the absolute tolerance.
    """
    # With a float32, the difference would be computed in float32.
    result = float(result)
    if math.isnan(reference.value):
        return math.isnan(result)
    if not math.isfinite(result):
        return result == reference.value or tolerance.overflow
    # The difference may round, but never past the tolerance, which is a double itself.
    return math.isfinite(reference.value) and abs(result - reference.value) <= tolerance.absolute


def ill_conditioned(
    n: int, dtype: npt.DTypeLike, rng: np.random.Generator, condition: float
) -> tuple[Array, Array]:
    """Return vectors (n,) of `dtype` with 2·Σ |x_i·y_i| / |Σ x_i·y_i| of about `condition`.

    The method is GenDot (Ogita, Rump and Oishi, algorithm 6.1): random products of widely spread
    exponents, then a few that reduce their exact sum to its goal, each by fewer bits than a
    significand has; all in random order. The condition is within a factor of about 3 of the
    request, and all elements are finite.

    Raises
    ------
    ValueError
        If `condition` is less than 2 or above 2^96 (2^768 for float64), or if `n` is less than 2 or
        than two elements per 20 (49) bits of it.
    """
    info = _format(dtype)
    possible = 2 <= condition <= 2.0 ** (0.75 * int(info.maxexp))
    bits = math.log2(condition) if possible else math.inf
    at_once = info.nmant - 3
    if n < max(2, 2 * bits / at_once):
        raise ValueError(f"no {n} pairs of {info.dtype} with a condition number of {condition:g}")
    steps = math.ceil(bits / at_once)
    exponents = rng.integers(0, int(bits) // 2, n - steps, endpoint=True)
    # This keeps the widest spread for small n.
    exponents[0] = int(bits) // 2
    x, y = np.zeros(n, info.dtype), np.zeros(n, info.dtype)
    for vector in (x, y):
        signs = rng.choice((-1.0, 1.0), n - steps)
        vector[:-steps] = np.ldexp(signs * rng.uniform(0.5, 1, n - steps), exponents)
    _cancel(x, y, steps, condition, rng)
    order = rng.permutation(n)
    return x[order], y[order]


def _cancel(x: Array, y: Array, steps: int, condition: float, rng: np.random.Generator) -> None:
    """Fill the last `steps` pairs so that the sum is 2·magnitude / condition, within a few %."""
    positive, negative = _exact_sums(x, y)
    total = Fraction(positive - negative, 1 << _GRAIN)
    goal = 2 * _rounded(positive + negative) / condition
    start = max(abs(float(total)), goal)
    for step in range(1, steps + 1):
        wanted = goal * (start / goal) ** (1 - step / steps)
        # Both factors are about the root of the product, which keeps them in range.
        x[step - steps - 1] = math.sqrt(max(abs(float(total)), wanted)) * rng.uniform(0.5, 1)
        factor = Fraction(float(x[step - steps - 1]))
        y[step - steps - 1] = float((Fraction(wanted) - total) / factor)
        # The requested product was rounded, so continue from the actual one.
        total += factor * Fraction(float(y[step - steps - 1]))
