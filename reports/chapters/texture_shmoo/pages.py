"""The report's page on the second document, as display strings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.peak import PeakRow, told_share
from gpushmoo.core.display import bare_interval, interval, percent, significant
from gpushmoo.core.schema import Status
from gpushmoo.report.chapter_pages import Measured, Page
from gpushmoo.report.tables import Json, Namer

# The document's rule for surfaces: so many threads at least, and whole warps.
ENOUGH_THREADS, WARP = 128, 32
# Shapes of a tied set that the table names; the whole set is in summary/best.parquet.
NAMED_SHAPES = 12
# Of more numbers of threads than this only the least and the most are named.
NAMED_THREADS = 6


def page(measured: Measured) -> Page:
    """Published and measured values side by side."""
    file = measured.folder / "published" / "textures.json"
    published = json.loads(file.read_text(encoding="utf-8"))
    facts = textures_page(measured.cells, measured.peak, published, measured.provenance)
    return Page(facts, [] if facts is None else [row["finding"] for row in facts["ours"]])


def textures_page(
    cells: pd.DataFrame,
    peak: Sequence[PeakRow],
    published: Mapping[str, Any],
    provenance: Sequence[Json],
) -> Json | None:
    """The page's facts; None when the run holds none of the document's kernels."""
    names = Namer(cells)
    images = list(_images(cells, published["shmoos"], names))
    if not images:
        return None
    stored = published["stored"]
    return {
        "title": published["title"],
        "published": [
            {name: value for name, value in row.items() if name not in ("gbs", "seconds")}
            | {"bandwidth": significant(row["gbs"])}
            for row in published["values"]
        ],
        "ours": [_image_row(where, cells_of, peak) for where, cells_of in images],
        "classes": [
            {"where": where} | row for where, cells_of in images for row in _class_rows(cells_of)
        ],
        "written": [
            {"stored": control["words"], **_written_row(sums, names)}
            for control in stored["controls"]
            for sums in written_sums(cells, stored["kernel"], control["suffix"])
        ],
        "machine_code": _machine_code_sentence(provenance, stored["kernel"]),
        "lost": list(published["lost"]),
        "slips": list(published["slips"]),
    }


def _verified(cells: pd.DataFrame, kernel: str) -> pd.DataFrame:
    ok = cells[(cells["kernel"] == kernel) & (cells["status"] == Status.OK)]
    return ok if {"block_x", "block_y"} <= set(ok.columns) else ok.iloc[:0]


def _images(
    cells: pd.DataFrame, shmoos: Sequence[Mapping[str, str]], names: Namer
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and verified cells of each image that was swept in the document's way.

    One for each device, size and cache state of each kernel, variant and dtype of `shmoos`.
    """
    for shmoo in shmoos:
        ok = _verified(cells, shmoo["kernel"])
        ok = ok[(ok["variant"] == shmoo["variant"]) & (ok["dtype"] == shmoo["dtype"])]
        keys = ["device_name", "height", "width", "cache_state"]
        for _, group in ok.groupby(keys, sort=True, observed=True):
            yield f"{shmoo['what']}, {names.size(group.iloc[0].to_dict())}", group


def _image_row(where: str, cells: pd.DataFrame, peak: Sequence[PeakRow]) -> Json:
    """The best shape of an image, those tied with it, and the slowest."""
    tied = tied_best(cells)
    best = tied.iloc[0].to_dict()
    shapes = [(int(x), int(y)) for x, y in zip(tied["block_x"], tied["block_y"], strict=True)]
    share, side = told_share(peak, best), "store" if best["bytes_written"] else "load"
    of_peak = ""
    if share is not None and share.share is None:
        of_peak = f", above the {side} peak,"
    elif share is not None:
        of_peak = f", {share.text} of the {side} peak,"
    threads, count = _threads(shapes), f"{len(tied)} of {len(cells)}"
    worst = percent(cells["bandwidth_gbs"].min() / best["bandwidth_gbs"])
    return {
        "where": where,
        "bandwidth": bare_interval(best),
        "share": "—" if share is None else share.text,
        "threads": threads,
        "tied": count,
        "shapes": _shapes(shapes),
        "worst": worst,
        "finding": f"{where}, by the second document's experiment: best {interval(best)}{of_peak} "
        f"with {threads} threads a block ({count} shapes tied); the slowest shape reaches {worst} "
        "of it.",
    }


