"""Results for other programs: T4 1.0.0, Kernel Tuner's cache file, choices as JSON and C headers.

T4 is the form in which the auto-tuning community exchanges results; its schemas are in the PyPI
wheel ``kernel-tuner`` (``kernel_tuner/schema/T4/1.0.0``). They name ``compilation_time``, but
Kernel Tuner itself writes ``compilation``, and so do we. Its simulation mode and its dashboard
replay a sweep from the cache file, which is as version 1.5.0 reads it (``kernel_tuner/util.py``:
``process_cache``). Times of both are in milliseconds.

``launches.h`` compiles as C99, C++11 and CUDA, ``launches.hpp`` as C++11 and CUDA. Both have a name
for each launch parameter of each choice, and a comment above it on how fast the choice is.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.display import percent
from ..core.merit import interval
from ..core.schema import Status
from .choices import CONDITIONS, NUMBERS, USUAL, Choice, ExportError, ExportGroup, Point, point_of

VERSION = "1.0.0"
# What T4 calls a status. A cell that was not tried, or whose device failed, is no result.
INVALIDITY = {
    Status.OK: "correct",
    Status.WRONG_RESULT: "correctness",
    Status.FALSE_TIME: "correctness",
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


def t4_metadata(provenance: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What measured, in T4's form: each different device, operating system and version once."""
    shards = list(provenance)
    # A device stands once, even if the free memory of a CPU changed meanwhile.
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
    listed = list(values)
    return [value for n, value in enumerate(listed) if value not in listed[:n]]


# What Kernel Tuner notes in the place of a time, by T4's word.
ERRORS = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}
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


FORMAT = "gpushmoo choices"
FORMAT_VERSION = 1


def choices_json(
    choices: Sequence[Choice],
    left_out: Sequence[str],
    run: str,
    provenance: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """All choices with the problems that they hold for; `provenance` is that of the shards."""
    digests: dict[str, set[str]] = {}
    for shard in provenance:
        digests.setdefault(Path(shard["params"]["folder"]).name, set()).add(shard["kernel_digest"])
    written = sorted(shard["written_at"] for shard in provenance)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "run": run,
        "provenance": {
            **t4_metadata(provenance)["metadata"],
            "kernel_digests": {kernel: sorted(found) for kernel, found in digests.items()},
            "written_at": {"first": written[0], "last": written[-1]},
        },
        "choices": [_choice(choice) for choice in choices],
        "left_out": list(left_out),
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        **choice.target,
        "size_class": choice.size_class,
        **{name: choice.main.key[name] for name in CONDITIONS},
        "launch": dict(choice.point),
        "best_for_all_problems": choice.everywhere,
        "tied_at": [_problem(group, choice.point) for group in choice.tied],
        "not_tied_at": [_problem(group, choice.point) for group in choice.not_tied],
        "margins_at": _size(choice.main),
        "margins": [{**vars(m), "launch": dict(m.launch)} for m in choice.margins],
    }


def _size(group: ExportGroup) -> dict[str, Any]:
    return {name: group.key[name] for name in ("height", "width", *CONDITIONS)}


def _problem(group: ExportGroup, point: Point) -> dict[str, Any]:
    """How the launch does on a problem; what was not measured there has no numbers."""
    row = group.ok.get(point, {})
    return {
        **_size(group),
        "tied": len(group.tied),
        "candidates": len(group.ok),
        "slower_than_fastest": group.contest.slower(point),
        **{n: float(row[n]) for n in NUMBERS if not pd.isna(row.get(n))},
    }


C_HEADER, CPP_HEADER = "launches.h", "launches.hpp"
NAMESPACE = "gpushmoo"
# Problems that a comment names; the others are counted.
_NAMED = 4
_LEAST_INT, _MOST_INT = -(2**31) + 1, 2**31 - 1


@dataclass(frozen=True)
class Entry:
    """One choice in the headers: its comment's lines, and its launch parameters by C identifier."""

    comment: Sequence[str]
    constants: Mapping[str, int]


def entries(choices: Sequence[Choice]) -> list[Entry]:
    """Each choice for a header. Raises ExportError where two constants would get the same name."""
    variants: dict[str, set[str]] = {}
    for choice in choices:
        variants.setdefault(choice.target["kernel"], set()).add(choice.target["variant"])
    made = []
    owners: dict[str, str] = {}
    for choice in choices:
        target = choice.target
        kernel = choice.target["kernel"]
        variant = [target["variant"]] if len(variants[kernel]) > 1 else []
        unusual = [value for value in choice.main.conditions if value not in USUAL]
        parts = [target["device_name"], kernel, *variant, target["dtype"], choice.size_class]
        parts += unusual
        constants = {_owned(owners, parts, axis): value for axis, value in choice.point}
        made.append(Entry(_comment(choice), constants))
    return made


