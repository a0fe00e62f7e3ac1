"""The third document: dot products of host data against the host itself, and on the device."""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd
from gpushmoo.core.display import significant
from gpushmoo.core.median import MedianInterval
from gpushmoo.storage.store import read_table
from streamed_dot import analysis as dots
from streamed_dot import verdicts
from streamed_dot.numerics import ERRORS_SCHEMA
from streamed_dot.rivals import ON_DEVICE, RIVALS_SCHEMA
from streamed_dot.timeline import overlap, read_timeline, traces_of

from .record import H200, Record
from .words import (
    Claims,
    gbs,
    joined,
    median_interval,
    percent,
    power,
    span,
    whole,
    whole_percent,
)

STUDIES = H200.with_name("nvidia-h200-studies")
DTYPES = ("float", "double")
LONGEST = 2**27
POOLED = "pinned-pooled"


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Tables and sentences of the page's section on dot products."""
    cells = record.ok[record.ok["kernel"].isin(dots.DOTS)]
    fed = {dots.HOST, dots.STREAMED, dots.SQUARE}
    of_fed = [p for p in record.provenance if p["params"]["folder"].split("/")[-1] in fed]
    compared = record.benchmark("dots")
    return {
        "cells": whole(len(cells)),
        "cores_of_hosts": joined(str(n) for n in sorted({p["host"]["cores"] for p in of_fed})),
        **_rounds(claims),
        **_printed(record),
        "pageable": _pageable(cells),
        **_link(cells, compared, claims),
        "cores": _cores(compared),
        "one_core": _blas(cells, claims),
        "timeline": _timeline(),
        **_resident(cells, compared, claims),
        **_errors(claims),
        "slowed": _slowed(cells),
    }


def _best(cells: pd.DataFrame) -> pd.DataFrame:
    return dots.fastest(cells, host_percent=0)


def _pageable(cells: pd.DataFrame) -> str:
    best = _best(cells)
    pageable = best[best["variant"].str.startswith("pageable") & (best["width"] >= 2**26)]
    return span(pageable["bandwidth_gbs"])


def _rounds(claims: Claims) -> dict[str, Any]:
    """What rounds of one process say: who is faster, and what a parameter and a share are worth."""
    rows = read_table(STUDIES / "rivals.parquet", RIVALS_SCHEMA).to_pandas()
    found = verdicts.rivalries(rows)
    against = {"naive": "a compiled loop", "blas-one": "one core's BLAS"}
    pays = [
        [
            r.operation,
            r.dtype,
            r.way,
            against[r.against],
            "never" if r.n is None else whole(r.n),
            _ratio(r.ratios[r.at]),
        ]
        for r in found
        if r.against in against
    ]
    fastest = [r for r in found if r.against == verdicts.FASTEST]
    claims.hold(
        "Against the host's fastest way the device never pays for certain.",
        all(r.n is None for r in fastest),
        [r for r in fastest if r.n is not None],
    )
    printed = [r for r in found if (r.way, r.against) == ("as published", "naive")]
    claims.hold(
        "The printed program beats one loop on long arrays.", all(r.n for r in printed), printed
    )
    alike = [b for b in verdicts.betweens(rows) if b.host > 0.4]
    claims.hold(
        "Where host and device have about as much, floats gain and doubles lose.",
        all(b.gain.low > 1 if b.dtype == "float" else b.gain.high < 1 for b in alike),
        alike,
    )
    longest = {(r.operation, r.dtype, r.way): r.ratios[LONGEST] for r in fastest}
    changed = {(c.way, c.operation, c.dtype, c.n, c.change): c for c in verdicts.changes(rows)}
    return {
        "rival_rounds": str(rows["round"].nunique()),
        "pays": pays,
        "printed_from": joined(f"{r.operation} {r.dtype} {whole(r.n or 0)}" for r in printed),
        "fastest": [
            [o, d, *(_ratio(longest[o, d, way]) for way in ON_DEVICE)]
            for o, d in dict.fromkeys((r.operation, r.dtype) for r in fastest)
        ],
        "changes": [
            [way, o, d, whole(n), f"`{change}`", _ratio(c.cost)]
            for (way, o, d, n, change), c in changed.items()
            if o == "x·y" and d == "double" and not c.cost.low <= 1 <= c.cost.high
        ],
        "sharing": [
            [s.operation, s.dtype, f"{s.predicted:.0f}", str(s.share), _ratio(s.gain)]
            for s in verdicts.sharings(rows)
        ],
        "between": [
            [b.operation, b.dtype, whole(b.n), whole_percent(b.host), _ratio(b.gain)]
            for b in verdicts.betweens(rows)
        ],
        "copied": {
            way.replace(" ", "_"): _ratio(rate) for way, rate in verdicts.copied(rows).items()
        },
    }


