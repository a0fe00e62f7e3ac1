"""What one model of a device predicts, and how well: what its judges wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpushmoo.analysis.device_model.counted import read_counted
from gpushmoo.analysis.device_model.describe import DeviceFacts
from gpushmoo.analysis.device_model.first import first_values
from gpushmoo.analysis.device_model.parameters import PARAMETERS
from gpushmoo.core.display import significant
from gpushmoo.core.paths import ROOT
from gpushmoo.interactive.predict import KNOWN

from .record import H200
from .words import Claims, percent, span, whole, whole_percent

FOLDER = ROOT / "reports/reference/nvidia-h200-model"
# What binds the fastest launches of the record, by the model.
EXPLAINED = FOLDER / "explained.json"
WAYS = ("model", "shaken", "stacked", "near", "forest", "boosting")
BY_KERNEL = ("stacked", "near", "forest", "boosting")
# What was aimed at of each kernel: median and 95th percentile, in %.
AIMS = {
    "block_eq_partition": (2, 6),
    "copy2d_coalesced": (1.5, 5),
    "copy2d_document": (3, 9),
    "global_copy": (2, 7),
    "global_load": (2, 7),
    "global_store": (2, 7),
    "surf2d_memset": (4, 12),
    "tex2d_sum": (2, 6),
}
FLAT = ("copy2d_coalesced", "surf2d_memset", "tex2d_sum")
NOTHING = "nothing"
# A fitted value this far from its own measurement is named.
FAR = 0.1
# How near to the fastest a named cell shall be (`judge_unseen.py`), and how often.
NEAR, NEAR_AIM = 0.05, 0.9

Told = Mapping[str, Any]


def values(claims: Claims) -> dict[str, Any]:
    """Numbers of the page on the model."""
    device = json.loads(KNOWN.read_text(encoding="utf-8"))["devices"][0]
    judged, unseen, amended, facts, sectors, search, counted = (
        json.loads((FOLDER / f"{n}.json").read_text(encoding="utf-8"))
        for n in (
            *("judged", "unseen", "unseen-amended", "facts", "surface-sectors", "search-prior"),
            "counted",
        )
    )
    determined = {n: p for n, p in device["parameters"].items() if p["determined"]}
    others = sorted(set(PARAMETERS) - set(determined))
    independent = compared(device, facts)
    far = [words for words, _, _, off in independent if off > FAR]
    nothing = judged["hold_outs"][NOTHING]["ways"]
    named = amended["named"]
    claims.hold(
        "Learned ways fail beyond their cells.",
        all(worse_outside(judged, way) for way in ("forest", "boosting")),
    )
    return {
        "parameters_count": len(PARAMETERS),
        "trained": whole(device["trained"]),
        "cells": whole(device["cells"]),
        "parameters": [parameter_row(n, determined[n]) for n in PARAMETERS if n in determined],
        "given": given(others),
        "independent": [
            f"| {words} | {measured} | {fitted} | {percent(off)} |"
            for words, measured, fitted, off in independent
        ],
        "far": ", ".join(far) or "none",
        "hold_outs": [
            hold_out_row(name, told)
            for name, told in sorted(
                judged["hold_outs"].items(), key=lambda told: told[0] != NOTHING
            )
        ],
        "kernels": [kernel_row(k, nothing) for k in AIMS],
        "hold_out_words": hold_out_words(judged),
        "unseen": [
            row
            for name, told in unseen["unseen"].items()
            for row in unseen_rows(name, told, amended["unseen"][name])
        ],
        "same_cells": same_cells(unseen, claims),
        "flushed_stores": flushed_stores(unseen),
        **counted_values(counted, claims),
        "smallest": smallest(unseen),
        **{n: share(named[n]["all"]) for n in ("before", "fitted")},
        "groups": named["fitted"]["all"][0],
        "near": whole_percent(NEAR),
        "near_aim": whole_percent(NEAR_AIM),
        **{f"{n}_2d": flat_share(named[n]) for n in ("before", "fitted")},
        **bands(judged, claims),
        "search": search_rows(search),
        "search_groups": search["groups"],
        "search_seeds": search["seeds"],
        "sectors": [sector_row(cell) for cell in sectors["cells"]],
        "float3": error(judged["hold_outs"]["copies of float3"]["ways"]["model"]["all"])
        + " of copies when the type is kept back",
        "around": error(nothing["model"]["regions"]["around"]) + " around L2",
    }


def _nothing_first(told: tuple[str, Told]) -> bool:
    return told[0] != NOTHING


def error(told: Sequence[float] | None) -> str:
    """``2.9 / 14``: median and 95th percentile in %."""
    if not told or not told[0]:
        return "–"
    return f"{significant(100 * told[1], 2)} / {significant(100 * told[2], 2)}"


def parameter_row(name: str, told: Told) -> str:
    """A row of the table of parameters."""
    low, high = significant(told["low"], 3), significant(told["high"], 3)
    value, unit = significant(told["value"], 3), told["unit"]
    return f"| `{name}`: {PARAMETERS[name].words} | {value} | {low} to {high} | {unit} |"


def given(names: Sequence[str]) -> str:
    """A sentence on the parameters that no cell tells."""
    if not names:
        return "All are determined."
    listed = ", ".join(f"`{name}`" for name in names)
    return f"Not determined, or taken as known: {listed}."


def compared(device: Told, facts: Told) -> list[tuple[str, str, str, float]]:
    """Words, measured and fitted value, and by how much they differ."""
    about = DeviceFacts(**device["facts"])
    measured = first_values(facts["values"], about)
    rows = []
    for name, meaning in PARAMETERS.items():
        told = name == "dram_latency" or (meaning.fact or "") in facts["values"]
        if told:
            fitted, own = device["parameters"][name]["value"], measured[name]
            shown = [
                f"{significant(v, 3)} {meaning.unit}".removesuffix(" 1") for v in (own, fitted)
            ]
            rows.append((meaning.words, *shown, abs(fitted / own - 1)))
    return rows


def hold_out_row(name: str, told: Told) -> str:
    """Errors of all ways where something is kept from them."""
    cells = [error(told["ways"].get(way, {}).get("all")) for way in WAYS]
    return f"| {name} | {' | '.join(cells)} |"


def kernel_row(kernel: str, ways: Told) -> str:
    """Errors of one kernel, beside what was aimed at."""
    found = ways["model"]["families"][kernel]
    median, p95 = AIMS[kernel]
    met = 100 * found[1] <= median and 100 * found[2] <= p95
    others = [error(ways[way]["families"].get(kernel)) for way in BY_KERNEL]
    aim = f"{median:g} / {p95:g}"
    row = [f"`{kernel}`", error(found), aim, "yes" if met else "no", *others]
    return f"| {' | '.join(row)} |"


def worse_outside(judged: Told, way: str) -> bool:
    """Whether a way's errors grow at least twofold where a kernel is kept from it."""
    holds = judged["hold_outs"]
    inside = holds["nothing"]["ways"][way]["all"][1]
    return all(holds[k]["ways"][way]["all"][1] > 1.5 * inside for k in FLAT if k in holds)


