"""Measured block shapes in, fits and what limits each shape out: the stage of `blocks`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...core.backends import tells_occupancy
from ...core.paths import ROOT
from ...core.schema import GROUP, PREDICTION_SCHEMA, Status
from ...core.space import Cell, Problem
from ...storage.dataset import read_medians
from ...storage.store import write_parquet
from ...storage.wholefile import write_json
from ...workloads.contract import Workload
from ...workloads.loader import load_kernel
from .blocks import UNITS, BlockFit, Blocks, Errors, Hypothesis, fit_blocks
from .footprint import LAYOUTS, BlockFootprint, Known, footprint

Json = dict[str, Any]

# What one fit is of: all variants that differ in their mapping alone.
SERIES = tuple(n for n in GROUP if n != "variant")
TRAFFIC = ("sectors_per_warp", "lines_per_warp", "sectors_per_block", "lines_per_block")
# Seconds of a launch; GB/s = 10⁹ bytes per second, read plus written. `limit` is a name of
# blocks.LIMITS. It and the predictions are null where the fit did not converge.
SHAPE_SCHEMA = pa.schema(
    [
        *(PREDICTION_SCHEMA.field(n) for n in GROUP),
        pa.field("backend", pa.string(), nullable=False),
        pa.field("cell_key", pa.string(), nullable=False),
        pa.field("block_x", pa.int64(), nullable=False),
        pa.field("block_y", pa.int64(), nullable=False),
        pa.field("threads", pa.int64(), nullable=False),
        pa.field("warps", pa.int64(), nullable=False),
        pa.field("resident_per_unit", pa.int64(), nullable=False),
        *(pa.field(f"{layout}_{n}", pa.float64(), False) for layout in LAYOUTS for n in TRAFFIC),
        pa.field("measured_s", pa.float64(), nullable=False),
        pa.field("predicted_s", pa.float64(), nullable=True),
        pa.field("measured_gbs", pa.float64(), nullable=False),
        pa.field("predicted_gbs", pa.float64(), nullable=True),
        pa.field("held_out", pa.bool_(), nullable=False),
        pa.field("limit", pa.string(), nullable=True),
    ]
)


def fit_mapped_kernels(
    dataset: Path, folders: Mapping[str, str], share: float, seed: int, fits: Path, table: Path
) -> None:
    """`fit_shapes` of the data set in a folder; `folders` of the kernels are relative to ROOT."""
    cells = read_medians(dataset, {"kernel": list(folders)})
    workloads = {name: load_kernel(ROOT / folder).workload for name, folder in folders.items()}
    fit_shapes(cells, workloads, share, seed, fits, table)


def fit_shapes(
    cells: pd.DataFrame,
    workloads: Mapping[str, Workload],
    share: float,
    seed: int,
    out_json: Path,
    out_table: Path,
) -> None:
    """Fit every series of the kernels in `workloads` that have mappings.

    A series is all verified cells of one kernel, dtype, problem, cache state and device name whose
    variant is one of the kernel's mappings. Writes ``{"fits": [...], "left_out": [...]}`` and a
    table of SHAPE_SCHEMA with a row for each cell that was fitted to or predicted.
    """
    fits: list[Json] = []
    left_out: list[Json] = []
    rows: list[Json] = []
    counted: Known = {}
    for kernel, workload in sorted(workloads.items()):
        mine = cells["variant"].isin(workload.mappings) & (cells["status"] == Status.OK)
        usable = cells[mine & (cells["kernel"] == kernel)]

        @cache
        def known(cell: Cell, workload: Workload = workload) -> BlockFootprint | None:
            return footprint(workload, cell, counted)

        for _, group in usable.groupby(list(SERIES), sort=True, observed=True):
            group = group.sort_values("cell_key")
            names = {n: group[n].iloc[:1].to_list()[0] for n in SERIES}
            table, why = _features(group, workload, known)
            if table is None:
                left_out.append({**names, "why": why})
                continue
            blocks = _blocks(table)
            seconds = table["measured_s"].to_numpy(np.float64)
            fit = fit_blocks(blocks, seconds, share, seed)
            found = _predicted(table, blocks, fit)
            fits.append({**names, "units": blocks.units, **_as_json(fit, found)})
            rows += found[SHAPE_SCHEMA.names].to_dict("records")
    write_json(out_json, {"fits": fits, "left_out": left_out})
    write_parquet(pa.Table.from_pylist(rows, schema=SHAPE_SCHEMA), out_table, {})


def _features(
    group: pd.DataFrame, workload: Workload, known: Any
) -> tuple[pd.DataFrame | None, str]:
    """A row for each cell of a series with what its block is and touches, or why there is none."""
    others = sorted(b for b in set(group["backend"]) if not tells_occupancy(b))
    if others:
        return None, f"{others[0]} does not tell how many blocks a multiprocessor holds"
    group = group[group["resident_per_unit"].notna()]
    if group.empty:
        return None, "no cell tells how many blocks a multiprocessor holds"
    axes = sorted(workload.axes)
    rows = []
    for row in group.to_dict("records"):
        problem = Problem(row["height"], row["width"])
        params = tuple((n, int(row[n])) for n in axes)
        cell = Cell(row["kernel"], row["dtype"], row["variant"], problem, params)
        touched = known(cell)
        if touched is None:
            return None, "the kernel does not tell which element a thread takes"
        block = workload.launch(cell).block
        traffic = {
            f"{layout}_{n}": v
            for layout, t in touched.traffic.items()
            for n, v in asdict(t).items()
        }
        rows.append(
            {
                **{n: row[n] for n in (*GROUP, "backend", "cell_key", "units", "blocks")},
                "block_x": block[0],
                "block_y": block[1],
                "threads": touched.threads,
                "warps": touched.warps,
                "resident_per_unit": int(row["resident_per_unit"]),
                **traffic,
                "measured_s": row["median_s"],
                "bytes": row["bytes_read"] + row["bytes_written"],
            }
        )
    return pd.DataFrame(rows), ""


def _blocks(table: pd.DataFrame) -> Blocks:
    return Blocks(
        units=int(table["units"].iloc[0]),
        blocks=table["blocks"].to_numpy(np.int64),
        threads=table["threads"].to_numpy(np.int64),
        warps=table["warps"].to_numpy(np.int64),
        resident=table["resident_per_unit"].to_numpy(np.int64),
        requests={
            n: (table[f"{n}_sectors_per_warp"] * table["warps"]).to_numpy(np.float64)
            for n in LAYOUTS
        },
        sectors={n: table[f"{n}_sectors_per_block"].to_numpy(np.float64) for n in LAYOUTS},
    )


def _predicted(table: pd.DataFrame, blocks: Blocks, fit: BlockFit) -> pd.DataFrame:
    """The table with what the believed hypothesis says of each cell."""
    gb = table["bytes"] * 1e-9
    measured = {"held_out": fit.held_out, "measured_gbs": gb / table["measured_s"]}
    if fit.best is None:
        return table.assign(**measured, predicted_s=None, predicted_gbs=None, limit=None)
    values = fit.hypotheses[fit.best].values
    predicted = blocks.total_s(values, fit.best)
    return table.assign(
        **measured,
        predicted_s=predicted,
        predicted_gbs=gb / predicted,
        limit=blocks.dominant(values, fit.best),
    )


def _as_json(fit: BlockFit, found: pd.DataFrame) -> Json:
    return {
        "points": len(found),
        "held_out_points": int(fit.held_out.sum()),
        "hypotheses": {n: _hypothesis(h) for n, h in fit.hypotheses.items()},
        "best": fit.best,
        "reason": fit.reason,
        "without": {n: _errors(h.judged) for n, h in fit.without.items()},
        "mappings": {} if fit.best is None else _by_mapping(found),
        "worst": None if fit.best is None else _worst(found),
    }


def _hypothesis(fitted: Hypothesis) -> Json:
    return {
        "converged": fitted.converged,
        "message": fitted.message,
        "parameters": {
            n: {**asdict(e), "unit": UNITS[n]} for n, e in sorted(fitted.estimates.items())
        },
        "train_error": _errors(fitted.train),
        "held_out_error": _errors(fitted.held_out),
    }


def _errors(of: Errors | None) -> Json | None:
    return None if of is None else asdict(of)


def _by_mapping(found: pd.DataFrame) -> Json:
    """For each variant the share of its cells that each limit governs, and what the model misses.

    `bias` is the median of predicted / measured − 1: what tells the mappings apart beyond the
    footprint, as the instructions that each of them takes.
    """
    return {
        variant: {
            "points": len(part),
            "limits": part["limit"].value_counts(normalize=True).to_dict(),
            "bias": float((part["predicted_s"] / part["measured_s"] - 1).median()),
        }
        for variant, part in found.groupby("variant")
    }


def _worst(found: pd.DataFrame) -> Json:
    """The cell that is predicted worst, of those held out if there are any."""
    judged = found[found["held_out"]] if found["held_out"].any() else found
    error = judged["predicted_s"] / judged["measured_s"] - 1
    worst = judged.loc[error.abs().idxmax()]
    return {
        "cell_key": worst["cell_key"],
        "variant": worst["variant"],
        "block_x": int(worst["block_x"]),
        "block_y": int(worst["block_y"]),
        "error": float(error.loc[worst.name]),
    }
