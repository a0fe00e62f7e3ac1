"""The report's closing tables and its title: devices, faults, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from ..analysis.fastest import axes_of, params_text
from ..analysis.run_quality import faults
from ..core.display import gbs, percent, seconds, size_bytes
from .sureness import earlier_words
from .tables import Json


def title_device(provenance: Sequence[Json]) -> str:
    """The devices' names, each once, as in ``NVIDIA H200``."""
    return ", ".join(dict.fromkeys(p["device"]["name"] for p in provenance))


def measured_date(provenance: Sequence[Json]) -> list[int]:
    """Year, month and day on which the last shard was written: the report's date."""
    return [int(part) for part in max(p["written_at"] for p in provenance)[:10].split("-")]


def measured_words(provenance: Sequence[Json]) -> str:
    """Which days the run measured on, and with which driver."""
    days = sorted({p["written_at"][:10] for p in provenance})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    drivers = ", ".join(dict.fromkeys(f"{p['device']['driver']}" for p in provenance))
    return f"measured {span}, driver {drivers}"


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


# Cells of a row of faults whose launch parameters are named.
_NAMED = 3


def fault_rows(cells: pd.DataFrame) -> list[Json]:
    """Faults grouped by their message, so that a broken build is one line.

    ``at`` names the launch parameters of the first of them.
    """
    bad = faults(cells).fillna({"message": ""})
    groups = bad.groupby(["kernel", "dtype", "variant", "status", "message"], observed=True)
    return [
        {
            "where": f"{k}, {d}, {v}",
            "status": s,
            "message": m or "no message",
            "cells": str(len(some)),
            "at": "; ".join(
                params_text(cell, axes_of(some)) for cell in some.head(_NAMED).to_dict("records")
            )
            + ("; …" if len(some) > _NAMED else ""),
        }
        for (k, d, v, s, m), some in groups
    ]


def device_numbers(provenance: Sequence[Json]) -> dict[str, int]:
    """Number of each device by its UUID, in the order of the report's card; empty for only one."""
    names = {p["device"]["uuid"]: p["device"]["name"] for p in provenance}
    cards = list(dict.fromkeys(names.values()))
    uuids = sorted(names, key=lambda uuid: cards.index(names[uuid]))
    return {uuid: i for i, uuid in enumerate(uuids, 1)} if len(uuids) > 1 else {}


def provenance_rows(provenance: Sequence[Json]) -> list[Json]:
    """One line for each kernel; what was measured of other code stands apart."""
    numbers = device_numbers(provenance)
    kernels: dict[tuple[str, str], list[Json]] = {}
    for p in provenance:
        kernels.setdefault((_kernel(p["params"]), p["kernel_digest"]), []).append(p)
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


# Figures of a device, by the names of `model.machine`, in words.
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
    "turn_1": "a copy's further time, one load at once",
    "turn_2": "the same, 2 loads at once",
    "turn_4": "the same, 4 loads at once",
    "turn_8": "the same, 8 loads at once",
    "cache_end_latency_share": "end of the cache, by latency",
    "cache_end_rate_share": "end of the cache, by bandwidth",
}
_UNITS = {"s": seconds, "bytes/s": lambda value: gbs(value * 1e-9), "1": percent}


def machine_tables(devices: Sequence[Json]) -> list[Json]:
    """Each device's own figures with their intervals, and a sentence for each that is missing."""
    return [
        {
            "device": device["device"],
            "rows": [
                {
                    "figure": _FIGURES[fact["name"]],
                    "value": (show := _UNITS[fact["unit"]])(fact["value"]),
                    "interval": f"{show(fact['low'])} to {show(fact['high'])}",
                    "how": fact["how"],
                }
                for fact in device["facts"]
            ],
            "missing": [
                f"{_FIGURES[name]}: {device['missing'][name]}"
                for name in _FIGURES
                if name in device["missing"]
            ],
        }
        for device in devices
    ]


def _kernel(params: Mapping[str, Any]) -> str:
    return str(params["folder"]).rsplit("/", 1)[-1]


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
