"""What is kept from a model of a device to judge it, and how wide its bands must be then.

The parts of `judge_model.py` that need nothing but cells and residuals.

A hold-out is a region of the cells that differ from all others in what a model must know: an
element type, a kernel, what fits into the last cache. The cells of the usual training set outside
of it are learned from, all cells inside it are judged. With nothing left out, the cells are judged
that are not in the training set.

A residual is log(measured / predicted). A band of half-width b says that the measured time lies
between predicted · exp(−b) and predicted · exp(b).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NOTHING = "nothing"
# Of the last cache: what a launch reads and writes is inside below the first, outside above the
# second. In between, part of it stays.
INSIDE, OUTSIDE = 0.4, 1.5
COPIES = ("block_eq_partition", "copy2d_coalesced", "copy2d_document", "global_copy")
# Blocks for two on each multiprocessor of an H200.
FEW_PARTITIONS = 264
# A quantile of fewer residuals says nothing of a region.
FEWEST = 20


def regions(cells: pd.DataFrame, cache_bytes: int) -> npt.NDArray[np.str_]:
    """A word a cell: ``flushed``, or where its bytes lie: ``inside``, ``around``, ``outside``."""
    moved = (cells["bytes_read"] + cells["bytes_written"]).to_numpy(np.float64) / cache_bytes
    conditions = [cells["cache_state"] == "flushed", moved < INSIDE, moved > OUTSIDE]
    return np.select(conditions, ["flushed", "inside", "outside"], "around")


def hold_outs(cells: pd.DataFrame, cache_bytes: int) -> dict[str, Bools]:
    """Which cells each hold-out keeps, by its name; all have some, and leave some.

    `cells` has kernel, dtype, cache_state, bytes_read, bytes_written and, for `block_eq_partition`,
    num_partition.
    """
    where = regions(cells, cache_bytes)
    copies = cells["kernel"].isin(COPIES)
    found = {NOTHING: np.zeros(len(cells), bool)}
    for dtype in sorted(set(cells.loc[copies, "dtype"])):
        found[f"copies of {dtype}"] = (copies & (cells["dtype"] == dtype)).to_numpy()
    for kernel in sorted(set(cells["kernel"])):
        found[f"kernel {kernel}"] = (cells["kernel"] == kernel).to_numpy()
    if "num_partition" in cells:
        many = (cells["num_partition"] > FEW_PARTITIONS).to_numpy()
        found[f"num_partition above {FEW_PARTITIONS}"] = many
    for region in ("inside", "outside", "flushed"):
        found[region] = where == region
    return {n: kept for n, kept in found.items() if n == NOTHING or 0 < kept.sum() < len(kept)}


def split(training: Bools, kept: Bools) -> tuple[Bools, Bools]:
    """The cells to learn from and those to judge, where `kept` are held out of `training`."""
    return training & ~kept, kept if kept.any() else ~training


def errors(residuals: Floats) -> list[float]:
    """Number of the predictions, and median, 95th percentile and largest |predicted/measured − 1|.

    NaN among the `residuals` is a cell without a prediction. Where there are none, [0].
    """
    found = residuals[~np.isnan(residuals)]
    if not len(found):
        return [0]
    off = np.abs(np.expm1(-found))
    return [len(off), *(round(float(np.quantile(off, q)), 4) for q in (0.5, 0.95, 1.0))]


def conformal_half_width(residuals: Floats, promised: float) -> float:
    """Split conformal: the ⌈(n + 1) · promised⌉-th smallest |residual|.

    It holds a further residual of the same distribution with probability `promised` or more (Lei et
    al., "Distribution-Free Predictive Inference for Regression", JASA 113, 2018); for that, too few
    residuals make it infinite.
    """
    rank = math.ceil((len(residuals) + 1) * promised)
    return float(np.sort(np.abs(residuals))[rank - 1]) if rank <= len(residuals) else math.inf


def bands(
    residuals: Mapping[str, pd.Series], known: pd.Series, promised: float
) -> dict[str, dict[str, dict[str, float]]]:
    """Half-widths and coverage of three kinds of bands in each region that was left out.

    `residuals` of each region by its name, `known` those with nothing left out; all are indexed by
    the number of the cell. A band for a region is made of the other regions' residuals without
    cells that are also in this one:

    * ``narrow``: the quantile `promised` of |residual|, all regions pooled.
    * ``wide``: the same quantile of each region alone, and of these the quantile `promised`.
    * ``conformal``: split conformal on `known`, as if a region not seen were like those seen.
    """
    conformal = conformal_half_width(known.to_numpy(), promised)
    found = {}
    for name, mine in residuals.items():
        others = [
            np.abs(r[~r.index.isin(mine.index)].to_numpy())
            for n, r in residuals.items()
            if n != name
        ]
        others = [r for r in others if len(r) >= FEWEST]
        if not others:
            continue
        widths = {
            "narrow": float(np.quantile(np.concatenate(others), promised)),
            "wide": float(np.quantile([np.quantile(r, promised) for r in others], promised)),
            "conformal": conformal,
        }
        size = np.abs(mine.to_numpy())
        found[name] = {
            kind: {"half_width": round(w, 4), "coverage": round(float((size <= w).mean()), 4)}
            for kind, w in widths.items()
        }
    return found


def coverage(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """For each kind of `bands`: mean and worst coverage, and mean half-width, of the regions."""
    kinds = {kind for of_region in found.values() for kind in of_region}
    said = {}
    for kind in sorted(kinds):
        covered = [r[kind]["coverage"] for r in found.values()]
        width = [r[kind]["half_width"] for r in found.values()]
        said[kind] = {
            "mean_coverage": round(float(np.mean(covered)), 4),
            "worst_coverage": min(covered),
            "mean_half_width": round(float(np.mean(width)), 4),
        }
    return said
