"""Kernel Tuner's cache file, from which its simulation mode and its dashboard replay a sweep.

Written as version 1.5.0 reads it (``kernel_tuner/util.py``: ``process_cache``, ``read_cache``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..core.schema import Status
from .groups import ExportGroup, point_of
from .t4 import INVALIDITY

# What Kernel Tuner notes in the place of a time, by T4's word.
_ERRORS = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}
_FAILED = "RuntimeFailedConfig"
# A program that was interrupted leaves the last brackets out; so it looks for these very bytes.
_END = "}\n}"


def cache_text(group: ExportGroup) -> str:
    """The cache file of a group: every cell with its median and its samples, in milliseconds.

    To replay it, ``tune_kernel`` is to be called with the kernel's name, ``problem_size`` (width
    and height) and ``tune_params`` that stand in it. A cell that was not tried, or whose device
    failed, is left out; Kernel Tuner refuses to go there (`is_whole`).
    """
    axes = sorted(group.axes)
    told = _told(group).sort_values("cell_key").to_dict("records")
    head = {
        "device_name": group.key["device_name"],
        "kernel_name": group.key["kernel"],
        "problem_size": [int(group.key["width"]), int(group.key["height"])],
        "tune_params_keys": axes,
        "tune_params": {axis: _values(group, axis) for axis in axes},
        "objective": "time",
    }
    points = [(dict(point_of(row, axes)), row) for row in told]
    lines = [
        json.dumps({",".join(map(str, point.values())): _cell(point, row)}, allow_nan=False)[1:-1]
        for point, row in points
    ]
    text = json.dumps(head, allow_nan=False).removesuffix("}")
    return f'{text}, "cache": {{\n' + ",\n".join(lines) + _END


def is_whole(group: ExportGroup) -> bool:
    """Whether every combination of the axes' values has a cell in the cache file."""
    points = _told(group)[list(group.axes)].drop_duplicates()
    return len(points) == math.prod(len(_values(group, axis)) for axis in group.axes)


def _told(group: ExportGroup) -> pd.DataFrame:
    return group.cells[group.cells["status"].isin(list(INVALIDITY))]


def _values(group: ExportGroup, axis: str) -> list[int]:
    return sorted({int(value) for value in group.cells[axis]})


def _cell(point: Mapping[str, int], row: Mapping[str, Any]) -> dict[str, Any]:
    common = {
        **dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 0.0),
        **dict.fromkeys(("strategy_time", "framework_time"), 0.0),
        "timestamp": row["measured_at"].isoformat(sep=" "),
    }
    if row["status"] != Status.OK:
        error = _ERRORS.get(INVALIDITY[row["status"]], _FAILED)
        return {**point, "time": error, "__error__": error, **common}
    samples_ms = [float(s) * 1e3 for s in row["samples_s"]]
    common["benchmark_time"] = sum(samples_ms) * int(row["launches_per_sample"])
    return {**point, "time": float(row["median_s"]) * 1e3, "times": samples_ms, **common}
