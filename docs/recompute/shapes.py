"""Which block shapes of the element copy cannot be told from the best."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .record import Record
from .words import Claims, gbs, joined, percent, shape, whole_percent

KERNEL = "copy2d_coalesced"
DTYPES = ("float", "double", "float3", "float4")
# Of a larger tied set the table tells the number alone.
NAMED = 2


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """The table of tied sets, and the sentences on float4's and on the slowest shapes."""
    wide = record.tied(KERNEL, dtype="float4", width=8192, cache_state="warm")
    slowest = {d: _slowest(record, d) for d in ("float", "float4")}
    claims.hold(
        "The slowest shape is 4 × 4.",
        all(shape(cell) == "4 × 4" for cell, _ in slowest.values()),
        {d: shape(cell) for d, (cell, _) in slowest.items()},
    )
    behind = {d: _behind(record, d, 32, 8) for d in ("float", "float4")}
    claims.hold(
        "The tied shapes of float4 are small.",
        (wide["block_x"] * wide["block_y"]).max() <= 512,
        list(wide["block_x"] * wide["block_y"]),
    )
    top = {
        d: float(record.best(KERNEL, dtype=d, width=8192, cache_state="warm")["bandwidth_gbs"])
        for d in DTYPES
    }
    threads = wide["block_x"] * wide["block_y"]
    return {
        "candidates": f"{len(record.of(KERNEL, dtype='float', width=8192, cache_state='warm')):,}",
        "table": [
            [f"{size}²", state, *(_tied(record, dtype, size, state) for dtype in DTYPES)]
            for size in (8192, 1024)
            for state in ("warm", "flushed")
        ],
        "float4_count": str(len(wide)),
        "float4_shapes": _by_width(wide),
        "float4_threads": f"{threads.min():.0f} to {threads.max():.0f}",
        "behind": {d: percent(b) for d, b in behind.items()},
        "float3_behind": percent(1 - top["float3"] / max(top.values())),
        "slowest": {d: whole_percent(share) for d, (_, share) in slowest.items()},
    }


def _tied(record: Record, dtype: str, size: int, state: str) -> str:
    tied = record.tied(KERNEL, dtype=dtype, width=size, cache_state=state)
    if len(tied) == 1:
        names = f"{shape(tied.iloc[0])} alone"
    elif len(tied) <= NAMED:
        names = joined(shape(row) for _, row in tied.iterrows())
    else:
        names = f"{len(tied)} shapes"
    top = tied.iloc[0]
    low, high = gbs(top["bandwidth_low_gbs"]), gbs(top["bandwidth_high_gbs"])
    return f"{names}: {gbs(top['bandwidth_gbs'])} ({low} to {high})"


def _by_width(tied: pd.DataFrame) -> str:
    """``64 × 4 and 5, 48 × 4 to 6``: the heights of each width, the widest first."""
    words = []
    for width, part in sorted(tied.groupby("block_x"), key=lambda item: -item[0]):
        heights = sorted(int(y) for y in part["block_y"])
        whole_run = heights == list(range(heights[0], heights[-1] + 1)) and len(heights) > 2
        said = f"{heights[0]} to {heights[-1]}" if whole_run else joined(map(str, heights))
        words.append(f"{int(width)} × {said}")
    return "; ".join(words)


def _slowest(record: Record, dtype: str) -> tuple[pd.Series, float]:
    cells = record.of(KERNEL, dtype=dtype, width=8192, cache_state="warm")
    cell = cells.loc[cells["bandwidth_gbs"].idxmin()]
    return cell, float(cell["bandwidth_gbs"] / cells["bandwidth_gbs"].max())


def _behind(record: Record, dtype: str, width: int, height: int) -> float:
    cells = record.of(KERNEL, dtype=dtype, width=8192, cache_state="warm")
    one = cells[(cells["block_x"] == width) & (cells["block_y"] == height)].iloc[0]
    return float(1 - one["bandwidth_gbs"] / cells["bandwidth_gbs"].max())
