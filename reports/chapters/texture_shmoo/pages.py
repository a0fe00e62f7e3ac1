"""The report's appendix on block shapes for textures and surfaces, as display strings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.peak import PeakRow, displayed_share
from gpushmoo.core.display import percent, significant
from gpushmoo.core.metric import BANDWIDTH, interval
from gpushmoo.core.schema import Status
from gpushmoo.report.pages import Measured, Page
from gpushmoo.report.tables import Json, Namer

PUBLISHED: Mapping[str, Any] = json.loads(
    (Path(__file__).parent / "published/textures.json").read_text("utf-8")
)
# The document's rule for surfaces: at least this number of threads, and whole warps.
ENOUGH_THREADS, WARP = PUBLISHED["rule"]["threads"], PUBLISHED["rule"]["multiple"]
# Shapes of a tied set that the table names; the whole set is in summary/best.parquet.
NAMED_SHAPES = 12
# Sides of a block that the document sweeps.
SIDES = range(4, 65)
SHAPE = ["block_x", "block_y"]
# Of more numbers of threads than this only the least and the most are named.
NAMED_THREADS = 6

TITLE = "Optimal block size for textures and surfaces"
INTRODUCTION = (
    f"The document is the section “{PUBLISHED['title']}” of Nicholas Wilt's book “The CUDA "
    "Handbook” (Addison-Wesley, 2013), measured on a GeForce GTX 280 and a Tesla M2050.",
    "It asks which block shapes, from 4 to 64 threads wide and high, read a texture and write a "
    "surface fastest.",
    "The next pages compare its fastest blocks and its rule with a sweep of all such shapes that "
    "this run contains.",
)


def page(measured: Measured) -> Page:
    """Published and measured values side by side."""
    facts = textures_page(measured.cells, measured.peak, PUBLISHED, measured.provenance)
    findings = [] if facts is None else [row["finding"] for row in facts["ours"]]
    return Page(facts, findings, None, TITLE, INTRODUCTION, place=2)


def textures_page(
    cells: pd.DataFrame,
    peak: Sequence[PeakRow],
    published: Mapping[str, Any],
    provenance: Sequence[Json],
) -> Json | None:
    """Return the page's facts; None if the run has no kernel of the document."""
    names = Namer(cells)
    grids = list(_images(cells, published["shmoos"], names))
    images = [(where, part) for where, found, _ in grids if len(part := covering(found))]
    if not images:
        return None
    stored = published["stored"]
    numbers = best_threads(published)
    return {
        "title": published["title"],
        "rule": [str(ENOUGH_THREADS), str(WARP)],
        "published": [
            {name: value for name, value in row.items() if name not in ("gbs", "seconds")}
            | {"bandwidth": f"{significant(row['gbs'])} GB/s"}
            for row in published["values"]
        ],
        "ours": [_image_row(where, cells_of, peak) for where, cells_of in images],
        "classes": [
            {"where": where} | row for where, cells_of in images for row in _class_rows(cells_of)
        ],
        "written": [
            {"stored": control["words"], **_written_row(sums, names)}
            for control in stored["controls"]
            for sums in written_sums(cells, stored["kernel"], control["suffix"]).to_dict("records")
        ],
        "grids": [
            {"where": where} | row
            for where, found, twin in grids
            for row in grid_rows(found, twin, numbers)
        ],
        "candidates": [
            {"threads": str(n), "shapes": ", ".join(f"{x}×{y}" for x, y in shapes_of(n))}
            for n in numbers
        ],
        "bounds": [
            {"where": where, "threads": str(n)} | bound
            for where, part in images
            for n in numbers
            if (bound := lost_bound(part, n)) is not None
        ],
        "machine_code": _machine_code_sentence(provenance, stored["kernel"]),
        "lost": list(published["lost"]),
        "slips": list(published["slips"]),
    }


def _verified(cells: pd.DataFrame, kernel: str) -> pd.DataFrame:
    ok = cells[(cells["kernel"] == kernel) & (cells["status"] == Status.OK)]
    return ok if set(SHAPE) <= set(ok.columns) else ok.iloc[:0]


def _waves(cells: pd.DataFrame) -> pd.Series:
    """Waves of resident blocks of each launch; 0 is a grid that covers the image once."""
    return cells["waves"].fillna(0).astype(int) if "waves" in cells else cells["block_x"] * 0


