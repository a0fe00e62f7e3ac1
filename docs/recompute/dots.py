"""The third document: dot products of host data against the host itself, and on the device."""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd
from gpushmoo.storage.store import read_table
from streamed_dot import analysis as dots
from streamed_dot.numerics import ERRORS_SCHEMA
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
POOLED, FRESH = "pinned-pooled", "pinned-fresh"
SPLIT_N = LONGEST


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Tables and sentences of the page's section on dot products."""
    cells = record.ok[record.ok["kernel"].isin(dots.DOTS)]
    fed = {dots.HOST, dots.STREAMED, dots.SQUARE}
    of_fed = [p for p in record.provenance if p["params"]["folder"].split("/")[-1] in fed]
    compared = record.benchmark("dots")
    return {
        "cells": whole(len(cells)),
        "cores_of_hosts": joined(str(n) for n in sorted({p["host"]["cores"] for p in of_fed})),
        "hosts": _hosts(cells),
        **_against_host(cells, claims),
        **_crossovers(cells, claims),
        **_link(cells, compared, claims),
        **_shared(cells, compared, claims),
        "cores": _cores(compared),
        "effects": _effects(cells),
        "stream_ms": _stream_cost(cells),
        "one_core": _blas(cells, claims),
        "timeline": _timeline(),
        **_resident(cells, compared, claims),
        **_errors(claims),
        "slowed": _slowed(cells),
    }


def _hosts(cells: pd.DataFrame) -> str:
    """Whether the host's own dot products and the streamed ones were measured beside one device."""
    devices = {
        k: set(cells.loc[cells["kernel"] == k, "device_uuid"]) for k in (dots.HOST, dots.STREAMED)
    }
    if devices[dots.HOST] == devices[dots.STREAMED]:
        return (
            "Host and streamed cells are of one machine, measured minutes apart, not in the same "
            "rounds."
        )
    return (
        "The host's own cells (`dot_host`) are of another machine than the streamed ones, "
        "so their ratios compare two virtual machines."
    )


def _best(cells: pd.DataFrame) -> pd.DataFrame:
    return dots.fastest(cells, host_percent=0)


def _against_host(cells: pd.DataFrame, claims: Claims) -> dict[str, Any]:
    """The host's fastest way and the streamed device at the longest arrays."""
    best = _best(cells)
    rows, ratios = [], []
    for dtype in DTYPES:
        for n in (100_000_007, LONGEST):
            here = best[(best["dtype"] == dtype) & (best["width"] == n)]
            host = here[here["kernel"] == dots.HOST].sort_values("median_s").iloc[0]
            ours = here[(here["kernel"] == dots.STREAMED) & (here["variant"] == POOLED)].iloc[0]
            ratios.append(float(host["median_s"] / ours["median_s"]))
            rows.append(
                [
                    dtype,
                    whole(n),
                    f"{gbs(host['bandwidth_gbs'])} (`{host['variant']}`)",
                    gbs(ours["bandwidth_gbs"]),
                    f"{ratios[-1]:.2f}",
                ]
            )
    claims.hold(
        "Against all cores the device never pays.",
        max(ratios) < 1 and all(c.n is None for c in dots.crossovers(cells)),
        ratios,
    )
    return {"host_rows": rows}


def _crossovers(cells: pd.DataFrame, claims: Claims) -> dict[str, Any]:
    rows = []
    for against in ("blas-one", "naive"):
        for c in dots.crossovers(cells, against):
            if c.variant not in (POOLED, FRESH):
                claims.hold("From pageable memory it never pays.", c.n is None, c)
                continue
            from_n = "never" if c.n is None else whole(c.n)
            rows.append(
                [
                    f"`{against}`",
                    c.dtype,
                    c.variant.removeprefix("pinned-"),
                    from_n,
                    f"{c.ratio:.1f}",
                ]
            )
    best = _best(cells)
    pageable = best[best["variant"].str.startswith("pageable") & (best["width"] >= 2**26)]
    return {"crossovers": rows, "pageable": span(pageable["bandwidth_gbs"])}


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
    return {"link_pairs": joined(rows), "link_rounds": median_interval(device)}


def _shared(cells: pd.DataFrame, compared: dict[str, Any], claims: Claims) -> dict[str, Any]:
    """The best split in the sweep, and that of the rounds in which host and device took turns."""
    found = {s.dtype: s for s in dots.splits(cells) if s.n == SPLIT_N}
    ratios = compared["host fed"]["ratios"]
    rounds = compared["host fed"]["rounds_gbs"]
    best = ratios["best"]
    host = [max(r["numpy"], r["host's part"]) / r["device"] for r in rounds]
    claims.hold("The host's cores beat the device in every round.", min(host) > 1, host)
    over = sorted(r[best] / max(r["numpy"], r["host's part"], r["device"]) for r in rounds)
    claims.hold(
        "Shared with the host it pays in the median round.",
        ratios["over the faster side"]["median"] > 1,
        ratios["over the faster side"],
    )
    return {
        "split": {
            d: {
                "swept": s.swept,
                "predicted": f"{s.predicted:.0f}",
                "gain": f"{s.gain:.2f}",
                "reached": whole_percent(s.reached),
                "loss": percent(s.loss),
            }
            for d, s in found.items()
        },
        "rounds": str(len(rounds)),
        "rounds_best": best,
        "rounds_host": f"{span(host)} times",
        "rounds_gbs": gbs(statistics.median(r[best] for r in rounds)),
        "rounds_over": median_interval(ratios["over the faster side"], 2),
        "rounds_least": f"{over[0]:.2f}",
        "rounds_day": compared["written_at"][:10],
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


def _effects(cells: pd.DataFrame) -> list[list[str]]:
    """What the worst value of each parameter costs: others at their best, and over all others.

    Over all others it is a distribution, of which a line gives the 10th, 50th and 90th percentile:
    of the number of streams it has two modes, and its median stands for neither.
    """
    rows = []
    streamed = cells[cells["kernel"] == dots.STREAMED]
    for e in sorted(dots.effects(cells), key=lambda e: (e.variant, -e.n, e.axis, e.dtype)):
        if e.dtype != "double" or e.variant not in (POOLED, FRESH):
            continue
        part = streamed[
            (streamed["dtype"] == e.dtype)
            & (streamed["variant"] == e.variant)
            & (streamed["width"] == e.n)
        ]
        others = [a for a in dots.AXES if a != e.axis]
        times = part.pivot_table(index=others, columns=e.axis, values="median_s", aggfunc="min")
        ratio = (times[list(e.values)].max(axis=1) / times[list(e.values)].min(axis=1)).dropna()
        low, middle, high = (float(ratio.quantile(q)) for q in (0.1, 0.5, 0.9))
        rows.append(
            [
                e.variant.removeprefix("pinned-"),
                whole(e.n),
                f"`{e.axis}`",
                str(e.best),
                percent(e.factor - 1) if e.factor < 2 else f"{e.factor:.1f} times",
                f"{low:.2f}, {middle:.2f}, {high:.2f}",
            ]
        )
    return rows


def _stream_cost(cells: pd.DataFrame) -> str:
    """Milliseconds that each further stream of 64 costs where streams are made within the time."""
    fresh = cells[
        (cells["kernel"] == dots.STREAMED)
        & (cells["variant"] == FRESH)
        & (cells["width"] == LONGEST)
        & (cells["chunk"] == 0)
    ]
    best = fresh.groupby(["dtype", "streams"])["median_s"].min()
    return span(1e3 * (best[d, 64] - best[d, 1]) / 63 for d in DTYPES)


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