def hold_out_words(judged: Told) -> str:
    """Which lines rest on the values that a fit begins with."""
    holds = judged["hold_outs"]
    shaken = [
        name
        for name, told in holds.items()
        if told["ways"]["shaken"]["all"][1] > 1.5 * told["ways"]["model"]["all"][1]
    ]
    if not shaken:
        return "No line depends much on the first values."
    listed = ", ".join(shaken)
    return f"These lines depend on the first values and are no proof of anything: {listed}."


def unseen_rows(name: str, told: Told, amended: Told) -> list[str]:
    """A row for each kernel of a recording that had no part in the fit."""
    rows = []
    for kernel, found in told["kernels"].items():
        others = (told["ways"][way].get(kernel) for way in ("near", "forest", "boosting"))
        shown = (found, amended["kernels"][kernel], told["recorded_twice"].get(kernel), *others)
        errors = " | ".join(map(error, shown))
        rows.append(f"| {name} | `{kernel}` | {whole(found[0])} | {errors} |")
    return rows


def same_cells(unseen: Told, claims: Claims) -> str:
    """How much of the error of the newest recording is a difference of the two devices."""
    judge = unseen["unseen"]["judge"]
    ours = judge["kernels"]["copy2d_coalesced"]
    twice = judge["recorded_twice"]["copy2d_coalesced"]
    claims.hold("Devices differ nearly as the model errs in the tail.", twice[2] > 0.7 * ours[2])
    return (
        f"The two devices themselves differ by {error(twice)} % (median / 95th percentile) on the "
        "same copies by block shape, mostly inside L2, so that the tail is hardly the model's."
    )


