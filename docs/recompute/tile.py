"""The first document's tile copy, as published and with pointers that may not overlap."""

from __future__ import annotations

from typing import Any

from .record import Record
from .words import Claims, gbs, over, percent, rate, whole_percent, whole_percent_span

DTYPES = ("float", "double", "float3", "float4")
ROWS = 8


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Bandwidths of 16384² by 32 × 8 threads, and what distinct pointers change."""
    cells = {
        (variant, dtype): record.best(
            "copy2d_document", variant=variant, dtype=dtype, block_rows=ROWS
        )
        for variant in ("published", "distinct")
        for dtype in DTYPES
    }
    speed = {key: float(cell["bandwidth_gbs"]) for key, cell in cells.items()}
    gap = {v: speed[v, "double"] / speed[v, "float"] for v in ("published", "distinct")}
    gain = speed["distinct", "float"] / speed["published", "float"] - 1
    distinct = [speed["distinct", d] for d in DTYPES]
    claims.hold(
        "Wide types win as published.",
        speed["published", "float"] < min(speed["published", d] for d in DTYPES[1:]),
        speed,
    )
    claims.hold(
        "The gap nearly closes with distinct pointers.",
        gap["distinct"] - 1 < 0.2 * (gap["published"] - 1),
        gap,
    )
    claims.hold(
        "With distinct pointers float3 is behind float.",
        speed["distinct", "float3"] < speed["distinct", "float"],
        speed,
    )
    flat = _flat(record)
    return {
        "table": [
            [
                words,
                *(rate(cells[v, d]) for d in DTYPES),
                over(cells[v, "double"], cells[v, "float"]),
            ]
            for v, words in (("published", "as published"), ("distinct", "pointers distinct"))
        ],
        "gap": over(cells["published", "double"], cells["published", "float"]),
        "gain": whole_percent(gain),
        "of_runtime": whole_percent(
            speed["distinct", "float"] / cells["distinct", "float"]["copy_gbs"]
        ),
        "runtime": gbs(cells["distinct", "float"]["copy_gbs"]),
        "left": percent(gap["distinct"] - 1),
        "all_types": percent(max(distinct) / min(distinct) - 1),
        "float3_published": whole_percent(
            speed["published", "float3"] / speed["published", "float"] - 1
        ),
        "float3_distinct": percent(1 - speed["distinct", "float3"] / speed["distinct", "float"]),
        "float3_flat": whole_percent_span(1 - f for f in flat.values()),
        "float3_behind": percent(
            1 - speed["published", "float3"] / max(speed["published", d] for d in DTYPES)
        ),
    }


def _flat(record: Record) -> dict[int, float]:
    """float3 over float with distinct pointers, by the rows of a block, where these are few."""
    found = {}
    for rows in (1, 2, 4):
        pair = [
            record.best("copy2d_document", variant="distinct", dtype=d, block_rows=rows)
            for d in ("float3", "float")
        ]
        found[rows] = float(pair[0]["bandwidth_gbs"] / pair[1]["bandwidth_gbs"])
    return found
