"""Fits the model to a few cells of a device: parameters, their intervals, bands of errors.

What a fit leaves on its own cells says nothing of a kernel that it has not seen, and residuals of
one region none of another. So the model is fitted once for each kernel without that kernel, and
each time its errors on it are looked at: the 90th percentile of a kernel's errors is one number a
kernel. The band for a kernel that was measured is that of its own unseen cells; the band for one
that was not is the 90th percentile of all kernels' numbers, a wide band.

A device without a model, whose runtime does not report occupancy (OpenCL), has a closed formula of
the time over the number of persistent blocks, fitted to each series. P blocks share N equal tiles;
C of them run at once, further ones wait for whole waves:

    T(P) = start + ⌈N/P⌉ · Σ over waves of t(blocks of the wave)
    t(B) = (tile^q + (B · bus)^q)^(1/q)

A tile takes its block `tile` seconds, and all blocks share a bus that serves each for `bus`. They
add up for q = 1 (nothing overlaps), the larger one counts alone for q → ∞ (all overlaps).
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


def training(described: pd.DataFrame, points: pd.DataFrame) -> Bools:
    """Which cells to fit to, chosen without a look at any time.

    Of each group at least FEWEST and a SHARE, far apart in the logarithms of the launch
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
        count = min(len(mine), max(FEWEST, round(SHARE * len(rows))))
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
    known = {}
    unknown = []
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


Json = dict[str, Any]

PARAMETERS = ("start_s", "tile_s", "bus_s", "overlap")
MOST_OVERLAP = 32.0
# The knee makes the loss bumpy in `overlap`: the best of several starts wins.
OVERLAPS = (1.2, 2.5, 6.0)
# Of a series' points every fourth is left out of the fit and judges it, neither first nor last.
EVERY = 4
FEWEST_POINTS = 8
# Columns of `partition_table`, all of them in the table of the device's model as well.
COLUMNS = (*GROUP, "cell_key", "trained", "measured_gbs", "predicted_gbs")


def seconds(blocks: Floats, tiles: int, capacity: int, *values: float) -> Floats:
    """T of each number of `blocks`, at least 1; `values` are those of PARAMETERS."""
    start, tile, bus, overlap = values
    # Blocks beyond the tiles find nothing to do.
    working = np.minimum(blocks, tiles)
    whole = np.floor(working / capacity)
    rest = working - whole * capacity

    def wave(running: Floats) -> Floats:
        # By the ratio of both, so that a large power neither overflows nor vanishes.
        larger, smaller = np.maximum(tile, running * bus), np.minimum(tile, running * bus)
        total = larger * (1 + (smaller / larger) ** overlap) ** (1 / overlap)
        return np.where(running > 0, total, 0.0)

    waves = whole * wave(np.full_like(working, capacity)) + wave(rest)
    return np.asarray(start + np.ceil(tiles / blocks) * waves)


def fit_partitions(cells: pd.DataFrame) -> list[tuple[Json, pd.DataFrame]]:
    """The fit of each series of verified cells: what is found, and its rows of COLUMNS.

    A series is one group of cells (see schema.GROUP) over its ``blocks``. Found are ``values``,
    ``half_widths`` of their 95 % intervals, and the numbers of points ``fitted`` and ``left_out``,
    of which ``errors`` are relative and ``worst_blocks`` has the largest; or the sentence ``why``
    there is no fit, and no rows.
    """
    found = []
    ok = cells[cells["status"] == Status.OK]
    for names, series in ok.groupby(list(GROUP), observed=True):
        series = series.sort_values("blocks").drop_duplicates("blocks")
        fit, rows = _fit_series(series)
        found.append(({**dict(zip(GROUP, names, strict=True)), **fit}, rows))
    return found


def partition_table(cells: pd.DataFrame) -> pd.DataFrame:
    """What the fits say of each cell, as COLUMNS; only of series that could be fitted."""
    rows = [rows for _, rows in fit_partitions(cells) if len(rows)]
    return pd.concat(rows) if rows else pd.DataFrame(columns=list(COLUMNS))


def _fit_series(series: pd.DataFrame) -> tuple[Json, pd.DataFrame]:
    none = pd.DataFrame(columns=list(COLUMNS))
    if len(series) < FEWEST_POINTS:
        return {"why": f"{len(series)} points are too few for {len(PARAMETERS)} parameters"}, none
    blocks, measured = (series[n].to_numpy(np.float64) for n in ("blocks", "median_s"))
    first = series.iloc[0]
    tiles, multiprocessors = int(first["tiles"]), int(first["multiprocessors"])
    resident = first["resident_blocks"]
    capacity = multiprocessors * (1 if pd.isna(resident) else int(resident))
    trained = np.arange(len(series)) % EVERY != EVERY // 2
    trained[[0, -1]] = True
    # Orders of magnitude: what is fitted are multiples of these.
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
    """Values of PARAMETERS and half-widths of their 95 % intervals; RuntimeError without any."""

    def logs(blocks: Floats, *multiples: float) -> Floats:
        return np.log(seconds(blocks, tiles, capacity, *(scale * multiples)))

    wanted = np.log(measured)
    fits = [
        scipy.optimize.curve_fit(
            logs,
            blocks,
            wanted,
            p0=(0.1, 1.0, 1.0, overlap),
            bounds=([0.0, 1e-6, 0.0, 1.0], [np.inf, np.inf, np.inf, MOST_OVERLAP]),
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
