"""How the run was measured and how sure its figures are: repeats, clocks, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.run_quality import MEANING, CopyChanges, Steadiness
from ..core.display import gbs, kind_words, percent
from ..core.schema import FAULTS, LIMITS, SAMPLE_COUNT, Status
from ..core.space import LAUNCH_KINDS
from .tables import Json


def between_words(ok: pd.DataFrame) -> str | None:
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
        word += f" Measured once, intervals of that run only: {', '.join(run.once)}."
    device, host = (_changes_words(of) for of in (run.device, run.host))
    # A run of host-fed kernels alone is judged by their copies.
    seen = run.device if device else run.host
    if not (device or host):
        return word
    changes = f"the runtime's own copies beside the cells changed {device or host}"
    if device and host:
        changes += f"; those from the host {host}"
    if seen.steady:
        return f"{word} The machine was steady: {changes}."
    return (
        f"{word} The machine was not steady: {changes}; compare figures of different sweeps as "
        "multiples of the copy beside them."
    )


def _changes_words(of: CopyChanges) -> str:
    """By how much copies changed; empty where nothing tells."""
    return " and ".join(
        f"by {percent(pair[0])} (at most {percent(pair[1])}) {when}"
        for pair, when in ((of.between, "between the repeats"), (of.within, "within one"))
        if pair is not None
    )


def sureness_rows(cells: pd.DataFrame) -> list[Json]:
    """For each kernel how its cells ended, and how wide their intervals are.

    Half of an interval over its median, of the typical cell and of the 95th percentile; the
    relative standard deviation of repeats' medians of the typical cell.
    """
    rows = []
    for kernel, own in cells.groupby("kernel", sort=True, observed=True):
        ok = own[own["status"] == Status.OK]
        half = (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])
        limits = own["status"].isin([s.value for s in LIMITS]).sum()
        rows.append(
            {
                "kernel": kernel,
                "cells": str(len(own)),
                "ok": str(len(ok)),
                "limits": str(limits),
                "faults": str(own["status"].isin([s.value for s in FAULTS]).sum()),
                "half_median": _share(half.median()),
                "half_p95": _share(half.quantile(0.95)),
                "between": _share(ok["between_spread"].median()),
            }
        )
    return rows


def status_words(cells: pd.DataFrame) -> str:
    """How the cells that were not measured ended, and how many."""
    counts = cells["status"].value_counts()
    named = [s for s in Status if s is not Status.OK and s.value in counts.index]
    return "; ".join(f"{counts[s.value]} {s.value}: {MEANING[s]}" for s in named)


def _share(share: float) -> str:
    return "—" if pd.isna(share) else percent(share)


def method_facts(
    cells: pd.DataFrame, provenance: Sequence[Json], host_fed: Collection[str]
) -> Json:
    """Numbers that the method section names; the data of `host_fed` kernels live on the host."""
    copies = cells.loc[~cells["kernel"].isin(host_fed), "copy_gbs"].dropna()
    ok = cells[cells["status"] == Status.OK]
    p = provenance[0]["params"]
    half = (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])
    return {
        "cells": _grouped(len(cells)),
        "ok": _grouped(len(ok)),
        "samples": _grouped(int(ok[SAMPLE_COUNT].sum())),
        "min_samples": p["measure"]["min_samples"],
        "max_samples": p["measure"]["max_samples"],
        "target": percent(p["measure"]["relative_half_width"]),
        "seed": p["seed"],
        "repeats": max(p["params"]["measure"]["repeats"] for p in provenance),
        "between": between_words(ok),
        "unmet": unmet_words(ok, ok["within_half_width"], provenance),
        "half_width_median": percent(float(half.median())) if len(ok) else "—",
        "half_width_p95": percent(float(half.quantile(0.95))) if len(ok) else "—",
        "verified_words": _grouped(int(ok["verified_words"].sum())),
        "copy": gbs(float(copies.max())) if len(copies) else None,
        "caches": _cache_words(cells),
        "host_fed": not cells[cells["kernel"].isin(host_fed)].empty,
    }


_KINDS = {
    "back_to_back": "without waiting for the host, short ones several together",
    "isolated": "each alone on a device that was idle",
    "stream": "several, queued one by one",
    "graph": "several in one graph",
}


def _cache_words(cells: pd.DataFrame) -> str:
    """What the run's cache states mean, and its kinds of launch where it has several."""
    words = {
        "warm": "Warm launches follow each other on the same buffers",
        "flushed": "before each flushed launch the last cache level is filled with other data",
    }
    text = "; ".join(w for state, w in words.items() if state in set(cells["cache_state"]))
    kinds = [k for k in LAUNCH_KINDS if k in set(cells["launch_kind"])]
    said = "; ".join(f"{kind_words(k)}: {_KINDS[k]}" for k in kinds) if len(kinds) > 1 else ""
    return f"{text[:1].upper()}{text[1:]}." + (f" Launches came {said}." if said else "")


def _grouped(number: int) -> str:
    """``214 304``, with blanks that do not break."""
    return f"{number:,}".replace(",", "\u202f")


def earlier_finding(provenance: Sequence[Json]) -> list[str]:
    """One sentence where cells of the run's first repeat were measured earlier; else none."""
    firsts = [p for p in provenance if p["params"]["repeat"] == 1]
    moments = earlier_cells(firsts)
    if not moments:
        return []
    cells = sum(moments.values())
    days = sorted({at[:10] for at in moments})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return [
        f"{cells} cell{'s' * (cells > 1)} of this report were measured by an earlier start of the "
        f"run ({when}), under the same conditions, and taken over; the provenance says which. "
        "Where a group mixes both, its cells are compared with the interval of another run."
    ]


