"""The report's page on the third document, as display strings."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ..analysis.dots import (
    AXES,
    STREAMED,
    Crossover,
    Effect,
    Resident,
    Split,
    copied_gbs,
    crossovers,
    effects,
    residents,
    splits,
)
from ..display import gbs, percent, significant
from .tables import Json

# What a stream of data is held against, in the order of the columns: variants of dot_host; None is
# the fastest of them at each length.
AGAINST = ("naive", "blas-one", None)
# The variant that the headline speaks of.
HEADLINE = "pinned-pooled"


def dots_page(cells: pd.DataFrame, slips: Sequence[Json]) -> Json | None:
    """Crossover, split, effects and what is on the device; None when no dot product is streamed."""
    if STREAMED not in set(cells["kernel"]):
        return None
    copied = copied_gbs(cells)
    found = [c for against in AGAINST for c in crossovers(cells, against)]
    shared, here = splits(cells), residents(cells)
    return {
        "copied": "an unknown rate" if copied is None else gbs(copied),
        "crossovers": _crossovers(found),
        "splits": [_split(s) for s in shared],
        **_effects(effects(cells)),
        "residents": [_resident(r) for r in here],
        "findings": [
            *_crossover_findings(found),
            *(_split_finding(s) for s in shared if s.variant == HEADLINE),
            *_resident_findings(here),
        ],
        "slips": list(slips),
    }


def dots_findings(page: Json | None) -> list[str]:
    """The headline sentences of the page."""
    return [] if page is None else page["findings"]


def _crossovers(found: Sequence[Crossover]) -> list[Json]:
    """A row for each type and variant, a cell for each way on the host."""
    rows = dict.fromkeys((c.dtype, c.variant) for c in found)
    by_place = {(c.dtype, c.variant, c.against): c for c in found}
    return [
        {
            "dtype": dtype,
            "variant": variant,
            "against": [_pays(by_place.get((dtype, variant, against))) for against in AGAINST],
        }
        for dtype, variant in sorted(rows)
    ]


def _pays(c: Crossover | None) -> str:
    if c is None:
        return "not measured"
    pays = "never" if c.n is None else f"n ≥ {c.n}"
    return f"{pays}; {significant(c.ratio)} at {c.at}"


def _crossover_findings(found: Sequence[Crossover]) -> list[str]:
    """One for each type: against one core, and against the fastest way on the host."""
    said = []
    for dtype in dict.fromkeys(c.dtype for c in found):
        mine = {c.against: c for c in found if (c.dtype, c.variant) == (dtype, HEADLINE)}
        if None not in mine:
            continue
        best = mine[None]
        text = (
            f"Streamed dot product, {dtype}: the device pays {_from(best)} against the fastest way"
        )
        text += f" on the host, whose time is at most {significant(best.ratio)} times ours"
        if "blas-one" in mine:
            text += f"; against one core's BLAS {_from(mine['blas-one'])}"
        said.append(f"{text}.")
    return said


def _from(c: Crossover) -> str:
    return "at no length" if c.n is None else f"from n = {c.n} on"


def _split(s: Split) -> Json:
    return {
        "dtype": s.dtype,
        "variant": s.variant,
        "n": str(s.n),
        "predicted": f"{significant(s.predicted, 2)} %",
        "swept": f"{s.swept} %",
        "loss": percent(s.loss),
        "gain": significant(s.gain),
        "reached": percent(s.reached),
    }


def _split_finding(s: Split) -> str:
    where = f"Shared with the host, {s.dtype}, n = {s.n}"
    if s.swept in (0, 100):
        side = "device" if s.swept == 0 else "host"
        return f"{where}: no share that was swept is faster than the {side} alone."
    return (
        f"{where}: best with {s.swept} % on the host (the rates alone predict "
        f"{significant(s.predicted, 2)} %), {significant(s.gain)} times the faster side alone; "
        f"both at once reach {percent(s.reached)} of their rates added."
    )


def _effects(found: Sequence[Effect]) -> Json:
    """A row for each type, variant and length, a column for each parameter that was swept."""
    axes = [axis for axis in AXES if any(e.axis == axis for e in found)]
    by_place = {(e.dtype, e.variant, e.n, e.axis): e for e in found}
    rows = dict.fromkeys((e.dtype, e.variant, e.n) for e in found)
    swept = {axis: {v for e in found if e.axis == axis for v in e.values} for axis in axes}
    return {
        "swept": [f"{axis} ({', '.join(map(str, sorted(swept[axis])))})" for axis in axes],
        "axes": axes,
        "effects": [
            {
                "dtype": dtype,
                "variant": variant,
                "n": str(n),
                "cells": [_effect(by_place.get((dtype, variant, n, axis))) for axis in axes],
            }
            for dtype, variant, n in rows
        ],
    }


def _effect(e: Effect | None) -> str:
    if e is None:
        return ""
    return f"{e.best} (+{percent(e.factor - 1)}, +{percent(e.typical - 1)})"


def _resident(r: Resident) -> Json:
    return {
        "dtype": r.dtype,
        "n": str(r.n),
        "launch": f"{r.grid} × {r.threads}, {r.unroll} packs",
        "gbs": f"{gbs(r.gbs)} [{significant(r.low_gbs)}, {significant(r.high_gbs)}]",
        "library": "not measured" if r.library_gbs is None else gbs(r.library_gbs),
        "ratio": "" if r.library_gbs is None else significant(r.gbs / r.library_gbs),
    }


def _resident_findings(found: Sequence[Resident]) -> list[str]:
    """One for each type, at its longest arrays."""
    longest = {r.dtype: r for r in found}
    return [
        f"Dot product of data on the device, {r.dtype}, n = {r.n}: {gbs(r.gbs)}"
        + ("." if r.library_gbs is None else f", {significant(r.gbs / r.library_gbs)} x cuBLAS.")
        for r in longest.values()
    ]
