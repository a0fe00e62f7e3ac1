"""Straight lines through times with intervals, and where a curve is between two levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """The slope of a line of least squares, and the ends of its interval."""

    slope: float
    low: float
    high: float


def line(x: Values, y: Values, y_low: Values, y_high: Values) -> Line | None:
    """The line through points of at least two different `x`, whose `y` have intervals.

    Its interval holds what the ends of theirs make at most of the slope, and twice the standard
    error that the points' distances from the line give. None where there is one `x` alone.
    """
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    ends = [np.asarray(end, np.float64) for end in (y_low, y_high)]
    if len(np.unique(xs)) < 2:
        return None
    away = xs - xs.mean()
    weights = away / (away @ away)
    slope = float(weights @ ys)
    rises = weights > 0
    least = float(weights @ np.where(rises, *ends))
    most = float(weights @ np.where(rises, *ends[::-1]))
    if len(xs) > 2:
        rest = ys - ys.mean() - slope * away
        error = 2.0 * math.sqrt(float(rest @ rest) / (len(xs) - 2) / float(away @ away))
        least, most = min(least, slope - error), max(most, slope + error)
    return Line(slope, least, most)


def half_way(
    x: Values, y: Values, inside: float, outside: float
) -> tuple[float, float, float] | None:
    """Where `y` over increasing `x` is half way from `inside` to `outside`, and between which `x`.

    On a straight line over the logarithm of `x`, between the last point of the inner half and the
    one that follows. Where the curve crosses several times, the ends are before the first crossing
    and after the last. None where it does not cross.
    """
    share = (np.asarray(y, np.float64) - inside) / (outside - inside)
    inner = share < 0.5
    if not inner[0] or inner[-1]:
        return None
    last = int(np.flatnonzero(inner)[-1])
    first = int(np.flatnonzero(~inner)[0])
    part = (0.5 - share[last]) / (share[last + 1] - share[last])
    logs = np.log(np.asarray(x, np.float64))
    place = math.exp(float(logs[last] + part * (logs[last + 1] - logs[last])))
    return place, float(x[first - 1]), float(x[last + 1])