def _ratio(m: MedianInterval) -> str:
    return f"{significant(m.median)} ({significant(m.low)} to {significant(m.high)})"


def _printed(record: Record) -> dict[str, Any]:
    """Ours over the document's own program, in rounds of one run."""
    compared = record.benchmark("printed")
    keys = ("median", "least", "worst")
    return {
        "printed_rows": [
            [
                g["operation"],
                g["dtype"],
                str(g["streams"]),
                *(f"{g[key]:.2f}" for key in keys),
                whole(g["worst_n"]),
            ]
            for g in compared["ours over the program"]
        ],
        "printed_day": compared["written_at"][:10],
    }


def _link(cells: pd.DataFrame, compared: dict[str, Any], claims: Claims) -> dict[str, Any]:
    """Streamed without the host's help, beside copies of the same arrays in the same rounds."""
    streamed = cells[
        (cells["kernel"] == dots.STREAMED)
        & (cells["variant"] == POOLED)
        & (cells["width"] == LONGEST)
        & (cells["host_percent"] == 0)
    ]
    rows = []
    for dtype in DTYPES:
        for copy, part in streamed[streamed["dtype"] == dtype].groupby("copy_gbs"):
            top = float(part["bandwidth_gbs"].max())
            rows.append(f"{dtype} {gbs(top)} of {gbs(float(copy))}")
    device = compared["host fed"]["ratios"]["device over its link"]
    claims.hold("The link is all there is.", device["median"] > 0.97, device)
    return {
        "link_pairs": joined(rows),
        "link_rounds": median_interval(device),
        "rounds": str(len(compared["host fed"]["rounds_gbs"])),
    }


def _cores(compared: dict[str, Any]) -> dict[str, str]:
    """What cores and device read of the host's memory, each alone and both at once."""
    rounds = compared["host fed"]["rounds_gbs"]
    cores, device, both = (
        [r[f"read by {who}"] for r in rounds] for who in ("cores", "device", "both")
    )
    shares = [b / (c + d) for c, d, b in zip(cores, device, both, strict=True)]
    return {
        "cores": f"{gbs(statistics.median(cores))} ({gbs(min(cores))} to {gbs(max(cores))})",
        "device": f"{gbs(statistics.median(device))} ({gbs(min(device))} to {gbs(max(device))})",
        "both": f"{gbs(statistics.median(both))} ({gbs(min(both))} to {gbs(max(both))})",
        "share": f"{whole_percent(statistics.median(shares))} "
        f"({whole_percent(min(shares))} to {whole_percent(max(shares))})",
    }


def _blas(cells: pd.DataFrame, claims: Claims) -> dict[str, str]:
    """All cores' BLAS over one core's, at the longest arrays."""
    best = _best(cells)
    host = best[(best["kernel"] == dots.HOST) & (best["width"] == LONGEST)]
    speed = host.set_index(["dtype", "variant"])["bandwidth_gbs"]
    ratio = {d: speed[d, "blas-all"] / speed[d, "blas-one"] for d in DTYPES}
    claims.hold(
        "BLAS takes one core for floats and many for doubles.",
        ratio["float"] < 1.5 < 3 < ratio["double"],
        ratio,
    )
    return {
        **{
            d: f"{gbs(speed[d, 'blas-all'])} of all, {gbs(speed[d, 'blas-one'])} of one"
            for d in DTYPES
        },
        "blocks": gbs(float(speed["float", "blocks-all"])),
    }


