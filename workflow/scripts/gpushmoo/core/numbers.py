"""Accept numbers as callers write them, including NumPy's."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np


def whole(value: Any) -> int | None:
    """Return the whole number that equals `value`, such as 2 for ``2.0``, otherwise None."""
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    is_finite = isinstance(value, numbers.Real) and math.isfinite(value)
    return int(value) if is_finite and value == int(value) else None


def plain(value: Any) -> Any:
    """Return Python's number for NumPy's, 0 or 1 for a truth value, and other values unchanged."""
    own = value.item() if isinstance(value, np.generic) else value
    return int(own) if isinstance(own, bool) else own
