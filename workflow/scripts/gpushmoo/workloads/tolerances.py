"""Compare outputs with expected values within a limit.

An element has a *key*, an unsigned integer as wide as itself, in the order of the values. For a
float, sign and magnitude become one number, both zeros have the same key, and NaN the largest.
Elements with the same key are equal. `ulp` is a difference of keys. `rtol` and `atol` bound a
difference of values, in doubles as `numpy.isclose` does: ``|found - expected| <= atol + rtol *
|expected|``, each operation rounded. On the device, `devices.memory.LIMITS` compares. On the host,
`Limit.judged` does the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.numbers import whole

Array = npt.NDArray[Any]

UNSIGNED, SIGNED, FLOATING = range(3)
# Stored mantissa bits, exponent bias, and whether there is an infinity, by NumPy's name.
_FLOATS = {
    "float16": (10, 15, True),
    "float32": (23, 127, True),
    "float64": (52, 1023, True),
    "bfloat16": (7, 127, True),
    "float8_e4m3fn": (3, 7, False),
    "float8_e5m2": (2, 15, True),
}
# Elements that are computed at a time: with a few copies they fit in a core's cache.
_PART = 2**14


@dataclass(frozen=True)
class KeyFormat:
    """Keys of a type of `width` bytes; `kind` is UNSIGNED, SIGNED or FLOATING.

    For a float, `top` is the largest magnitude (bits without the sign) below NaN, and `finite` the
    largest below infinity. It has `mantissa` stored bits and the exponent's `bias`.
    """

    width: int
    kind: int
    top: int = 0
    finite: int = 0
    mantissa: int = 0
    bias: int = 0

    @property
    def unsigned(self) -> np.dtype[Any]:
        """NumPy's type of a key."""
        return np.dtype(f"uint{8 * self.width}")

    @property
    def sign(self) -> int:
        """The key of zero, if there are negative values."""
        return 1 << (8 * self.width - 1)

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest key of a finite value."""
        if self.kind == FLOATING:
            return self.sign - self.finite, self.sign + self.finite
        return 0, 2 * self.sign - 1

    def keys(self, values: Array) -> Array:
        """Return the keys of an array's elements, flat."""
        bits: Array = np.ascontiguousarray(values).reshape(-1).view(self.unsigned)
        if self.kind == UNSIGNED:
            return bits
        sign = self.unsigned.type(self.sign)
        if self.kind == SIGNED:
            flipped: Array = bits ^ sign
            return flipped
        found = self.ordered(bits)
        is_nan = (bits & ~sign) > self.top
        if is_nan.any():
            found[is_nan] = ~self.unsigned.type(0)
        return found

    def ordered(self, bits: Array) -> Array:
        """Return the keys of floats from their bits; NaN may have any key."""
        # For negative values, all bits except the sign are flipped, which reverses their order.
        signed = bits.view(f"int{8 * self.width}")
        found = signed >> (8 * self.width - 1)
        negative = found.copy()
        found &= signed.dtype.type(self.sign - 1)
        found ^= signed
        found -= negative
        keys: Array = found.view(self.unsigned)
        keys += self.unsigned.type(self.sign)
        return keys


@cache
def key_format(scalar: np.dtype[Any]) -> KeyFormat:
    """Return the keys of a NumPy type; raise ValueError, a clause, if its values have no order."""
    if scalar.name in _FLOATS:
        mantissa, bias, infinite = _FLOATS[scalar.name]
        most = (1 << (8 * scalar.itemsize - 1)) - 1
        infinity = most >> mantissa << mantissa
        top = infinity if infinite else most - 1
        finite = top - 1 if infinite else top
        return KeyFormat(scalar.itemsize, FLOATING, top, finite, mantissa, bias)
    if scalar.kind in "uib":
        return KeyFormat(scalar.itemsize, SIGNED if scalar.kind == "i" else UNSIGNED)
    raise ValueError(f"elements of type {scalar.name} cannot be compared within a limit")


