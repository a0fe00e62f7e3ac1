"""The README's table: the launch to use of a copy, how sure it is, and what usual blocks cost."""

from __future__ import annotations

from typing import Any

from gpushmoo.analysis.best import Advice, advice, best_table
from gpushmoo.core.display import percent, significant

from .record import Record
from .words import Claims, shape, signed, whole

KERNEL = "copy2d_coalesced"
TYPES = ("float", "double", "float4")


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """A row for each type, by the rule of the report's first page."""
    cells = record.of(KERNEL)
    told = {a.group["dtype"]: a for a in advice(cells, best_table(cells).to_pandas())}
    wide = told["float4"]
    claims.hold("float's shape matters.", told["float"].tied == 1)
    claims.hold("float4 has many.", wide.tied > 5 and max(wide.defaults.values()) < 0.01)
    claims.hold("Of the same problem.", len({a.group["width"] for a in told.values()}) == 1)
    return {
        "size": f"{wide.group['height']} × {wide.group['width']}",
        "device": wide.group["device_name"],
        "candidates": whole(wide.candidates),
        "free": wide.tied,
        "rows": [_row(dtype, told[dtype]) for dtype in TYPES],
    }


def _row(dtype: str, a: Advice) -> list[str]:
    fast = a.cell["bandwidth_gbs"]
    half = (a.cell["bandwidth_high_gbs"] - a.cell["bandwidth_low_gbs"]) / (2 * fast)
    costs = [
        signed(cost, 0 if cost >= 0.1 else 1) if abs(cost) >= 0.005 else "none"
        for cost in (a.defaults["16 × 16"], a.defaults["32 × 8"])
    ]
    slowest = f"{significant(1 + a.worst, 2)} × the time"
    return [dtype, shape(a.cell), f"{fast:.0f} ± {percent(half, 1)}", str(a.tied), *costs, slowest]
