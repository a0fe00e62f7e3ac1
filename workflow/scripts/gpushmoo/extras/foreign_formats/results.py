"""All cells of a group: T4 1.0.0, and Kernel Tuner's cache file.

T4 is the form in which the auto-tuning community exchanges results; its schemas are in the PyPI
wheel ``kernel-tuner`` (``kernel_tuner/schema/T4/1.0.0``). They name ``compilation_time``, but
Kernel Tuner itself writes ``compilation``, and so do we. Its simulation mode and its dashboard
replay a sweep from the cache file, which is as version 1.5.0 reads it (``kernel_tuner/util.py``:
``process_cache``). Times of both are in milliseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ...core.schema import Status
from ...exporting.choices import ExportGroup, point_of
from ...exporting.vocabulary import ERRORS, INVALIDITY, VERSION

# Measurements: T4's name, our column, by how much it is multiplied, and the unit then.
_MEASURED = (
    ("time", "median_s", 1e3, "ms"),
    ("time_low", "median_low_s", 1e3, "ms"),
    ("time_high", "median_high_s", 1e3, "ms"),
    ("bandwidth", "bandwidth_gbs", 1.0, "GB/s"),
    ("bandwidth_low", "bandwidth_low_gbs", 1.0, "GB/s"),
    ("bandwidth_high", "bandwidth_high_gbs", 1.0, "GB/s"),
    ("copy_bandwidth", "memcpy_gbs", 1.0, "GB/s"),
)
# Times of each configuration that Kernel Tuner records and a sweep does not.
_NOT_RECORDED = ("compilation", "framework", "search_algorithm", "validation")


def t4_results(group: ExportGroup, run: str) -> dict[str, Any]:
    """The results of one group: every cell whose status is a key of INVALIDITY.

    ``time`` is the median of a launch, ``time_low`` to ``time_high`` the 95 % interval of what
    another run may find; ``runtimes`` are all samples, of all repeats, each the mean of its
    launches. What the sweep does not record is 0 and named in ``metadata``.
    """
    metadata = {
        "timeunit": "milliseconds",
        "run": run,
        "group": dict(group.key),
        "not_recorded": list(_NOT_RECORDED),
    }
    results = [_result(row, group.axes) for row in _results_of(group)]
    return {"schema_version": VERSION, "metadata": metadata, "results": results}


def _result(row: Mapping[str, Any], axes: Sequence[str]) -> dict[str, Any]:
    is_ok = row["status"] == Status.OK
    samples_ms, all_ms = _times(row) if is_ok else ([], 0.0)
    return {
        "timestamp": row["measured_at"].isoformat(),
        "configuration": dict(point_of(row, axes)),
        "times": {
            **dict.fromkeys(_NOT_RECORDED, 0.0),
            "benchmark": all_ms,
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


def _times(row: Mapping[str, Any]) -> tuple[list[float], float]:
    """A verified cell's samples, and the time of all its launches, in milliseconds."""
    samples_ms = [float(s) * 1e3 for s in row["samples_s"]]
    return samples_ms, sum(samples_ms) * int(row["launches_per_sample"])


_FAILED = "RuntimeFailedConfig"
# A program that was interrupted leaves the last brackets out; so it looks for these very bytes.
_END = "}\n}"


def cache_text(group: ExportGroup) -> str:
    """The cache file of a group: every cell with its median and its samples, in milliseconds.

    To replay it, ``tune_kernel`` is to be called with the kernel's name, ``problem_size`` (width
    and height) and ``tune_params`` that are in it. A cell that was not tried, or whose device
    failed, is left out; Kernel Tuner refuses to go there (`is_whole`).
    """
    axes = sorted(group.axes)
    head = {
        "device_name": group.key["device_name"],
        "kernel_name": group.key["kernel"],
        "problem_size": [int(group.key["width"]), int(group.key["height"])],
        "tune_params_keys": axes,
        "tune_params": {axis: _values(group, axis) for axis in axes},
        "objective": "time",
    }
    lines = []
    for row in _results_of(group):
        point = dict(point_of(row, axes))
        cell = {",".join(map(str, point.values())): _cell(point, row)}
        lines.append(json.dumps(cell, allow_nan=False)[1:-1])
    text = json.dumps(head, allow_nan=False).removesuffix("}")
    return f'{text}, "cache": {{\n' + ",\n".join(lines) + _END


def is_whole(group: ExportGroup) -> bool:
    """Whether every combination of the axes' values has a cell in the cache file."""
    points = {point_of(row, group.axes) for row in _results_of(group)}
    return len(points) == math.prod(len(_values(group, axis)) for axis in group.axes)


def _results_of(group: ExportGroup) -> list[Any]:
    """The rows whose status is a key of INVALIDITY."""
    results = group.cells[group.cells["status"].isin(list(INVALIDITY))]
    return [*results.sort_values("cell_key").to_dict("records")]


def _values(group: ExportGroup, axis: str) -> list[int]:
    return sorted({int(value) for value in group.cells[axis]})


def _cell(point: Mapping[str, int], row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("compile_time", "verification_time", "benchmark_time", "strategy_time")
    common = {**dict.fromkeys((*names, "framework_time"), 0.0)}
    common["timestamp"] = row["measured_at"].isoformat(sep=" ")
    if row["status"] != Status.OK:
        error = ERRORS.get(INVALIDITY[row["status"]], _FAILED)
        return {**point, "time": error, "__error__": error, **common}
    samples_ms, common["benchmark_time"] = _times(row)
    return {**point, "time": float(row["median_s"]) * 1e3, "times": samples_ms, **common}
