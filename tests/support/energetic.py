"""Tables of energy that no device measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from cells import PLACE
from gpushmoo.core.median import mean_interval
from gpushmoo.core.schema import ENERGY_SCHEMA
from gpushmoo.storage.store import write_parquet

IDLE_W = 120.0


def energy_row(
    params: str, gbs: float, joules_per_gb: Sequence[float], **other: Any
) -> dict[str, Any]:
    """A cell of so many GB/s, with a window of two seconds in each round."""
    watts = [j * gbs for j in joules_per_gb]
    net = [(w - IDLE_W) / gbs for w in watts]
    row = {
        **dict.fromkeys(ENERGY_SCHEMA.names),
        **{name: PLACE[name] for name in ENERGY_SCHEMA.names if name in PLACE},
        "cell_key": f"{params} {other}",
        "height": 8192,
        "width": 8192,
        "params": params,
        "role": "named",
        "bytes_read": 2**28,
        "bytes_written": 2**28,
        "rounds": len(watts),
        "power_w": sum(watts) / len(watts),
        "idle_w": IDLE_W,
        "gbs": gbs,
        "busy_share": 1.0,
        "window_s": [2.0] * len(watts),
        "window_j": [2.0 * w for w in watts],
        "window_gbs": [gbs] * len(watts),
        "throttled": False,
        "device_name": "NVIDIA H200",
    }
    for column, joules in (("joules_per_gb", joules_per_gb), ("net_joules_per_gb", net)):
        found = mean_interval(joules)
        row |= {column: found.mean, f"{column}_low": found.low, f"{column}_high": found.high}
    return row | other


def write_energy(path: Path, rows: Sequence[dict[str, Any]], why: str | None = None) -> Path:
    """The file that the study writes of such rows."""
    idle = [{"seconds": 2.0, "joules": 2.0 * IDLE_W}, {"seconds": 2.0, "joules": 2.0 * 122.0}]
    metadata = {"why": why, "idle": idle, "device": {"name": "NVIDIA H200"}}
    write_parquet(pa.Table.from_pylist(list(rows), ENERGY_SCHEMA), path, metadata)
    return path
