"""T4 1.0.0, in which the auto-tuning community exchanges results.

Its schemas are ``kernel_tuner/schema/T4/1.0.0/results-schema.json`` and ``metadata-schema.json`` in
the PyPI wheel ``kernel-tuner``. The schema names ``compilation_time``, but Kernel Tuner itself
writes ``compilation``, and so do we. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ..core.schema import Status
from .groups import ExportGroup, point_of

VERSION = "1.0.0"
# What T4 calls a status. A cell that was not tried, or whose device failed, is no result.
INVALIDITY = {
    Status.OK: "correct",
    Status.WRONG_RESULT: "correctness",
    Status.TIMEOUT: "timeout",
    Status.BUILD_FAILED: "compile",
    Status.LAUNCH_FAILED: "runtime",
    Status.WORKLOAD_FAILED: "runtime",
    Status.RESOURCES: "runtime",
    Status.TOO_MANY_THREADS: "constraints",
    Status.INVALID: "constraints",
}
# Measurements: T4's name, our column, by how much it is multiplied, and the unit then.
_MEASURED = (
    ("time", "median_s", 1e3, "ms"),
    ("time_low", "median_low_s", 1e3, "ms"),
    ("time_high", "median_high_s", 1e3, "ms"),
    ("bandwidth", "bandwidth_gbs", 1.0, "GB/s"),
    ("bandwidth_low", "bandwidth_low_gbs", 1.0, "GB/s"),
    ("bandwidth_high", "bandwidth_high_gbs", 1.0, "GB/s"),
    ("copy_bandwidth", "copy_gbs", 1.0, "GB/s"),
)
# What Kernel Tuner tells of each configuration, and a sweep does not.
_NOT_RECORDED = ("compilation", "framework", "search_algorithm", "validation")


def t4_results(group: ExportGroup, run: str) -> dict[str, Any]:
    """The results of one group: all its cells that ended in some way of their own.

    ``time`` is the median of a launch, ``time_low`` to ``time_high`` the 95 % interval of what
    another run may find; ``runtimes`` are all samples, of all repeats, each the mean of its
    launches. What the sweep does not record is 0 and named in ``metadata``.
    """
    results = [
        _result(row, group.axes)
        for row in group.cells.sort_values("cell_key").to_dict("records")
        if row["status"] in INVALIDITY
    ]
    metadata = {
        "timeunit": "milliseconds",
        "run": run,
        "group": dict(group.key),
        "not_recorded": list(_NOT_RECORDED),
    }
    return {"schema_version": VERSION, "metadata": metadata, "results": results}


def _result(row: Mapping[str, Any], axes: Sequence[str]) -> dict[str, Any]:
    is_ok = row["status"] == Status.OK
    samples_ms = [float(s) * 1e3 for s in row["samples_s"]] if is_ok else []
    launches = int(row["launches_per_sample"]) if samples_ms else 0
    return {
        "timestamp": row["measured_at"].isoformat(),
        "configuration": dict(point_of(row, axes)),
        "times": {
            **dict.fromkeys(_NOT_RECORDED, 0.0),
            "benchmark": sum(samples_ms) * launches,
            "runtimes": samples_ms,
        },
        "invalidity": INVALIDITY[row["status"]],
        "correctness": 1.0 if is_ok else 0.0,
        "objectives": ["time"],
        "measurements": [
            {"name": name, "value": float(row[column]) * factor, "unit": unit}
            for name, column, factor, unit in _MEASURED
            if is_ok and not pd.isna(row[column])
        ],
    }


def t4_metadata(provenance: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What measured, in T4's form: each different device, operating system and version once."""
    shards = list(provenance)
    # Once even if what a CPU has room for changed meanwhile.
    by_uuid = {shard["device"]["uuid"]: shard["device"] for shard in shards}
    devices = _different({k: v for k, v in d.items() if k != "uuid"} for d in by_uuid.values())
    systems = _different(shard["host"].get("system", "unknown") for shard in shards)
    versions = _different(
        text
        for shard in shards
        for text in (
            f"gpushmoo=={shard['gpushmoo']}",
            f"python=={shard['host'].get('python', 'unknown')}",
            *str(shard["device"]["runtime"]).split(", "),
        )
    )
    metadata = {
        "hardware": {"hardware_description": devices, "operating_system": "; ".join(systems)},
        "environment": {
            "device_query": {"drivers": _different(s["device"]["driver"] for s in shards)},
            "requirements": versions,
        },
    }
    return {"schema_version": VERSION, "metadata": metadata}


def _different(values: Iterable[Any]) -> list[Any]:
    """Each of them once, in the order of their first."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
