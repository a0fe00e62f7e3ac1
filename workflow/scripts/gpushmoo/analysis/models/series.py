"""Measured rows in, fits and predictions out: the model's stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...core.schema import GROUP, PREDICTION_SCHEMA, Status
from ...storage.dataset import read_medians
from ...storage.store import write_parquet
from ...storage.wholefile import write_json
from .closed import ModelInputs, total_s
from .fit import UNITS, Fit, fit_series


def fit_kernels(
    dataset: Path, kernels: Sequence[str], share: float, seed: int, params: Path, table: Path
) -> None:
    """`fit_dataset` of the data set in a folder."""
    cells = read_medians(dataset, {"kernel": list(kernels)})
    fit_dataset(cells, kernels, share, seed, params, table)


def fit_dataset(
    cells: pd.DataFrame, kernels: Sequence[str], share: float, seed: int, params: Path, table: Path
) -> None:
    """Fit every series of the persistent-block `kernels`; write ``params.json`` and predictions.

    A series is one group of cells (see schema.GROUP) over its number of blocks.
    """
    fits: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    usable = cells[cells["kernel"].isin(kernels) & (cells["status"] == Status.OK)]
    for key, group in usable.groupby(list(GROUP), sort=True, observed=True):
        names = dict(zip(GROUP, _plain(key), strict=True))
        group = group.sort_values("blocks").drop_duplicates("blocks")
        machine = ModelInputs(
            units=int(group["units"].iloc[0]),
            per_unit=int(group["resident_per_unit"].iloc[0]),
            tiles=int(group["tiles"].iloc[0]),
        )
        blocks = group["blocks"].to_numpy(np.int64)
        seconds = group["median_s"].to_numpy(np.float64)
        fit = fit_series(blocks, seconds, machine, share, seed)
        fits.append({**names, "machine": asdict(machine), **_as_json(fit)})
        rows += _rows(names, group, fit, machine)
    write_json(params, {"fits": fits})
    write_parquet(pa.Table.from_pylist(rows, schema=PREDICTION_SCHEMA), table, {})


def _plain(key: Any) -> list[Any]:
    return [k.item() if isinstance(k, np.generic) else k for k in key]


def _as_json(fit: Fit) -> dict[str, Any]:
    return {
        "converged": fit.converged,
        "message": fit.message,
        "parameters": {
            n: {**asdict(e), "unit": UNITS[n]} for n, e in sorted(fit.estimates.items())
        },
        "points": len(fit.held_out),
        "held_out_points": int(fit.held_out.sum()),
        "train_median_error": fit.train_median_error,
        "held_out_median_error": fit.held_out_median_error,
        "held_out_worst_error": fit.held_out_worst_error,
        "held_out_worst_blocks": fit.held_out_worst_blocks,
    }


def _rows(
    names: dict[str, Any], group: pd.DataFrame, fit: Fit, machine: ModelInputs
) -> list[dict[str, Any]]:
    blocks = group["blocks"].to_numpy(np.int64)
    seconds = group["median_s"].to_numpy(np.float64)
    moved = (group["bytes_read"] + group["bytes_written"]).to_numpy(np.float64)
    predicted = None if fit.parameters is None else total_s(blocks, machine, fit.parameters)
    rows = []
    for i in range(len(group)):
        p = None if predicted is None else float(predicted[i])
        rows.append(
            {
                **names,
                "blocks": int(blocks[i]),
                "held_out": bool(fit.held_out[i]),
                "measured_s": float(seconds[i]),
                "predicted_s": p,
                "measured_gbs": float(moved[i] / seconds[i] * 1e-9),
                "predicted_gbs": None if p is None else float(moved[i] / p * 1e-9),
                "relative_error": None if p is None else float(p / seconds[i] - 1.0),
            }
        )
    return rows
