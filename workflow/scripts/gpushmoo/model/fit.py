"""Fit the model to a few cells of a device: parameters, their intervals, and error bands.

The residuals of the fitted cells do not predict the error for a kernel that the model has not seen,
and residuals of one kernel do not predict those of another. So the model is fitted once for each
kernel without that kernel, and its errors on that kernel are recorded. The 90th percentile of these
errors is one number per kernel. The band of a measured kernel comes from its own unseen cells. The
band of any other kernel is the 90th percentile of all kernels' numbers, which is wide.

A device whose runtime does not report occupancy (OpenCL) has no model. For it, this module fits a
closed formula of the time over the number of persistent blocks, to each series. P blocks share N
equal tiles. C of them run at once, and further ones wait for whole waves:

    T(P) = start + ⌈N/P⌉ · Σ over waves of t(blocks of the wave)
    t(B) = (tile^q + (B · bus)^q)^(1/q)

A block needs `tile` seconds for a tile, and all blocks share a bus that serves each for `bus`
seconds. With q = 1 the two times add up (no overlap). With q → ∞ only the larger one counts (full
overlap).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from ..core.schema import GROUP, Status
from .form import FIRST, Model
from .launches import Floats, Launches

Bools = npt.NDArray[np.bool_]

# Share of a group's cells that the model is fitted to, and their least number per group.
SHARE, MIN_CHOSEN = 0.04, 3
# Persistent cells from this share of a full device on are left to be predicted: the cliff is there.
NEAR_FULL = (0.95, 1.15)
# Prior standard deviation of the logarithm of a parameter. The first is for parameters that other
# measurements determine better than a fit, which thus stay fixed. The second is for all others.
KNOWN, UNKNOWN = 0.01, 0.8
WELL_KNOWN = frozenset({"warp_launch", "texel_store"})
# Residuals of log time beyond this count linearly instead of with their square.
SOFT = 0.05
# A parameter is determined if the standard deviation of its logarithm is at most this.
DETERMINED = 0.2

# Share of the cells that are inside their band.
PROMISED = 0.9
# A kernel with fewer cells than this does not get errors of its unseen cells.
MIN_CELLS = 10
# Fits without a kernel use at most this number of cells: they affect the width of the band only.
MAX_CELLS = 1200


@dataclass(frozen=True)
class Parameter:
    """Value and 95 % interval of a parameter; `determined` is False if the cells do not fix it."""

    value: float
    low: float
    high: float
    determined: bool


@dataclass(frozen=True)
class DeviceFit:
    """The model fitted to `trained` cells of one device."""

    parameters: Mapping[str, Parameter]
    trained: int
    spread: float

    @property
    def model(self) -> Model:
        """The form with the fitted values."""
        return Model({name: p.value for name, p in self.parameters.items()})

    def seconds(self, described: pd.DataFrame) -> Floats:
        """Return the predicted seconds of each described cell, shape (cells,)."""
        return self.model.seconds(Launches.of(described))


def training(described: pd.DataFrame, points: pd.DataFrame) -> Bools:
    """Choose the cells to fit to, without looking at any time.

    The choice has at least MIN_CHOSEN cells and a SHARE of each group, far apart in the logarithms
    of the launch parameters. The first is the cell nearest to the middle, and each next one is
    farthest from all before. Cells of persistent blocks that are NEAR_FULL are never chosen.

    Parameters
    ----------
    described
        Cells as `Describer.table` returns them.
    points
        Launch parameters, one column each, with the rows of `described`.

    Returns
    -------
    Mask of shape (cells,).
    """
    chosen = np.zeros(len(described), dtype=bool)
    full = (described["blocks"] / (described["multiprocessors"] * described["resident"])).to_numpy()
    persistent = described["persistent"].to_numpy() > 0
    allowed = ~(persistent & (full > NEAR_FULL[0]) & (full < NEAR_FULL[1]))
    places = np.log2(1.0 + points.to_numpy(np.float64, na_value=0.0))
    groups = described.groupby(list(GROUP), sort=False, observed=True).indices
    for rows in groups.values():
        mine = np.asarray(rows)[allowed[rows]]
        count = min(len(mine), max(MIN_CHOSEN, round(SHARE * len(rows))))
        chosen[mine[_far_apart(places[mine], count)]] = True
    return chosen


def _far_apart(places: Floats, count: int) -> npt.NDArray[np.int64]:
    """Return the rows of `count` points, each the farthest from those before it."""
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

    Residuals are logarithms of predicted over measured time. Every kernel and type has the same
    weight, regardless of its number of cells. A parameter that no cell depends on keeps its `first`
    value.

    Parameters
    ----------
    described
        Cells as `Describer.table` returns them.
    chosen
        Mask of the cells to fit to, shape (cells,).
    first
        Start values by the names of PARAMETERS.
    """
    cells = described[chosen]
    x = Launches.of(cells)
    measured = np.log(cells["measured_s"].to_numpy(np.float64))
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
    # Compute the intervals from the curvature at the optimum, without the priors.
    data, off = found.jac[: len(cells)], found.fun[: len(cells)]
    # Scale the median deviation to a standard deviation; a few large deviations do not move it.
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
    """Half-widths in the logarithm of the time that contain 90 % of the cells.

    `of_kernel` has those of kernels that the fit includes. `of_others` is that of any other kernel,
    or None with fewer than two kernels.
    """

    of_kernel: Mapping[str, float]
    of_others: float | None

    def half_width(self, kernel: str) -> float | None:
        """Return the half-width of a kernel, or that of other kernels if it was not fitted."""
        return self.of_kernel.get(kernel, self.of_others)


