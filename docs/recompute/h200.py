"""The recorded sweeps of an H200: peaks, gaps, cliffs, shapes, dot products, steadiness."""

import json
import math
from collections.abc import Iterable
from itertools import pairwise, product
from pathlib import PurePath
from statistics import median
from typing import Any

import pandas as pd
from gpushmoo.analysis.fastest import INSIDE, cache_ends, fastest, ratio
from gpushmoo.analysis.peak import cell_peak_gbs, share_of_peak
from gpushmoo.analysis.run_quality import steadiness
from gpushmoo.core.display import joined, length, percent, significant
from gpushmoo.core.median import MedianInterval
from gpushmoo.core.metric import BANDWIDTH, interval
from gpushmoo.core.schema import SAMPLE_COUNT
from gpushmoo.extras.studies.counters import COUNTERS_SCHEMA
from gpushmoo.storage.dataset import matching
from gpushmoo.storage.store import read_table
from streamed_dot import analysis as dot
from streamed_dot import verdicts
from streamed_dot.numerics import ERRORS_SCHEMA
from streamed_dot.rivals import RIVALS_SCHEMA
from streamed_dot.timeline import overlap, read_timeline, traces_of
from tesla_c1060 import checks
from texture_shmoo.pages import ENOUGH_THREADS, WARP, covering, textures_page

from .record import REFERENCE, Record
from .words import Claims, ratio_words, scientific, shape, signed, span, whole, whole_percent

STUDIES = REFERENCE / "nvidia-h200-studies"
TYPES = ("float", "double", "float3", "float4")
FAR = 16384
LONGEST = 2**27
TEXTURE, SURFACE = "tex2d_sum", "surf2d_memset"
SHMOOS = json.loads(
    (REFERENCE.parent / "chapters/texture_shmoo/published/textures.json").read_text("utf-8")
)
OBVIOUS = {TEXTURE: "block-point-clamp", SURFACE: "block-one"}


def values(record: Record, documents: Record, claims: Claims) -> dict[str, Any]:
    """What h200.md says, by the section that says it."""
    return {
        "recorded": recorded(record, claims),
        "peak": peak(record, claims),
        "tile": tile(record, documents, claims),
        "cliff": cliff(record, claims),
        "shapes": shapes(record, documents, claims),
        "textures": textures(record, claims)
        | second_document(record, documents)
        | {"persist": persistent([documents], claims)},
        "dots": dots(record, claims),
        "started": started(documents, claims),
        "besides": besides(documents, claims),
        "trust": trust(record, claims),
    }


def recorded(record: Record, claims: Claims) -> dict[str, Any]:
    """What was recorded, when and on what."""
    cells, ok, shards = record.cells, record.ok, record.provenance
    device = shards[0]["device"]
    (protocol,) = {shard["protocol_version"] for shard in shards}
    sweeps = [shard for shard in shards if not _is_later(_kernel_of(shard))]
    later = [shard for shard in shards if _is_later(_kernel_of(shard))]
    first, other = ({shard["device"]["uuid"] for shard in part} for part in (sweeps, later))
    claims.hold("The dot products are of another device.", first.isdisjoint(other))
    n_later = int(cells["kernel"].map(_is_later).sum())
    raced = ok["repeat_medians_s"].map(len) == 1
    return {
        "cells": whole(len(cells)),
        "protocol": protocol,
        "sweeps": when_and_where(sweeps) | {"cells": whole(len(cells) - n_later)},
        "later": when_and_where(later) | {"cells": whole(n_later)},
        "raced": whole(int(raced.sum())),
        "ok": whole(len(ok)),
        "too_large": whole(int((cells["status"] == "too_many_threads").sum())),
        "others": whole(int((~cells["status"].isin(["ok", "too_many_threads"])).sum())),
        "samples": whole(int(ok[SAMPLE_COUNT].sum())),
        "runtime": device["runtime"],
        "multiprocessors": device["multiprocessors"],
        "l2_mib": f"{device['cache'] / 2**20:.0f}",
    }