@dataclass(frozen=True, eq=False)
class Limit:
    """Largest difference of an element: `ulp` values of its type, or atol + rtol · |expected|.

    The second is computed in doubles, as `numpy.isclose` does, each operation rounded. A difference
    of whole numbers is exact. Without any limit, an element must be equal bit for bit. `atol` may
    be an array with a bound for each element, including infinite ones. An infinity or NaN is
    accepted only if the same is expected. Raises ValueError for invalid limits.
    """

    ulp: int | None = None
    rtol: float = 0.0
    atol: float | Array = 0.0

    def __post_init__(self) -> None:
        ulp = -1 if isinstance(self.ulp, bool) else whole(self.ulp)
        if self.ulp is not None and (ulp is None or ulp < 0):
            raise ValueError(f"ulp is {self.ulp!r}; it must be a whole number, at least 0")
        rtol, atol = np.asarray(self.rtol), np.asarray(self.atol)
        if rtol.dtype.kind not in "iuf" or rtol.ndim or not 0 <= rtol < np.inf:
            raise ValueError(f"rtol is {self.rtol!r}; it must be a finite number, at least 0")
        # In an array, some bounds may be infinite.
        least = atol.dtype.kind in "iuf" and (atol >= 0).all()
        if not least or (atol.ndim == 0 and atol == np.inf):
            bound = "an array that holds others" if atol.ndim else repr(self.atol)
            raise ValueError(f"atol is {bound}; it must be a finite number, or numbers, at least 0")
        if self.ulp is not None and (rtol or atol.any()):
            raise ValueError("ulp counts values, rtol and atol bound differences; pass one kind")

    @cached_property
    def exact(self) -> bool:
        """Whether elements must be equal."""
        return self.ulp is None and self.rtol == 0 and not np.any(self.atol)

    def __str__(self) -> str:
        if self.exact:
            return "exact"
        if self.ulp is not None:
            return f"{self.ulp} ulp"
        bound = "a separate bound" if np.ndim(self.atol) else f"{self.atol:g}"
        parts = [f"{self.rtol:g} of its value"] if self.rtol else []
        return " + ".join([*parts, bound] if np.any(self.atol) else parts)

    def equals(self, other: Limit) -> bool:
        """Return whether both limits accept the same; all bounds of elements count."""
        same = (self.ulp, self.rtol) == (other.ulp, other.rtol)
        return same and np.array_equal(self.atol, other.atol)

    @property
    def in_values(self) -> bool:
        """Whether the limit bounds differences of values (`rtol`, `atol`) instead of ulp."""
        return self.ulp is None and not self.exact

    def for_each(self, shape: tuple[int, ...]) -> Limit:
        """Return the limit with an array of bounds as long as a flat output of this shape."""
        if not np.ndim(self.atol):
            return self
        return replace(self, atol=np.broadcast_to(self.atol, shape).reshape(-1))

    def judged(self, found: Array, expected: Array, begin: int = 0) -> tuple[Array, Array]:
        """Return which elements are wrong, and the error of each as a share of its limit.

        Parameters
        ----------
        found, expected
            Flat arrays of one type, shape (elements,).
        begin
            Index of the first element in the limit's flat array of bounds, if it has one.
        """
        form = key_format(expected.dtype)
        keys, due = form.keys(found), form.keys(expected)
        distance = np.where(keys > due, keys - due, due - keys).astype(np.uint64)
        off: Array = distance.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if not self.in_values:
                bound: Array = np.full(1, self.max_ulp, np.uint64)
                right: Array = distance <= bound
            else:
                bound = self._bound(expected, begin)
                # A double cannot represent every whole number of 64 bits.
                wide = bound >= 2.0**64
                right = wide | (distance <= np.where(wide, 0, bound).astype(np.uint64))
                if form.kind == FLOATING:
                    off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
                    right = off <= bound
            share = off / bound
        least, most = form.ends
        fixed = (keys < least) | (keys > most) | (due < least) | (due > most)
        same = keys == due
        share[fixed] = np.inf
        share[same] = 0
        return ~same & (fixed | ~right), share

    @property
    def max_ulp(self) -> int:
        """Number of keys by which an element may differ if no difference of values is bounded."""
        return min(self.ulp or 0, 2**64 - 1)

    def _bound(self, expected: Array, begin: int) -> Array:
        """Return the bound of each difference of values, rounded after each operation."""
        atol = np.asarray(self.atol)
        own = atol[begin : begin + expected.size] if atol.ndim else atol
        share = np.float64(self.rtol) * np.abs(expected.astype(np.float64))
        bound: Array = np.asarray(own, np.float64) + share
        return bound


EXACT = Limit()


def parts(size: int, begin: int = 0) -> Iterator[slice]:
    """Yield slices from `begin` to `size` that bound the memory of a computation."""
    return (slice(first, min(size, first + _PART)) for first in range(begin, size, _PART))


def each_share(size: int, fill: Callable[[slice], None]) -> None:
    """Let each core of this process `fill` a share of `size` elements."""
    cores = min(len(os.sched_getaffinity(0)), -(-size // _PART)) if size > _PART else 1
    shares = [slice(size * i // cores, size * (i + 1) // cores) for i in range(cores)]
    if cores == 1:
        fill(shares[0])
        return
    with ThreadPoolExecutor(cores) as pool:
        for _ in pool.map(fill, shares):
            pass


def sum_bound(sum_of_sizes: Array, terms: int, scalar: Any = np.float32) -> Array:
    """Return the error bound of sums in any order: γₙ · Σ|terms|, for `Limit.atol`.

    γₙ = n·u / (1 − n·u), where u is half the distance from 1 to the next value (Higham, Accuracy
    and Stability of Numerical Algorithms, section 4.2).

    Parameters
    ----------
    sum_of_sizes : array
        Σ|terms| of each element.
    terms : int
        Number of terms of a sum.
    scalar : dtype
        Type of the additions.

    Returns
    -------
    array
        The largest error of each element.

    Raises
    ------
    ValueError
        If this number of terms has no bound in this type.
    """
    form = key_format(np.dtype(scalar))
    share = terms * 2.0 ** -(form.mantissa + 1)
    if share >= 1:
        raise ValueError(f"a sum of {terms} terms has no error bound in {np.dtype(scalar).name}")
    bound: Array = share / (1 - share) * np.asarray(sum_of_sizes, np.float64)
    return bound
