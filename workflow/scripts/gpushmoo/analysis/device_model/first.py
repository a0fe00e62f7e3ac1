"""A device's parameters before any sweep of it: from what its micro-benchmarks measured.

What micro-benchmarks do not measure stays at the value of `parameters.FIRST`, found on an NVIDIA
H200: of another device it is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping

from .describe import DeviceFacts
from .parameters import FIRST, PARAMETERS

LINE_BYTES = 128
# Facts that are seconds; of the others a rate is divided by the clock, a share stays as it is.
_SECONDS = frozenset(
    {"launch_s", "sample_s", "issue_s", "dispatch_s", "warp_launch_s", "latency_l2_s"}
)
_PORTS = {"store_line": "store_port_bytes_per_s", "load_line": "load_port_bytes_per_s"}


def first_values(facts: Mapping[str, float], device: DeviceFacts) -> dict[str, float]:
    """All parameters; `facts` are values by the names of `analysis.machine`, any of them."""
    values = dict(FIRST)
    for name, meaning in PARAMETERS.items():
        fact = facts.get(meaning.fact or "")
        if fact is None:
            continue
        if name in _PORTS:
            values[name] = LINE_BYTES / (fact / device.clock_hz)
        elif meaning.fact in _SECONDS:
            values[name] = fact * device.clock_hz
        else:
            values[name] = fact / device.clock_hz if meaning.unit == "bytes/cycle" else fact
    if "latency_l2_s" in facts and "latency_dram_s" in facts:
        beyond = facts["latency_dram_s"] - facts["latency_l2_s"]
        values["dram_latency"] = beyond * device.clock_hz
    return values
