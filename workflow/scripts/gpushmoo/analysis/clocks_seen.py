"""What a shard's readings of the device say of its clocks, in short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# What says that the device had nothing to do, so that its clock tells nothing of the cells.
_IDLE = "gpu_idle"


def clocks_seen(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Lowest and highest ``core_mhz`` and ``memory_mhz`` of a device at work; None of no readings.

    `readings` are those of a shard's metadata. ``readings`` says how many count, ``reasons`` how
    many of them name each reason for which the core's clock was held down.
    """
    busy = [r for r in readings if _IDLE not in r["reasons"]]
    if not busy:
        return None
    cores, memories = ([r[key] for r in busy] for key in ("sm_clock_mhz", "memory_clock_mhz"))
    return {
        "readings": len(busy),
        "core_mhz": [min(cores), max(cores)],
        "memory_mhz": [min(memories), max(memories)],
        "reasons": dict(Counter(reason for r in busy for reason in r["reasons"])),
    }
