"""Persistent blocks: the cliff past the last resident block, and what the closed model predicts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from gpushmoo.analysis.contrasts import Ratio, ratio
from gpushmoo.analysis.models.closed import ModelInputs, total_s
from gpushmoo.analysis.models.fit import fit_series
from gpushmoo.core.schema import GROUP

from .record import Record
from .words import Claims, percent, percent_span, rate, whole_percent

KERNEL = "block_eq_partition"
DTYPES = ("float", "double", "float3", "float4")
FAR, NEAR = 8192, 1024

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Table and sentences of the cliff, with a hold-out that was chosen by structure."""
    first = record.of(KERNEL).iloc[0]
    units = int(first["units"])
    capacity = units * int(first["resident_per_unit"])
    wanted = [units, 2 * units, capacity, capacity + 1, 2 * capacity, 2 * capacity + 1]
    cells = {
        (dtype, n): record.of(
            KERNEL, variant="exact", dtype=dtype, width=FAR, cache_state="warm", num_partition=n
        ).iloc[0]
        for dtype in DTYPES
        for n in wanted
    }
    lost = {d: ratio(cells[d, capacity + 1], cells[d, capacity]) for d in DTYPES}
    claims.hold(
        "One block too many costs every type bandwidth, wider types less.",
        all(a.value < b.value < 1 for a, b in pairwise(lost.values())),
        {d: r.value for d, r in lost.items()},
    )
    rows = [
        [
            _bold(n, n == capacity + 1),
            *(_bold(rate(cells[d, n]), n == capacity + 1) for d in DTYPES),
        ]
        for n in wanted
    ]
    rows.insert(4, ["lost", *(_lost(lost[d]) for d in DTYPES)])
    short = _short_of_doubling(record)
    claims.hold("The doubling law holds up to 8 blocks.", short < 0.05, short)
    return {
        "units": units,
        "capacity": capacity,
        "next": capacity + 1,
        "table": rows,
        "doubling": percent(short),
        "double_over_float": f"{_at(record, 'double', 1) / _at(record, 'float', 1):.2f}",
        "flush": percent(_flush_matters(record)),
        **_judged(record, capacity, claims),
    }


def _bold(text: object, bold: bool) -> str:
    return f"**{text}**" if bold else str(text)


def _lost(r: Ratio) -> str:
    return f"{100 * (1 - r.value):.1f} % ({100 * (1 - r.high):.1f} to {100 * (1 - r.low):.1f})"


def _series(record: Record, dtype: str, state: str = "warm") -> pd.Series:
    cells = record.of(KERNEL, variant="exact", dtype=dtype, width=FAR, cache_state=state)
    return cells.set_index("num_partition")["bandwidth_gbs"].sort_index()


def _at(record: Record, dtype: str, blocks: int) -> float:
    return float(_series(record, dtype)[blocks])


def _short_of_doubling(record: Record) -> float:
    """The largest share by which a doubling up to 8 blocks stays short of twice the bandwidth."""
    short = []
    for dtype in DTYPES:
        series = _series(record, dtype)
        short += [1 - series[2 * n] / (2 * series[n]) for n in (1, 2, 4)]
    return float(max(short))


def _flush_matters(record: Record) -> float:
    """The largest change of a point of the four series by flushing the cache."""
    return max(
        float((_series(record, d, "flushed") / _series(record, d) - 1).abs().max()) for d in DTYPES
    )


def _judged(record: Record, capacity: int, claims: Claims) -> dict[str, str]:
    """Errors of the closed model and of a straight line, on points left out by structure.

    Every series is fitted to the points at which all blocks are resident and predicted beyond: a
    region that the fit has not seen, the step included. The naive rival has seen the other points
    of that region: it draws a straight line through the neighbours, in the logarithms of blocks
    and of time.
    """
    model: dict[int, list[Floats]] = {FAR: [], NEAR: []}
    naive: dict[int, list[Floats]] = {FAR: [], NEAR: []}
    step: dict[int, list[tuple[str, float]]] = {FAR: [], NEAR: []}
    for _, group in record.of(KERNEL).groupby(list(GROUP), sort=True, observed=True):
        group = group.sort_values("blocks").drop_duplicates("blocks")
        blocks = group["blocks"].to_numpy(np.int64)
        seconds = group["median_s"].to_numpy(np.float64)
        row = group.iloc[0]
        machine = ModelInputs(int(row["units"]), int(row["resident_per_unit"]), int(row["tiles"]))
        beyond = blocks > capacity
        fit = fit_series(blocks[~beyond], seconds[~beyond], machine, 0.0, 0)
        if fit.parameters is None:
            continue
        error = total_s(blocks[beyond], machine, fit.parameters) / seconds[beyond] - 1
        width = int(row["width"])
        model[width].append(np.abs(error))
        naive[width].append(np.abs(line_errors(blocks, seconds)[beyond[1:-1]]))
        step[width].append((str(row["dtype"]), float(error[0])))
    medians = {
        name: [float(np.median(e)) for e in errors[FAR]]
        for name, errors in (("model", model), ("naive", naive))
    }
    worst = {
        name: min(float(e.max()) for e in errors[FAR])
        for name, errors in (("model", model), ("naive", naive))
    }
    inside = min(float(np.median(e)) for e in model[NEAR])
    claims.hold(
        "The line is better between measured points.",
        bool(np.median(medians["naive"]) < np.median(medians["model"])),
        medians,
    )
    claims.hold("The line fails at the steps.", worst["naive"] > worst["model"], worst)
    claims.hold("Inside L2 the closed model fails.", inside > 0.03, inside)
    return {
        "points_beyond": str(len(model[FAR][0])),
        "series": str(len(model[FAR])),
        "model_median": percent_span(np.median(e) for e in model[FAR]),
        "model_worst_span": percent_span(e.max() for e in model[FAR]),
        "naive_median": percent_span(np.median(e) for e in naive[FAR]),
        "naive_worst_span": percent_span(e.max() for e in naive[FAR]),
        "near_median": percent_span(np.median(e) for e in model[NEAR]),
        "near_worst": whole_percent(max(e.max() for e in model[NEAR])),
        "near_series": str(len(model[NEAR])),
        "step_narrow": percent_span(abs(e) for d, e in step[FAR] if d != "float4"),
        "step_wide": percent_span(abs(e) for d, e in step[FAR] if d == "float4"),
    }


def line_errors(blocks: Ints, seconds: Floats) -> Floats:
    """Relative errors of a line through the two neighbours of each inner point, in logarithms."""
    x, y = np.log(blocks), np.log(seconds)
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    between: Floats = y[:-2] + share * (y[2:] - y[:-2]) - y[1:-1]
    return np.asarray(np.exp(between) - 1)