def measured_bands(described: pd.DataFrame, chosen: Bools, fit: DeviceFit) -> Bands:
    """Return the bands of one device's cells, of which the `chosen` ones were fitted."""
    kernels = described["kernel"].to_numpy()
    off = np.abs(np.log(fit.seconds(described) / described["measured_s"].to_numpy()))
    known = {}
    unknown = []
    thinned = chosen & (np.cumsum(chosen) % max(1, round(chosen.sum() / MAX_CELLS)) == 0)
    names = [k for k in sorted(set(kernels)) if (kernels == k).sum() >= MIN_CELLS]
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


Json = dict[str, Any]

PARAMETERS = ("start_s", "tile_s", "bus_s", "overlap")
MAX_OVERLAP = 32.0
# The knee makes the loss uneven in `overlap`, so the best of several starts is kept.
OVERLAPS = (1.2, 2.5, 6.0)
# Every fourth point of a series, except the first and last, is left out and tests the fit.
EVERY = 4
MIN_POINTS = 8
# Columns of `partition_table`. The table of the device's model has them, too.
COLUMNS = (*GROUP, "cell_key", "trained", "measured_gbs", "predicted_gbs")


def seconds(blocks: Floats, tiles: int, capacity: int, *values: float) -> Floats:
    """Return T, in seconds, of each number of `blocks` (at least 1); see the module.

    Parameters
    ----------
    blocks
        Numbers of persistent blocks, shape (points,).
    tiles, capacity
        N and C of the formula.
    values
        Values in the order of PARAMETERS.
    """
    start, tile, bus, overlap = values
    # Blocks beyond the number of tiles have no work.
    working = np.minimum(blocks, tiles)
    whole = np.floor(working / capacity)
    rest = working - whole * capacity

    def wave(running: Floats) -> Floats:
        # The ratio of both keeps a large power from overflowing.
        larger, smaller = np.maximum(tile, running * bus), np.minimum(tile, running * bus)
        total = larger * (1 + (smaller / larger) ** overlap) ** (1 / overlap)
        return np.where(running > 0, total, 0.0)

    waves = whole * wave(np.full_like(working, capacity)) + wave(rest)
    return np.asarray(start + np.ceil(tiles / blocks) * waves)


