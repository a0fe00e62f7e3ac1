"""The report's page on the third document, as display strings."""

from __future__ import annotations

import pandas as pd

from ..analysis.dots import STREAMED, Crossover, Effect, Split, crossovers, effects, splits
from ..display import gbs, percent, significant
from .tables import Json


def dots_page(cells: pd.DataFrame) -> Json | None:
    """Crossover, split and effects; None when the run streams no dot product."""
    if STREAMED not in set(cells["kernel"]):
        return None
    copied = cells.loc[cells["kernel"] == STREAMED, "copy_gbs"].dropna()
    return {
        "copied": gbs(float(copied.max())) if len(copied) else "an unknown rate",
        "crossovers": [_crossover(c) for c in crossovers(cells)],
        "splits": [_split(s) for s in splits(cells)],
        "effects": [_effect(e) for e in effects(cells)],
    }


def dots_findings(page: Json | None) -> list[str]:
    """The headline sentences of the page."""
    return [] if page is None else [c["finding"] for c in page["crossovers"]]


def _crossover(c: Crossover) -> Json:
    pays = "at no length" if c.n is None else f"from n = {c.n} on"
    ratio = f"{significant(c.ratio)} at n = {c.at}"
    return {
        "dtype": c.dtype,
        "variant": c.variant,
        "pays": pays,
        "ratio": ratio,
        "finding": f"Streamed dot product, {c.dtype}, {c.variant}: the device pays {pays} of those "
        f"swept; host time over streamed time is at most {ratio}.",
    }


def _split(s: Split) -> Json:
    return {
        "dtype": s.dtype,
        "variant": s.variant,
        "n": str(s.n),
        "predicted": f"{significant(s.predicted, 2)} %",
        "swept": f"{s.swept} %",
        "gain": significant(s.gain),
    }


def _effect(e: Effect) -> Json:
    return {
        "dtype": e.dtype,
        "variant": e.variant,
        "axis": e.axis,
        "values": ", ".join(map(str, e.values)),
        "best": str(e.best),
        "cost": percent(e.factor - 1),
    }