def _owned(owners: dict[str, str], parts: Sequence[str], axis: str) -> str:
    """The C name of `parts` and an axis. Raises ExportError where other parts own it."""
    name = "_".join(map(identifier, [*parts, axis]))
    what = ", ".join(parts)
    if owners.setdefault(name, what) != what:
        raise ExportError(
            f"header: both '{owners[name]}' and '{what}' would be called {name} in C; "
            "rename one of them, or leave one out."
        )
    return name


def identifier(name: str) -> str:
    """`name` as part of a C identifier; two underscores in a row are reserved in C++."""
    found = re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")
    if not found:
        raise ExportError(
            f"header: '{name}' has no letter or digit that may stand in a C identifier; rename it."
        )
    return found


def c_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Macros ``GPUSHMOO_<DEVICE>_<KERNEL>_<TYPE>_<CLASS>_<PARAMETER>``; `about` is on top."""
    lines = []
    for entry in entries:
        lines += ["", *_block_comment(entry.comment)]
        for name, value in entry.constants.items():
            lines.append(f"#define {NAMESPACE.upper()}_{name.upper()} {_literal(value)}")
    return _guarded([entry.constants for entry in entries], "H", about, lines)


def cpp_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Write constants ``gpushmoo::<device>_<kernel>_<type>_<class>_<parameter>``, as `c_header`."""
    lines = ["", f"namespace {NAMESPACE} {{"]
    for entry in entries:
        lines += ["", *_block_comment(entry.comment)]
        for name, value in entry.constants.items():
            kind = "int" if _is_int(value) else "long long"
            # No name begins with a digit.
            named = f"on_{name}" if name[0].isdigit() else name
            lines.append(f"constexpr {kind} {named} = {_literal(value)};")
    return _guarded([e.constants for e in entries], "HPP", about, [*lines, "", "}"])


def _guarded(what: object, suffix: str, about: Sequence[str], lines: Sequence[str]) -> str:
    """A header whose guard is of `what` it holds: a program may include those of many devices."""
    digest = hashlib.sha256(repr(what).encode()).hexdigest()[:12]
    guard = f"{NAMESPACE}_launches_{digest}_{suffix}".upper()
    head = [*_block_comment(about), "", f"#ifndef {guard}", f"#define {guard}"]
    return "\n".join([*head, *lines, "", "#endif", ""])


def _is_int(value: int) -> bool:
    """Whether any C holds it in an int."""
    return _LEAST_INT <= value <= _MOST_INT


def _literal(value: int) -> str:
    """An expression of C of that value, whatever stands around it."""
    suffix = "" if _is_int(value) else "LL"
    if value == -(2**63):
        return f"(-{2**63 - 1}LL - 1)"
    return f"(-{-value}{suffix})" if value < 0 else f"{value}{suffix}"


_ASCII = str.maketrans({"×": "x", "µ": "u", "±": "+-"})


def _block_comment(lines: Sequence[str]) -> list[str]:
    """A comment in any C: names of devices and kernels may hold what would end or escape it."""
    texts = [re.sub(r"[^ -~]|\\|\*/|/\*|\?\?", "?", line.translate(_ASCII)) for line in lines]
    return [f"{'/*' if n == 0 else ' *'} {text}" for n, text in enumerate(texts)] + [" */"]


def _comment(choice: Choice) -> list[str]:
    target, main = choice.target, choice.main
    kernel = f"{target['kernel']} ({target['variant']}) of {target['dtype']}"
    where = ", ".join([f"data {choice.size_class.replace('_', ' ')}", *main.conditions])
    lines = [f"{kernel} on {target['device_name']}, {where}.", _claim(choice)]
    row = main.ok.get(choice.point)
    if row is not None:
        lines.append(
            f"At {main.problem}: {interval(row)}; {len(main.tied)} of {len(main.ok)} "
            "launches are statistically tied with the fastest."
        )
    for margin in choice.margins:
        launch = ", ".join(f"{axis}={value}" for axis, value in margin.launch)
        sure = f"{percent(margin.low)} to {percent(margin.high)}, {percent(margin.confidence)} sure"
        longer = f"takes {percent(margin.slower)} longer ({sure})"
        takes = "is statistically tied with it" if margin.low <= 0 <= margin.high else longer
        lines.append(f"{margin.than[0].upper()}{margin.than[1:]} ({launch}) {takes}.")
    for group in choice.not_tied[:_NAMED]:
        lost = group.contest.slower(choice.point)
        lines.append(
            f"It was not measured at {group.problem}."
            if lost is None
            else f"At {group.problem} it takes {percent(lost)} longer than the fastest."
        )
    if len(choice.not_tied) > _NAMED:
        lines.append(f"So it is at {len(choice.not_tied) - _NAMED} more.")
    return lines


def _claim(choice: Choice) -> str:
    if not choice.tied:
        return "Nearly as fast as the fastest, and plainer."
    where = ", ".join(group.problem for group in choice.tied[:_NAMED])
    if len(choice.tied) > _NAMED:
        where += f" and {len(choice.tied) - _NAMED} more"
    if choice.everywhere and len(choice.tied) > 1:
        return f"As fast as the fastest at all problems measured, as far as can be told: {where}."
    return f"As fast as the fastest, as far as can be told, at {where}."
