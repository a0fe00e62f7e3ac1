"""Describe how a run was measured and how reliable its figures are; list devices and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from ..analysis.fastest import axes_of, params_text
from ..analysis.run_quality import MEANING, CopyChanges, Steadiness, faults
from ..core.backends import BACKENDS
from ..core.display import gbs, joined, mode_words, percent, seconds, size_bytes
from ..core.run_plan import LACKING
from ..core.schema import FAULTS, LIMITS, SAMPLE_COUNT, Status
from ..core.space import TIMING_MODES
from ..search.planner import RACE_REFERENCE_CELLS, SearchEnd, SearchMode
from .tables import Json


def _between_words(ok: pd.DataFrame) -> str | None:
    """Describe the spread within and between repeats of the typical cell; None with one repeat."""
    between = ok["repeat_rsd"].dropna()
    if between.empty:
        return None
    within = ok.loc[between.index, "sample_half_width"].median()
    return (
        f"Typically the samples of a run know its own median to ± {percent(within)}, and repeats "
        f"differ by a standard deviation of {percent(between.median())} (95th percentile "
        f"{percent(between.quantile(0.95))})."
    )


def _unmet_words(ok: pd.DataFrame, provenance: Sequence[Json]) -> str:
    """Count verified cells that stopped with wider intervals than requested, with the reasons."""
    params = [p["params"] for p in provenance]
    asked = {
        (Path(p["folder"]).name, p["dtype"]): p["measure"]["relative_half_width"] for p in params
    }
    widths = [asked[key] for key in zip(ok["kernel"], ok["dtype"], strict=True)]
    # A cell that stopped at this width may be wider by rounding only.
    wide = int((ok["sample_half_width"] > [w * (1 + 1e-9) for w in widths]).sum())
    if not wide:
        return ""
    spent = ", or their job's share of measure.budget was spent" if _spent(provenance) else ""
    return (
        f"In {_grouped(wide)} of the {_grouped(len(ok))} measured cells the samples leave a wider "
        "interval than "
        "measure.relative_half_width asks: they reached a cell's own limit (measure.max_samples, "
        f"measure.cell_budget_s){spent}, or more samples would not have helped."
    )


def steadiness_finding(run: Steadiness) -> str:
    """State whether the machine was steady, judged by the memcpy baselines."""
    if run.repeats == 1:
        word = "Measured once (repeats: 1): intervals cover this run only, not another one."
    else:
        word = (
            f"Measured {run.repeats} times in separate processes; intervals predict another run "
            "on this machine."
        )
    if run.once:
        word += f" Measured once, intervals of that run only: {', '.join(run.once)}."
    device, host = (_changes_words(of) for of in (run.device, run.host))
    # A run of host-fed kernels alone is judged by their copies from the host.
    seen = run.device if device else run.host
    if not (device or host):
        return word
    changes = f"the memcpy baselines changed {device or host}"
    if device and host:
        changes += f"; those from the host {host}"
    if seen.steady:
        return f"{word} The machine was steady: {changes}."
    return f"{word} The machine was unsteady: {changes}."


def unsteady_words(run: Steadiness) -> str:
    """State which conclusions hold on a machine that was not steady; "" if it was steady."""
    seen = run.device if run.device.copies else run.host
    if seen.steady:
        return ""
    return (
        "The speed of identical copies changed during the measurement. Rankings, ties and costs "
        "are still valid, because they compare launches of the same rounds. Do not compare GB/s "
        "between kernels, sizes or runs. Compare multiples of the memcpy baseline instead."
    )


def _changes_words(of: CopyChanges) -> str:
    """State by how much copies changed; empty if that is unknown."""
    return " and ".join(
        f"by {percent(pair[0])} ({percent(pair[1])} at most) {when}"
        for pair, when in ((of.between, "between repeats"), (of.within, "within a repeat"))
        if pair is not None
    )


def sureness_rows(cells: pd.DataFrame) -> list[Json]:
    """Return for each kernel how its cells ended, and the widths of their intervals, as shares."""
    rows = []
    for kernel, own in cells.groupby("kernel", sort=True, observed=True):
        ok = own[own["status"] == Status.OK]
        half = _half_widths(ok)
        rows.append(
            {
                "kernel": kernel,
                "cells": str(len(own)),
                "ok": str(len(ok)),
                "limits": str(own["status"].isin([s.value for s in LIMITS]).sum()),
                "faults": str(own["status"].isin([s.value for s in FAULTS]).sum()),
                "half_median": _share(half.median()),
                "half_p95": _share(half.quantile(0.95)),
                "between": _share(ok["repeat_rsd"].median()),
            }
        )
    return rows


def _half_widths(ok: pd.DataFrame) -> pd.Series:
    """Return half of each cell's interval as a share of its median, shape (cells,)."""
    half: pd.Series = (ok["median_high_s"] - ok["median_low_s"]) / (2 * ok["median_s"])
    return half


