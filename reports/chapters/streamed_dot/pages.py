"""The report's page on the third document, as display strings."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pandas as pd
from gpushmoo.core.display import gbs, percent, significant
from gpushmoo.report.chapter_pages import Measured, Page, figures_of
from gpushmoo.report.tables import Json

from . import analysis
from .analysis import AXES, STREAMED, Crossover, Effect, Resident, Split

# What a stream of data is held against, in the order of the columns: variants of dot_host; None is
# the fastest of them at each length.
AGAINST = ("naive", "blas-one", None)
# The variant that the headline speaks of.
HEADLINE = "pinned-pooled"


def page(measured: Measured) -> Page:
    """Crossover, split, effects and what is on the device; nothing when none is streamed."""
    if STREAMED not in set(measured.cells["kernel"]):
        return Page(None)
    slips = (measured.folder / "published" / "slips.json").read_text(encoding="utf-8")
    facts = dots_page(measured.cells, json.loads(slips))
    drawn = measured.figures.items()
    timelines = [note["finding"] for name, note in drawn if name.startswith("timeline-")]
    figures = {
        "figures": figures_of(measured, "dot"),
        "timelines": figures_of(measured, "timeline"),
        "errors": figures_of(measured, "errors"),
    }
    return Page(facts | figures, [*facts["findings"], *timelines])


def dots_page(cells: pd.DataFrame, slips: Sequence[Json]) -> Json:
    """Crossover, split, effects and what is on the device."""
    copied = analysis.copied_gbs(cells)
    crossed = [c for against in AGAINST for c in analysis.crossovers(cells, against)]
    shared, resident = analysis.splits(cells), analysis.residents(cells)
    return {
        "copied": "an unknown rate" if copied is None else gbs(copied),
        "crossovers": _crossovers(crossed),
        "splits": [_split(s) for s in shared],
        **_effects(analysis.effects(cells)),
        "residents": [_resident(r) for r in resident],
        "findings": [
            *_crossover_findings(crossed),
            *(_split_finding(s) for s in shared if s.variant == HEADLINE),
            *_resident_findings(resident),
        ],
        "slips": list(slips),
    }


def _crossovers(crossed: Sequence[Crossover]) -> list[Json]:
    """A row for each type and variant, a cell for each way on the host."""
    rows = dict.fromkeys((c.dtype, c.variant) for c in crossed)
    by_place = {(c.dtype, c.variant, c.against): c for c in crossed}
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


def _crossover_findings(crossed: Sequence[Crossover]) -> list[str]:
    """One for each type: against one core, and against the fastest way on the host."""
    sentences = []
    for dtype in dict.fromkeys(c.dtype for c in crossed):
        by_rival = {c.against: c for c in crossed if (c.dtype, c.variant) == (dtype, HEADLINE)}
        if None not in by_rival:
            continue
        best = by_rival[None]
        text = (
            f"Streamed dot product, {dtype}: the device pays {_from(best)} against the fastest way"
        )
        text += f" on the host, whose time is at most {significant(best.ratio)} times ours"
        if "blas-one" in by_rival:
            text += f"; against one core's BLAS {_from(by_rival['blas-one'])}"
        sentences.append(f"{text}.")
    return sentences


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


def _effects(swept_effects: Sequence[Effect]) -> Json:
    """A row for each type, variant and length, a column for each parameter that was swept."""
    axes = [axis for axis in AXES if any(e.axis == axis for e in swept_effects)]
    by_place = {(e.dtype, e.variant, e.n, e.axis): e for e in swept_effects}
    rows = dict.fromkeys((e.dtype, e.variant, e.n) for e in swept_effects)
    swept = {axis: {v for e in swept_effects if e.axis == axis for v in e.values} for axis in axes}
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


def _resident_findings(resident: Sequence[Resident]) -> list[str]:
    """One for each type, at its longest arrays."""
    longest = {r.dtype: r for r in resident}
    return [
        f"Dot product of data on the device, {r.dtype}, n = {r.n}: {gbs(r.gbs)}"
        + ("." if r.library_gbs is None else f", {significant(r.gbs / r.library_gbs)} x cuBLAS.")
        for r in longest.values()
    ]