def _kernel_of(shard: dict[str, Any]) -> str:
    return PurePath(shard["params"]["folder"]).name


def _is_later(kernel: str) -> bool:
    """Whether a kernel was recorded after the sweeps, on another device."""
    return kernel.startswith("dot_") or kernel == "copy2d_document"


def when_and_where(shards: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The days and the devices of shards."""
    times, devices = set(), set()
    for shard in shards:
        times.add(f"{pd.Timestamp(shard['written_at']):%Y-%m-%d}")
        devices.add(shard["device"]["uuid"])
    return {
        "days": joined(sorted(times)),
        "devices": "one NVIDIA H200" if len(devices) == 1 else f"{len(devices)} NVIDIA H200s",
    }


def peak(record: Record, claims: Claims) -> dict[str, Any]:
    """The fastest loads, stores and copies, and where the L2 cache ends."""
    place = {"dtype": "float4", "width": FAR}
    far = {s: record.best("global_copy", **place, cache_state=s) for s in ("warm", "flushed")}
    claims.hold(
        "The best copy is at least as fast as the runtime's own at 4 GiB.",
        all(c["bandwidth_high_gbs"] >= c["memcpy_gbs"] for c in far.values()),
    )
    load = {
        state: fastest(
            record.of("global_load", cache_state=state, dtype="float4"), ["working_set_over_cache"]
        ).set_index("working_set_over_cache")["bandwidth_gbs"]
        for state in ("warm", "flushed")
    }
    gain = (load["warm"] / load["flushed"] - 1)[load["warm"].index >= 1]
    ends = [e.multiples for e in cache_ends(record.of("global_load")) if e.multiples]
    claims.hold("Warm bandwidth falls before L2's nominal size.", all(e[0] < 1 for e in ends), ends)
    claims.hold("A warm load is faster far beyond L2's size.", gain[gain.index >= 4].iloc[0] > 0.02)
    top = cell_peak_gbs(record.peak, far["warm"]) or math.nan
    return {
        "rows": [
            _peak_row(record, "outside L2 (float4, 4 GiB an array), warm", "warm", False),
            _peak_row(record, "the same, L2 flushed before each launch", "flushed", False),
            _peak_row(record, "best size inside L2, warm", "warm", True),
            _peak_row(record, "the same, flushed", "flushed", True),
        ],
        "of_peak": whole_percent(far["warm"]["bandwidth_gbs"] / top),
        "ends": span(e for pair in ends for e in pair),
        "kept": joined(f"{100 * gain[k]:.0f} % at {k:.2f}" for k in gain.index[[0, 5, -2]]),
    }


def _peak_row(record: Record, words: str, state: str, inside: bool) -> list[str]:
    found = []
    for kernel in ("global_load", "global_store", "global_copy"):
        cells = record.of(kernel, cache_state=state)
        chosen = (
            cells["working_set_over_cache"] <= INSIDE
            if inside
            else (cells["width"] == FAR) & (cells["dtype"] == "float4")
        )
        found.append(cells.loc[cells["bandwidth_gbs"].where(chosen).idxmax()])
    return [
        words,
        *(interval(c, BANDWIDTH.unit) for c in found),
        "" if inside else significant(found[-1]["memcpy_gbs"]),
    ]


def tile(record: Record, documents: Record, claims: Claims) -> dict[str, Any]:
    """The first document's tile copy, as published and with pointers that may not overlap."""
    cells = {
        (v, d): record.best("copy2d_document", variant=v, dtype=d, block_rows=8)
        for v in ("published", "distinct")
        for d in TYPES
    }
    speed = {key: float(cell["bandwidth_gbs"]) for key, cell in cells.items()}
    gap = {v: ratio(cells[v, "double"], cells[v, "float"]) for v in ("published", "distinct")}
    warm = documents.of("copy2d_document", cache_state="warm", block_rows=8)
    warm = warm[warm["width"].isin((256, 512))]
    small = warm.pivot_table("bandwidth_gbs", "width", "dtype", observed=True)
    over = small[["double", "float3"]].div(small["float"], axis=0)

    claims.hold(
        "The gap nearly closes with distinct pointers.",
        gap["distinct"].value - 1 < 0.2 * (gap["published"].value - 1),
    )
    claims.hold(
        "As published float3 is ahead of float, with distinct pointers behind it.",
        speed["published", "float3"] > speed["published", "float"]
        and speed["distinct", "float3"] < speed["distinct", "float"],
    )
    return {
        "rows": [
            [words, *(interval(cells[v, d], BANDWIDTH.unit) for d in TYPES), ratio_words(gap[v])]
            for v, words in (("published", "as published"), ("distinct", "pointers distinct"))
        ],
        "gain": whole_percent(speed["distinct", "float"] / speed["published", "float"] - 1),
        "of_runtime": whole_percent(
            speed["distinct", "float"] / cells["distinct", "float"]["memcpy_gbs"]
        ),
        "gap": f"{gap['published'].value:.2f}",
        "small": {d: joined(f"{ratio:.2f}" for ratio in over[d]) for d in over},
        "float3_behind": percent(
            1 - speed["published", "float3"] / max(speed["published", d] for d in TYPES)
        ),
    }


def cliff(record: Record, claims: Claims) -> dict[str, Any]:
    """Persistent blocks: the step past the last resident block."""
    cells = record.of("block_eq_partition", variant="exact", width=8192, cache_state="warm")
    first = cells.iloc[0]
    multiprocessors = int(first["multiprocessors"])
    capacity = multiprocessors * int(first["resident_blocks"])
    by = {(r["dtype"], int(r["num_partition"])): r for _, r in cells.iterrows()}
    lost = {d: ratio(by[d, capacity + 1], by[d, capacity]) for d in TYPES}
    claims.hold(
        "One block too many costs every type bandwidth, wider types less.",
        all(a.value < b.value < 1 for a, b in pairwise(lost.values())),
    )
    speed = {key: float(cell["bandwidth_gbs"]) for key, cell in by.items()}
    short = max(1 - speed[d, 2 * n] / (2 * speed[d, n]) for d in TYPES for n in (1, 2, 4))
    claims.hold("The doubling law holds up to 8 blocks.", short < 0.05, short)
    wanted = [capacity, capacity + 1, 2 * capacity, 2 * capacity + 1]
    rows = [[str(n), *(interval(by[d, n], BANDWIDTH.unit) for d in TYPES)] for n in wanted]
    loss = [
        f"{100 * (1 - r.value):.1f} % ({100 * (1 - r.high):.1f} to {100 * (1 - r.low):.1f})"
        for r in lost.values()
    ]
    return {
        "law": _law(speed, capacity, claims),
        "capacity": capacity,
        "next": capacity + 1,
        "multiprocessors": multiprocessors,
        "rows": [*rows[:2], [f"lost from {capacity} to {capacity + 1}", *loss], *rows[2:]],
        "doubling": percent(short),
    }


def _law(speed: dict[tuple[str, int], float], capacity: int, claims: Claims) -> dict[str, str]:
    """The document's double / float = 1 + X / (X + 2Y): X and Y give float4, too, which is a test.

    Time is X for every type and Y for each 4 bytes. In units of float's time X + Y = 1.
    """
    blocks = sorted({n for _, n in speed})
    gain = {n: speed["double", n] / speed["float", n] for n in blocks}
    # Double's time X + 2Y is 2 / gain.
    x = {n: 2 - 2 / gain[n] for n in blocks}
    ahead = {n: 4 / (4 - 3 * x[n]) * speed["float", n] / speed["float4", n] - 1 for n in blocks}
    claims.hold("X and Y are above zero.", all(1 < ratio < 2 for ratio in gain.values()))
    claims.hold("The law promises float4 too much.", min(ahead.values()) > 0)
    return {"one": f"{gain[1]:.2f}", "full": f"{gain[capacity]:.2f}"}


def shapes(record: Record, documents: Record, claims: Claims) -> dict[str, Any]:
    """Which block shapes of the element copy are tied for best."""
    kernel = "copy2d_coalesced"
    where = {"width": 8192, "cache_state": "warm"}
    cells = {d: record.of(kernel, dtype=d, **where) for d in TYPES}
    top = {d: float(c["bandwidth_gbs"].max()) for d, c in cells.items()}
    slow = {d: c.loc[c["bandwidth_gbs"].idxmin()] for d, c in cells.items()}
    claims.hold("The slowest shape is 4 × 4.", all(shape(c) == "4 × 4" for c in slow.values()))
    usual = {
        d: c[(c["block_x"] == 32) & (c["block_y"] == 8)].iloc[0]["bandwidth_gbs"] / top[d]
        for d, c in cells.items()
    }
    return {
        "candidates": whole(len(cells["float"])),
        "all": whole(len(documents.of(TEXTURE, variant=OBVIOUS[TEXTURE], width=4096, waves=0))),
        "rows": [
            [
                f"{n}², {s}",
                *(_tied(record.tied(kernel, dtype=d, width=n, cache_state=s)) for d in TYPES),
            ]
            for n, s in ((8192, "warm"), (1024, "warm"), (1024, "flushed"))
        ],
        "usual": span((100 * (1 - share) for share in usual.values()), " %"),
        "slowest": span((100 * c["bandwidth_gbs"] / top[d] for d, c in slow.items()), " %"),
        "float3_behind": percent(1 - top["float3"] / max(top.values())),
    }


def _tied(tied: pd.DataFrame, named: int = 2) -> str:
    """``32 × 5 and 32 × 6: 3852 (3834 to 3871)``."""
    names = joined(shape(row) for _, row in tied.iterrows()) if len(tied) <= named else ""
    return f"{names or f'{len(tied)} shapes'}: {interval(tied.iloc[0], BANDWIDTH.unit)}"


def textures(record: Record, claims: Claims) -> dict[str, Any]:
    """The second document's experiment: textures and surfaces over block shapes."""
    rows, ties = [], []
    kinds = ((TEXTURE, "texture read", "load"), (SURFACE, "surface memset", "store"))
    for (kernel, what, kind), size in product(kinds, (4096, FAR)):
        where = {"dtype": "float", "variant": OBVIOUS[kernel], "width": size}
        cells, tied = record.of(kernel, **where), record.tied(kernel, **where)
        top = tied.iloc[0]
        threads = tied["threads_per_block"]
        slow = cells.loc[cells["bandwidth_gbs"].idxmin()]
        ends = " to ".join(dict.fromkeys((str(threads.min()), str(threads.max()))))
        share = share_of_peak(record.peak, top) or float("nan")
        ties.append(len(tied))
        apart = slow["bandwidth_high_gbs"] < top["bandwidth_low_gbs"]
        claims.hold("The slowest shape's interval is below the best's.", apart, what)
        rows.append(
            [
                f"{what}, {size}²",
                interval(top, BANDWIDTH.unit),
                f"{whole_percent(share)} of {kind}",
                f"{len(tied)} of {ends} threads",
                f"{shape(slow)}, {percent(slow['bandwidth_gbs'] / top['bandwidth_gbs'])}",
            ]
        )
    more = all(surface > texture for texture, surface in zip(ties[:2], ties[2:], strict=True))
    claims.hold("More shapes are tied for surfaces than for textures.", more, ties)
    return {"rows": rows, **_surface_rule(record, claims), **_mappings(record)}


def second_document(*records: Record) -> dict[str, Any]:
    """The tables of the report's page: all shapes of the best numbers of threads, and grids."""
    pages = [textures_page(r.ok, r.peak, SHMOOS, r.provenance) or {} for r in records]
    reach: dict[tuple[str, str], list[float]] = {}
    for bound in pages[0]["bounds"]:
        kind = (bound["where"].partition(",")[0], bound["threads"])
        reach.setdefault(kind, []).append(float(bound["reach"].split()[0]))
    first = ("where", "grid", "bandwidth")
    return {
        "candidates": pages[0]["candidates"],
        "bounds": joined(f"{span(of, ' %')} ({what}, {n})" for (what, n), of in reach.items()),
        "grids": [
            [*(g[n] for n in first), *g["named"], g["covering"], g["twin"]]
            for page in pages
            for g in page.get("grids", ())
            if g["grid"] in ("covers the image", "1 wave") and "16384" in g["where"]
        ],
    }


def persistent(records: Iterable[Record], claims: Claims) -> dict[str, Any]:
    """What persistent blocks gain, best against best, and the shapes of 128 and 192 threads."""
    gains: dict[str, list[float]] = {TEXTURE: [], SURFACE: []}
    of_best, apart = [], []
    for record, kernel in product(records, gains):
        ok = record.of(kernel)
        timed = ok[ok["variant"].isin(("block-point-clamp", "block-one"))]
        for _, part in timed.groupby("width") if "waves" in timed else ():
            grids = part[part["waves"] > 0]
            covers = covering(part)["bandwidth_gbs"].max()
            if len(grids):
                gains[kernel].append(float(grids["bandwidth_gbs"].max() / covers))
            for _, grid in grids.groupby("waves") if kernel == TEXTURE else ():
                threads = grid.groupby("threads_per_block")["bandwidth_gbs"]
                of_best += [threads.max()[n] / threads.max().max() for n in (128, 192)]
                apart.append(100 * float(1 - threads.min()[128] / threads.max()[128]))
    claims.hold("128 and 192 threads are within a tenth of the best.", min(of_best) > 0.9, of_best)
    texture, surface = (span(found) for found in gains.values())
    return {"texture": texture, "surface": surface, "apart": span(apart, " %")}


def _surface_rule(record: Record, claims: Claims) -> dict[str, str]:
    """The document's rule for surfaces: at least 128 threads, and a multiple of 32."""
    parts: dict[str, list[float]] = {}
    for size in (4096, FAR):
        cells = record.of(SURFACE, dtype="float", variant=OBVIOUS[SURFACE], width=size)
        speed = 100 * cells["bandwidth_gbs"] / cells["bandwidth_gbs"].max()
        enough = cells["threads_per_block"] >= ENOUGH_THREADS
        warps = cells["threads_per_block"] % WARP == 0
        masks = {"small": ~enough, "kept": enough & warps, "broken": enough & ~warps}
        for name, mask in masks.items():
            parts.setdefault(name, []).extend(speed[mask].agg(["min", "max"]))
    claims.hold("Fewer than 128 threads are slower by half.", max(parts["small"]) < 50)
    claims.hold("A multiple of 32 threads is not needed.", max(parts["broken"]) > 95)
    return {
        "small": span(parts["small"], " %"),
        "kept_slowest": f"{min(parts['kept']):.0f} %",
        "broken_best": f"{max(parts['broken']):.0f} %",
    }


def _mappings(record: Record) -> dict[str, str]:
    """What a row mapping costs."""
    lost: dict[str, list[float]] = {}
    rows = {TEXTURE: "row-point-clamp", SURFACE: "row-one"}
    for kernel, size in product(rows, (4096, FAR)):
        cells = record.of(kernel, width=size)
        best = cells.groupby(["dtype", "variant"], observed=True)["bandwidth_gbs"].max()
        for dtype in sorted(set(cells["dtype"])):
            share = 100 * (1 - best[dtype, rows[kernel]] / best[dtype, OBVIOUS[kernel]])
            name = f"{kernel} {'wide' if dtype == 'float4' else 'narrow'}"
            lost.setdefault(name, []).append(share)
    return {
        "lost_texture": span(lost[f"{TEXTURE} narrow"], " %"),
        "lost_texture_wide": span(lost[f"{TEXTURE} wide"], " %"),
        "lost_surface": span(lost[f"{SURFACE} narrow"], " %"),
        "lost_surface_wide": span(lost[f"{SURFACE} wide"], " %"),
    }


def dots(record: Record, claims: Claims) -> dict[str, Any]:
    """The third document: dot products of host data against the host itself, and on the device."""
    cells = record.ok[record.ok["kernel"].isin(dot.DOTS)]
    best = dot.fastest(cells, host_percent=0)
    host = matching(best, {"kernel": dot.HOST, "width": LONGEST})
    speed = host.set_index(["dtype", "variant"])["bandwidth_gbs"]
    claims.hold(
        "BLAS takes one core for floats and many for doubles.",
        speed["float", "blas-all"] < 1.5 * speed["float", "blas-one"]
        and speed["double", "blas-all"] > 3 * speed["double", "blas-one"],
    )
    streamed = record.of(dot.STREAMED, variant="pinned-pooled", width=LONGEST, host_percent=0)
    of_link = [
        100 * float(part["bandwidth_gbs"].max() / copy)
        for (_, copy), part in streamed.groupby(["dtype", "memcpy_gbs"], observed=True)
    ]
    resident = {(r.dtype, r.n): (r.gbs, r.library_gbs) for r in dot.residents(cells)}
    longest = max(n for _, n in resident)
    return {
        **_rivals(claims),
        "printed": _printed(claims),
        "blas": {d: f"{significant(speed[d, 'blas-all'])} GB/s" for d in ("float", "double")},
        "blocks": significant(float(speed["float", "blocks-all"])),
        "of_link": span(of_link, " %", 3),
        "resident": [
            [d, whole(n), *(significant(gbs or 0) for gbs in resident[d, n])]
            for d, n in product(("float", "double"), (2**20, longest))
        ],
        **_timeline(claims),
        **_errors(claims),
    }


def _printed(claims: Claims) -> dict[str, Any]:
    """Our variant over the document's own program, within one process: logarithms of the ratios."""
    text = (REFERENCE / "speed/nvidia-h100/printed.json").read_text(encoding="utf-8")
    read = json.loads(text)
    pairs: dict[tuple[str, str], list[Any]] = {}
    for group in read["compared"]:
        pairs.setdefault((group["way"], group["over"]), []).append(group)
    here = "program, this process"
    ours = pairs["ours", here]
    more, late = [], []
    for row in read["rows"]:
        ratio = median(row["ours"]) / median(row[here])
        if row["streams"] == 1 and row["n"] <= 2**16:
            more.append(1e6 * (median(row["ours"]) - median(row[here])))
        if row["n"] >= 2**25:
            late.append(abs(math.log(ratio)))
    return {
        "median": span(g["median_log"] for g in ours),
        "worst": span(g["worst_log"] for g in ours),
        "more": significant(median(more), 2),
        "late": f"{max(late):.2f}",
    }


def _rivals(claims: Claims) -> dict[str, Any]:
    """What rounds of one process say: who is faster, and what a parameter and a share are worth."""
    rows = read_table(STUDIES / "rivals.parquet", RIVALS_SCHEMA).to_pandas()
    found = verdicts.rivalries(rows)
    fastest_host = [r for r in found if r.against == verdicts.FASTEST]
    wins = [f"{r.way}, {r.operation} {r.dtype}, from n = {whole(r.n)}" for r in fastest_host if r.n]
    ways = list(dict.fromkeys(r.way for r in fastest_host))
    claims.hold(
        "As published, the longest arrays take longer than by the host's fastest way.",
        all(r.ratios[LONGEST].high < 1 for r in fastest_host if r.way == "as published"),
    )
    at_longest: dict[tuple[str, str], dict[str, MedianInterval]] = {}
    for r in fastest_host:
        at_longest.setdefault((r.operation, r.dtype), {})[r.way] = r.ratios[LONGEST]
    pays = []
    for way in ways:
        row = [way]
        for name in ("naive", "blas-one"):
            mine = [r for r in found if (r.way, r.against) == (way, name)]
            lengths = sorted(r.n or math.inf for r in mine)
            at = ["never" if math.isinf(n) else length(int(n)) for n in (lengths[0], lengths[-1])]
            row += [" to ".join(dict.fromkeys(at)), span(r.ratios[r.at].median for r in mine)]
        pays.append(row)
    one = {
        c.n: c.cost
        for c in verdicts.changes(rows)
        if (c.way, c.operation, c.dtype, c.change) == ("as published", "x·y", "double", "streams 1")
    }
    claims.hold("64 streams are too many at 2¹⁸ alone.", one[2**18].high < 1 < one[2**25].high)
    return {
        "rounds": rows["round"].nunique(),
        "fastest": [
            [f"{operation} {dtype}", *(f"{ratios[way].median:.2f}" for way in ways)]
            for (operation, dtype), ratios in at_longest.items()
        ],
        "ways": ways,
        "never": f"is {'significantly' if wins else 'never significantly'} faster"
        + (f" ({'; '.join(wins)})" if wins else ""),
        "pays": pays,
        **_shared(rows, claims),
        "one_stream": {"short": percent(one[2**18].median), "long": percent(one[2**25].median)},
        "copied": significant(next(iter(verdicts.copied(rows).values())).median),
    }


def _shared(rows: pd.DataFrame, claims: Claims) -> dict[str, str]:
    """What the host's share gains where it surely does, and where both have about as much."""
    found = [b for b in verdicts.betweens(rows) if b.host]
    some = [b for b in found if b.gain.low > 1]
    half = [b for b in found if b.host > 0.4]
    claims.hold("The host's share gains with little of it.", 0 < len(some) < len(found))
    claims.hold("It loses with about half of it.", all(b.gain.median < 1 for b in half))
    return {
        "gains": f"{span(b.gain.median for b in some)} (host's share {span(b.host for b in some)})",
        "loses": span(b.gain.median for b in half),
    }


def _timeline(claims: Claims) -> dict[str, str]:
    """How long the link is busy in each way to stream."""
    found = traces_of(read_timeline(STUDIES / "timeline.parquet")).values()
    busy = [100 * overlap(t.spans, t.total_s).busy_share for t in found]
    claims.hold("The link is busy for over 95 % of the time.", min(busy) > 95, busy)
    return {"busy": span(busy, " %", 3)}


def _errors(claims: Claims) -> dict[str, str]:
    """Largest errors at the longest uniform data, and whether every result keeps its bound."""
    table = read_table(STUDIES / "errors.parquet", ERRORS_SCHEMA).to_pandas()
    claims.hold("All results are within their own bound.", bool(table["agrees"].all()))
    uniform = table[(table["condition"] == table["condition"].min()) & (table["dtype"] == "float")]
    longest = uniform[uniform["n"] == uniform["n"].max()]
    error = longest.set_index("mode")["relative_error"].abs()
    return {
        "errors": str(len(table)),
        "errors_n": whole(int(longest["n"].iloc[0])),
        "error_of": joined(
            f"{scientific(error[m])} ({m})" for m in ("resident", "BLAS, all cores", "one loop")
        ),
    }


def started(record: Record, claims: Claims) -> dict[str, Any]:
    """What counters say of blocks of 128 and 192 threads that cover an image of 16384²."""
    counted = read_table(record.folder / "benchmarks/counters.parquet", COUNTERS_SCHEMA).to_pandas()
    covers = counted[counted["params"].str.endswith("waves=0")]
    rates = covers["blocks"] / covers["duration_ns"]
    # Blocks of plain accesses 4 wide use half of their sectors.
    slow = covers["variant"].str.endswith("plain") & covers["params"].str.contains("block_x=4 ")
    claims.hold("Blocks start at one rate.", rates[~slow].max() / rates[~slow].min() < 1.04)
    return {
        "launches": len(counted),
        "rate": span(rates[~slow], digits=3),
        "same": int((~slow).sum()),
        "covers": len(covers),
        "busy": significant(covers[~slow][["dram_percent", "l1_percent"]].to_numpy().max(), 2),
    }


def besides(record: Record, claims: Claims) -> dict[str, Any]:
    """What the documents describe and the full sweep leaves out."""
    tiles = record.of("block_tiles")
    shares = []
    narrow = []
    wide = []
    pitch = []
    for _, part in tiles.groupby(["dtype", "num_partition"], observed=True):
        best = part.groupby("row_bytes")["bandwidth_gbs"].max()
        shares.append(100 * float(best[256] / best.max()))
        narrow.append(100 * float(best.iloc[0] / best.max()))
        wide += list(100 * best[best.index > 256] / best.max())
        pads = part[part["row_bytes"] == 256]["bandwidth_gbs"]
        pitch.append(100 * float(pads.max() / pads.min() - 1))
    claims.hold("Rows of 256 bytes are as good as any.", min(shares) > 99, shares)
    index = json.loads((record.folder / "benchmarks/index.json").read_text(encoding="utf-8"))
    cycles = {
        variant: [i["index_cycles"] for i in index["index"] if i["variant"] == variant]
        for variant in ("exact", "reciprocal")
    }
    sums = [
        covering(record.of(TEXTURE, variant=f"block-point-clamp{suffix}", width=4096))[
            "median_s"
        ].min()
        * 1e6
        for suffix in ("", "-written", "-reduced")
    ]
    return {
        "cells": whole(len(record.ok)),
        "of_best": span(shares, " %", 3),
        "narrow": span(narrow, " %"),
        "wide": span(wide, " %", 3),
        "pitch": span(pitch, " %"),
        "published_cycles": checks.PUBLISHED["core cycles"]["index computation, measured"],
        "cycles": {variant: span(found, digits=3) for variant, found in cycles.items()},
        "sums": [f"{us:.1f} µs" for us in sums],
    }


def trust(record: Record, claims: Claims) -> dict[str, Any]:
    """Whether the record's word holds in another run and on another host, and how steady it was."""
    now = record.benchmark("replication")["h200"]["now"]
    hosts = record.benchmark("records")
    claims.hold(
        "Two runs agree as well as asked.",
        now["disjoint"] <= 0.02 and now["holding"] >= 0.8 and now["winner_tied"] >= 0.97,
    )
    host_fed = {_kernel_of(shard) for shard in record.provenance if shard.get("host_fed")}
    found = steadiness(record.provenance, host_fed).device
    claims.hold("The devices were steady while the record was made.", found.steady, found)
    assert found.between is not None
    readings = record.readings()
    return {
        "cells": whole(now["cells"]),
        "disjoint": percent(now["disjoint"]),
        "holding": whole_percent(now["holding"]),
        "winners": f"{now['winner_tied'] * 2 * now['groups']:.0f} of {2 * now['groups']}",
        "host_cells": whole(hosts["all"]["cells"]),
        "host_outside": whole_percent(1 - hosts["all"]["holding"]),
        "host_rows": [
            [name, whole(c["cells"]), percent(c["difference_median"]), signed(c["longer_median"])]
            for name, c in hosts["classes"].items()
        ],
        "steady": percent(found.between[0]),
        "steady_most": percent(found.between[1]),
        "copies": found.copies,
        "readings": whole(len(readings)),
        "clock": span(readings["sm_clock_mhz"], digits=4),
        "slowed": int((readings["reasons"].map(len) > 0).sum()),
    }
