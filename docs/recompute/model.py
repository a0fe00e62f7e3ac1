"""One model for a device: its parameters, and what its judges wrote."""

import json
from typing import Any

from gpushmoo.core.display import joined, significant
from gpushmoo.extras.studies.counters import COUNTERS_SCHEMA
from gpushmoo.interactive.predict import KNOWN
from gpushmoo.model.form import PARAMETERS, first_values
from gpushmoo.model.launches import DeviceFacts
from gpushmoo.model.limits import read_counted
from gpushmoo.storage.store import read_table

from .record import REFERENCE, read_json, read_record
from .words import Claims, errors, span, whole, whole_percent

FOLDER = "nvidia-h200-model"
NOTHING = "nothing"
FLAT = ("copy2d_coalesced", "surf2d_memset", "tex2d_sum")
QUANTITIES = {
    "dram_read": "bytes read from DRAM",
    "dram_written": "bytes written to DRAM",
    "sectors_loaded": "sectors from L2 to L1",
    "sectors_stored": "sectors from L1 to L2",
    "warps": "resident warps",
}


def values(claims: Claims) -> dict[str, Any]:
    """Numbers of the page on the model."""
    device = json.loads(KNOWN.read_text(encoding="utf-8"))["devices"][0]
    judged, unseen, counted = (
        read_json(f"{FOLDER}/{name}.json") for name in ("judged", "unseen", "counted")
    )
    holds, named = judged["hold_outs"], unseen["named"]

    def median(held_out: str, way: str) -> float:
        return float(holds[held_out]["ways"][way]["all"][1])

    claims.hold(
        "Boosting fails beyond its cells.",
        min(median(f"kernel {kernel}", "boosting") for kernel in FLAT)
        > 1.5 * median(NOTHING, "boosting"),
    )
    parameters = _parameters(device)
    given = [f"`{name}`" for name, told in device["parameters"].items() if not told["determined"]]
    shaken = [name for name in holds if median(name, "shaken") > 1.5 * median(name, "model")]
    whys = json.loads((REFERENCE / FOLDER / "explained.json").read_text(encoding="utf-8"))
    return {
        "count": len(PARAMETERS),
        "trained": whole(device["trained"]),
        "cells": whole(device["cells"]),
        "parameters": parameters,
        "unmeasured": len(PARAMETERS) - len(parameters) - len(given),
        "given": joined(given),
        "regions": len(holds) - 1,
        "held_out": {way: _held_out(holds, way) for way in ("model", "boosting")},
        "shaken": joined(shaken),
        "unseen": [
            [
                name,
                _named(kernel),
                whole(found[0]),
                errors(found),
                errors(told["recorded_twice"].get(kernel)),
                errors(told["ways"]["near"].get(kernel)),
                errors(told["ways"]["boosting"].get(kernel)),
            ]
            for name, told in unseen["unseen"].items()
            for kernel, found in told["kernels"].items()
        ],
        "groups": named["fitted"]["all"][0],
        **{n: whole_percent(named[n]["all"][1]) for n in ("before", "fitted")},
        "band": {
            "promised": whole_percent(judged["bands"]["promised"]),
            "mean": whole_percent(judged["bands"]["summary"]["wide"]["mean_coverage"]),
            "worst": whole_percent(judged["bands"]["summary"]["wide"]["worst_coverage"]),
        },
        "launches": counted["launches"],
        "counted": [
            [QUANTITIES[q], str(off["all"][0]), errors(off["all"])]
            for q, off in counted["quantities"].items()
        ],
        "backed": _backed(whys["devices"][0]),
        **_stores_to_parts(claims),
        "float3": errors(holds["copies of float3"]["ways"]["model"]["all"]),
        "around": errors(holds[NOTHING]["ways"]["model"]["regions"]["around"]),
        "flushed_stores": span(
            (
                100 * g["errors"][1]
                for g in unseen["unseen"]["judge"]["groups"]
                if (g["kernel"], g["cache_state"]) == ("global_store", "flushed")
                and g["height"] <= 1280
            ),
            " %",
        ),
    }


def _stores_to_parts(claims: Claims) -> dict[str, str]:
    """How the time of `store_columns` depends on the lines that are stored to at once.

    Of blocks that come back to their lines, as wide as a warp: each thread has another line.
    """
    cells = read_record("nvidia-h200-machine").of("store_columns", dtype="float", block_x=32)
    cells = cells[cells["passes"] == cells["passes"].max()]
    lines = cells["resident_blocks"] * cells["block_x"]
    element_s = cells["median_s"] / (cells["height"] * cells["width"])
    table = element_s.groupby([cells["height"], lines]).median().unstack("height")
    growth = table.iloc[-1] / table.iloc[0]
    claims.hold(
        "Stores to many lines cost more outside of L2 alone.", growth[1024] < 1.0 < growth[8192]
    )
    counters = read_table(REFERENCE / FOLDER / "counters.parquet", COUNTERS_SCHEMA).to_pandas()
    counted = counters[counters["kernel"] == "store_columns"]
    return {
        "read_again": whole_percent((counted["dram_read_bytes"] / counted["bytes_written"]).max()),
        "other_pitch": span(table[8000] / table[8192], digits=3),
        "open_inside": f"{growth[1024]:.2f}",
        "open_outside": f"{growth[8192]:.2f}",
    }


def _named(subject: str) -> str:
    """```transpose`, tile`` for ``transpose, tile``."""
    kernel, comma, variant = subject.partition(",")
    return f"`{kernel}`{comma}{variant}"


def _held_out(holds: dict[str, Any], way: str) -> dict[str, str]:
    """Errors where nothing was kept from the fit, and over all that was: medians, worst 95th."""
    kept = [told["ways"][way]["all"] for name, told in holds.items() if name != NOTHING]
    return {
        "nothing": errors(holds[NOTHING]["ways"][way]["all"]),
        "medians": span((100 * told[1] for told in kept), " %"),
        "worst": whole_percent(max(told[2] for told in kept)),
    }


def _parameters(device: dict[str, Any]) -> list[list[str]]:
    """Each determined parameter that was also measured by itself, and both values."""
    facts = read_json(f"{FOLDER}/facts.json")["values"]
    measured = first_values(facts, DeviceFacts(**device["facts"]))
    rows = []
    for name, meaning in PARAMETERS.items():
        told = device["parameters"][name]
        if told["determined"] and (name == "dram_latency" or (meaning.fact or "") in facts):
            value, low, high = (significant(told[k], 3) for k in ("value", "low", "high"))
            own = significant(measured[name], 3)
            rows.append(
                [f"`{name}`: {meaning.words}", f"{value} ({low} to {high})", own, told["unit"]]
            )
    return rows


def _backed(device: dict[str, Any]) -> str:
    """How many of the report's limits are backed, of those whose launches have counters."""
    counted = read_counted([REFERENCE / "nvidia-h200" / "counters.json"])[device["device"]]
    found = (counted.of_limit(why["cell_key"], why["limit"]) for why in device["whys"])
    limits = [limit for limit in found if limit is not None]
    return f"{sum(limit.backed for limit in limits)} of {len(limits)}"