def _slowed(cells: pd.DataFrame) -> str:
    """Cells of the host that take ten times as long as the same way on a longer array."""
    best = _best(cells)
    host = best[best["kernel"] == dots.HOST]
    slow = []
    for (dtype, variant), part in host.groupby(["dtype", "variant"], observed=True):
        times = part.sort_values("width").set_index("width")["median_s"]
        longer = times[::-1].cummin()[::-1]
        slow += [f"`{variant}` {dtype} {whole(n)}" for n in times.index[times > 10 * longer]]
    if not slow:
        return "No cell of the host takes ten times as long as a longer array of the same kind."
    return (
        "Not as good as it should be: these cells of the host take more than ten times as long as "
        f"a longer array of the same kind, {joined(slow)}. Threads of a BLAS that spin on from the "
        "cell before can do that; a pause before each such cell is to prevent it."
    )


def _timeline() -> list[list[str]]:
    """What each recorded time line hides, how busy its link is, and how long it took."""
    rows = []
    for case, trace in traces_of(read_timeline(STUDIES / "timeline.parquet")).items():
        found = overlap(trace.spans, trace.total_s)
        first = min(s.begin_s for s in trace.spans)
        rows.append(
            [
                case,
                percent(found.hidden_share, 3) if found.hidden_s else "nothing",
                percent(found.busy_share, 3),
                f"{1e3 * first:.2f}",
                f"{1e3 * trace.total_s:.1f}",
                f"{1e3 * trace.untraced_s:.1f}",
            ]
        )
    return rows


def _resident(cells: pd.DataFrame, compared: dict[str, Any], claims: Claims) -> dict[str, Any]:
    """The table of seven rounds on the device, and the record's short and long arrays."""
    names = (
        "ours",
        "babelstream-5.0",
        "babelstream-57637d5",
        "ours, by events",
        "cublas, by events",
        "cupy.dot, by events",
    )
    rows, over = [], []
    for dtype in ("double", "float"):
        rounds = compared[dtype]["rounds_gbs"]
        rows.append([dtype, *(gbs(statistics.median(r[n] for r in rounds)) for n in names)])
        ratios = compared[dtype]["ours over"]
        rows.append(
            [
                "ours over it",
                *("" if n not in ratios else median_interval(ratios[n]) for n in names),
            ]
        )
        over.append(ratios["cublas, by events"]["median"])
    by_n = {(r.dtype, r.n): r for r in dots.residents(cells)}
    short = {d: by_n[d, 2**20] for d in DTYPES}
    longest = max(n for _, n in by_n)
    claims.hold(
        "The library is slower than ours on long arrays, by less than 5 %.",
        all(1 < o < 1.05 for o in over),
        over,
    )
    return {
        "resident": rows,
        "resident_rounds": str(len(compared["double"]["rounds_gbs"])),
        "short": {d: f"{gbs(r.gbs)} against {gbs(r.library_gbs or 0)}" for d, r in short.items()},
        "long": {
            d: f"{gbs(by_n[d, longest].gbs)} against {gbs(by_n[d, longest].library_gbs or 0)}"
            for d in DTYPES
        },
        "launches_tried": str(
            len(
                cells[
                    (cells["kernel"] == dots.RESIDENT)
                    & (cells["width"] == longest)
                    & (cells["dtype"] == "double")
                ]
            )
        ),
    }


def _errors(claims: Claims) -> dict[str, Any]:
    """Largest errors at the longest uniform data, and whether every result keeps its bound."""
    table = read_table(STUDIES / "errors.parquet", ERRORS_SCHEMA).to_pandas()
    claims.hold(
        "All results are within the bound of their own order of summation.",
        bool(table["agrees"].all()),
        int((~table["agrees"]).sum()),
    )
    uniform = table[table["condition"] == table["condition"].min()]
    longest = uniform[uniform["n"] == uniform["n"].max()]
    found = longest.set_index(["dtype", "mode"])["relative_error"].abs()
    return {
        "errors": str(len(table)),
        "errors_n": whole(int(uniform["n"].max())),
        "error_rows": [
            [mode, *(power(found[d, mode]) if (d, mode) in found else "" for d in DTYPES)]
            for mode in dict.fromkeys(longest["mode"])
        ],
    }
