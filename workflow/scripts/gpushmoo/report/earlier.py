"""What the report says of cells that were taken over from earlier jobs of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .tables import Json


def earlier_finding(provenance: Sequence[Json]) -> list[str]:
    """One sentence where cells of the run's first repeat were measured earlier; else none."""
    firsts = [p for p in provenance if p["params"]["repeat"] == 1]
    moments = earlier_cells(firsts)
    if not moments:
        return []
    cells = sum(moments.values())
    days = sorted({at[:10] for at in moments})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return [
        f"{cells} cell{'s' * (cells > 1)} of this report were measured by an earlier start of the "
        f"run ({when}), under the same conditions, and taken over; the provenance says which. "
        "Where a group mixes both, its cells are compared with the interval of another run."
    ]


def earlier_words(provenance: Sequence[Json]) -> str:
    """``; 12 cells of 2026-11-23 01:52``, to stand behind when a shard was written."""
    firsts = [p for p in provenance if p["params"]["repeat"] == 1]
    minutes: Counter[str] = Counter()
    for at, cells in earlier_cells(firsts).items():
        minutes[at[:16].replace("T", " ")] += cells
    return "".join(f"; {n} cells of {minute}" for minute, n in sorted(minutes.items()))


def earlier_cells(provenance: Sequence[Json]) -> Counter[str]:
    """Cells that were taken over, by the moment (ISO) at which they had been measured."""
    moments: Counter[str] = Counter()
    for p in provenance:
        for told in p.get("earlier", ()):
            moments[told["measured_at"]] += told["cells"]
    return moments