def flushed_stores(unseen: Told) -> str:
    """Errors of small stores after a flush, in the newest recording."""
    groups = [
        g["errors"]
        for g in unseen["unseen"]["judge"]["groups"]
        if (g["kernel"], g["cache_state"]) == ("global_store", "flushed") and g["height"] <= 1280
    ]
    return "medians of " + span([100 * g[1] for g in groups], " %")


QUANTITIES = {
    "dram_read": "bytes read from DRAM",
    "dram_written": "bytes written to DRAM",
    "sectors_loaded": "sectors from L2 to L1",
    "sectors_stored": "sectors from L1 to L2",
    "warps": "resident warps",
    "seconds": "time",
}


def counted_values(told: Told, claims: Claims) -> dict[str, Any]:
    """What counters say of the model's own quantities."""
    rival = told["warpspeed"]
    claims.hold(
        "warpspeed is better at loads, this model at stores and times.",
        rival["sectors_loaded"]["theirs"][2] < rival["sectors_loaded"]["ours"][2]
        and rival["sectors_stored"]["theirs"][2] > rival["sectors_stored"]["ours"][2]
        and rival["seconds"]["theirs"][1] > 5 * rival["seconds"]["ours"][1],
    )
    cells = pd.read_parquet(FOLDER / "counters.parquet")
    return {
        "counted_launches": told["launches"],
        "counted": [
            f"| {QUANTITIES[q]} | {off['all'][0]} | {error(off['all'])} | {_worst(off)} |"
            for q, off in told["quantities"].items()
        ],
        "busy": [
            f"| {limit} | {row['launches']} | "
            + " | ".join(f"{row[f'{u}_percent']:.0f}" for u in ("dram", "l2", "l1", "sm"))
            + " |"
            for limit, row in told["limits"].items()
        ],
        "warpspeed": [
            f"| {words} | {rival[q]['theirs'][0]} | {error(rival[q]['theirs'])} | "
            f"{error(rival[q]['ours'])} |"
            for q, words in QUANTITIES.items()
            if q in rival
        ],
        "backed": backed_words(),
        **counted_cells(cells),
    }


def _worst(told: Told) -> str:
    """The kernel with the largest median, where one has launches."""
    kernels = {k: e[1] for k, e in told.items() if k != "all" and e[0]}
    worst = max(kernels, key=lambda k: kernels[k])
    return f"`{worst}` {percent(kernels[worst])}"


def counted_cells(cells: pd.DataFrame) -> dict[str, str]:
    """Numbers of single launches."""
    copies = cells[(cells["kernel"] == "copy2d_coalesced") & (cells["height"] == 8192)]
    narrow = copies[copies["params"] == "block_x=4 block_y=64"].set_index("dtype")
    image = cells[
        (cells["kernel"] == "surf2d_memset") & (cells["params"] == "block_x=64 block_y=4")
    ]
    wide = image[(image["dtype"] == "float4") & (image["variant"] == "block-one")]
    busy = [narrow.loc["float", "l2_percent"], *wide["l2_percent"].dropna()]
    sent = narrow.loc["float3", "l2_write_sectors"] / narrow.loc["float3", "l2_read_sectors"]
    columns = cells[(cells["kernel"] == "transpose") & (cells["variant"] == "naive")]
    writes = columns["dram_write_bytes"] / columns["bytes_written"]
    return {
        "narrow_l2": span(busy, " %"),
        "float3_sent": significant(float(sent), 2),
        "column_writes": span(writes),
    }


