"""Facts for the report's template: display strings, so that the template decides only layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..analysis.ceiling import CeilingRow
from ..analysis.dots import DOTS
from ..analysis.statuses import MEANING
from ..analysis.steadiness import Steadiness, steadiness
from ..display import gbs, interval, of_ceiling, percent, size_bytes
from ..schema import SAMPLE_COUNT, Status
from .appendix import (
    device_numbers,
    fault_rows,
    machine_code_rows,
    provenance_rows,
    status_rows,
)
from .contrasts import contrast_findings
from .dots import dots_findings, dots_page
from .shapes import shape_findings, shape_gaps, shape_rows
from .tables import (
    MOST_SIZES,
    Json,
    Namer,
    best_rows,
    ceiling_table,
    check_rows,
    doubling_rows,
    edge_words,
    fit_rows,
    namer,
)
from .textures import textures_findings, textures_page


def report_facts(
    *,
    cells: pd.DataFrame,
    best: pd.DataFrame,
    ceiling: Sequence[CeilingRow],
    fits: Sequence[Json],
    shapes: Json,
    checks: Mapping[str, Sequence[Json]],
    simulations: Json,
    provenance: Sequence[Json],
    figures: Mapping[str, Json],
    slips: Sequence[Json],
    textures: Mapping[str, Any],
    dot_slips: Sequence[Json],
    spec: Mapping[str, Any],
) -> Json:
    """All that the template shows, as JSON values."""
    names = namer(cells)
    dots = dots_page(cells, dot_slips)
    page = textures_page(cells, ceiling, textures, provenance, names)
    return {
        "run": spec["run"],
        "recorded": spec["recorded"],
        "device": device_card(provenance),
        "is_cpu": provenance[0]["device"]["kind"] == "cpu",
        "findings": [
            steadiness_finding(steadiness(provenance)),
            *findings(*_apart_from_dots(cells, best), fits, figures, spec, names),
            *textures_findings(page),
            *dots_findings(dots),
            *(note["finding"] for name, note in figures.items() if name.startswith("timeline-")),
            *shape_findings(shapes["fits"], names),
        ],
        "method": method_facts(cells, provenance, spec["host_fed"]),
        "kernels": [{"name": n, **spec["kernels"][n]} for n in sorted(spec["kernels"])],
        "workingsets": _figures(figures, "workingset"),
        "ceilings": ceiling_table(ceiling),
        "heatmaps": _figures(figures, "heatmap"),
        "curves": _figures(figures, "curve"),
        "simulated": _figures(figures, "simulated"),
        "simulations": simulations,
        "question_figures": _figures(figures, "questions") + _figures(figures, "float3"),
        "same_machine": _figures(figures, "same_machine"),
        "best": best_rows(_apart_from_dots(cells, best)[1], names),
        "most_sizes": str(MOST_SIZES),
        "fits": fit_rows(fits, names),
        "checks": [c for name in sorted(checks) for c in check_rows(checks[name])],
        "doubling": doubling_rows(cells, names),
        "slips": list(slips),
        "textures": page,
        "dots": dots,
        "dot_figures": _figures(figures, "dot"),
        "timelines": _figures(figures, "timeline"),
        "errors": _figures(figures, "errors"),
        "shapes": shape_rows(shapes["fits"], names),
        "shape_gaps": shape_gaps(shapes["fits"], shapes["left_out"], names),
        "footprints": _figures(figures, "footprint"),
        "statuses": status_rows(cells),
        "status_meaning": [
            {"status": s.value, "meaning": MEANING[s]}
            for s in Status
            if s.value in set(cells["status"])
        ],
        "faults": fault_rows(cells),
        "provenance": provenance_rows(provenance),
        "machine_code": machine_code_rows(provenance),
    }


def _apart_from_dots(cells: pd.DataFrame, best: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of dot products a page of its own tells, and has sentences of its own."""
    return cells[~cells["kernel"].isin(DOTS)], best[~best["kernel"].isin(DOTS)]


def _figures(figures: Mapping[str, Json], kind: str) -> list[Json]:
    return [
        {"file": name, "title": note["title"], "caption": note["caption"]}
        for name, note in figures.items()
        if name.startswith(f"{kind}-")
    ]


