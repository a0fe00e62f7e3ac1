"""The index computation as measured on a device by its own clock, beside the document's 18.2."""

from __future__ import annotations

from typing import Any

from gpushmoo.report.tables import Json

# Cycles that the document measured on a Tesla C1060 by a block-wise test harness.
PUBLISHED_CYCLES = 18.2


def index_table(found: Json) -> Json:
    """Rows of the page from what experiments/gpu/measure_index.py wrote."""
    return {
        "device": str(found["device"]["name"]),
        "published": f"{PUBLISHED_CYCLES:g}",
        "rows": [_row(row) for row in found["index"]],
    }


def _row(row: dict[str, Any]) -> Json:
    return {
        "variant": str(row["variant"]),
        "threads": str(row["threads"]),
        "loop": f"{row['loop_cycles']:.1f}",
        "bare": f"{row['bare_cycles']:.1f}",
        "index": f"{row['index_cycles']:.1f}",
        "per_warp": f"{row['index_cycles'] / row['warps']:.2f}",
    }
