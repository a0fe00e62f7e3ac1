"""Time over the number of persistent blocks, by a closed formula fitted to each series.

Only for devices without a model, as those whose runtime does not report occupancy (OpenCL). P
blocks share N equal tiles; C of them run at once, further ones wait for whole waves:

    T(P) = start + ⌈N/P⌉ · Σ over waves of t(blocks of the wave)
    t(B) = (tile^q + (B · bus)^q)^(1/q)

A tile takes its block `tile` seconds, and all blocks share a bus that serves each for `bus`. They
add up for q = 1 (nothing overlaps), the larger one counts alone for q → ∞ (all overlaps).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from ..core.schema import GROUP, Status

Floats = npt.NDArray[np.float64]
Json = dict[str, Any]

PARAMETERS = ("start_s", "tile_s", "bus_s", "overlap")
MOST_OVERLAP = 32.0
# The knee makes the loss bumpy in `overlap`: the best of several starts wins.
OVERLAPS = (1.2, 2.5, 6.0)
# Of a series' points every fourth is left out of the fit and judges it, neither first nor last.
EVERY = 4
FEWEST = 8
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
    if len(series) < FEWEST:
        return {"why": f"{len(series)} points are too few for {len(PARAMETERS)} parameters"}, none
    blocks, measured = (series[n].to_numpy(np.float64) for n in ("blocks", "median_s"))
    first = series.iloc[0]
    tiles, multiprocessors = int(first["tiles"]), int(first["multiprocessors"])
    resident = first["resident_blocks"]
    machine = tiles, multiprocessors * (1 if pd.isna(resident) else int(resident))
    trained = np.arange(len(series)) % EVERY != EVERY // 2
    trained[[0, -1]] = True
    # Orders of magnitude: what is fitted are multiples of these.
    longest = measured[0] / np.ceil(tiles / blocks[0])
    scale = np.array([measured.min(), longest, measured.min() / tiles, 1.0])
    try:
        values, half = _fitted(blocks[trained], measured[trained], machine, scale)
    except RuntimeError as err:
        return {"why": f"the optimiser stopped without converging ({err})"}, none
    predicted = seconds(blocks, *machine, *values)
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
    blocks: Floats, measured: Floats, machine: tuple[int, int], scale: Floats
) -> tuple[Floats, Floats]:
    """Values of PARAMETERS and half-widths of their 95 % intervals; RuntimeError without any.

    Of logarithms, so that slow and fast points weigh alike; one outlier does not bend the curve.
    """

    def logs(blocks: Floats, *multiples: float) -> Floats:
        return np.log(seconds(blocks, *machine, *(scale * multiples)))

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
