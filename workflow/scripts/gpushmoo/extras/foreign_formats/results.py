"""Format all cells of a group: T4 1.0.0, and Kernel Tuner's cache file.

T4 is the exchange format of the auto-tuning community. Its schemas are in the PyPI wheel
``kernel-tuner`` (``kernel_tuner/schema/T4/1.0.0``). They name ``compilation_time``, but Kernel
Tuner itself writes ``compilation``, and so does gpushmoo. Kernel Tuner's simulation mode and
dashboard replay a sweep from its cache file. The format is that of version 1.5.0
(``kernel_tuner/util.py``: ``process_cache``). Times of both are in milliseconds.
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

# Measurements: T4's name, the column, the factor, and the resulting unit.
_MEASURED = (
    ("time", "median_s", 1e3, "ms"),
    ("time_low", "median_low_s", 1e3, "ms"),
    ("time_high", "median_high_s", 1e3, "ms"),
    ("bandwidth", "bandwidth_gbs", 1.0, "GB/s"),
    ("bandwidth_low", "bandwidth_low_gbs", 1.0, "GB/s"),
    ("bandwidth_high", "bandwidth_high_gbs", 1.0, "GB/s"),
    ("copy_bandwidth", "memcpy_gbs", 1.0, "GB/s"),
)
# Times of each configuration that Kernel Tuner records but a sweep does not.
_NOT_RECORDED = ("compilation", "framework", "search_algorithm", "validation")


def t4_results(group: ExportGroup, run: str) -> dict[str, Any]:
    """Return the results of one group: every cell whose status is a key of INVALIDITY.

    ``time`` is the median of a launch, and ``time_low`` to ``time_high`` its 95 % prediction
    interval for another run, in milliseconds. ``runtimes`` are all samples, of all repeats, each
    the mean of its launches. Quantities that a sweep does not record are 0 and listed in
    ``metadata``.
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
    """Return a verified cell's samples, and the time of all its launches, in milliseconds."""
    samples_ms = [float(s) * 1e3 for s in row["samples_s"]]
    return samples_ms, sum(samples_ms) * int(row["launches_per_sample"])


_FAILED = "RuntimeFailedConfig"
# An interrupted program leaves out the last brackets, so Kernel Tuner looks for exactly these
# bytes.
_END = "}\n}"


def cache_text(group: ExportGroup) -> str:
    """Return the text of a cache file of Kernel Tuner for one group.

    The file contains every measured cell with its median and its samples, in ms. To replay it, call
    Kernel Tuner's ``tune_kernel`` with the kernel's name, ``problem_size`` (width and height) and
    the ``tune_params`` in the file. A cell that was not tried, or whose device failed, is missing.
    Kernel Tuner raises an error for a missing cell (`covers_all_combinations`).
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


def covers_all_combinations(group: ExportGroup) -> bool:
    """Return whether every combination of the axes' values has a cell in the cache file."""
    points = {point_of(row, group.axes) for row in _results_of(group)}
    return len(points) == math.prod(len(_values(group, axis)) for axis in group.axes)


def _results_of(group: ExportGroup) -> list[Any]:
    """Return the rows whose status is a key of INVALIDITY."""
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