def status_words(cells: pd.DataFrame) -> str:
    """Count the cells that were not measured, by their status."""
    counts = cells["status"].value_counts()
    named = [s for s in Status if s is not Status.OK and s.value in counts.index]
    return "; ".join(f"{counts[s.value]} {s.value}: {MEANING[s]}" for s in named)


def _share(share: float) -> str:
    return "—" if pd.isna(share) else percent(share)


def method_facts(
    cells: pd.DataFrame, provenance: Sequence[Json], host_fed: Collection[str]
) -> Json:
    """Return the numbers of the method section; the data of `host_fed` kernels are on the host."""
    copies = cells.loc[~cells["kernel"].isin(host_fed), "memcpy_gbs"].dropna()
    ok = cells[cells["status"] == Status.OK]
    half = _half_widths(ok)
    return {
        "cells": _grouped(len(cells)),
        "ok": _grouped(len(ok)),
        "samples": _grouped(int(ok[SAMPLE_COUNT].sum())),
        "stopping": stopping_words(provenance),
        "seeds": seed_words(provenance),
        "repeats": max(p["params"]["measure"]["repeats"] for p in provenance),
        "raced": any(
            s["mode"] == SearchMode.RACE for p in provenance for s in p.get("searches", ())
        ),
        "reference_cells": RACE_REFERENCE_CELLS,
        "between": _between_words(ok),
        "unmet": _unmet_words(ok, provenance),
        "half_width_median": _share(half.median()),
        "half_width_p95": _share(half.quantile(0.95)),
        "verified_words": _grouped(int(ok["verified_words"].sum())),
        "copy": gbs(float(copies.max())) if len(copies) else None,
        "caches": _cache_words(cells),
        "waited": waited_words(provenance),
        "host_fed": not cells[cells["kernel"].isin(host_fed)].empty,
    }


def stopping_words(provenance: Iterable[Json]) -> str:
    """Describe when a cell has enough samples: a sentence for each setting, with its kernels."""
    kernels: dict[tuple[Any, ...], dict[str, None]] = {}
    for p in provenance:
        params, m = p["params"], p["params"]["measure"]
        names = ("relative_half_width", "min_samples", "max_samples")
        setting = *(m[name] for name in names), m["repeats"] > 2
        kernels.setdefault(setting, {})[Path(params["folder"]).name] = None
    sentences = []
    for (target, least, most, narrows), named in sorted(kernels.items()):
        cell = f"A cell of {joined(sorted(named))}" if len(kernels) > 1 else "A cell"
        sentences.append(
            f"{cell} stops after {least} samples if half of its 95 % interval is narrower than "
            f"{percent(target)} of its median, and after {most} in any case."
        )
        if narrows:
            sentences.append(
                f"A cell that these would not make as well known has no more than the {least}."
            )
    return " ".join(sentences)


def seed_words(provenance: Iterable[Json]) -> str:
    """Return ``seed 1``, or ``seeds 1 and 2``."""
    seeds = sorted({p["params"]["seed"] for p in provenance})
    return f"seed{'s' * (len(seeds) > 1)} {joined(map(str, seeds))}"


_KINDS = {
    "batched": "without waiting for the host, short ones several together",
    "isolated": "each alone on a device that was idle",
    "stream": "several, queued one by one",
    "graph": "several in one graph",
}


def _cache_words(cells: pd.DataFrame) -> str:
    """Explain the run's cache states, and its timing modes if it has several."""
    words = {
        "warm": "Warm launches follow each other on the same buffers",
        "flushed": "before each flushed launch the last cache level is filled with other data",
    }
    text = "; ".join(w for state, w in words.items() if state in set(cells["cache_state"]))
    text = f"{text[:1].upper()}{text[1:]}."
    kinds = [k for k in TIMING_MODES if k in set(cells["timing_mode"])]
    if len(kinds) > 1:
        text += f" Launches came {'; '.join(f'{mode_words(k)}: {_KINDS[k]}' for k in kinds)}."
    return f"{text} {overhead_words(cells)}".strip()


