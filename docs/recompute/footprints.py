"""What limits a block shape: the fitted model, and how well it foretells what it has not seen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from gpushmoo.analysis.models.blocks import Blocks
from gpushmoo.analysis.models.footprint import LAYOUTS
from gpushmoo.analysis.models.shapes import SHAPE_SCHEMA, fit_shapes
from gpushmoo.storage.store import read_table
from gpushmoo.workloads.loader import load_kernel

from .record import ROOT, Record
from .slow import Slow, key_of
from .words import Claims, percent, span, whole_percent

# As config/config.yaml has them: the share of thread numbers held out, and the seed.
HELD_OUT, SEED = 0.25, 20091017
MODULES = tuple(
    f"gpushmoo.analysis.models.{name}"
    for name in ("shapes", "blocks", "footprint", "fit", "closed")
)
SERIES = (
    ("tex2d_sum", "float", 16384),
    ("surf2d_memset", "float", 16384),
    ("tex2d_sum", "float", 4096),
    ("surf2d_memset", "float", 4096),
    ("tex2d_sum", "float4", 4096),
    ("surf2d_memset", "float4", 4096),
)
WORDS = {"tex2d_sum": "texture", "surf2d_memset": "surface"}
# The mapping that a second fit does not see, and the one that its naive rival looks at.
UNSEEN, SEEN = "tile8", "block"
# A multiprocessor's clock under load, in GHz, as NVML's readings have it.
CLOCK_GHZ = 1.98


def values(record: Record, slow: Slow, claims: Claims) -> dict[str, Any]:
    """Table and sentences of the model of block shapes."""
    found = {
        (kernel, dtype, size): slow.get(
            f"shapes {kernel} {dtype} {size}",
            key_of([record.packed], MODULES),
            partial(_judged, record, kernel, dtype, size),
        )
        for kernel, dtype, size in SERIES
    }
    texture, surface = (found[k, "float", 16384] for k in WORDS)
    launches = [f["parameters"]["launch_s"] * 1e9 for f in (texture, surface)]
    small = [
        f["parameters"]["launch_s"] * 1e9 for k, f in found.items() if k[1:] == ("float", 4096)
    ]
    bytes_each = 128 * 4
    units = int(record.of("tex2d_sum").iloc[0]["units"])
    cap = bytes_each * units / (min(launches))
    claims.hold(
        "Texture reads of floats are limited by residency, for most shapes.",
        max(texture["limits"], key=texture["limits"].get) == "residency",
        texture["limits"],
    )
    claims.hold(
        "What a texture read of floats touches does not show.",
        texture["best"] == "none",
        texture["best"],
    )
    claims.hold(
        "Surface writes are limited by tiles of 16 bytes × 2 rows, too.",
        surface["best"] not in ("none", "rows"),
        surface["best"],
    )
    claims.hold(
        "The launch interval is nearly the same for textures and surfaces.",
        max(launches) < 1.05 * min(launches),
        launches,
    )
    claims.hold(
        "float4 surfaces the model does not describe.",
        found["surf2d_memset", "float4", 4096]["model"]["p95"] > 0.2,
    )
    return {
        **_lost(found.values()),
        "table": [_line(*k, f) for k, f in found.items()],
        "unseen": [_unseen(*k, f) for k, f in found.items()],
        "launch_ns": span(launches, digits=3),
        "launch_cycles": span((t * CLOCK_GHZ for t in launches), digits=3),
        "launch_small_ns": span(small, digits=3),
        "cap": f"{cap:.0f}",
        "without_launch": " and ".join(
            whole_percent(f["without"]["launch"]["p95"])
            for f in (texture, surface)
            if f["without"].get("launch")
        ),
        "residency": whole_percent(texture["limits"]["residency"]),
        "texture_none": percent(texture["hypotheses"]["none"]["p95"]),
        "texture_others": span(
            (100 * h["p95"] for n, h in texture["hypotheses"].items() if n != "none" and h), " %"
        ),
        "surface_others": span(
            (
                100 * h["p95"]
                for n, h in surface["hypotheses"].items()
                if n != surface["best"] and h
            ),
            " %",
        ),
    }


def _line(kernel: str, dtype: str, size: int, f: dict[str, Any]) -> list[str]:
    p = f["parameters"]

    def ns(name: str) -> str:
        return f"{1e9 * p[name]:.3g} ns" if name in p else ""

    return [
        f"{WORDS[kernel]}, {dtype}, {size}²",
        ns("launch_s"),
        ns("life_s"),
        ns("warp_s"),
        ns("issue_s"),
        ns("request_s"),
        ns("sector_s"),
    ]


def _unseen(kernel: str, dtype: str, size: int, f: dict[str, Any]) -> list[str]:
    return [
        f"{WORDS[kernel]}, {dtype}, {size}²",
        *(_pair(f[name]) for name in ("model", "neighbours", "unseen_model", "unseen_naive")),
    ]


def _lost(found: Iterable[dict[str, Any]]) -> dict[str, str]:
    """In how many comparisons the naive rival's median, or 95th percentile, is no larger."""
    pairs = [
        (f[model], f[rival])
        for f in found
        for model, rival in (("model", "neighbours"), ("unseen_model", "unseen_naive"))
    ]
    return {
        "compared": str(len(pairs)),
        "median_lost": str(sum(r["median"] <= m["median"] for m, r in pairs)),
        "p95_lost": str(sum(r["p95"] <= m["p95"] for m, r in pairs)),
    }


