"""The report's page on the second document, as display strings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd
from gpushmoo.analysis.ceiling import CeilingRow
from gpushmoo.core.display import bare_interval, interval, percent, significant
from gpushmoo.report.chapter_pages import Measured, Page
from gpushmoo.report.tables import Json, Namer, namer

from .analysis import Shmoo, WrittenSums, shmoos, written_sums

# Shapes of a tied set that the table names; the whole set is in summary/best.parquet.
NAMED_SHAPES = 12
# Of more numbers of threads than this only the least and the most are named.
NAMED_THREADS = 6


def page(measured: Measured) -> Page:
    """Published and ours side by side."""
    file = measured.folder / "published" / "textures.json"
    facts = textures_page(
        measured.cells,
        measured.ceiling,
        json.loads(file.read_text(encoding="utf-8")),
        measured.provenance,
        namer(measured.cells),
    )
    return Page(facts, [] if facts is None else [row["finding"] for row in facts["ours"]])


def textures_page(
    cells: pd.DataFrame,
    ceiling: Sequence[CeilingRow],
    published: Mapping[str, Any],
    provenance: Sequence[Json],
    names: Namer,
) -> Json | None:
    """Published and ours side by side; None when the run holds none of the document's kernels."""
    ours = shmoos(cells, published["shmoos"], ceiling)
    if not ours:
        return None
    stored = published["stored"]
    return {
        "title": published["title"],
        "published": [
            {
                "what": v["what"],
                "device": v["device"],
                "image": v["image"],
                "bandwidth": significant(v["gbs"]),
                "threads": v["threads"],
                "note": v["note"],
            }
            for v in published["values"]
        ],
        "ours": [_shmoo_row(s, names) for s in ours],
        "classes": [
            {
                "where": _where(s, names),
                "words": c.words,
                "shapes": str(c.shapes),
                "median": percent(c.median),
                "range": f"{percent(c.worst)} to {percent(c.best)}",
            }
            for s in ours
            for c in s.classes
        ],
        "written": [
            {"stored": control["words"], **_written_row(w, names)}
            for control in stored["controls"]
            for w in written_sums(cells, stored["kernel"], control["suffix"])
        ],
        "machine_code": _machine_code_sentence(provenance, stored["kernel"]),
        "lost": list(published["lost"]),
        "slips": list(published["slips"]),
    }


def _where(s: Shmoo, names: Namer) -> str:
    return f"{s.what}, {names.size(s.best)}"


def _shmoo_row(s: Shmoo, names: Namer) -> Json:
    tied = f"{len(s.tied)} of {s.candidates}"
    return {
        "where": _where(s, names),
        "bandwidth": bare_interval(s.best),
        "share": "—" if s.share is None else s.share.text,
        "threads": _threads(s),
        "tied": tied,
        "shapes": _shapes(s.tied),
        "worst": percent(s.worst),
        "finding": f"{_where(s, names)}, by the second document's experiment: best "
        f"{interval(s.best)}{_of_peak(s)} with {_threads(s)} threads a block ({tied} shapes tied); "
        f"the slowest shape reaches {percent(s.worst)} of it.",
    }


def _of_peak(s: Shmoo) -> str:
    if s.share is None:
        return ""
    peak = f"the {'store' if s.best['bytes_written'] else 'load'} peak"
    return f", above {peak}," if s.share.share is None else f", {s.share.text} of {peak},"


def _threads(s: Shmoo) -> str:
    if len(s.threads) <= NAMED_THREADS:
        return ", ".join(map(str, s.threads))
    return f"{s.threads[0]} to {s.threads[-1]}"


def _shapes(tied: Sequence[tuple[int, int]]) -> str:
    """The first shapes by their number of threads: ``256: 16×16, 8×32; 224: 16×14``."""
    shown = sorted(tied[:NAMED_SHAPES], key=lambda s: -s[0] * s[1])
    parts = [
        f"{threads}: {', '.join(f'{x}×{y}' for x, y in group)}"
        for threads, group in groupby(shown, key=lambda s: s[0] * s[1])
    ]
    more = len(tied) - NAMED_SHAPES
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def _written_row(w: WrittenSums, names: Namer) -> Json:
    return {
        "where": f"{w.row['dtype']}, {w.row['variant']}, {names.size(w.row)}",
        "shapes": str(w.shapes),
        "ratio": significant(w.median),
        "range": f"{significant(w.low)} to {significant(w.high)}",
    }


def _machine_code_sentence(provenance: Sequence[Json], kernel: str) -> str:
    """What was found about the fetches of `kernel` before they were timed."""
    checked = [
        p
        for p in provenance
        if p["params"]["folder"].rsplit("/", 1)[-1] == kernel and p.get("machine_code")
    ]
    if not checked:
        return (
            "The machine code was not looked at, as only CUDA's can be: that the texels are read "
            "is shown by the stored sums alone."
        )
    variants = {
        v
        for p in checked
        for v, code in p["machine_code"]["variants"].items()
        if code["failure"] is None
    }
    archs = sorted({p["machine_code"]["arch"] for p in checked})
    return (
        f"In the machine code ({', '.join(archs)}) of every element type and all {len(variants)} "
        "variants the fetch stands inside the loop, and no test of the pointer comes before it. "
        "Code that fails this check is not measured."
    )
