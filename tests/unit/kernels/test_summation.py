"""Exact dot products against fractions, and error bounds against sums made step by step."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dot_products import summation
from dot_products.summation import (
    CHUNK,
    Reference,
    Tolerance,
    _binned,
    _compiled_binned,
    agrees,
    blocked_depth,
    dot_bound,
    gamma,
    ill_conditioned,
    pairwise_depth,
    reference_dot,
    sequential_depth,
    tolerance,
    unit_roundoff,
)
from hypothesis import given
from hypothesis import strategies as st

Array = npt.NDArray[Any]
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
NAN, INF = math.nan, math.inf
MAX32, MAX64 = float(np.finfo(F32).max), float(np.finfo(F64).max)
TINY32, TINY64 = float(np.finfo(F32).smallest_subnormal), math.ulp(0.0)

each_dtype = pytest.mark.parametrize("dtype", [F32, F64], ids=str)


@st.composite
def vectors(draw: st.DrawFn) -> tuple[Array, Array]:
    """Finite pairs over all exponents; at times each once more with the other sign, or nearly."""
    bits = draw(st.sampled_from([32, 64]))
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=bits)
    near = numbers | st.floats(-4, 4, width=bits)
    pairs = draw(st.lists(st.tuples(near, near), max_size=12))
    if draw(st.booleans()):
        pairs += [(-x, y) for x, y in draw(st.permutations(pairs))]
        pairs += draw(st.lists(st.tuples(near, near), max_size=1))
    both = np.array(pairs, F32 if bits == 32 else F64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def products(x: Array, y: Array) -> list[Fraction]:
    return [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True)]


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return INF if exact > 0 else -INF


def distance(exact: Fraction, value: float) -> float:
    """How far `value` is from the exact one, rounded up."""
    apart = abs(exact - Fraction(value))
    return math.nextafter(float(apart), INF) if apart else 0.0


def uniform(n: int, dtype: npt.DTypeLike, seed: int = 1) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.random(n).astype(dtype), rng.random(n).astype(dtype)


@given(vectors())
def test_reference_is_the_exact_value_rounded_once(pair: tuple[Array, Array]) -> None:
    each = products(*pair)
    reference = reference_dot(*pair)
    exact = sum(each, Fraction(0))
    assert reference.value == nearest(exact)
    assert reference.magnitude == nearest(sum((abs(p) for p in each), Fraction(0)))
    assert reference.terms == len(each)
    if math.isfinite(reference.value):
        assert reference.uncertainty == distance(exact, reference.value)
    else:
        assert reference.uncertainty == INF


def over_all_exponents(n: int, dtype: np.dtype[Any], seed: int) -> tuple[Array, Array]:
    """Pairs with any bits that are a finite number: denormals, zeros of both signs, extremes."""
    rng, words = np.random.default_rng(seed), np.dtype(f"u{dtype.itemsize}")
    pair = []
    for _ in range(2):
        values = rng.integers(0, 2 ** (8 * words.itemsize), n, words).view(dtype)
        values[~np.isfinite(values)] = 1.5
        special = rng.random(n)
        values[special < 0.1] = 0.0
        values[(special >= 0.1) & (special < 0.2)] = -0.0
        tiny = (special >= 0.2) & (special < 0.4)
        values[tiny] = np.finfo(dtype).smallest_subnormal * rng.integers(-9, 10, tiny.sum())
        values[(special >= 0.4) & (special < 0.45)] = np.finfo(dtype).max
        pair.append(values)
    return pair[0], pair[1]


@each_dtype
@pytest.mark.parametrize("n", [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_compiled_bins_are_those_of_numpy(dtype: np.dtype[Any], n: int) -> None:
    x, y = over_all_exponents(n, dtype, seed=n)
    bins = _binned(x, y)
    np.testing.assert_array_equal(_compiled_binned(x, y), bins)
    if dtype == F64 and n > 3 * CHUNK:
        # The data reach both ends: the largest has the exponent 1024, the smallest −1073.
        used = np.flatnonzero(bins.any(axis=0)) % summation._BINS
        assert (used.min(), used.max()) == (0, summation._BINS - 1)


@each_dtype
def test_compiled_in_segments(dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def note(x: Array, y: Array) -> npt.NDArray[np.int64]:
        calls.append(x.size)
        return _compiled_binned(x, y)

    rng = np.random.default_rng(4)
    x, y = over_all_exponents(1000, dtype, seed=3)
    plain = reference_dot(x[::3], y[::-3])
    monkeypatch.setattr(summation, "COMPILED_FROM", 100)
    monkeypatch.setattr(summation, "_SEGMENT", 170)
    monkeypatch.setattr(summation, "_compiled_binned", note)
    for n in (99, 100, 171):
        a, b = (rng.integers(-(2**20), 2**20, n) for _ in range(2))
        exact = [int(p) * int(q) for p, q in zip(a, b, strict=True)]
        reference = reference_dot(a.astype(dtype), b.astype(dtype))
        assert reference == Reference(sum(exact), sum(map(abs, exact)), 0.0, n)
    assert calls == [100, 170, 1]
    # Strided and read-only data are the same numbers.
    for array in (x, y):
        array.flags.writeable = False
    assert reference_dot(x[::3], y[::-3]) == plain
    assert reference_dot(x[::3].copy(), y[::-3]) == plain
    # Special values need no bins.
    calls.clear()
    x = np.where(np.arange(200) == 150, np.inf, 1.0).astype(dtype)
    assert reference_dot(x, np.ones_like(x)).value == INF
    assert calls == []


def test_sums_past_the_doubles_and_the_bins() -> None:
    big = np.array([MAX64, MAX64, -MAX64])
    ones = np.ones(3)
    assert reference_dot(big, ones).value == MAX64, "no intermediate overflow"
    assert reference_dot(big, ones) == Reference(MAX64, INF, 0.0, 3)
    assert reference_dot(big, big) == Reference(INF, INF, INF, 3)
    assert reference_dot(big, -big).value == -INF
    tiny = np.array([TINY64, TINY64])
    assert reference_dot(tiny, np.array([0.5, 0.25])).value == TINY64, (
        "3/4 of the smallest is rounded once"
    )
    assert reference_dot(tiny, tiny) == Reference(0.0, 0.0, TINY64, 2)
    # A view of one number: no memory. 3·2^36·n, the sum of the middle column, is past 2^63.
    n, most = 45_000_000, 1 - 2.0**-53
    x = np.broadcast_to(np.float64(most), n)
    exact = n * Fraction(most) ** 2
    reference = reference_dot(x, x)
    assert reference.value == nearest(exact)
    # Says more of the sum than the 53 bits of the value do.
    assert reference.uncertainty == distance(exact, reference.value)


@each_dtype
@pytest.mark.parametrize(
    ("x", "y", "value"),
    [
        ([NAN, 1], [1, 1], NAN),
        ([NAN], [0], NAN),
        ([0, 1], [INF, 1], NAN),
        ([-0.0], [-INF], NAN),
        ([INF], [INF], INF),
        ([INF, 1], [-1, 1], -INF),
        ([INF, INF], [2, 3], INF),
        ([INF, 5], [1, -INF], NAN),
        ([INF, NAN], [1, 1], NAN),
        ([-INF, 1e30], [TINY32, 1e30], -INF),
    ],
)
def test_not_finite(dtype: np.dtype[Any], x: list[float], y: list[float], value: float) -> None:
    # The special products may also be chunks apart.
    for gap in (0, CHUNK):
        pad = np.full(gap, 3.0)
        a = np.concatenate([x[:1], pad, x[1:]]).astype(dtype)
        b = np.concatenate([y[:1], pad, y[1:]]).astype(dtype)
        reference = reference_dot(a, b)
        np.testing.assert_equal(reference.value, value)
        assert not math.isfinite(reference.magnitude)
        assert tolerance(reference, 5, dtype) == Tolerance(0.0, False)


def test_unit_roundoff_gamma_and_depths() -> None:
    assert unit_roundoff("float32") == 2.0**-24
    assert unit_roundoff(F64) == 2.0**-53
    assert gamma(0, 2.0**-24) == 0
    assert gamma(1, 0.25) == 1 / 3
    assert gamma(2**24 - 1, 2.0**-24) == 2**24 - 1
    assert gamma(2**24, 2.0**-24) == gamma(2**25, 2.0**-24) == INF
    assert [sequential_depth(n) for n in range(4)] == [0, 1, 2, 3]
    assert [pairwise_depth(n) for n in (0, 1, 2, 3, 4, 5, 1024)] == [0, 1, 2, 3, 3, 4, 11]
    assert [pairwise_depth(n, 8) for n in (0, 3, 8, 9, 16, 17)] == [0, 3, 8, 9, 9, 10]
    assert blocked_depth(0, 256, 4, 7) == 0
    assert blocked_depth(1, 1, 1, 1) == 1
    assert blocked_depth(12, 256, 4, 7) == 3 + 3 + 8 + 6
    assert blocked_depth(13, 257, 4, 1) == 4 + 3 + 9
    assert dot_bound(2**24, F32, 0.0, 0) == INF
    assert dot_bound(0, F64, INF, 3) == INF
    assert dot_bound(3, F64, NAN, 3) == INF


counts = st.integers(0, 10**6)


@given(counts, st.floats(0, 1e300), counts)
def test_bound_is_its_formula_rounded_up(depth: int, magnitude: float, terms: int) -> None:
    for dtype, tiny in ((F32, TINY32), (F64, TINY64)):
        share = depth * Fraction(unit_roundoff(dtype))
        growth = share / (1 - share)
        exact = growth * Fraction(magnitude) + (1 + growth) * terms * Fraction(tiny) / 2
        bound = Fraction(dot_bound(depth, dtype, magnitude, terms))
        assert exact <= bound <= exact * (1 + Fraction(2) ** -40) + 20 * Fraction(TINY64)


def by_steps(values: Array) -> Any:
    """One after another; over the last axis, in the type of the values."""
    total = np.zeros(values.shape[:-1], values.dtype)
    for i in range(values.shape[-1]):
        total = total + values[..., i]
    return total


def by_tree(values: Array) -> Any:
    """Neighbours in pairs, then neighbours of those; over the last axis."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2 * 2
        pairs = values[..., 0:half:2] + values[..., 1:half:2]
        values = np.concatenate([pairs, values[..., half:]], axis=-1)
    return values[..., 0]


