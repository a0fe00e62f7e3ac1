"""Whether a device's clocks moved while it was measured, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.display import percent

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
        for low, high in _range([found[f"{part}_mhz"] for found in seen])
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


def _range(ranges: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
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
