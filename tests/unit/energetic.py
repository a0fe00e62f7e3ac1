"""Tables of energy that no device measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from gpushmoo.core.median import mean_interval
from gpushmoo.core.schema import ENERGY_SCHEMA
from gpushmoo.storage.store import write_parquet

IDLE_W = 120.0


def energy_row(
    params: str, gbs: float, joules_per_gb: Sequence[float], **other: Any
) -> dict[str, Any]:
    """A cell of so many GB/s, with a window of two seconds in each round."""
    watts = [j * gbs for j in joules_per_gb]
    whole, net = mean_interval(joules_per_gb), mean_interval([(w - IDLE_W) / gbs for w in watts])
    row = {
        **dict.fromkeys(("message", "launches_per_sample", "temperature_c")),
        "cell_key": f"{params} {other}",
        "kernel": "k",
        "dtype": "float",
        "variant": "v",
        "height": 8192,
        "width": 8192,
        "cache_state": "warm",
        "params": params,
        "role": "named",
        "bytes_read": 2**28,
        "bytes_written": 2**28,
        "rounds": len(watts),
        "power_w": sum(watts) / len(watts),
        "idle_w": IDLE_W,
        "gbs": gbs,
        "busy_share": 1.0,
        "joules_per_gb": whole.mean,
        "joules_per_gb_low": whole.low,
        "joules_per_gb_high": whole.high,
        "net_joules_per_gb": net.mean,
        "net_joules_per_gb_low": net.low,
        "net_joules_per_gb_high": net.high,
        "window_s": [2.0] * len(watts),
        "window_j": [2.0 * w for w in watts],
        "window_gbs": [gbs] * len(watts),
        "sm_clock_mhz_low": 1980,
        "sm_clock_mhz_high": 1980,
        "throttled": False,
        "device_uuid": "GPU-0",
        "device_name": "NVIDIA H200",
    }
    return row | other


def write_energy(path: Path, rows: Sequence[dict[str, Any]], why: str | None = None) -> Path:
    """The file that the study writes of such rows."""
    idle = [{"seconds": 2.0, "joules": 2.0 * IDLE_W}, {"seconds": 2.0, "joules": 2.0 * 122.0}]
    metadata = {"why": why, "idle": idle, "device": {"name": "NVIDIA H200"}}
    write_parquet(pa.Table.from_pylist(list(rows), ENERGY_SCHEMA), path, metadata)
    return path