def device_card(provenance: Sequence[Json]) -> list[list[str]]:
    """Label and value of each line; devices of one name share a card that counts them."""
    numbers = device_numbers(provenance)
    devices = {p["device"]["uuid"]: p["device"] for p in provenance}
    lines: list[list[str]] = []
    for name in dict.fromkeys(d["name"] for d in devices.values()):
        same = [d for d in devices.values() if d["name"] == name]
        values: dict[str, list[str]] = {}
        for device in same:
            for label, value in _device_lines(device, numbers.get(device["uuid"])):
                values.setdefault(label, []).append(value)
        merged = [[label, "; ".join(dict.fromkeys(found))] for label, found in values.items()]
        if len(same) > 1:
            merged[0][1] = f"{len(same)} × {merged[0][1]}"
        lines += merged
    host = provenance[0]["host"]
    lines.append(["Host", f"{host['cores']} cores, {host['system']}, Python {host['python']}"])
    return lines


def _device_lines(d: Json, number: int | None) -> list[tuple[str, str]]:
    return [
        ("Device", f"{d['name']} ({d['kind'].upper()}, backend {d['backend']})"),
        ("Runtime", f"{d['runtime']}, driver {d['driver']}"),
        ("Compute units", f"{d['units']}{_clock(d['core_clock_mhz'])}"),
        ("Memory", size_bytes(d["global_memory"])),
        ("Last-level cache", size_bytes(d["cache"]) if d["cache"] else "not told"),
        ("Largest block", f"{d['max_threads_per_block']} threads"),
        *((_label(k), str(v)) for k, v in sorted(d["extra"].items())),
        ("Identity", ("" if number is None else f"{number}: ") + d["uuid"]),
    ]


def _clock(mhz: int) -> str:
    return f" at up to {mhz} MHz" if mhz else ", clock not told"


_LABELS = {
    "ecc": "ECC",
    "memory_bus_bits": "Memory bus (bit)",
    "memory_clock_mhz": "Memory clock (MHz)",
    "threads_per_multiprocessor": "Threads per multiprocessor",
    "compute_capability": "Compute capability",
    "pyopencl": "pyopencl",
}


def _label(key: str) -> str:
    return _LABELS.get(key, key)


def method_facts(
    cells: pd.DataFrame, provenance: Sequence[Json], host_fed: Collection[str]
) -> Json:
    """Numbers that the method section names; the data of `host_fed` kernels live on the host."""
    copies = cells.loc[~cells["kernel"].isin(host_fed), "copy_gbs"].dropna()
    ok = cells[cells["status"] == Status.OK]
    p = provenance[0]["params"]
    half = (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])
    return {
        "cells": len(cells),
        "ok": len(ok),
        "samples": int(ok[SAMPLE_COUNT].sum()),
        "min_samples": p["measure"]["min_samples"],
        "max_samples": p["measure"]["max_samples"],
        "target": percent(p["measure"]["relative_half_width"]),
        "seed": p["seed"],
        "repeats": max(p["params"]["measure"]["repeats"] for p in provenance),
        "between": _between_words(ok),
        "unmet": unmet_words(ok, ok["within_half_width"], provenance),
        "half_width_median": percent(float(half.median())) if len(ok) else "—",
        "half_width_p95": percent(float(half.quantile(0.95))) if len(ok) else "—",
        "verified_words": f"{int(ok['verified_words'].sum()):,}".replace(",", " "),
        "copy": gbs(float(copies.max())) if len(copies) else None,
        "caches": _cache_words(cells),
    }


def _between_words(ok: pd.DataFrame) -> str | None:
    """Spread within and between repeats of the typical cell; None of a single repeat."""
    twice = ok[ok["between_spread"].notna()]
    if twice.empty:
        return None
    within, between = twice["within_half_width"].median(), twice["between_spread"]
    return (
        f"Typically the samples of a run know its own median to ± {percent(within)}, and repeats "
        f"differ by a standard deviation of {percent(between.median())} (95th percentile "
        f"{percent(between.quantile(0.95))})."
    )


def unmet_words(ok: pd.DataFrame, half: pd.Series, provenance: Sequence[Json]) -> str:
    """How many verified cells ended with an interval wider than their sweep had asked for.

    `half` is half of each interval as a share of the median. Empty where there is none.
    """
    asked = {
        (Path(p["params"]["folder"]).name, p["params"]["dtype"]): p["params"]["measure"][
            "relative_half_width"
        ]
        for p in provenance
    }
    wanted = [asked[key] for key in zip(ok["kernel"], ok["dtype"], strict=True)]
    # What a cell stops at is narrower by rounding alone.
    wide = int((half > [w * (1 + 1e-9) for w in wanted]).sum())
    if not wide:
        return ""
    return (
        f"{percent(wide / len(ok))} of the measured cells ({wide}) stopped at the most samples, or "
        "for want of time, before their interval was as narrow as asked."
    )


