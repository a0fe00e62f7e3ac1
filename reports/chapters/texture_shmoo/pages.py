"""The report's page on the second document, as display strings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.ceiling import CeilingRow, CeilingShare, told_share
from gpushmoo.core.display import bare_interval, interval, percent, significant
from gpushmoo.core.schema import Status
from gpushmoo.report.chapter_pages import Measured, Page
from gpushmoo.report.tables import Json, Namer

# The document's rule for surfaces: so many threads at least, and whole warps.
ENOUGH_THREADS, WARP = 128, 32


@dataclass(frozen=True)
class ThreadClass:
    """Shapes that the document's rule puts together, by their speed over that of the best shape."""

    words: str
    shapes: int
    worst: float
    median: float
    best: float


@dataclass(frozen=True)
class Shmoo:
    """One image swept over block shapes in the document's way.

    `best` is the fastest row of the dataset, `tied` the shapes (width, height) that cannot be told
    from it, the fastest first; `share` is that of the load or store peak, `worst` the slowest
    shape's speed over the best's.
    """

    what: str
    best: Mapping[str, Any]
    share: CeilingShare | None
    tied: tuple[tuple[int, int], ...]
    candidates: int
    worst: float
    classes: tuple[ThreadClass, ...]

    @property
    def threads(self) -> tuple[int, ...]:
        """Threads a block in the tied set, ascending."""
        return tuple(sorted({x * y for x, y in self.tied}))


@dataclass(frozen=True)
class WrittenSums:
    """Time with the sums stored over time without, over the shapes measured in both ways."""

    row: Mapping[str, Any]
    shapes: int
    low: float
    median: float
    high: float


def shmoos(
    cells: pd.DataFrame, wanted: Sequence[Mapping[str, str]], ceiling: Sequence[CeilingRow]
) -> list[Shmoo]:
    """One for each device, size and cache state of the `wanted` kernels, variants and dtypes."""
    rows = []
    for chosen in wanted:
        of_kernel = _of(cells, chosen["kernel"])
        of_kernel = of_kernel[
            (of_kernel["variant"] == chosen["variant"]) & (of_kernel["dtype"] == chosen["dtype"])
        ]
        keys = ["device_name", "height", "width", "cache_state"]
        for _, group in of_kernel.groupby(keys, sort=True, observed=True):
            rows.append(_shmoo(chosen["what"], group, ceiling))
    return rows


def _of(cells: pd.DataFrame, kernel: str) -> pd.DataFrame:
    ok = cells[(cells["kernel"] == kernel) & (cells["status"] == Status.OK)]
    return ok if {"block_x", "block_y"} <= set(ok.columns) else ok.iloc[:0]


def _shmoo(what: str, group: pd.DataFrame, ceiling: Sequence[CeilingRow]) -> Shmoo:
    tied = tied_best(group)
    best = tied.iloc[0].to_dict()
    speed = group["bandwidth_gbs"] / best["bandwidth_gbs"]
    return Shmoo(
        what=what,
        best=best,
        share=told_share(ceiling, best),
        tied=tuple((int(x), int(y)) for x, y in zip(tied["block_x"], tied["block_y"], strict=True)),
        candidates=len(group),
        worst=float(speed.min()),
        classes=tuple(_classes(group["threads_per_block"], speed)),
    )


def _classes(threads: pd.Series, speed: pd.Series) -> Iterator[ThreadClass]:
    enough, whole = threads >= ENOUGH_THREADS, threads % WARP == 0
    for words, chosen in (
        (f"at least {ENOUGH_THREADS} threads, whole warps", enough & whole),
        (f"at least {ENOUGH_THREADS} threads, last warp not full", enough & ~whole),
        (f"fewer than {ENOUGH_THREADS} threads", ~enough),
    ):
        part = speed[chosen]
        if len(part):
            yield ThreadClass(
                words, len(part), float(part.min()), float(part.median()), float(part.max())
            )


def written_sums(cells: pd.DataFrame, kernel: str, suffix: str) -> list[WrittenSums]:
    """The cost of storing sums: variants named with `suffix` against those named without."""
    mine = _of(cells, kernel)
    keys = ["device_name", "dtype", "variant", "height", "width", "cache_state"]
    costs = []
    for key, stored in mine[mine["variant"].str.endswith(suffix)].groupby(keys, sort=True):
        names = dict(zip(keys, key, strict=True))
        names["variant"] = names["variant"].removesuffix(suffix)
        plain = mine
        for name, value in names.items():
            plain = plain[plain[name] == value]
        shape = ["block_x", "block_y"]
        times = [rows[[*shape, "median_s"]] for rows in (stored, plain)]
        both = times[0].merge(times[1], on=shape, suffixes=("_stored", "_plain"))
        if both.empty:
            continue
        ratio = both["median_s_stored"] / both["median_s_plain"]
        low, median, high = (float(ratio.quantile(q)) for q in (0.05, 0.5, 0.95))
        costs.append(WrittenSums({"kernel": kernel, **names}, len(both), low, median, high))
    return costs


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
        Namer(measured.cells),
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
