"""Fits the model's parameters to a few cells of a device; says which of them these determine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from ...core.schema import GROUP
from .form import SHAPE, Floats, Launches, Model, Shape
from .parameters import FIRST

Bools = npt.NDArray[np.bool_]

# Share of a group's cells that are fitted to, and how many of a group are at least.
SHARE, FEWEST = 0.04, 3
# Cells this near to a full device, and beyond it, are left to be predicted: there is the cliff.
NEAR_FULL = (0.95, 1.15)
# Standard deviation of the logarithm of a parameter before anything is known, for those that other
# measurements know better than a fit does, which count as given, and for all others.
KNOWN, UNKNOWN = 0.01, 0.8
WELL_KNOWN = frozenset({"warp_launch", "texel_store"})
# A deviation of this many or more, in the logarithm of the time, counts no longer with its square.
SOFT = 0.05
# What is determined has a standard deviation of at most this, in its logarithm.
DETERMINED = 0.2


@dataclass(frozen=True)
class Parameter:
    """A parameter's value and 95 % interval; not `determined` where the cells do not tell it."""

    value: float
    low: float
    high: float
    determined: bool


@dataclass(frozen=True)
class DeviceFit:
    """The model fitted to one device; `trained` cells went into it."""

    parameters: Mapping[str, Parameter]
    trained: int
    spread: float
    shape: Shape = SHAPE

    @property
    def model(self) -> Model:
        """The form with the fitted values."""
        return Model({name: p.value for name, p in self.parameters.items()}, self.shape)

    def seconds(self, described: pd.DataFrame) -> Floats:
        """Predicted seconds of each described cell."""
        return self.model.seconds(Launches.of(described))


def training(described: pd.DataFrame, points: pd.DataFrame, share: float = SHARE) -> Bools:
    """Which cells to fit to, chosen without a look at any time.

    Of each group at least FEWEST and a `share`, far apart in the logarithms of the launch
    parameters `points` (a column each, rows as in `described`): the first is the cell nearest to
    the middle, each next one the farthest from all before. Cells of persistent blocks that are
    NEAR_FULL are never taken.
    """
    chosen = np.zeros(len(described), dtype=bool)
    full = (described["blocks"] / (described["units"] * described["resident"])).to_numpy()
    persistent = described["persistent"].to_numpy() > 0
    allowed = ~(persistent & (full > NEAR_FULL[0]) & (full < NEAR_FULL[1]))
    places = np.log2(1.0 + points.to_numpy(np.float64, na_value=0.0))
    groups = described.groupby(list(GROUP), sort=False, observed=True).indices
    for rows in groups.values():
        mine = np.asarray(rows)[allowed[rows]]
        count = min(len(mine), max(FEWEST, round(share * len(rows))))
        chosen[mine[_far_apart(places[mine], count)]] = True
    return chosen


def _far_apart(places: Floats, count: int) -> npt.NDArray[np.int64]:
    """Rows of `count` points, each as far as can be from those before it."""
    middle = (places.min(axis=0) + places.max(axis=0)) / 2 if len(places) else np.zeros(0)
    taken: list[int] = []
    nearest = np.full(len(places), np.inf)
    for _ in range(count):
        if taken:
            nearest = np.minimum(nearest, np.linalg.norm(places - places[taken[-1]], axis=1))
            taken.append(int(np.argmax(nearest)))
        else:
            taken.append(int(np.argmin(np.linalg.norm(places - middle, axis=1))))
    return np.array(taken, dtype=np.int64)


def fit_device(
    described: pd.DataFrame,
    chosen: Bools,
    first: Mapping[str, float] = FIRST,
    fixed: Sequence[str] = (),
    shape: Shape = SHAPE,
) -> DeviceFit:
    """Fit all parameters but the `fixed` ones to the `chosen` cells of one device.

    Residuals are logarithms of predicted over measured time. Every kernel and type weighs alike,
    however many cells it has. What the cells say nothing of stays at its `first` value. Raises
    ValueError where no cell is chosen.
    """
    cells = described[chosen]
    if cells.empty:
        raise ValueError("the model cannot be fitted to no cells")
    x, measured = Launches.of(cells), np.log(cells["measured_s"].to_numpy(np.float64))
    weights = _weights(cells)
    free = [name for name in first if name not in fixed]
    begin = np.log([first[name] for name in free])
    prior = np.array([KNOWN if name in WELL_KNOWN else UNKNOWN for name in free])

    def residuals(logs: Floats) -> Floats:
        values = {**first, **dict(zip(free, np.exp(logs), strict=True))}
        off = np.log(Model(values, shape).seconds(x)) - measured
        return np.concatenate([off * weights, SOFT * (logs - begin) / prior])

    found = scipy.optimize.least_squares(
        residuals, begin, loss="soft_l1", f_scale=SOFT, x_scale=0.3, max_nfev=60
    )
    return _judged(found, free, first, len(cells), shape)


def _weights(cells: pd.DataFrame) -> Floats:
    family = cells["kernel"].astype(str) + " " + cells["dtype"].astype(str)
    weights = 1.0 / np.sqrt(family.map(family.value_counts()).to_numpy(np.float64))
    return np.asarray(weights / weights.mean())


def _judged(
    found: Any,
    free: Sequence[str],
    first: Mapping[str, float],
    cells: int,
    shape: Shape,
) -> DeviceFit:
    """Intervals from the curvature at the end, as if nothing had been known of any parameter."""
    data = np.asarray(found.jac)[:cells]
    off = np.asarray(found.fun)[:cells]
    # The middle of the deviations, as a standard deviation, which a few large ones do not move.
    spread = max(1e-4, float(1.4826 * np.median(np.abs(off))))
    curvature = data.T @ data / spread**2
    covariance = np.linalg.inv(curvature + np.eye(len(free)) * UNKNOWN**-2.0)
    deviation = np.sqrt(np.diag(covariance))
    parameters = {}
    for name, value in first.items():
        if name not in free:
            parameters[name] = Parameter(value, value, value, False)
            continue
        place = free.index(name)
        log, half = float(found.x[place]), 1.96 * float(deviation[place])
        told = bool(deviation[place] <= DETERMINED) and name not in WELL_KNOWN
        value = float(np.exp(log))
        parameters[name] = Parameter(
            value, float(np.exp(log - half)), float(np.exp(log + half)), told
        )
    return DeviceFit(parameters, cells, spread, shape)