def backed_words() -> str:
    """How many of the limits that the report of the record names are backed."""
    device = json.loads(EXPLAINED.read_text(encoding="utf-8"))["devices"][0]
    counted = read_counted([H200 / "counters.json"])[device["device"]]
    limits = [counted.of_limit(why["cell_key"], why["limit"]) for why in device["whys"]]
    told = [limit for limit in limits if limit is not None]
    others = [
        f"`{why['kernel']}` {why['dtype']} ({why['limit']}: {limit.words})"
        for why, limit in zip(device["whys"], limits, strict=True)
        if limit is not None and not limit.backed
    ]
    return (
        f"Of the {len(limits)} limits that the report of the record names, {len(told)} were "
        f"counted and {sum(limit.backed for limit in told)} are backed. The others are those of "
        f"{'; '.join(others)}."
    )


def smallest(unseen: Told) -> str:
    """The sizes of the documents' sweeps."""
    groups = unseen["unseen"]["documents"]["groups"]
    sizes = sorted({g["height"] for g in groups if g["kernel"] == "block_eq_partition"})
    return " and ".join(f"{size}" for size in sizes)


def share(told: Sequence[float]) -> str:
    """Groups in which the named cell is near the fastest."""
    return whole_percent(told[1])


def flat_share(named: Told) -> str:
    """The same of block shapes alone."""
    groups = np.array([named[k][0] for k in FLAT])
    within = np.array([named[k][1] for k in FLAT])
    return whole_percent(float((groups * within).sum() / groups.sum()))


def search_rows(search: Told) -> list[str]:
    """What searches need that expect nothing, or what the model says."""
    groups = {"block shapes": search["ways"]["together"]["2-D"]}
    groups["numbers of blocks"] = search["ways"]["families"]["block_eq_partition"]
    return [
        f"| {name} | {way} | {_cells(told[key]['first'])} | {_cells(told[key]['cells'])} | "
        f"{percent(told[key]['wrong'])} |"
        for name, told in groups.items()
        for key, way in (("none", "nothing"), ("before", "*before*"), ("others", "*others*"))
    ]


def _cells(told: Sequence[float | None]) -> str:
    return " / ".join("never" if n is None else whole(n) for n in told)


def bands(judged: Told, claims: Claims) -> dict[str, str]:
    """What the bands promise and hold."""
    told = judged["bands"]["summary"]
    conformal = told["conformal"]
    claims.hold(
        "Split conformal holds less than it promises.", conformal["mean_coverage"] < 0.9, conformal
    )
    held = {
        name: f"{whole_percent(band['mean_coverage'])} of the cells in the mean and "
        f"{whole_percent(band['worst_coverage'])} in the worst region"
        for name, band in told.items()
    }
    sentence = (
        f"Promised are {whole_percent(judged['bands']['promised'])}. The band of a kernel that was "
        "fitted is that of its own cells that were not; of any other it is the 90th percentile of "
        "what kernels that were kept back were off by. Tried on each kept region in turn, with "
        f"what the others say of it, such a wide band holds {held['wide']}, and the plain one over "
        f"all errors {held['narrow']}. The aim was 85 to 95 % of new ranges."
    )
    known = judged["bands"]["conformal_where_known"]
    return {
        "bands": sentence,
        "conformal": whole_percent(known),
        "conformal_new": whole_percent(conformal["mean_coverage"]),
    }


def sector_row(cell: Told) -> str:
    """Sectors of a surface of floats by blocks of width × height, as the form has them."""
    width, height = cell["block_x"], cell["block_y"]
    texels = cell.get("size", 16384) ** 2
    apart = 1 - np.exp(-width / 32 / 2.6)
    # A warp of one row asks for 8 half sectors, of two rows for 4 whole ones.
    rows = max(1, 32 // width)
    halves = texels / 4 if rows == 1 else texels / 8
    split = 1.0 if height == 1 else apart
    predicted = texels / 8 + (halves - texels / 8) * split
    return (
        f"| {width} × {height} | {significant(cell['sectors'] / 1e6, 3)} | "
        f"{significant(predicted / 1e6, 3)} |"
    )
