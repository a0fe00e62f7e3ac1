"""What the report says of how it was measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

from ..core.display import gbs, kind_words, percent
from ..core.schema import SAMPLE_COUNT, Status
from ..core.space import LAUNCH_KINDS
from .sureness import between_words, unmet_words
from .tables import Json


def method_facts(
    cells: pd.DataFrame, provenance: Sequence[Json], host_fed: Collection[str]
) -> Json:
    """Numbers that the method section names; the data of `host_fed` kernels live on the host."""
    copies = cells.loc[~cells["kernel"].isin(host_fed), "copy_gbs"].dropna()
    ok = cells[cells["status"] == Status.OK]
    p = provenance[0]["params"]
    half = (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])
    return {
        "cells": _grouped(len(cells)),
        "ok": _grouped(len(ok)),
        "samples": _grouped(int(ok[SAMPLE_COUNT].sum())),
        "min_samples": p["measure"]["min_samples"],
        "max_samples": p["measure"]["max_samples"],
        "target": percent(p["measure"]["relative_half_width"]),
        "seed": p["seed"],
        "repeats": max(p["params"]["measure"]["repeats"] for p in provenance),
        "between": between_words(ok),
        "unmet": unmet_words(ok, ok["within_half_width"], provenance),
        "half_width_median": percent(float(half.median())) if len(ok) else "—",
        "half_width_p95": percent(float(half.quantile(0.95))) if len(ok) else "—",
        "verified_words": _grouped(int(ok["verified_words"].sum())),
        "copy": gbs(float(copies.max())) if len(copies) else None,
        "caches": _cache_words(cells),
        "host_fed": not cells[cells["kernel"].isin(host_fed)].empty,
    }


_KINDS = {
    "back_to_back": "without waiting for the host, short ones several together",
    "isolated": "each alone on a device that was idle",
    "stream": "several, queued one by one",
    "graph": "several in one graph",
}


def _cache_words(cells: pd.DataFrame) -> str:
    """What the run's cache states mean, and its kinds of launch where it has several."""
    words = {
        "warm": "Warm launches follow each other on the same buffers",
        "flushed": "before each flushed launch the last cache level is filled with other data",
    }
    text = "; ".join(w for state, w in words.items() if state in set(cells["cache_state"]))
    kinds = [k for k in LAUNCH_KINDS if k in set(cells["launch_kind"])]
    said = "; ".join(f"{kind_words(k)}: {_KINDS[k]}" for k in kinds) if len(kinds) > 1 else ""
    return f"{text[:1].upper()}{text[1:]}." + (f" Launches came {said}." if said else "")


def _grouped(number: int) -> str:
    """``214 304``, with blanks that do not break."""
    return f"{number:,}".replace(",", "\u202f")
