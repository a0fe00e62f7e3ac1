"""How sure the report's figures are: between runs, within one, and how the cells ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ..analysis.statuses import MEANING
from ..analysis.steadiness import Steadiness
from ..core.display import percent
from ..core.schema import FAULTS, LIMITS, Status
from .tables import Json


def between_words(ok: pd.DataFrame) -> str | None:
    """Spread within and between repeats of the typical cell; None of a single repeat."""
    twice = ok[ok["between_spread"].notna()]
    if twice.empty:
        return None
    within, between = twice["within_half_width"].median(), twice["between_spread"]
    return (
        f"Typically the samples of a run know its own median to ± {percent(within)}, and repeats "
        f"differ by a standard deviation of {percent(between.median())} (95th percentile "
        f"{percent(between.quantile(0.95))})."
    )


def unmet_words(ok: pd.DataFrame, half: pd.Series, provenance: Sequence[Json]) -> str:
    """How many verified cells ended with an interval wider than their sweep had asked for.

    `half` is half of each interval as a share of the median. Empty where there is none.
    """
    widths = {
        (Path(p["params"]["folder"]).name, p["params"]["dtype"]): p["params"]["measure"][
            "relative_half_width"
        ]
        for p in provenance
    }
    targets = [widths[key] for key in zip(ok["kernel"], ok["dtype"], strict=True)]
    # What a cell stops at is narrower by rounding alone.
    wide = int((half > [w * (1 + 1e-9) for w in targets]).sum())
    if not wide:
        return ""
    return (
        f"{percent(wide / len(ok))} of the measured cells ({wide}) stopped at the most samples, or "
        "for want of time, before their interval was as narrow as asked."
    )


def steadiness_finding(run: Steadiness) -> str:
    """Whether this run's figures may hold tomorrow, as the runtime's own copies tell."""
    if run.repeats == 1:
        word = "Measured once (repeats: 1): intervals cover this run only, not another one."
    else:
        word = (
            f"Measured {run.repeats} times in separate processes; intervals are those of another "
            "run on this machine."
        )
    if run.once:
        word += f" Measured once, so that intervals cover that run only: {', '.join(run.once)}."
    changes = [
        f"by {percent(typical)} (at most {percent(most)}) {when}"
        for pair, when in ((run.between, "between the repeats"), (run.within, "within one"))
        if pair
        for typical, most in [pair]
    ]
    if not changes:
        return word
    text = f"The runtime's own copies beside the cells changed {' and '.join(changes)}"
    if run.steady:
        return f"{word} The machine was steady: {text[0].lower()}{text[1:]}."
    return (
        f"{word} The machine was not steady: {text[0].lower()}{text[1:]}, in the typical case; "
        "compare figures of different sweeps as multiples of the copy beside them."
    )


def sureness_rows(cells: pd.DataFrame) -> list[Json]:
    """For each kernel how its cells ended, and how wide their intervals are.

    Half of an interval over its median, of the typical cell and of the 95th percentile; the
    relative standard deviation of repeats' medians of the typical cell.
    """
    rows = []
    for kernel, own in cells.groupby("kernel", sort=True, observed=True):
        ok = own[own["status"] == Status.OK]
        half = (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])
        limits = own["status"].isin([s.value for s in LIMITS]).sum()
        rows.append(
            {
                "kernel": kernel,
                "cells": str(len(own)),
                "ok": str(len(ok)),
                "limits": str(limits),
                "faults": str(own["status"].isin([s.value for s in FAULTS]).sum()),
                "half_median": _share(half.median()),
                "half_p95": _share(half.quantile(0.95)),
                "between": _share(ok["between_spread"].median()),
            }
        )
    return rows


def status_words(cells: pd.DataFrame) -> str:
    """How the cells that were not measured ended, and how many."""
    counts = cells["status"].value_counts()
    named = [s for s in Status if s is not Status.OK and s.value in counts.index]
    return "; ".join(f"{counts[s.value]} {s.value}: {MEANING[s]}" for s in named)


def _share(share: float) -> str:
    return "—" if pd.isna(share) else percent(share)
