"""Rows of the report's closing tables: statuses, provenance and machine code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from ..analysis.statuses import faults, status_counts
from ..core.space import variant_in
from .earlier import earlier_words
from .tables import Json, size_words

# A row for all of more variants than this counts them, any other row names each of its variants.
NAMED_VARIANTS = 3
# A shard of more sizes than this shows how many they are, and the first and the last.
NAMED_SIZES = 3
# What the shards of one sweep and dtype have in common among their parameters.
SWEEP = ("folder", "dtype", "sizes", "axes", "variants", "cache_states")

# What the merged rows of a table share; kernel and dtype stand first.
Key = tuple[str, ...]


def merged_variants(rows: Iterable[tuple[Key, str]]) -> list[tuple[Key, str]]:
    """Each key of `rows` once, in order, with the words for the variants that have it.

    Of all variants is said only how many they are, when they are all that `rows` has of the kernel
    and dtype (a key's first two parts) and too many to name.
    """
    variants: dict[Key, dict[str, None]] = {}
    every: dict[Key, set[str]] = {}
    for key, variant in rows:
        variants.setdefault(key, {})[variant] = None
        every.setdefault(key[:2], set()).add(variant)
    return [(key, _variant_words(list(v), every[key[:2]])) for key, v in variants.items()]


def _variant_words(variants: Sequence[str], every: set[str]) -> str:
    if len(variants) == len(every) > NAMED_VARIANTS:
        return f"all {len(every)} variants"
    return ", ".join(variants)


def status_rows(cells: pd.DataFrame) -> Json:
    """Header and body of the table of statuses; variants of equal counts share a row."""
    counts = status_counts(cells)
    rows = (
        ((kernel, dtype, *(str(int(v)) for v in row)), variant)
        for (kernel, dtype, variant), row in zip(counts.index, counts.to_numpy(), strict=True)
    )
    return {
        "header": ["kernel", "type", "variants", *counts.columns],
        "body": [[*key[:2], variants, *key[2:]] for key, variants in merged_variants(rows)],
    }


def fault_rows(cells: pd.DataFrame) -> list[Json]:
    """Faults grouped by their message, so that a broken build is one line."""
    bad = faults(cells).fillna({"message": ""})
    groups = bad.groupby(["kernel", "dtype", "variant", "status", "message"], observed=True)
    return [
        {"where": f"{k}, {d}, {v}", "status": s, "message": m or "no message", "cells": str(n)}
        for (k, d, v, s, m), n in groups.size().items()
    ]


def device_numbers(provenance: Sequence[Json]) -> dict[str, int]:
    """Number of each device by its UUID, in the order of the report's card; empty for only one."""
    names = {p["device"]["uuid"]: p["device"]["name"] for p in provenance}
    cards = list(dict.fromkeys(names.values()))
    uuids = sorted(names, key=lambda uuid: cards.index(names[uuid]))
    return {uuid: i for i, uuid in enumerate(uuids, 1)} if len(uuids) > 1 else {}


def provenance_rows(provenance: Sequence[Json]) -> list[Json]:
    """One line for each sweep and dtype; shards that were built differently stand apart."""
    numbers = device_numbers(provenance)
    groups: dict[str, list[Json]] = {}
    for p in provenance:
        groups.setdefault(_origin(p), []).append(p)
    return [
        {
            "shard": f"{_sweep_words(shards[0]['params'])}, {_part_words(shards, numbers)}",
            "digest": shards[0]["kernel_digest"],
            "written": _written_words([p["written_at"] for p in shards]) + earlier_words(shards),
            "builds": _build_words(shards[0]["builds"]),
        }
        for shards in groups.values()
    ]


def _origin(p: Json) -> str:
    """What the parts of one line agree in."""
    sweep = [p["params"][name] for name in SWEEP]
    count = p["params"]["shard"][1]
    return json.dumps([sweep, count, p["kernel_digest"], p["builds"]], sort_keys=True)


def _sweep_words(params: Mapping[str, Any]) -> str:
    """Kernel, dtype and sizes; a shard does not hold its sweep's name, but no size is in two."""
    sizes = [size_words(*size) for size in params["sizes"]]
    if len(sizes) > NAMED_SIZES:
        sizes = [f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"]
    return ", ".join([_kernel(params), params["dtype"], *sizes])


def _kernel(params: Mapping[str, Any]) -> str:
    return str(params["folder"]).rsplit("/", 1)[-1]


def _part_words(shards: Sequence[Json], numbers: Mapping[str, int]) -> str:
    """``parts 1 to 3 of 4, device 1; part 4 of 4, device 2``; a single device is not named."""
    parts: dict[int, set[int]] = {}
    for p in shards:
        device = numbers.get(p["device"]["uuid"], 0)
        parts.setdefault(device, set()).add(p["params"]["shard"][0] + 1)
    count = shards[0]["params"]["shard"][1]
    return "; ".join(
        f"part{'s' * (len(numbered) > 1)} {_runs(numbered)} of {count}"
        + f", device {device}" * bool(device)
        for device, numbered in sorted(parts.items())
    )


def _runs(numbers: Iterable[int]) -> str:
    """``1, 3 to 5`` for 1, 3, 4 and 5."""
    # Within a run a number and its place grow alike.
    runs = groupby(enumerate(sorted(numbers)), key=lambda place: place[1] - place[0])
    members = [[number for _, number in run] for _, run in runs]
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in members)


def _written_words(times: Iterable[str]) -> str:
    """The first and the last of ISO times, to the minute; a day is said once."""
    minutes = sorted(time[:16].replace("T", " ") for time in times)
    first, last = minutes[0], minutes[-1]
    if first == last:
        return first
    return f"{first} to {last[11:] if last[:10] == first[:10] else last}"


def _build_words(builds: Mapping[str, str]) -> str:
    """Compiler options of each variant; those that all variants have are said once.

    Of a kernel with compile-time axes their values are left out, which stand in the cells.
    """
    options: dict[str, list[str]] = {}
    for name, text in sorted(builds.items()):
        variant, flags = variant_in(name), text.split()
        options[variant] = [f for f in options.get(variant, flags) if f in flags]
    if not options:
        return "no build"
    first = next(iter(options.values()))
    common = [o for o in first if len(options) > 1 and all(o in rest for rest in options.values())]
    rest = {variant: [o for o in flags if o not in common] for variant, flags in options.items()}
    words = [f"{variant}: {' '.join(flags)}" for variant, flags in rest.items() if flags]
    return "; ".join([f"all: {' '.join(common)}"] * bool(common) + words)


def machine_code_rows(provenance: Sequence[Json]) -> list[Json]:
    """One line for each entry of every dtype; variants of equal machine code share it."""
    names = ("kernel", "dtype", "entry", "registers", "spills", "accesses")
    entries = sorted(_entries(provenance), key=lambda row: (row[0][:2], row[1], row[0][2:]))
    return [
        {**dict(zip(names, key, strict=True)), "variants": variants}
        for key, variants in merged_variants(entries)
    ]


def _entries(provenance: Sequence[Json]) -> Iterable[tuple[Key, str]]:
    """What was found of each entry of every shard, with the variant.

    Of a variant that is compiled for several values, the range over these.
    """
    for p in provenance:
        found: dict[tuple[str, str], list[Json]] = {}
        for name, code in ((p.get("machine_code") or {}).get("variants") or {}).items():
            for e in code["entries"]:
                found.setdefault((e["entry"], variant_in(name)), []).append(e)
        for (entry, variant), entries in found.items():
            registers = _range(e["registers"] for e in entries)
            spills = _range(e["spill_loads"] + e["spill_stores"] for e in entries)
            accesses = dict.fromkeys(_access_words(e["accesses"]) for e in entries)
            several = f"{len(accesses)} kinds, by what is compiled in"
            words = next(iter(accesses)) if len(accesses) == 1 else several
            where = (_kernel(p["params"]), p["params"]["dtype"], entry)
            yield (*where, registers, spills, words), variant


def _range(numbers: Iterable[int]) -> str:
    """``16`` or ``16 to 40``."""
    ordered = sorted(set(numbers))
    return " to ".join(map(str, dict.fromkeys((ordered[0], ordered[-1]))))


def _access_words(accesses: Iterable[Mapping[str, Any]]) -> str:
    """``4 × 16 B global load and store looped``: what differs only in kind is said together."""
    kinds: dict[tuple[int, int, int, str], list[str]] = {}
    for a in accesses:
        alike = (a["count"], a["in_loop"], a["width"], a["space"])
        kinds.setdefault(alike, []).append(a["kind"])
    words = []
    for (count, in_loop, width, space), names in kinds.items():
        where = {0: "", count: " looped"}.get(in_loop, f", {in_loop} looped")
        words.append(f"{count} × {width} B {space} {' and '.join(names)}{where}")
    return ", ".join(words)
