"""How far an element of an output may be from its expected value.

The host turns expected values and limit into a lowest and a highest *key* for each element, rounded
inwards. A key is an unsigned integer as wide as the element, in the order of the values: of a float
sign and magnitude become one number, both zeros the same, NaN the largest. So the device compares
integers, by one kernel for each width.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
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
# Elements that are computed at a time: they and a few copies fit a core's own cache.
_PART = 2**14


@dataclass(frozen=True)
class KeyFormat:
    """Keys of a type of `width` bytes; `kind` is UNSIGNED, SIGNED or FLOATING.

    Of a float, `top` is the largest magnitude (bits without the sign) that is no NaN, `finite` the
    largest that is no infinity either; with `mantissa` stored bits and an exponent's `bias`.
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
        """The key of zero, where there are negative values."""
        return 1 << (8 * self.width - 1)

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest key of a finite value."""
        if self.kind == FLOATING:
            return self.sign - self.finite, self.sign + self.finite
        return 0, 2 * self.sign - 1

    def keys(self, values: Array) -> Array:
        """The keys of an array's elements, flat."""
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
        """The keys of floats by their bits; of NaN any number."""
        # Of negative values all bits but the sign are flipped, which is minus their size.
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
    """The keys of a NumPy type. Raises ValueError, a clause, for one whose values have no order."""
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
    """By how much an element may differ: `ulp` values of its type, or atol + rtol · |expected|.

    Without any it must be equal bit for bit. `atol` may be an array with a bound for each element.
    Infinities and NaN must stand where they are expected, and nowhere else. Raises ValueError.
    """

    ulp: int | None = None
    rtol: float = 0.0
    atol: float | Array = 0.0

    def __post_init__(self) -> None:
        steps = -1 if isinstance(self.ulp, bool) else whole(self.ulp)
        if self.ulp is not None and (steps is None or steps < 0):
            raise ValueError(f"ulp is {self.ulp!r}; it must be a whole number, at least 0")
        rtol, atol = np.asarray(self.rtol), np.asarray(self.atol)
        if rtol.dtype.kind not in "iuf" or rtol.ndim or not 0 <= rtol < np.inf:
            raise ValueError(f"rtol is {self.rtol!r}; it must be a finite number, at least 0")
        # Of an array some bounds may be infinite.
        least = atol.dtype.kind in "iuf" and (atol >= 0).all()
        if not least or (atol.ndim == 0 and atol == np.inf):
            bound = "an array that holds others" if atol.ndim else repr(self.atol)
            raise ValueError(f"atol is {bound}; it must be a finite number, or numbers, at least 0")
        if self.ulp is not None and (rtol or atol.any()):
            raise ValueError("ulp counts values, rtol and atol bound differences; give one kind")

    @property
    def exact(self) -> bool:
        """Whether elements must be equal."""
        return self.ulp is None and self.rtol == 0 and not np.any(self.atol)

    def __str__(self) -> str:
        if self.exact:
            return "exact"
        if self.ulp is not None:
            return f"{self.ulp} ulp"
        bound = "a bound of its own" if np.ndim(self.atol) else f"{self.atol:g}"
        parts = [f"{self.rtol:g} of its value"] if self.rtol else []
        return " + ".join([*parts, bound] if np.any(self.atol) else parts)

    @property
    def in_values(self) -> bool:
        """Whether errors are differences of values, not of keys."""
        return self.ulp is None and not self.exact

    def bounds(self, expected: Array) -> tuple[Array, Array]:
        """The lowest and the highest key that each element of an output may have, flat."""
        form = key_format(expected.dtype)
        low, high = (np.empty(expected.size, form.unsigned) for _ in range(2))
        flat = np.ascontiguousarray(expected).reshape(-1)
        atol = np.asarray(self.atol)
        each = np.broadcast_to(atol, expected.shape).reshape(-1) if atol.ndim else None

        def fill(some: slice) -> None:
            for part in parts(some.stop, some.start):
                own = atol if each is None else each[part]
                low[part], high[part] = self._bounds(flat[part], own, form)

        each_share(flat.size, fill)
        return low, high

    def _bounds(self, expected: Array, atol: Array, form: KeyFormat) -> tuple[Array, Array]:
        centre = form.keys(expected)
        least, most = (form.unsigned.type(end) for end in form.ends)
        if not self.in_values:
            steps = form.unsigned.type(min(self.ulp or 0, int(most) - int(least)))
            inside = np.clip(centre, least, most)
            low = np.maximum(inside, least + steps) - steps
            high = np.minimum(inside, most - steps) + steps
        else:
            # Wider than the elements, so that a bound's own rounding decides nothing.
            wide = np.longdouble if form.width == 8 else np.float64
            with np.errstate(invalid="ignore", over="ignore"):
                value = expected.astype(wide)
                far = np.abs(value)
                np.multiply(far, wide(self.rtol), out=far)
                np.add(far, atol.astype(wide), out=far)
                low = _key(value - far, expected.dtype, form, up=True)
                high = _key(value + far, expected.dtype, form, up=False)
            np.minimum(low, centre, out=low)
            np.maximum(high, centre, out=high)
        fixed = (centre < least) | (centre > most)
        if fixed.any():
            low[fixed] = high[fixed] = centre[fixed]
        return low, high