def _pair(errors: dict[str, float]) -> str:
    return f"{percent(errors['median'])} and {percent(errors['p95'])}"


def _judged(record: Record, kernel: str, dtype: str, size: int) -> dict[str, Any]:
    """The fit of a series as the workflow makes it, and its errors beside naive rivals'."""
    cells = record.of(kernel, dtype=dtype, width=size)
    fit, table = _fit(kernel, cells)
    best = fit["hypotheses"][fit["best"]]
    values_of = {n: e["value"] for n, e in best["parameters"].items()}
    held = table["held_out"].to_numpy()
    error = (table["predicted_s"] / table["measured_s"] - 1).abs().to_numpy()
    return {
        "best": fit["best"],
        "parameters": values_of,
        "limits": table["limit"].value_counts(normalize=True).to_dict(),
        "without": fit["without"],
        "hypotheses": {n: h["held_out_error"] for n, h in fit["hypotheses"].items()},
        "model": _errors(error[held]),
        "neighbours": _errors(neighbour_errors(table)[held]),
        **_mapping_unseen(kernel, cells, table, fit["units"]),
    }


def _fit(kernel: str, cells: pd.DataFrame) -> tuple[dict[str, Any], pd.DataFrame]:
    workload = load_kernel(ROOT / "kernels" / kernel).workload
    with TemporaryDirectory() as scratch:
        fits, table = Path(scratch) / "fits.json", Path(scratch) / "cells.parquet"
        fit_shapes(cells, {kernel: workload}, HELD_OUT, SEED, fits, table)
        found = json.loads(fits.read_text(encoding="utf-8"))["fits"]
        return found[0], read_table(table, SHAPE_SCHEMA).to_pandas()


def _mapping_unseen(
    kernel: str, cells: pd.DataFrame, table: pd.DataFrame, units: int
) -> dict[str, Any]:
    """Errors on a mapping that a fit has not seen, and of taking another mapping's time for it."""
    unseen = table["variant"].str.startswith(UNSEEN)
    hidden = set(table.loc[unseen, "cell_key"])
    fit, _ = _fit(kernel, cells[~cells["cell_key"].isin(hidden)])
    values_of = {n: e["value"] for n, e in fit["hypotheses"][fit["best"]]["parameters"].items()}
    part = table[unseen].merge(cells[["cell_key", "blocks"]], on="cell_key")
    predicted = _blocks(part, units).total_s(values_of, fit["best"])
    seen = table[table["variant"].str.startswith(SEEN)]
    both = part.merge(seen, on=["block_x", "block_y"], suffixes=("", "_seen"))
    naive = (both["measured_s_seen"] / both["measured_s"] - 1).abs()
    return {
        "unseen_model": _errors(np.abs(predicted / part["measured_s"].to_numpy() - 1)),
        "unseen_naive": _errors(naive.to_numpy()),
    }


def _blocks(part: pd.DataFrame, units: int) -> Blocks:
    return Blocks(
        units=units,
        blocks=part["blocks"].to_numpy(np.int64),
        threads=part["threads"].to_numpy(np.int64),
        warps=part["warps"].to_numpy(np.int64),
        resident=part["resident_per_unit"].to_numpy(np.int64),
        requests={n: (part[f"{n}_sectors_per_warp"] * part["warps"]).to_numpy() for n in LAYOUTS},
        sectors={n: part[f"{n}_sectors_per_block"].to_numpy() for n in LAYOUTS},
    )


def neighbour_errors(table: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Relative error of the geometric mean of the shapes next to each, of the same mapping."""
    times = table.set_index(["variant", "block_x", "block_y"])["measured_s"]
    logs = np.log(times)
    near = pd.DataFrame(
        {
            (dx, dy): logs.rename(lambda x, d=dx: x + d, level="block_x")
            .rename(lambda y, d=dy: y + d, level="block_y")
            .reindex(logs.index)
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))
        }
    )
    off = near.mean(axis=1).to_numpy(np.float64) - logs.to_numpy(np.float64)
    return np.asarray(np.abs(np.exp(off) - 1))


def _errors(error: npt.NDArray[np.float64]) -> dict[str, float]:
    known = error[np.isfinite(error)]
    return {"median": float(np.median(known)), "p95": float(np.quantile(known, 0.95))}