def waited_words(provenance: Iterable[Json]) -> str:
    """Return a sentence on shards whose process waited for cores; "" if none waited."""
    shares = [p.get("waited_share", 0.0) for p in provenance]
    lacking = [share for share in shares if share > LACKING]
    if not lacking:
        return ""
    return (
        f"In {len(lacking)} of {len(shares)} shards the process waited for a core for "
        f"{percent(median(lacking))} of its time (median): their cells are ranked by the time that "
        "its threads computed, which does not show how well a launch fills all cores."
    )


def overhead_words(cells: pd.DataFrame) -> str:
    """Return sentences on the overhead of samples: subtracted, or still in the times.

    A backend whose clock shows the begin and end of a launch gets no sentence.
    """
    by_events = cells["backend"].map(lambda name: name in BACKENDS and BACKENDS[name].claims_gpu)
    timed = cells[(cells["status"] == Status.OK) & by_events.astype(bool)]
    in_rows = (timed["cache_state"] == "warm") & (timed["timing_mode"] != "isolated")
    known = timed["overhead_s"].notna()
    said = []
    if known.any():
        typical = seconds(float(timed.loc[known, "overhead_s"].median()))
        said.append(
            "The time of a launch is that from one launch to the next in a row, without the "
            f"overhead of the sample (median {typical}), which each repeat measures for each group."
        )
    if (in_rows & ~known & (timed["launches_per_sample"] > 1)).any():
        said.append(
            "These times were measured by an older protocol: samples in a row hold their overhead, "
            "some microseconds, over their number of launches."
        )
    if (~in_rows).any():
        said.append(
            "Flushed and isolated launches are timed from event to event, which holds about two "
            "microseconds of events."
        )
    return " ".join(said)


def _grouped(number: int) -> str:
    """Return ``214 304``, with blanks that do not break."""
    return f"{number:,}".replace(",", "\u202f")


def _spent(provenance: Sequence[Json]) -> int:
    """Return the number of jobs that used up their share of the run's budget."""
    jobs = [p.get("measuring", {}) for p in provenance]
    return sum(job["seconds"] >= job["budget"] for job in jobs if job.get("budget") is not None)


def budget_finding(
    provenance: Sequence[Json], best: pd.DataFrame, host_fed: Collection[str] = ()
) -> list[str]:
    """State the precision that the budget of seconds reached, and that of a larger budget.

    The result is empty without a budget. n times as many independent repeats narrow an interval by
    √n.

    Parameters
    ----------
    provenance
        Provenance of all shards.
    best
        Tied cells of all groups.
    host_fed
        Kernels that are left out if there are others, because they are as noisy as the host.
    """
    jobs = [m for p in provenance if (m := p.get("measuring", {})).get("budget") is not None]
    if not jobs:
        return []
    took, budget = (sum(job[name] for job in jobs) for name in ("seconds", "budget"))
    spent = _spent(provenance)
    words = f"Measuring took {took:.0f} s of a budget of {budget:.0f} s (measure.budget)"
    if not spent:
        return [
            f"{words}. No job used up its share, so a larger budget would change nothing: a cell "
            "stops earlier at its own limits (measure.max_samples, measure.cell_budget_s)."
        ]
    on_device = best[best["is_fastest"] & ~best["kernel"].isin(host_fed)]
    known = best if on_device.empty else on_device
    half = _half_widths(known)
    return [
        f"{words}, and {spent} of {len(jobs)} jobs used up their share. The time of a fastest cell "
        f"is known to ± {percent(half.median())} (median); four times the budget would roughly "
        "halve that."
    ]


def earlier_finding(provenance: Sequence[Json]) -> list[str]:
    """Return a sentence if cells of the first repeat were measured earlier, otherwise nothing."""
    moments = _earlier_cells(provenance)
    if not moments:
        return []
    cells = moments.total()
    days = sorted({at[:10] for at in moments})
    return [
        f"This report reuses {cells} cell{'s' * (cells > 1)} that an earlier start of the run "
        f"measured under the same conditions ({_first_to_last(days)}); the provenance lists them. "
        "If a group mixes both, its cells are compared with the interval of another run."
    ]


