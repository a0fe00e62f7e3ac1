"""What searches left out, and how sure it is that nothing was missed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.display import percent
from .tables import Json


def searched_findings(provenance: Sequence[Json]) -> list[str]:
    """One sentence on the searches of a run; none where every cell was measured."""
    searches = [search for shard in provenance for search in shard.get("searches", ())]
    if not searches:
        return []
    tolerances = {
        shard["params"]["measure"]["search"]["tolerance"]
        for shard in provenance
        if "searches" in shard
    }
    shares = [search["measured"] / search["candidates"] for search in searches]
    text = (
        f"Not every launch was measured: in the typical group {percent(float(np.median(shares)))} "
        f"of them, at most {percent(max(shares))}"
    )
    known = [p for s in searches if (p := s["better_probability"]) is not None]
    if known and len(tolerances) == 1:
        text += (
            f"; that one left out is faster by more than {percent(tolerances.pop())} has a "
            f"probability of {percent(float(np.median(known)))} by the search's model (at most "
            f"{percent(max(known))})"
        )
    early = sum(search["ended"] == "budget" for search in searches)
    if early:
        text += f"; {early} of {len(searches)} searches ended at most_share before they were sure"
    return [f"{text}."]
