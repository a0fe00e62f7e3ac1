"""The README table: recommended launch of a copy, its interval, and the cost of common blocks."""

from typing import Any

from gpushmoo.analysis.best import Advice, advice, best_table
from gpushmoo.core.display import percent, significant
from gpushmoo.report.tables import cost_cell

from .record import Record
from .words import Claims, shape, whole

KERNEL = "copy2d_coalesced"
TYPES = ("float", "double", "float4")


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """A row for each type, by the rule of the report's first page."""
    cells = record.of(KERNEL)
    told = {a.group["dtype"]: a for a in advice(cells, best_table(cells).to_pandas())}
    wide = told["float4"]
    claims.hold("float's shape matters.", told["float"].tied == 1)
    costly = any(cost.sure for cost in wide.defaults.values())
    claims.hold("float4 has many.", wide.tied > 5 and not costly)
    claims.hold(
        "All rows have the same problem.", len({a.group["width"] for a in told.values()}) == 1
    )
    return {
        "size": f"{wide.group['height']} × {wide.group['width']}",
        "device": wide.group["device_name"],
        "candidates": whole(wide.candidates),
        "free": wide.tied,
        "rows": [_row(dtype, told[dtype]) for dtype in TYPES],
    }


def page(record: Record) -> dict[str, Any]:
    """Values of the row of a copy of floats, for pages that explain how to read it."""
    cells = record.of(KERNEL)
    told = {a.group["dtype"]: a for a in advice(cells, best_table(cells).to_pandas())}
    a = told[TYPES[0]]
    _, launch, rate, tied, cost, *_ = _row(TYPES[0], a)
    gbs, half = rate.split(" ± ")
    return {
        "shape": launch,
        "gbs": gbs,
        "half": half,
        "tied": tied,
        "candidates": whole(a.candidates),
        "cost": cost.lstrip("+"),
    }


def _row(dtype: str, a: Advice) -> list[str]:
    fast = a.cell["bandwidth_gbs"]
    half = (a.cell["bandwidth_high_gbs"] - a.cell["bandwidth_low_gbs"]) / (2 * fast)
    told = (cost_cell(a.defaults[block]) for block in ("16 × 16", "32 × 8"))
    costs = [f"{cell['text']} {cell['half']}".strip().replace("\u00a0", " ") for cell in told]
    slowest = f"{significant(a.worst, 2)} × the time"
    return [dtype, shape(a.cell), f"{fast:.0f} ± {percent(half, 1)}", str(a.tied), *costs, slowest]