def covering(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells whose grid covers the image once, as those of the document do."""
    return cells[_waves(cells) == 0]


def best_threads(published: Mapping[str, Any]) -> list[int]:
    """The numbers of threads with which the document read textures fastest."""
    return sorted(int(v["threads"]) for v in published["values"] if v["threads"].isdigit())


def grid_rows(
    cells: pd.DataFrame, twin: pd.DataFrame, numbers: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """The best shape of each grid, by how many waves of resident blocks it has at most.

    Only of shapes that were measured in all of these grids; none where all grids cover the image.
    `twin` are cells of plain loads or stores in the same loop, `numbers` those of threads whose
    best shape is compared with the grid's best.
    """
    by_waves = {n: part.set_index(SHAPE) for n, part in cells.groupby(_waves(cells))}
    twins = {n: part.set_index(SHAPE) for n, part in twin.groupby(_waves(twin))}
    common = set.intersection(*(set(part.index) for part in by_waves.values()))
    for n, part in by_waves.items() if len(by_waves) > 1 and common else ():
        here = part[part.index.isin(common)]
        tied = tied_best(here)
        best = tied.iloc[0]
        speed = here["bandwidth_gbs"] / best["bandwidth_gbs"]
        shares = [speed[here["threads_per_block"] == threads].max() for threads in numbers]
        yield {
            "grid": "covers the image" if n == 0 else f"{n} wave{'s' * (n > 1)}",
            "bandwidth": interval(best.to_dict(), BANDWIDTH.unit),
            "shapes": f"{len(tied)} of {len(here)}",
            "threads": _threads([*tied.index]),
            "named": [percent(s, 3) if pd.notna(s) else "—" for s in shares],
            "covering": _over(here, by_waves.get(0)) if n else "—",
            "twin": _over(here, twins.get(n)),
        }


def _over(cells: pd.DataFrame, others: pd.DataFrame | None) -> str:
    """Time of each shape over that among `others`: the median, and 5 to 95 % of the shapes."""
    ratio = cells["median_s"] / (cells.iloc[:0] if others is None else others)["median_s"]
    if ratio.isna().all():
        return "—"
    low, median, high = (significant(ratio.quantile(q)) for q in (0.05, 0.5, 0.95))
    return f"{median} ({low} to {high})"


def shapes_of(threads: int) -> list[tuple[int, int]]:
    """Return the shapes (width, height) of `threads` threads within the document's SIDES."""
    return [(x, threads // x) for x in SIDES if threads % x == 0 and threads // x in SIDES]


def lost_bound(cells: pd.DataFrame, threads: int) -> Json | None:
    """Return the spread between the shapes of `threads` threads; None unless all were measured.

    The document's best is one of them.
    """
    of_shapes = cells.set_index(SHAPE)["bandwidth_gbs"].reindex(shapes_of(threads))
    if of_shapes.isna().any():
        return None
    best = cells["bandwidth_gbs"].max()
    x, y = of_shapes.idxmax()
    return {
        "best": f"{x}×{y}",
        "reach": percent(of_shapes.max() / best, 3),
        "apart": percent(1 - of_shapes.min() / of_shapes.max()),
    }


def _images(
    cells: pd.DataFrame, shmoos: Sequence[Mapping[str, str]], names: Namer
) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Name and verified cells of each image that was swept in the document's way, and of its twin.

    One for each device, size and cache state of each kernel, variant and dtype of `shmoos`.
    """
    for shmoo in shmoos:
        ok = _verified(cells, shmoo["kernel"])
        ok = ok[ok["dtype"] == shmoo["dtype"]]
        keys = ["device_name", "height", "width", "cache_state"]
        for _, group in ok.groupby(keys, sort=True, observed=True):
            mine, twin = (group[group["variant"] == shmoo[v]] for v in ("variant", "twin"))
            if len(mine):
                yield f"{shmoo['what']}, {names.size(group.iloc[0].to_dict())}", mine, twin


def _image_row(where: str, cells: pd.DataFrame, peak: Sequence[PeakRow]) -> Json:
    """The best shape of an image, those tied with it, and the slowest."""
    tied = tied_best(cells)
    best = tied.iloc[0].to_dict()
    shapes = [(int(x), int(y)) for x, y in zip(tied["block_x"], tied["block_y"], strict=True)]
    share = displayed_share(peak, best)
    side = "store" if best["bytes_written"] else "load"
    of_peak = ""
    if share is not None and share.share is None:
        of_peak = f", above the {side} peak,"
    elif share is not None:
        of_peak = f", {share.text} of the {side} peak,"
    threads = _threads(shapes)
    count = f"{len(tied)} of {len(cells)}"
    worst = percent(cells["bandwidth_gbs"].min() / best["bandwidth_gbs"])
    return {
        "where": where,
        "bandwidth": interval(best, BANDWIDTH.unit),
        "share": "—" if share is None else share.text,
        "threads": threads,
        "tied": count,
        "shapes": _shapes(shapes),
        "worst": worst,
        "finding": f"{where}, by the document's experiment: best {interval(best)}{of_peak} "
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
    enough = threads >= ENOUGH_THREADS
    whole = threads % WARP == 0
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


def written_sums(cells: pd.DataFrame, kernel: str, suffix: str) -> pd.DataFrame:
    """Time with sums stored (variants named with `suffix`) over time without.

    A row for each device, type, variant, size and cache state: the `shapes` measured in both ways,
    and of their ratios the 5th percentile `low`, the `median` and the 95th percentile `high`.
    """
    keys = ["kernel", "device_name", "dtype", "variant", "height", "width", "cache_state"]
    mine = covering(_verified(cells, kernel))[[*keys, *SHAPE, "median_s"]]
    stored = mine[mine["variant"].str.endswith(suffix)]
    stored = stored.assign(variant=stored["variant"].str.removesuffix(suffix))
    both = stored.merge(mine, on=[*keys, *SHAPE], suffixes=("_stored", "_plain"))
    both["ratio"] = both["median_s_stored"] / both["median_s_plain"]
    groups = both.groupby(keys, sort=True)["ratio"]
    ends = {name: groups.quantile(q) for name, q in (("low", 0.05), ("high", 0.95))}
    return groups.agg(shapes="size", median="median").assign(**ends).reset_index()


def _written_row(w: Any, names: Namer) -> Json:
    return {
        "where": f"{w['dtype']}, {w['variant']}, {names.size(w)}",
        "shapes": str(w["shapes"]),
        "ratio": significant(w["median"]),
        "range": f"{significant(w['low'])} to {significant(w['high'])}",
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
