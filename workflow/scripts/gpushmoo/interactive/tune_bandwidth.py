"""Check whether a device can move the bytes that a call to `tune` claims in the measured time.

The check must never blame an honest kernel whose data is in a cache. Bytes beyond the last cache
level pass through the memory. All bytes pass through the load and store paths of the
multiprocessors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..core.backends import BACKENDS
from ..core.display import seconds, significant

# Clocks may be a little higher than a device reports.
_CLOCK = 1.2
# A data set of four last-level caches or more is of the memory's size.
_CACHES = 4
# No kernel is five times faster than the copy of a data set of that size. A CPU's copy may run on
# one core, which reaches a 32nd of its memory at least.
_COPIES, _CORES = 5, 32


def unreachable(
    cell: Mapping[str, Any], device: Mapping[str, Any], arrays: int, copied: int
) -> str | None:
    """Return a sentence on why the bandwidth of a cell is impossible, or None if it is possible.

    Parameters
    ----------
    cell
        Row of the data set.
    device
        Fields of the device's `DeviceInfo`.
    arrays
        Bytes of all arrays of a launch.
    copied
        Bytes of the runtime's copy that is timed with the cells.
    """
    reached = cell["bandwidth_gbs"]
    moved = cell["bytes_read"] + cell["bytes_written"]
    limit = _limit(cell, device, arrays, copied)
    if not reached > limit[0]:
        return None
    return (
        f"bytes_moved: {moved:,} bytes a launch in {seconds(cell['median_s'])} are "
        f"{_rate(reached)}, but {limit[1]}; give the bytes that a launch must read and write"
    )


def _limit(
    cell: Mapping[str, Any], device: Mapping[str, Any], arrays: int, copied: int
) -> tuple[float, str]:
    """Return the largest possible bandwidth of a cell in GB/s, and a clause that explains it."""
    name, cache = device["name"], device["cache"]
    moved = cell["bytes_read"] + cell["bytes_written"]
    units = device["multiprocessors"]
    a_clock = units * BACKENDS[device["backend"]].unit_bytes
    paths = _CLOCK * a_clock * device["core_clock_mhz"] * 1e6 / 1e9
    # Some OpenCL runtimes report no clock.
    said = f"the {units} multiprocessors of {name} move {_rate(paths)} at most"
    limits = [(paths or math.inf, said)]
    peak = memory_peak(device)
    is_large = moved >= _CACHES * cache > 0
    if peak and is_large:
        # The cache may hold some of it.
        limits.append(
            (peak * moved / (moved - cache), f"the memory of {name} has {_rate(peak)} at most")
        )
    copy = cell["memcpy_gbs"]
    if not peak and is_large and min(arrays, 2 * copied) >= _CACHES * cache and copy == copy:
        times = _COPIES * (min(units, _CORES) if device["kind"] == "cpu" else 1)
        said = f"the copy of {2 * copied:,} bytes beside it reaches {_rate(copy)} on {name}"
        limits.append((times * copy, said))
    return min(limits)


def memory_peak(device: Mapping[str, Any]) -> float | None:
    """Return the peak bandwidth of a device's memory in GB/s, or None without clock or bus width.

    It is 2 transfers per clock × clock × bus width in bytes.

    Parameters
    ----------
    device
        Fields of the device's `DeviceInfo`, whose `extra` has the clock in MHz and the width in
        bits.
    """
    extra = device["extra"]
    clock, bits = (float(extra.get(n, 0)) for n in ("memory_clock_mhz", "memory_bus_bits"))
    return 2 * clock * 1e6 * bits / 8 / 1e9 or None


def _rate(gbs: float) -> str:
    return f"{gbs:,.0f} GB/s" if gbs >= 1000 else f"{significant(gbs)} GB/s"
