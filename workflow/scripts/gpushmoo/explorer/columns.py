"""Columns of cells as the page reads them: few bytes, and no number that would be shown wrongly.

A block is a JSON header, which names the columns and says how each is written, and the arrays
behind it, little-endian and with the first bytes of all numbers first, the second ones next: bytes
that are alike stand together, which gzip makes small. ``page/columns.js`` reads it.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

# A figure is shown with as many significant digits, and so it is kept: rounded once, as decimal.
DIGITS = 4
# A sample is kept as the logarithm of its share of the cell's median, in steps of a ten-thousandth.
SAMPLE_STEP = 1e-4
_NO_EXPONENT = -(2**15)
# Level 9 takes twice as long and saves a hundredth.
_LEVEL = 6
_UNSIGNED = (np.uint8, np.uint16, np.uint32)


class Block:
    """Collects columns of equally many rows; `packed` is what the page gets."""

    def __init__(self) -> None:
        self._columns: list[dict[str, Any]] = []
        self._arrays: list[npt.NDArray[Any]] = []

    def add_codes(self, name: str, values: pd.Series) -> None:
        """Texts or whole numbers, with nulls: each different one once, and which it is per row."""
        codes, distinct = pd.factorize(values, sort=True)
        listed: list[Any] = [v if isinstance(v, str) else int(v) for v in distinct.tolist()]
        if (codes < 0).any():
            codes = np.where(codes < 0, len(listed), codes)
            listed.append(None)
        self._columns.append({"name": name, "kind": "codes", "values": listed})
        if len(listed) > 1:
            self._keep(codes.astype(_narrowest(len(listed) - 1)))

    def add_decimals(self, name: str, values: npt.ArrayLike) -> None:
        """Numbers rounded to DIGITS significant digits, each as mantissa and power of ten."""
        mantissas, exponents = decimals(np.asarray(values, dtype=np.float64))
        self._columns.append({"name": name, "kind": "decimal"})
        self._keep(mantissas)
        self._keep(exponents)

    def add_exact(self, name: str, values: npt.ArrayLike) -> None:
        """Numbers that are compared with each other, all bits of them."""
        self._columns.append({"name": name, "kind": "exact"})
        self._keep(np.asarray(values, dtype="<f8"))

    def add_steps(self, name: str, values: npt.NDArray[np.integer[Any]]) -> None:
        """Whole numbers without nulls, in the type that they have: the values of lists."""
        self._columns.append({"name": name, "kind": "steps"})
        self._keep(values)

    def add_lengths(self, name: str, lists: pd.Series) -> None:
        """How many of the next column's values belong to each row."""
        self._columns.append({"name": name, "kind": "lengths"})
        self._keep(narrowed(lists.map(len).to_numpy(np.int64)))

    def _keep(self, array: npt.NDArray[Any]) -> None:
        self._columns[-1].setdefault("arrays", []).append([array.dtype.str[1:], len(array)])
        self._arrays.append(array)

    def packed(self, rows: int) -> bytes:
        """The block, compressed; the same bytes for the same columns."""
        header = json.dumps({"rows": rows, "columns": self._columns}, separators=(",", ":"))
        text = header.encode()
        parts = [len(text).to_bytes(4, "little"), text, *map(_byte_planes, self._arrays)]
        return gzip.compress(b"".join(parts), compresslevel=_LEVEL, mtime=0)


def decimals(
    values: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Mantissas of DIGITS digits and powers of ten: 0.98766 is 9877 and -4; else _NO_EXPONENT."""
    known = np.isfinite(values) & (values != 0.0)
    # Zero is 0 and 0.
    exponents = np.where(np.isfinite(values), 0, _NO_EXPONENT)
    mantissas = np.zeros(len(values))
    sizes = np.abs(values[known])
    powers = np.floor(np.log10(sizes)).astype(np.int64) - (DIGITS - 1)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scaled = values[known] / 10.0**powers
        rounded = np.rint(scaled)
        away = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5)
    # Where a product may be rounded the wrong way Python rounds the number that it is.
    least, most = 10 ** (DIGITS - 1), 10**DIGITS
    doubtful = ~((away > 1e-6) & (np.abs(rounded) >= least) & (np.abs(rounded) < most))
    for i in np.flatnonzero(doubtful).tolist():
        digits, _, power = f"{values[known][i]:.{DIGITS - 1}e}".partition("e")
        rounded[i], powers[i] = int(digits.replace(".", "")), int(power) - (DIGITS - 1)
    mantissas[known], exponents[known] = rounded, powers
    return mantissas.astype(np.int16), exponents.astype(np.int16)


def sample_steps(
    samples: npt.NDArray[np.float64], medians: npt.NDArray[np.float64]
) -> npt.NDArray[np.int16]:
    """Each sample as SAMPLE_STEP's multiple that its logarithm lies above that of its median."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(np.log(samples / medians) / SAMPLE_STEP)
    most = np.iinfo(np.int16).max
    return np.nan_to_num(steps, nan=0.0).clip(-most, most).astype(np.int16)


def narrowed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Counts in the smallest type that holds them."""
    return values.astype(_narrowest(int(values.max(initial=0))))


def _narrowest(largest: int) -> Any:
    return next(t for t in _UNSIGNED if largest <= np.iinfo(t).max)


def _byte_planes(array: npt.NDArray[Any]) -> bytes:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, little.dtype.itemsize).T.tobytes()