EXACT = Limit()


def parts(size: int, begin: int = 0) -> Iterator[slice]:
    """The elements from `begin` to `size` in parts that bound the memory of a computation."""
    return (slice(first, min(size, first + _PART)) for first in range(begin, size, _PART))


def each_share(size: int, fill: Callable[[slice], None]) -> None:
    """Have each core of this process `fill` a share of so many elements."""
    cores = min(len(os.sched_getaffinity(0)), -(-size // _PART)) if size > _PART else 1
    shares = [slice(size * i // cores, size * (i + 1) // cores) for i in range(cores)]
    if cores == 1:
        fill(shares[0])
        return
    with ThreadPoolExecutor(cores) as pool:
        for _ in pool.map(fill, shares):
            pass


def _key(value: Array, scalar: np.dtype[Any], form: KeyFormat, up: bool) -> Array:
    """The key of the nearest finite element not below (`up`) or not above `value`."""
    if form.kind != FLOATING:
        ends = np.iinfo(scalar) if scalar.kind != "b" else np.iinfo(np.uint8)
        whole = np.ceil(value) if up else np.floor(value)
        near = np.clip(np.nan_to_num(whole), ends.min, ends.max)
        # The largest 64-bit integer is none of float64, but it is of a long double.
        return form.keys(near.astype(scalar))
    largest = np.full(1, form.finite, form.unsigned).view(scalar).astype(value.dtype)[0]
    inside = np.clip(value, -largest, largest)
    cast = inside.astype(scalar)
    # A value that is NaN has its own key in any case.
    keys: Array = form.ordered(cast.view(form.unsigned))
    back = cast.astype(value.dtype)
    if up:
        return np.add(keys, back < inside, out=keys)
    return np.subtract(keys, back > inside, out=keys)


def sum_bound(sum_of_sizes: Array, terms: int, scalar: Any = np.float32) -> Array:
    """The error bound of sums in any order: γₙ · Σ|terms|, for `Limit.atol`.

    γₙ = n·u / (1 − n·u), u half the distance from 1 to the next value (Higham, Accuracy and
    Stability of Numerical Algorithms, section 4.2).

    Parameters
    ----------
    sum_of_sizes : array
        Σ|terms| of each element.
    terms : int
        Terms of a sum.
    scalar : dtype
        Type in which the sums are made.

    Returns
    -------
    array
        The greatest error of each element.

    Raises
    ------
    ValueError
        So many terms have no bound in this type.
    """
    form = key_format(np.dtype(scalar))
    share = terms * 2.0 ** -(form.mantissa + 1)
    if share >= 1:
        raise ValueError(f"a sum of {terms} terms has no error bound in {np.dtype(scalar).name}")
    bound: Array = share / (1 - share) * np.asarray(sum_of_sizes, np.float64)
    return bound