def _cache_words(cells: pd.DataFrame) -> str:
    """What the run's cache states mean."""
    words = {
        "warm": "Warm launches follow each other on the same buffers",
        "flushed": "before each flushed launch the last cache level is filled with other data",
    }
    text = "; ".join(w for state, w in words.items() if state in set(cells["cache_state"]))
    return f"{text[:1].upper()}{text[1:]}."


def findings(
    cells: pd.DataFrame,
    best: pd.DataFrame,
    fits: Sequence[Json],
    figures: Mapping[str, Json],
    spec: Mapping[str, Any],
    names: Namer,
) -> list[str]:
    """Headline sentences, each with its interval.

    A kernel over many sizes has one sentence, which comes with its figure; the others have one for
    each dtype.
    """
    told = {n["kernel"]: n["finding"] for n in figures.values() if {"kernel", "finding"} <= set(n)}
    out = list(told.values())
    tops = best[best["is_fastest"] & ~best["kernel"].isin(list(told))]
    for kernel, words in spec["kernels"].items():
        tops = tops[~((tops["kernel"] == kernel) & tops["variant"].isin(words["controls"]))]
    for (kernel, dtype), group in tops.groupby(["kernel", "dtype"], sort=True):
        top = group.loc[group["bandwidth_gbs"].idxmax()]
        others = int(top["tied"]) - 1
        tied = "alone" if not others else f"tied with {others} other{'s' * (others > 1)}"
        out.append(
            f"{kernel}, {dtype}: best {interval(top)}{of_ceiling(top['share_of_ceiling'])} with "
            f"{top['params'] or 'no parameter'} ({top['variant']}, {names.size(top)}), {tied} of "
            f"{top['candidates']} valid cells{edge_words(top['edge'])}."
        )
    persistent = [k for k in spec["persistent"] if k not in told]
    rest = [k for k in sorted(set(cells["kernel"])) if k not in told and k not in persistent]
    out += contrast_findings(cells, persistent, rest, names)
    return out + _fit_findings(fits, names) + _fault_findings(cells)


def steadiness_finding(found: Steadiness) -> str:
    """Whether this run's figures may hold tomorrow, as the runtime's own copies tell."""
    if found.repeats == 1:
        word = "Measured once (repeats: 1): intervals cover this run only, not another one."
    else:
        word = (
            f"Measured {found.repeats} times in separate processes; intervals are those of another "
            "run on this machine."
        )
    if found.once:
        word += f" Measured once, so that intervals cover that run only: {', '.join(found.once)}."
    changes = [
        f"by {percent(typical)} (at most {percent(most)}) {when}"
        for pair, when in ((found.between, "between the repeats"), (found.within, "within one"))
        if pair
        for typical, most in [pair]
    ]
    if not changes:
        return word
    text = f"The runtime's own copies beside the cells changed {' and '.join(changes)}"
    if found.steady:
        return f"{word} The machine was steady: {text[0].lower()}{text[1:]}."
    return (
        f"{word} The machine was not steady: {text[0].lower()}{text[1:]}, in the typical case; "
        "compare figures of different sweeps as multiples of the copy beside them."
    )


def _fit_findings(fits: Sequence[Json], names: Namer) -> list[str]:
    out = []
    judged = [f for f in fits if f["converged"] and f["held_out_median_error"] is not None]
    if judged:
        errors = sorted(f["held_out_median_error"] for f in judged)
        worst = max(f["held_out_worst_error"] for f in judged)
        out.append(
            "The closed model predicts points left out at random, between those that it was "
            f"fitted to, with a median error of "
            f"{percent(errors[0])} to {percent(errors[-1])} over {len(judged)} series; "
            f"the worst single point is off by {percent(worst)}."
        )
    for f in fits:
        if not f["converged"]:
            out.append(f"The fit of {names.series(f)} did not converge: {f['message']}.")
    return out


def _fault_findings(cells: pd.DataFrame) -> list[str]:
    never_ran = {Status.BUILD_FAILED.value, Status.WORKLOAD_FAILED.value}
    out = [
        f"{fault['where']}: {fault['message']} ({fault['status']}, cells: {fault['cells']})."
        for fault in fault_rows(cells)
        if fault["status"] in never_ran
    ]
    wrong = len(cells[cells["status"] == Status.WRONG_RESULT])
    if wrong:
        out.append(f"{wrong} cells computed a wrong result and were excluded from every figure.")
    return out
