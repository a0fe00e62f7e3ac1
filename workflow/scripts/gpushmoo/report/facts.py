"""Facts for the report's template: display strings, so that the template decides only layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..analysis.ceiling import CeilingRow
from ..analysis.statuses import MEANING
from ..analysis.steadiness import Steadiness, steadiness
from ..core.display import gbs, interval, of_ceiling, percent, size_bytes
from ..core.schema import SAMPLE_COUNT, Status
from ..workloads.views import BLOCK_SHAPE, CACHES, ONE_PARAMETER, SHAPE_MODEL
from . import tables
from .appendix import device_numbers, fault_rows, machine_code_rows, provenance_rows, status_rows
from .chapter_pages import Page, figures_in
from .contrasts import contrast_findings
from .earlier import earlier_finding
from .shapes import shape_findings, shape_gaps, shape_rows
from .tables import MOST_SIZES, Json, Namer


def report_facts(
    *,
    cells: pd.DataFrame,
    best: pd.DataFrame,
    ceiling: Sequence[CeilingRow],
    fits: Sequence[Json],
    shapes: Json,
    same_machine: Sequence[Json],
    provenance: Sequence[Json],
    figures: Mapping[str, Json],
    chapters: Mapping[str, Page],
    spec: Mapping[str, Any],
) -> Json:
    """All that the template shows, as JSON values."""
    names = tables.namer(cells)
    told = (spec["chapters"][name]["tells"] for name, page in chapters.items() if page.facts)
    elsewhere = {kernel for kernels in told for kernel in kernels}
    best_without_page = _without(best, elsewhere)
    return {
        "run": spec["run"],
        "recorded": spec["recorded"],
        "device": device_card(provenance),
        "is_cpu": provenance[0]["device"]["kind"] == "cpu",
        "findings": [
            steadiness_finding(steadiness(provenance)),
            *earlier_finding(provenance),
            *findings(_without(cells, elsewhere), best_without_page, fits, figures, spec, names),
            *(sentence for page in chapters.values() for sentence in page.findings),
            *shape_findings(shapes["fits"], names),
        ],
        "method": method_facts(cells, provenance, spec["host_fed"]),
        "kernels": [{"name": n, **spec["kernels"][n]} for n in sorted(spec["kernels"])],
        "workingsets": _in_section(figures, spec, CACHES),
        "ceilings": tables.ceiling_table(ceiling),
        "heatmaps": _in_section(figures, spec, BLOCK_SHAPE),
        "curves": _in_section(figures, spec, ONE_PARAMETER),
        "simulated": figures_in(figures, "simulated"),
        "same_machine_figures": figures_in(figures, "same_machine"),
        "same_machine": list(same_machine),
        "best": tables.best_rows(best_without_page, names),
        "best_elsewhere": len(best_without_page) < len(best),
        "most_sizes": str(MOST_SIZES),
        "fits": tables.fit_rows(fits, names),
        "shapes": shape_rows(shapes["fits"], names),
        "shape_gaps": shape_gaps(shapes["fits"], shapes["left_out"], names),
        "footprints": _in_section(figures, spec, SHAPE_MODEL),
        "sections": [
            {"title": title, "figures": _in_section(figures, spec, title)}
            for title in spec["sections"]
            if title not in (CACHES, BLOCK_SHAPE, ONE_PARAMETER)
            and not (title == SHAPE_MODEL and shapes["fits"])
        ],
        "statuses": status_rows(cells),
        "status_meaning": [
            {"status": s.value, "meaning": MEANING[s]}
            for s in Status
            if s.value in set(cells["status"])
        ],
        "faults": fault_rows(cells),
        "provenance": provenance_rows(provenance),
        "machine_code": machine_code_rows(provenance),
        "chapters": [
            {"name": name, "facts": page.facts} for name, page in chapters.items() if page.facts
        ],
        "broken_chapters": [
            {"name": name, "fault": page.fault} for name, page in chapters.items() if page.fault
        ],
    }


def _without(rows: pd.DataFrame, kernels: Collection[str]) -> pd.DataFrame:
    return rows[~rows["kernel"].isin(kernels)]


def _in_section(figures: Mapping[str, Json], spec: Mapping[str, Any], title: str) -> list[Json]:
    """The figures of kernels' views that stand under the heading `title`."""
    names = spec["sections"].get(title, [])
    return [{"file": n, **{w: figures[n][w] for w in ("title", "caption")}} for n in names]


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
        merged = [[label, "; ".join(dict.fromkeys(texts))] for label, texts in values.items()]
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
        "host_fed": not cells[cells["kernel"].isin(host_fed)].empty,
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
    widths = {
        (Path(p["params"]["folder"]).name, p["params"]["dtype"]): p["params"]["measure"][
            "relative_half_width"
        ]
        for p in provenance
    }
    targets = [widths[key] for key in zip(ok["kernel"], ok["dtype"], strict=True)]
    # What a cell stops at is narrower by rounding alone.
    wide = int((half > [w * (1 + 1e-9) for w in targets]).sum())
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
    notes = [figures[name] for names in spec["sections"].values() for name in names]
    covered = {note["kernel"] for note in notes if {"kernel", "finding"} <= note.keys()}
    out = [note["finding"] for note in notes if "finding" in note]
    tops = best[best["is_fastest"] & ~best["kernel"].isin(list(covered))]
    for kernel, words in spec["kernels"].items():
        tops = tops[~((tops["kernel"] == kernel) & tops["variant"].isin(words["controls"]))]
    for (kernel, dtype), group in tops.groupby(["kernel", "dtype"], sort=True):
        top = group.loc[group["bandwidth_gbs"].idxmax()]
        others = int(top["tied"]) - 1
        tied = "alone" if not others else f"tied with {others} other{'s' * (others > 1)}"
        out.append(
            f"{kernel}, {dtype}: best {interval(top)}{of_ceiling(top['share_of_ceiling'])} with "
            f"{top['params'] or 'no parameter'} ({top['variant']}, {names.size(top)}), {tied} of "
            f"{top['candidates']} valid cells{tables.edge_words(top['edge'])}."
        )
    persistent = [k for k in spec["persistent"] if k not in covered]
    rest = [k for k in sorted(set(cells["kernel"])) if k not in covered and k not in persistent]
    out += contrast_findings(cells, persistent, rest, names)
    views = [f"A view of a kernel is not drawn: {n['fault']}." for n in notes if "fault" in n]
    return out + _fit_findings(fits, names) + _fault_findings(cells) + views


def steadiness_finding(run: Steadiness) -> str:
    """Whether this run's figures may hold tomorrow, as the runtime's own copies tell."""
    if run.repeats == 1:
        word = "Measured once (repeats: 1): intervals cover this run only, not another one."
    else:
        word = (
            f"Measured {run.repeats} times in separate processes; intervals are those of another "
            "run on this machine."
        )
    if run.once:
        word += f" Measured once, so that intervals cover that run only: {', '.join(run.once)}."
    changes = [
        f"by {percent(typical)} (at most {percent(most)}) {when}"
        for pair, when in ((run.between, "between the repeats"), (run.within, "within one"))
        if pair
        for typical, most in [pair]
    ]
    if not changes:
        return word
    text = f"The runtime's own copies beside the cells changed {' and '.join(changes)}"
    if run.steady:
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
