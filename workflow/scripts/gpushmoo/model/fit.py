"""Fits the model to a few cells of a device: parameters, their intervals, bands of errors.

What a fit leaves on its own cells says nothing of a kernel that it has not seen, and residuals of
one region none of another. So the model is fitted once for each kernel without that kernel, and
each time its errors on it are looked at: the 90th percentile of a kernel's errors is one number a
kernel. The band for a kernel that was measured is that of its own unseen cells; the band for one
that was not is the 90th percentile of all kernels' numbers, a wide band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from ..core.schema import GROUP
from .form import FIRST, Model
from .launches import Floats, Launches

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

# Of bands: the share of the cells in them.
PROMISED = 0.9
# A kernel of fewer cells than this says little of its errors.
FEWEST_CELLS = 10
# Kernels left out are fitted with at most so many cells: only the width of the band hangs on it.
MOST_CELLS = 1200


@dataclass(frozen=True)
class Parameter:
    """A parameter's value and 95 % interval; `determined` says whether the cells fix it."""

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

    @property
    def model(self) -> Model:
        """The form with the fitted values."""
        return Model({name: p.value for name, p in self.parameters.items()})

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
    full = (described["blocks"] / (described["multiprocessors"] * described["resident"])).to_numpy()
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
    """Rows of `count` points, each the farthest from those before it."""
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
    described: pd.DataFrame, chosen: Bools, first: Mapping[str, float] = FIRST
) -> DeviceFit:
    """Fit all parameters to the `chosen` cells of one device.

    Residuals are logarithms of predicted over measured time. Every kernel and type weighs alike,
    however many cells it has. What the cells say nothing of stays at its `first` value.
    """
    cells = described[chosen]
    x, measured = Launches.of(cells), np.log(cells["measured_s"].to_numpy(np.float64))
    weights = _weights(cells)
    begin = np.log([*first.values()])
    prior = np.array([KNOWN if name in WELL_KNOWN else UNKNOWN for name in first])

    def residuals(logs: Floats) -> Floats:
        values = dict(zip(first, np.exp(logs), strict=True))
        off = np.log(Model(values).seconds(x)) - measured
        return np.concatenate([off * weights, SOFT * (logs - begin) / prior])

    found = scipy.optimize.least_squares(
        residuals, begin, loss="soft_l1", f_scale=SOFT, x_scale=0.3, max_nfev=60
    )
    # Intervals from the curvature at the end, as if nothing had been known of any parameter.
    data, off = found.jac[: len(cells)], found.fun[: len(cells)]
    # The middle of the deviations, as a standard deviation, which a few large ones do not move.
    spread = max(1e-4, float(1.4826 * np.median(np.abs(off))))
    curvature = data.T @ data / spread**2
    covariance = np.linalg.inv(curvature + np.eye(len(first)) * UNKNOWN**-2.0)
    parameters = {}
    for name, log, deviation in zip(first, found.x, np.sqrt(np.diag(covariance)), strict=True):
        value, low, high = (float(np.exp(log + sign * 1.96 * deviation)) for sign in (0, -1, 1))
        determined = bool(deviation <= DETERMINED) and name not in WELL_KNOWN
        parameters[name] = Parameter(value, low, high, determined)
    return DeviceFit(parameters, len(cells), spread)


def _weights(cells: pd.DataFrame) -> Floats:
    family = cells["kernel"].astype(str) + " " + cells["dtype"].astype(str)
    weights = 1.0 / np.sqrt(family.map(family.value_counts()).to_numpy(np.float64))
    return np.asarray(weights / weights.mean())


# Bands


@dataclass(frozen=True)
class Bands:
    """Half-widths in the logarithm of the time, 90 % of the cells within them.

    `of_kernel` are those of kernels that the fit knows, `of_others` that of any other; None where
    there are fewer than two kernels.
    """

    of_kernel: Mapping[str, float]
    of_others: float | None

    def half_width(self, kernel: str) -> float | None:
        """That of a kernel, known or not."""
        return self.of_kernel.get(kernel, self.of_others)


def measured_bands(described: pd.DataFrame, chosen: Bools, fit: DeviceFit) -> Bands:
    """The bands of one device's cells, of which `chosen` went into `fit`."""
    kernels = described["kernel"].to_numpy()
    off = np.abs(np.log(fit.seconds(described) / described["measured_s"].to_numpy()))
    known, unknown = {}, []
    thinned = chosen & (np.cumsum(chosen) % max(1, round(chosen.sum() / MOST_CELLS)) == 0)
    names = [k for k in sorted(set(kernels)) if (kernels == k).sum() >= FEWEST_CELLS]
    for name in names:
        mine = kernels == name
        unseen = off[mine & ~chosen] if (mine & ~chosen).any() else off[mine]
        known[name] = float(np.quantile(unseen, PROMISED))
        if len(names) > 1 and (thinned & ~mine).any():
            other = fit_device(described, thinned & ~mine)
            cells = described[mine]
            missed = np.abs(np.log(other.seconds(cells) / cells["measured_s"].to_numpy()))
            unknown.append(float(np.quantile(missed, PROMISED)))
    return Bands(known, float(np.quantile(unknown, PROMISED)) if len(unknown) > 1 else None)