def fit_partitions(cells: pd.DataFrame) -> list[tuple[Json, pd.DataFrame]]:
    """Fit each series of verified cells; return each result and its rows of COLUMNS.

    A series is one group of cells (see schema.GROUP) over its ``blocks``. A result has ``values``,
    the ``half_widths`` of their 95 % intervals, the numbers of points ``fitted`` and ``left_out``,
    the relative ``errors`` of the latter, and ``worst_blocks`` with the largest of these. If a fit
    fails, the result has the sentence ``why`` instead, and no rows.
    """
    found = []
    ok = cells[cells["status"] == Status.OK]
    for names, series in ok.groupby(list(GROUP), observed=True):
        series = series.sort_values("blocks").drop_duplicates("blocks")
        fit, rows = _fit_series(series)
        found.append(({**dict(zip(GROUP, names, strict=True)), **fit}, rows))
    return found


def partition_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the predictions of the fits as COLUMNS, for the series that could be fitted."""
    rows = [rows for _, rows in fit_partitions(cells) if len(rows)]
    return pd.concat(rows) if rows else pd.DataFrame(columns=list(COLUMNS))


def _fit_series(series: pd.DataFrame) -> tuple[Json, pd.DataFrame]:
    none = pd.DataFrame(columns=list(COLUMNS))
    if len(series) < MIN_POINTS:
        return {"why": f"{len(series)} points are too few for {len(PARAMETERS)} parameters"}, none
    blocks, measured = (series[n].to_numpy(np.float64) for n in ("blocks", "median_s"))
    first = series.iloc[0]
    tiles, multiprocessors = int(first["tiles"]), int(first["multiprocessors"])
    resident = first["resident_blocks"]
    capacity = multiprocessors * (1 if pd.isna(resident) else int(resident))
    trained = np.arange(len(series)) % EVERY != EVERY // 2
    trained[[0, -1]] = True
    # Orders of magnitude; the fitted variables are multiples of these.
    longest = measured[0] / np.ceil(tiles / blocks[0])
    scale = np.array([measured.min(), longest, measured.min() / tiles, 1.0])
    try:
        values, half = _fitted(blocks[trained], measured[trained], tiles, capacity, scale)
    except RuntimeError as err:
        return {"why": f"the optimiser stopped without converging ({err})"}, none
    predicted = seconds(blocks, tiles, capacity, *values)
    errors = np.abs(predicted / measured - 1)
    unseen = np.where(trained, -1.0, errors)
    gb = (series["bytes_read"] + series["bytes_written"]).to_numpy(np.float64) * 1e-9
    told = {
        "values": dict(zip(PARAMETERS, values.tolist(), strict=True)),
        "half_widths": dict(zip(PARAMETERS, half.tolist(), strict=True)),
        "fitted": int(trained.sum()),
        "left_out": int((~trained).sum()),
        "errors": {"median": float(np.median(errors[~trained])), "worst": float(unseen.max())},
        "worst_blocks": int(blocks[unseen.argmax()]),
    }
    columns = {"trained": trained, "measured_gbs": gb / measured, "predicted_gbs": gb / predicted}
    return told, series[[*GROUP, "cell_key"]].assign(**columns)


def _fitted(
    blocks: Floats, measured: Floats, tiles: int, capacity: int, scale: Floats
) -> tuple[Floats, Floats]:
    """Return values of PARAMETERS and half-widths of intervals; raise RuntimeError on failure."""

    def logs(blocks: Floats, *multiples: float) -> Floats:
        return np.log(seconds(blocks, tiles, capacity, *(scale * multiples)))

    wanted = np.log(measured)
    fits = [
        scipy.optimize.curve_fit(
            logs,
            blocks,
            wanted,
            p0=(0.1, 1.0, 1.0, overlap),
            bounds=([0.0, 1e-6, 0.0, 1.0], [np.inf, np.inf, np.inf, MAX_OVERLAP]),
            loss="soft_l1",
            f_scale=0.05,
            max_nfev=2000,
        )
        for overlap in OVERLAPS
    ]
    values, covariance = min(
        fits, key=lambda fit: float(np.abs(logs(blocks, *fit[0]) - wanted).sum())
    )
    half = scipy.special.stdtrit(len(blocks) - len(scale), 0.975) * np.sqrt(np.diag(covariance))
    return values * scale, half * scale