def earlier_words(provenance: Sequence[Json]) -> str:
    """Count cells reused from earlier starts, by minute: ``; 12 cells of 2026-11-23 01:52``."""
    minutes: Counter[str] = Counter()
    for at, cells in _earlier_cells(provenance).items():
        minutes[at[:16].replace("T", " ")] += cells
    return "".join(f"; {n} cells of {minute}" for minute, n in sorted(minutes.items()))


def _earlier_cells(provenance: Sequence[Json]) -> Counter[str]:
    """Count reused cells of first repeats, by the moment (ISO) of their measurement."""
    moments: Counter[str] = Counter()
    for p in provenance:
        for taken in p.get("earlier", ()) if p["params"]["repeat"] == 1 else ():
            moments[taken["measured_at"]] += taken["cells"]
    return moments


def _first_to_last(days: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((days[0], days[-1])))


def _left_cells_out(search: Json) -> bool:
    """Return whether a search left cells out.

    A race does so only at the end of its time. Its other cells without a sample failed.
    """
    is_whole = search["mode"] == SearchMode.RACE and search["ended"] != SearchEnd.BUDGET
    return search["measured"] < search["candidates"] and not is_whole


def searched_findings(provenance: Sequence[Json]) -> list[str]:
    """Return a sentence on the searches that left cells out; nothing if no search did."""
    searches = [
        search
        for shard in provenance
        for search in shard.get("searches", ())
        if _left_cells_out(search)
    ]
    if not searches:
        return []
    tolerances = {
        shard["params"]["measure"]["search"]["tolerance"]
        for shard in provenance
        if "searches" in shard
    }
    shares = [search["measured"] / search["candidates"] for search in searches]
    text = (
        f"Not every launch was measured: in the typical group {percent(median(shares))} of them, "
        f"at most {percent(max(shares))}"
    )
    known = [p for s in searches if (p := s["better_probability"]) is not None]
    if known and len(tolerances) == 1:
        text += (
            f"; that one left out is faster by more than {percent(tolerances.pop())} has a "
            f"probability of {percent(median(known))} by the search's model (at most "
            f"{percent(max(known))})"
        )
    early = sum(search["ended"] == "budget" for search in searches)
    if early:
        text += f"; {early} of {len(searches)} searches ended at max_share before they were sure"
    return [f"{text}."]


# Clocks count as steady if the highest reading exceeds the lowest by less than this.
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
    """Return a sentence for each device whose clocks moved without being locked; "" if none did."""
    devices: dict[str, list[Mapping[str, Any]]] = {}
    for shard in provenance:
        if not shard.get("clocks", {}).get("locked"):
            devices.setdefault(shard["device"]["name"], []).append(shard)
    return " ".join(filter(None, (_of_device(name, shards) for name, shards in devices.items())))


def _of_device(name: str, shards: Sequence[Mapping[str, Any]]) -> str:
    seen = [found for shard in shards if (found := shard["clocks_seen"]) is not None]
    moved = []
    for part in ("core", "memory") if seen else ():
        lows, highs = zip(*(found[f"{part}_mhz"] for found in seen), strict=True)
        low, high = min(lows), max(highs)
        if low < (1 - STEADY_CLOCK) * high:
            apart = percent(1 - low / high)
            moved.append(f"its {part} ran at {low:,} to {high:,} MHz ({apart} apart)")
    if not moved:
        return ""
    number = sum(found["readings"] for found in seen)
    held = ""
    counts = Counter[str]()
    for found in seen:
        counts.update({r: n for r, n in found["reasons"].items() if r in _REASONS})
    for reason, count in counts.most_common(1):
        held = f", held down by {_REASONS[reason]} in {percent(count / number)} of them"
    return (
        f"The clocks of {name} were not locked and moved: {' and '.join(moved)} in {number:,} "
        f"readings{held}. Cells that were sampled in the same rounds share that; others, and other "
        "runs, differ by it. If the driver allows it, 'measure: {lock_clocks: base}' holds them."
    )


