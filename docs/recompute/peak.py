"""The ceiling: the fastest loads, stores and copies, and where the L2 cache ends."""

from __future__ import annotations

from typing import Any

import pandas as pd
from gpushmoo.analysis.cache_end import cache_ends
from gpushmoo.analysis.ceiling import cell_ceiling_gbs
from gpushmoo.analysis.fastest import INSIDE, fastest

from .record import Record
from .words import Claims, gbs, percent, rate, whole_percent

FAR = 16384
KERNELS = ("global_load", "global_store", "global_copy")


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Table and sentences of the ceiling."""
    far = {
        state: record.best("global_copy", dtype="float4", width=FAR, cache_state=state)
        for state in ("warm", "flushed")
    }
    ends = {
        kernel: {e.dtype: e.multiples for e in cache_ends(record.of(kernel))} for kernel in KERNELS
    }
    warm, flushed = far["warm"], far["flushed"]
    load = ends["global_load"]
    told = (ends["global_copy"]["float"], load["float"], load["float4"])
    claims.hold(
        "The warm bandwidth falls before L2's nominal size is reached.",
        all(m is not None and m[0] < 1 for m in told),
        told,
    )
    claims.hold(
        "The best copy is no slower than the runtime's own at 4 GiB.",
        all(c["bandwidth_high_gbs"] >= c["copy_gbs"] for c in far.values()),
        {s: (c["bandwidth_gbs"], c["copy_gbs"]) for s, c in far.items()},
    )
    return {
        "table": [
            _row(record, "far outside L2, float4, 4 GiB an array", state="warm", inside=False),
            _row(record, "the same, L2 flushed before each launch", state="flushed", inside=False),
            _row(record, "best size inside L2 (up to 60 MiB touched), warm", "warm", True),
            _row(record, "the same, flushed", "flushed", True),
        ],
        "best_copy": {s: gbs(c["bandwidth_gbs"]) for s, c in far.items()},
        "runtime": {s: gbs(c["copy_gbs"]) for s, c in far.items()},
        "copy_launch": f"{int(warm['block_x'])} threads, unroll {int(warm['unroll'])}, "
        f"{int(warm['passes'])} pass{'es' if warm['passes'] > 1 else ''}",
        "by_size": _runtime_by_size(record),
        "of_ceiling": {
            "warm": whole_percent(_of_ceiling(record, warm)),
            "flushed": whole_percent(_of_ceiling(record, flushed)),
        },
        "ends": {
            k: {d: f"{m[0]:.2f} and {m[1]:.2f}" for d, m in e.items() if m} for k, e in ends.items()
        },
        "kept": _kept(record, claims),
    }


def _row(record: Record, words: str, state: str, inside: bool) -> list[str]:
    """Best load, store and copy, and beside that copy the runtime's own."""
    found = []
    for kernel in KERNELS:
        cells = record.of(kernel, cache_state=state)
        if inside:
            cells = cells[cells["working_set_over_cache"] <= INSIDE]
        else:
            cells = cells[(cells["width"] == FAR) & (cells["dtype"] == "float4")]
        found.append(fastest(cells, ["kernel"]).iloc[0])
    runtime = "" if inside else gbs(found[-1]["copy_gbs"])
    return [words, *(rate(cell) for cell in found), runtime]


def _of_ceiling(record: Record, cell: pd.Series) -> float:
    top = cell_ceiling_gbs(record.ceiling, cell)
    return float("nan") if top is None else float(cell["bandwidth_gbs"] / top)


def _runtime_by_size(record: Record) -> str:
    """Where the runtime's own copy is faster than the best copy kernel, far outside L2, warm."""
    cells = record.of("global_copy", cache_state="warm")
    cells = cells[cells["working_set_over_cache"] >= 4]
    best = fastest(cells, ["dtype", "width"])
    behind = best[best["bandwidth_gbs"] < best["copy_gbs"]]
    if behind.empty:
        return "It is so at every swept size from 4 × L2 on."
    places = [
        f"{row.dtype}, {row.bytes_read / 2**20:.0f} MiB an array "
        f"(by {percent(row.copy_gbs / row.bandwidth_gbs - 1)})"
        for row in behind.itertuples()
    ]
    return f"The runtime's copy is faster at {len(behind)} of {len(best)} sizes and types from " + (
        f"4 × L2 on: {'; '.join(places)}."
    )


def _kept(record: Record, claims: Claims) -> list[list[str]]:
    """By how much the best warm load beats the best flushed one, over multiples of L2."""
    states = {
        state: fastest(
            record.of("global_load", cache_state=state, dtype="float4"), ["working_set_over_cache"]
        ).set_index("working_set_over_cache")["bandwidth_gbs"]
        for state in ("warm", "flushed")
    }
    gain = states["warm"] / states["flushed"] - 1
    beyond = gain[gain.index >= 1]
    far = gain[gain.index >= 4].iloc[0]
    claims.hold("A warm load is faster than a flushed one far beyond L2's size.", far > 0.02, far)
    return [[f"{share:.2f}", f"{100 * g:+.0f} %"] for share, g in beyond.items()]