def sequential(x: Array, y: Array) -> Any:
    return by_steps(x * y)


def pairwise(x: Array, y: Array) -> Any:
    return by_tree(x * y)


THREADS, LANES, PARTIALS = 12, 4, 5


def blocked(x: Array, y: Array) -> Any:
    """`PARTIALS` blocks of `THREADS` threads with `LANES` accumulators, the vectors dealt out."""
    per_lane = -(-x.size // (PARTIALS * THREADS * LANES))
    z = np.zeros(per_lane * PARTIALS * THREADS * LANES - x.size, x.dtype)
    dealt = np.concatenate([x * y, z]).reshape(PARTIALS, THREADS, LANES, per_lane)
    return by_steps(by_tree(by_steps(by_steps(dealt))))


def blocked_depth_of(n: int) -> int:
    per_lane = -(-n // (PARTIALS * THREADS * LANES))
    return blocked_depth(per_lane * LANES, THREADS, LANES, PARTIALS)


SCHEMES: dict[str, tuple[Callable[[Array, Array], Any], Callable[[int], int]]] = {
    "sequential": (sequential, sequential_depth),
    "pairwise": (pairwise, pairwise_depth),
    "blocked": (blocked, blocked_depth_of),
}
each_scheme = pytest.mark.parametrize(("add", "depth"), SCHEMES.values(), ids=SCHEMES.keys())
Scheme = Callable[[Array, Array], Any]
Depth = Callable[[int], int]


@each_scheme
@given(vectors())
def test_any_order_agrees(add: Scheme, depth: Depth, pair: tuple[Array, Array]) -> None:
    x, y = pair
    if x.size == 0:
        return
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        result = add(x, y)
    reference = reference_dot(x, y)
    limit = tolerance(reference, depth(x.size), x.dtype)
    assert agrees(result, reference, limit)
    if not limit.overflow:
        bound = dot_bound(depth(x.size), x.dtype, reference.magnitude, x.size)
        assert abs(float(result) - reference.value) <= bound + reference.uncertainty


@pytest.mark.parametrize(
    ("dtype", "n", "scheme"),
    [
        (F32, 3, "sequential"),
        (F32, 3000, "blocked"),
        (F32, 30000, "pairwise"),
        (F64, 300000, "blocked"),
    ],
)
def test_a_dropped_term_is_told(dtype: np.dtype[Any], n: int, scheme: str) -> None:
    add, depth = SCHEMES[scheme]
    x, y = uniform(n, dtype)
    reference = reference_dot(x, y)
    limit = tolerance(reference, depth(n), dtype)
    assert agrees(add(x, y), reference, limit)
    each = x.astype(F64) * y
    # Twice the tolerance: the sum without the term has an error of its own.
    seen = np.flatnonzero(each > 2 * limit.absolute)
    assert seen.size > n // 2
    for dropped in np.random.default_rng(2).choice(seen, 2):
        less = x.copy()
        less[dropped] = 0
        assert not agrees(add(less, y), reference, limit)


def test_tolerance_adds_up_and_results_are_compared_as_they_are() -> None:
    reference = Reference(-3.0, 5.0, 0.25, 7)
    bound = dot_bound(9, F32, 5.0, 7)
    limit = tolerance(reference, 9, F32)
    assert limit.absolute == pytest.approx(bound + 0.25 + (3 + bound) * 2.0**-24, rel=1e-12)
    assert not limit.overflow
    assert tolerance(Reference(1.0, 1.0, 0.0, 1), 2**24, F32).absolute == INF
    assert tolerance(Reference(0.0, 0.0, 0.0, 0), 0, F64).absolute < 1e-300
    # Taken in float32 the difference would be 0.
    reference = Reference(1 + 2.0**-30, 1.0, 0.0, 1)
    assert not agrees(np.float32(1), reference, Tolerance(2.0**-31, False))
    assert agrees(np.float32(1), reference, Tolerance(2.0**-30, False))


@pytest.mark.parametrize("result", [NAN, INF, -INF, 0.0, MAX64])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_non_finite_agrees_with_itself_only(value: float, result: float) -> None:
    same = result == value or (math.isnan(result) and math.isnan(value))
    assert agrees(result, Reference(value, INF, 0.0, 1), Tolerance(0.0, False)) == same


@pytest.mark.parametrize("result", [NAN, INF, -INF])
def test_finite_never_agrees_with_non_finite_unless_it_may_overflow(result: float) -> None:
    reference = Reference(1.0, 1.0, 0.0, 1)
    assert not agrees(result, reference, Tolerance(INF, False))
    assert agrees(result, reference, Tolerance(0.5, True))


def test_overflow_between_finite_terms() -> None:
    x = np.array([MAX32, MAX32, -MAX32, -MAX32, 1.0], F32)
    y = np.ones(5, F32)
    reference = reference_dot(x, y)
    limit = tolerance(reference, sequential_depth(5), F32)
    assert reference.value == 1
    assert limit.overflow
    with np.errstate(over="ignore", invalid="ignore"):
        assert agrees(sequential(x, y), reference, limit), "inf on the way"
    assert agrees(float(sequential(x[[0, 2, 1, 3, 4]], y)), reference, limit)
    assert not agrees(1e36, reference, limit), "a finite result is held to the bound still"
    # As doubles, they are far from overflow.
    wide = tolerance(reference, sequential_depth(5), F64)
    assert not wide.overflow
    assert not agrees(INF, reference, wide)


@pytest.mark.parametrize(
    ("dtype", "n", "condition"),
    [
        (F32, 2, 2.0),
        (F32, 7, 1e12),
        (F32, 100, 2.0**96),
        (F64, 2, 1e10),
        (F64, 100001, 1e32),
        (F64, 1000, 2.0**768),
    ],
)
def test_condition_number_is_about_as_asked(dtype: np.dtype[Any], n: int, condition: float) -> None:
    for seed in range(3):
        x, y = ill_conditioned(n, dtype, np.random.default_rng(seed), condition)
        assert x.dtype == y.dtype == dtype
        assert x.shape == y.shape == (n,)
        achieved = 2 * reference_dot(np.abs(x), np.abs(y)).value / abs(reference_dot(x, y).value)
        assert condition / 4 < achieved < 4 * condition
        again = ill_conditioned(n, dtype, np.random.default_rng(seed), condition)
        np.testing.assert_array_equal((x, y), again)