def locked_clause(provenance: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe how the clocks were locked, or why not, if a run requested it."""
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


# Closing tables


def title_device(provenance: Sequence[Json]) -> str:
    """Return the devices' names, each once, as in ``NVIDIA H200``."""
    return ", ".join(dict.fromkeys(p["device"]["name"] for p in provenance))


def measured_date(provenance: Sequence[Json]) -> list[int]:
    """Return year, month and day on which the last shard was written: the report's date."""
    return [int(part) for part in max(p["written_at"] for p in provenance)[:10].split("-")]


def measured_words(provenance: Sequence[Json]) -> str:
    """Return the days on which the run measured, and the driver."""
    days = sorted({p["written_at"][:10] for p in provenance})
    drivers = ", ".join(dict.fromkeys(f"{p['device']['driver']}" for p in provenance))
    return f"measured {_first_to_last(days)}, driver {drivers}"


def only_cpus(provenance: Iterable[Json]) -> bool:
    """Return whether no shard was measured on a GPU."""
    return all(p["device"]["kind"] == "cpu" for p in provenance)


def device_card(provenance: Sequence[Json]) -> list[list[str]]:
    """Return label and value of each line; devices of one name share a card that counts them."""
    numbers = device_numbers(provenance)
    devices = {p["device"]["uuid"]: p["device"] for p in provenance}
    lines: list[list[str]] = []
    for name in dict.fromkeys(d["name"] for d in devices.values()):
        same = [d for d in devices.values() if d["name"] == name]
        values: dict[str, dict[str, None]] = {}
        for device in same:
            for label, value in _device_lines(device, numbers.get(device["uuid"])):
                values.setdefault(label, {})[value] = None
        card = [[label, "; ".join(texts)] for label, texts in values.items()]
        if len(same) > 1:
            card[0][1] = f"{len(same)} × {card[0][1]}"
        lines += card
    hosts = (p["host"] for p in provenance)
    words = (f"{h['cores']} cores, {h['system']}, Python {h['python']}" for h in hosts)
    return [*lines, *(["Host", host] for host in dict.fromkeys(words))]


def _device_lines(d: Json, number: int | None) -> list[tuple[str, str]]:
    clock = f" at up to {d['core_clock_mhz']} MHz" if d["core_clock_mhz"] else ", clock unknown"
    return [
        ("Device", f"{d['name']} ({d['kind'].upper()}, backend {d['backend']})"),
        ("Runtime", f"{d['runtime']}, driver {d['driver']}"),
        ("Compute units", f"{d['multiprocessors']}{clock}"),
        ("Memory", size_bytes(d["global_memory"])),
        ("Last-level cache", size_bytes(d["cache"]) if d["cache"] else "not reported"),
        ("Largest block of the device", f"{d['max_threads_per_block']} threads"),
        *((_LABELS.get(k, k), str(v)) for k, v in sorted(d["extra"].items())),
        ("Identity", ("" if number is None else f"{number}: ") + d["uuid"]),
    ]


_LABELS = {
    "ecc": "ECC",
    "memory_bus_bits": "Memory bus (bit)",
    "memory_clock_mhz": "Memory clock (MHz)",
    "threads_per_multiprocessor": "Threads per multiprocessor",
    "compute_capability": "Compute capability",
}


# Number of cells in a row of faults whose launch parameters are listed.
_NAMED = 3


def fault_rows(cells: pd.DataFrame) -> list[Json]:
    """Group faults by message, so that a broken build is one line; ``at`` names launches."""
    bad = faults(cells).fillna({"message": ""})
    groups = bad.groupby(["kernel", "dtype", "variant", "status", "message"], observed=True)
    return [
        {
            "where": f"{k}, {d}, {v}",
            "status": s,
            "message": m or "no message",
            "cells": str(len(some)),
            "at": _launches_words(some),
        }
        for (k, d, v, s, m), some in groups
    ]


def _launches_words(cells: pd.DataFrame) -> str:
    """List the launches of some cells: full combinations of values as such, others one by one."""
    axes = axes_of(cells)
    values = {axis: sorted(map(str, cells[axis].dropna().unique()), key=int) for axis in axes}
    launches = cells[axes].drop_duplicates()
    if len(launches) > _NAMED and len(launches) == prod(map(len, values.values())):
        return ", ".join(f"{axis}={'|'.join(of_axis)}" for axis, of_axis in values.items())
    named = [params_text(cell, axes) for cell in launches.head(_NAMED).to_dict("records")]
    return "; ".join(named) + "; …" * (len(launches) > _NAMED)


def device_numbers(provenance: Sequence[Json]) -> dict[str, int]:
    """Return the numbers by which a report distinguishes its devices, from 1, by UUID.

    Devices of one name have consecutive numbers. The result is empty if there is only one device.
    """
    names = {p["device"]["uuid"]: p["device"]["name"] for p in provenance}
    cards = list(dict.fromkeys(names.values()))
    uuids = sorted(names, key=lambda uuid: cards.index(names[uuid]))
    return {uuid: i for i, uuid in enumerate(uuids, 1)} if len(uuids) > 1 else {}


def provenance_rows(provenance: Sequence[Json]) -> list[Json]:
    """Return one line for each kernel and digest of its code."""
    numbers = device_numbers(provenance)
    kernels: dict[tuple[str, str], list[Json]] = {}
    for p in provenance:
        kernel = Path(p["params"]["folder"]).name
        kernels.setdefault((kernel, p["kernel_digest"]), []).append(p)
    return [
        {
            "kernel": kernel,
            "types": ", ".join(dict.fromkeys(p["params"]["dtype"] for p in shards)),
            "digest": digest,
            "shards": str(len(shards)),
            "devices": _runs({numbers.get(p["device"]["uuid"], 1) for p in shards}),
            "written": _written_words([p["written_at"] for p in shards]) + earlier_words(shards),
        }
        for (kernel, digest), shards in sorted(kernels.items())
    ]


# Names of the figures of `model.machine`, in words.
_FIGURES = {
    "latency_l2_s": "a load from the cache",
    "latency_dram_s": "a load from memory",
    "launch_s": "start of a launch behind others",
    "sample_s": "what a sample costs besides its launches",
    "dispatch_s": "start of a block, of a multiprocessor",
    "warp_launch_s": "start of a further warp of a block",
    "issue_s": "an instruction of a warp, of a multiprocessor",
    "bus_read_bps": "memory, read",
    "bus_write_bps": "memory, written",
    "bus_copy_bps": "memory, copied",
    "l2_read_bps": "cache, read",
    "l2_write_bps": "cache, written",
    "l2_copy_bps": "cache, copied",
    "load_port_bytes_per_s": "loads of one multiprocessor",
    "store_port_bytes_per_s": "stores of one multiprocessor",
    "open_sector_s": "a sector stored in parts, for each doubling of the lines",
    "turn_1": "a copy's further time, one load at once",
    "turn_2": "the same, 2 loads at once",
    "turn_4": "the same, 4 loads at once",
    "turn_8": "the same, 8 loads at once",
    "cache_end_latency_share": "end of the cache, by latency",
    "cache_end_rate_share": "end of the cache, by bandwidth",
}
_UNITS: Mapping[str, Callable[[float], str]] = {
    "s": seconds,
    "bytes/s": lambda value: gbs(value * 1e-9),
    "1": percent,
}


def machine_tables(devices: Sequence[Json]) -> list[Json]:
    """Return each device's figures with their intervals, and a sentence for each missing one."""
    return [
        {
            "device": device["device"],
            "rows": [_figure_row(fact) for fact in device["facts"]],
            "missing": [
                f"{words}: {device['missing'][name]}"
                for name, words in _FIGURES.items()
                if name in device["missing"]
            ],
        }
        for device in devices
    ]


def _figure_row(fact: Json) -> Json:
    value, low, high = (_UNITS[fact["unit"]](fact[end]) for end in ("value", "low", "high"))
    return {
        "figure": _FIGURES[fact["name"]],
        "value": value,
        "interval": f"{low} to {high}",
        "how": fact["how"],
    }


def _runs(numbers: Iterable[int]) -> str:
    """Return ``1, 3 to 5`` for 1, 3, 4 and 5."""
    # Within a run, the number and its index grow in step.
    runs = groupby(enumerate(sorted(numbers)), key=lambda place: place[1] - place[0])
    members = [[number for _, number in run] for _, run in runs]
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in members)


def _written_words(times: Iterable[str]) -> str:
    """Return the first and the last of ISO times, to the minute; a common day is named once."""
    minutes = sorted(time[:16].replace("T", " ") for time in times)
    first, last = minutes[0], minutes[-1]
    if first == last:
        return first
    return f"{first} to {last[11:] if last[:10] == first[:10] else last}"
