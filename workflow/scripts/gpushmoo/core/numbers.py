"""Numbers as callers write them, NumPy's among them."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np


def whole(value: Any) -> int | None:
    """The whole number that `value` is, such as 2 of ``2.0`` or ``np.int64(2)``; else None."""
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    is_finite = isinstance(value, numbers.Real) and math.isfinite(value)
    return int(value) if is_finite and value == int(value) else None


def plain(value: Any) -> Any:
    """Python's own number for NumPy's, and 0 or 1 for a truth value; all else as it is."""
    own = value.item() if isinstance(value, np.generic) else value
    return int(own) if isinstance(own, bool) else own
