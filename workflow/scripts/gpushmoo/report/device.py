"""The card of the devices that a run measured, and the report's title."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.display import size_bytes
from .appendix import device_numbers
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