def _threads(shapes: Sequence[tuple[int, int]]) -> str:
    threads = sorted({x * y for x, y in shapes})
    if len(threads) <= NAMED_THREADS:
        return ", ".join(map(str, threads))
    return f"{threads[0]} to {threads[-1]}"


def _shapes(tied: Sequence[tuple[int, int]]) -> str:
    """The first shapes by their number of threads: ``256: 16×16, 8×32; 224: 16×14``."""
    shown = sorted(tied[:NAMED_SHAPES], key=lambda s: -s[0] * s[1])
    parts = [
        f"{threads}: {', '.join(f'{x}×{y}' for x, y in group)}"
        for threads, group in groupby(shown, key=lambda s: s[0] * s[1])
    ]
    more = len(tied) - NAMED_SHAPES
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def _class_rows(cells: pd.DataFrame) -> Iterator[Json]:
    """Speed of the shapes that the document's rule puts together, over that of the best shape."""
    threads = cells["threads_per_block"]
    speed = cells["bandwidth_gbs"] / cells["bandwidth_gbs"].max()
    enough, whole = threads >= ENOUGH_THREADS, threads % WARP == 0
    for words, chosen in (
        (f"at least {ENOUGH_THREADS} threads, whole warps", enough & whole),
        (f"at least {ENOUGH_THREADS} threads, last warp not full", enough & ~whole),
        (f"fewer than {ENOUGH_THREADS} threads", ~enough),
    ):
        part = speed[chosen]
        if len(part):
            yield {
                "words": words,
                "shapes": str(len(part)),
                "median": percent(part.median()),
                "range": f"{percent(part.min())} to {percent(part.max())}",
            }


@dataclass(frozen=True)
class WrittenSums:
    """Time with the sums stored over time without, over the shapes measured in both ways.

    `row` names kernel, device, dtype, variant, size and cache state; `low` and `high` are the 5th
    and 95th percentile.
    """

    row: Mapping[str, Any]
    shapes: int
    low: float
    median: float
    high: float


def written_sums(cells: pd.DataFrame, kernel: str, suffix: str) -> list[WrittenSums]:
    """The cost of storing sums: variants named with `suffix` against those named without."""
    shape, keys = ["block_x", "block_y"], ["device_name", "dtype", "variant", "height", "width"]
    keys = ["kernel", *keys, "cache_state"]
    mine = _verified(cells, kernel)[[*keys, *shape, "median_s"]]
    stored = mine[mine["variant"].str.endswith(suffix)]
    stored = stored.assign(variant=stored["variant"].str.removesuffix(suffix))
    both = stored.merge(mine, on=[*keys, *shape], suffixes=("_stored", "_plain"))
    both["ratio"] = both["median_s_stored"] / both["median_s_plain"]
    return [
        WrittenSums(
            dict(zip(keys, key, strict=True)),
            len(group),
            *(float(group["ratio"].quantile(q)) for q in (0.05, 0.5, 0.95)),
        )
        for key, group in both.groupby(keys, sort=True)
    ]


def _written_row(w: WrittenSums, names: Namer) -> Json:
    return {
        "where": f"{w.row['dtype']}, {w.row['variant']}, {names.size(w.row)}",
        "shapes": str(w.shapes),
        "ratio": significant(w.median),
        "range": f"{significant(w.low)} to {significant(w.high)}",
    }


def _machine_code_sentence(provenance: Sequence[Json], kernel: str) -> str:
    """The finding of the check of `kernel`'s fetches in the machine code, before timing."""
    checked = [
        p["machine_code"]
        for p in provenance
        if p["params"]["folder"].rsplit("/", 1)[-1] == kernel and p.get("machine_code")
    ]
    if not checked:
        return (
            "The machine code was not looked at, as only CUDA's can be: that the texels are read "
            "is shown by the stored sums alone."
        )
    variants = {
        v for code in checked for v, found in code["variants"].items() if found["failure"] is None
    }
    return (
        f"In the machine code ({', '.join(sorted({code['arch'] for code in checked}))}) of every "
        f"element type and all {len(variants)} variants the fetch stands inside the loop, and no "
        "test of the pointer comes before it. Code that fails this check is not measured."
    )
