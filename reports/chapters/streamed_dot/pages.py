"""The report's appendix on a dot product over several streams, as display strings."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pandas as pd
from gpushmoo.core.display import gbs, significant
from gpushmoo.report.pages import Measured, Page, figures_of
from gpushmoo.report.tables import Json

from . import analysis
from .analysis import DRAWN, STREAMED, Law, Resident
from .rivals import PRINTED

# What rounds of ways say, where none were run.
NO_ROUNDS: Json = {
    "rivalries": [],
    "sharings": [],
    "changes": {"columns": [], "rows": []},
    "today": {"columns": [], "rows": []},
    "betweens": {"columns": [], "rows": []},
    "copied": {},
}

TITLE = "Dot product of data on the host, over several streams"
INTRODUCTION = (
    "The document is the page “Dot product on the GPU: Blocked Multistream Version” of "
    "cowfreedom.de (author and year are not named; an unnamed NVIDIA GPU on PCI-Express 3.0 x16).",
    "It asks whether a GPU can compute the dot product of two arrays faster than the host's AVX "
    "code if both arrays have to be copied to the device first.",
    "The next pages compare its printed times and rates with the same computation on this "
    "machine, and this machine's device with its host.",
)


def page(measured: Measured) -> Page:
    """Host against device, parameters and what is on the device; nothing when none is streamed."""
    if STREAMED not in set(measured.cells["kernel"]):
        return Page(None)
    told = json.loads((measured.folder / "published/slips.json").read_text("utf-8"))
    facts = dots_page(measured.cells) | told
    drawn = measured.figures.items()
    timelines = [note["finding"] for name, note in drawn if name.startswith("timeline-")]
    none: Json = {"findings": []}
    rounds = next((note for name, note in drawn if name.startswith("rivals-")), none)
    figures = {
        "figures": figures_of(measured, "dot"),
        "rivals": figures_of(measured, "rivals"),
        "timelines": figures_of(measured, "timeline"),
        "errors": figures_of(measured, "errors"),
    }
    found = {key: rounds.get(key, value) for key, value in NO_ROUNDS.items()}
    findings = [*rounds["findings"], *facts["findings"], *timelines]
    return Page(facts | found | figures, findings, None, TITLE, INTRODUCTION, place=3)


def dots_page(cells: pd.DataFrame) -> Json:
    """What the sweeps alone say: the link's rate, and dot products of data on the device."""
    link = analysis.copied_gbs(cells)
    resident = analysis.residents(cells)
    return {
        "link": "an unknown rate" if link is None else gbs(link),
        "laws": [_law(law) for law in analysis.laws(cells)],
        "residents": [_resident(r) for r in resident],
        "findings": _resident_findings(resident),
        "printed": {name: f"{value:g}" for name, value in analysis.PRINTED_GBS.items()},
        "parameters": [str(value) for value in PRINTED.values() if value],
    }


def _law(law: Law) -> list[str]:
    return [
        "x·y" if law.kernel == STREAMED else "x·x",
        DRAWN[law.variant].removeprefix("ours, "),
        law.form,
        f"{significant(1e6 * law.stream_s)} µs",
        gbs(law.link_gbs),
        f"{significant(1e6 * law.constant_s)} µs",
        f"{law.median:.2f}",
        f"{law.worst:.2f}",
    ]


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