def earlier_words(provenance: Sequence[Json]) -> str:
    """``; 12 cells of 2026-11-23 01:52``, to stand behind when a shard was written."""
    firsts = [p for p in provenance if p["params"]["repeat"] == 1]
    minutes: Counter[str] = Counter()
    for at, cells in earlier_cells(firsts).items():
        minutes[at[:16].replace("T", " ")] += cells
    return "".join(f"; {n} cells of {minute}" for minute, n in sorted(minutes.items()))


def earlier_cells(provenance: Sequence[Json]) -> Counter[str]:
    """Cells that were taken over, by the moment (ISO) at which they had been measured."""
    moments: Counter[str] = Counter()
    for p in provenance:
        for told in p.get("earlier", ()):
            moments[told["measured_at"]] += told["cells"]
    return moments


def searched_findings(provenance: Sequence[Json]) -> list[str]:
    """One sentence on the searches of a run; none where every cell was measured."""
    searches = [search for shard in provenance for search in shard.get("searches", ())]
    if not searches:
        return []
    tolerances = {
        shard["params"]["measure"]["search"]["tolerance"]
        for shard in provenance
        if "searches" in shard
    }
    shares = [search["measured"] / search["candidates"] for search in searches]
    text = (
        f"Not every launch was measured: in the typical group {percent(float(np.median(shares)))} "
        f"of them, at most {percent(max(shares))}"
    )
    known = [p for s in searches if (p := s["better_probability"]) is not None]
    if known and len(tolerances) == 1:
        text += (
            f"; that one left out is faster by more than {percent(tolerances.pop())} has a "
            f"probability of {percent(float(np.median(known)))} by the search's model (at most "
            f"{percent(max(known))})"
        )
    early = sum(search["ended"] == "budget" for search in searches)
    if early:
        text += f"; {early} of {len(searches)} searches ended at most_share before they were sure"
    return [f"{text}."]


# Clocks that change by less, from the highest to the lowest reading, are held steady.
STEADY_CLOCK = 0.01
_REASONS = {
    "applications_clocks": "a clock that was set",
    "sw_power_cap": "the board's power limit",
    "hw_slowdown": "a slow-down by the hardware",
    "sync_boost": "the clocks of other GPUs",
    "sw_thermal_slowdown": "the temperature",
    "hw_thermal_slowdown": "the temperature",
    "hw_power_brake_slowdown": "the power supply",
}


def clock_warning(provenance: Sequence[Mapping[str, Any]]) -> str:
    """A sentence for each name of a device whose clocks moved without being locked; "" for none.

    Nothing is said of a device that does not tell its clocks.
    """
    devices: dict[str, list[Mapping[str, Any]]] = {}
    for shard in provenance:
        if not shard.get("clocks", {}).get("locked"):
            devices.setdefault(shard["device"]["name"], []).append(shard)
    return " ".join(filter(None, (_of_device(name, shards) for name, shards in devices.items())))


def _of_device(name: str, shards: Sequence[Mapping[str, Any]]) -> str:
    seen = [found for shard in shards if (found := shard["clocks_seen"]) is not None]
    moved = [
        f"its {part} ran at {low:,} to {high:,} MHz ({percent(1 - low / high)} apart)"
        for part in ("core", "memory")
        for low, high in _mhz_range([found[f"{part}_mhz"] for found in seen])
        if low < (1 - STEADY_CLOCK) * high
    ]
    if not moved:
        return ""
    number = sum(found["readings"] for found in seen)
    return (
        f"The clocks of {name} were not locked and moved: {' and '.join(moved)} in {number:,} "
        f"readings{_held_by(seen, number)}. Cells that were sampled in the same rounds share that; "
        "others, and other runs, differ by it. Where the driver allows it, 'measure: {lock_clocks: "
        "base}' holds them."
    )


def _mhz_range(ranges: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The range of all of them; none of none."""
    return [(min(low for low, _ in ranges), max(high for _, high in ranges))] if ranges else []


def _held_by(seen: Sequence[Mapping[str, Any]], number: int) -> str:
    """What held the core's clock down most often, as a clause."""
    counts = Counter[str]()
    for found in seen:
        counts.update({r: n for r, n in found["reasons"].items() if r in _REASONS})
    if not counts:
        return ""
    reason, count = counts.most_common(1)[0]
    return f", held down by {_REASONS[reason]} in {percent(count / number)} of them"


def locked_clause(provenance: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the clocks were locked, or why not, where a run asked for it."""
    asked = [shard["clocks"] for shard in provenance if "clocks" in shard]
    held = sorted({str(clocks["core"]) for clocks in asked if clocks["locked"]})
    whys = dict.fromkeys(clocks["why"] for clocks in asked if not clocks["locked"])
    sentences = [f"The clocks were not locked as asked: {why}." for why in whys]
    if held:
        words = ("their base" if core == "base" else f"{core} MHz" for core in held)
        shards = sum(clocks["locked"] for clocks in asked)
        of = "" if shards == len(provenance) else f" for {shards} of {len(provenance)} shards"
        sentences.insert(0, f"The core's clocks were locked at {' and '.join(words)}{of}.")
    return sentences
