"""Files of other tuners in one form: Kernel Tuner's cache, T4, nvbench's and Triton's JSON.

A reader gives the groups of a file, each with its configurations: how each ended, its time by the
file's own figure, and the samples where the file holds them. Times are in seconds.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core.schema import Status
from ..exporting.formats import ERRORS, FORMAT, INVALIDITY
from ..exporting.loaded import AUTOTUNE
from . import JudgeError

Params = Mapping[str, int | str]
KERNEL_TUNER, NVBENCH, TRITON = "Kernel Tuner", "nvbench", "Triton"


@dataclass(frozen=True)
class Configuration:
    """One configuration, and how it ended.

    `time_s` is the file's own figure, NaN unless the status is ``ok``. A file without `samples_s`
    may tell how many there were (`count`) and their standard deviation.
    """

    params: Params
    status: str = Status.OK
    time_s: float = math.nan
    samples_s: Sequence[float] = ()
    count: int | None = None
    deviation_s: float = math.nan


@dataclass(frozen=True)
class FileGroup:
    """Configurations that compete; what the file does not name is empty.

    `format` is the program's name: times of different programs are not compared. `notes` are
    sentences on what the file leaves open.
    """

    format: str
    kernel: str
    problem: str
    device: str
    configurations: Sequence[Configuration]
    notes: Sequence[str] = field(default=())


def read_groups(path: Path, problem: Collection[str] = ()) -> list[FileGroup]:
    """The groups of a file; `problem` names axes of nvbench that are no launch parameters.

    Raises JudgeError where the file is none of these, is damaged, or holds no times.
    """
    content = _content(path)
    try:
        groups = [*_groups(content, path, problem)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as err:
        if isinstance(err, JudgeError):
            raise
        said = f"misses {err}" if isinstance(err, KeyError) else f"is not as it should be ({err})"
        raise JudgeError(f"'{path}' cannot be read: a part of it {said}.") from err
    if not any(c.status == Status.OK for group in groups for c in group.configurations):
        raise JudgeError(f"'{path}' holds no configuration that has a time.")
    return groups


def _content(path: Path) -> Mapping[str, Any]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as err:
        why = getattr(err, "strerror", None) or "it is no text"
        raise JudgeError(f"'{path}' cannot be read ({why}).") from err
    # An interrupted Kernel Tuner leaves the last brackets out.
    for end in ("", "}\n}"):
        try:
            content = json.loads(text.rstrip().removesuffix(",") + end if end else text)
        except ValueError as err:
            fault = err
            continue
        if not isinstance(content, dict):
            raise JudgeError(f"'{path}' holds no JSON object.")
        return content
    raise JudgeError(f"'{path}' is no JSON ({fault}).")


def _groups(
    content: Mapping[str, Any], path: Path, problem: Collection[str]
) -> Iterator[FileGroup]:
    keys = content.keys()
    if {"cache", "tune_params_keys"} <= keys:
        yield _of_cache(content, path)
    elif {"results", "schema_version"} <= keys or {"results", "metadata"} <= keys:
        yield _of_t4(content, path)
    elif {"benchmarks", "devices"} <= keys:
        yield from _of_nvbench(content, path.parent, problem)
    elif "configs_timings" in keys:
        yield _of_triton(content, path)
    elif content.get("format") == FORMAT or (keys and all(map(_is_size, keys - _OF_VLLM))):
        raise JudgeError(f"'{path}' holds choices without times; judge what they were made from.")
    else:
        raise JudgeError(
            f"'{path}' is none of the files that are read: Kernel Tuner's cache, T4, nvbench's "
            "--json, Triton's *.autotune.json."
        )


# Keys of vLLM's tables that are no sizes.
_OF_VLLM = {"triton_version"}


def _is_size(key: str) -> bool:
    return key.isdecimal()


# T4's words, and what Kernel Tuner notes in the place of a time.
_WORDS = {word: status for status, word in reversed(INVALIDITY.items())}
_ENDS = {error: _WORDS[word] for word, error in ERRORS.items()}


def _of_cache(content: Mapping[str, Any], path: Path) -> FileGroup:
    objective, names = content.get("objective", "time"), content["tune_params_keys"]
    if objective != "time":
        raise JudgeError(f"'{path}' was tuned for '{objective}'; only times are judged.")
    size = content.get("problem_size", [])
    return FileGroup(
        KERNEL_TUNER,
        str(content["kernel_name"]),
        " x ".join(map(str, size if isinstance(size, list) else [size])),
        str(content["device_name"]),
        [_of_cache_entry(entry, names) for entry in content["cache"].values()],
    )


def _of_cache_entry(entry: Mapping[str, Any], names: Sequence[str]) -> Configuration:
    params = _params({name: entry[name] for name in names})
    # What failed may have no time at all.
    time = entry.get("__error__") or entry["time"]
    if isinstance(time, str):
        return Configuration(params, _ENDS.get(time, Status.LAUNCH_FAILED))
    return _timed(params, time * 1e-3, [t * 1e-3 for t in entry.get("times", ())])


# Of the values of `timeunit` and of a measurement's unit.
_UNITS = (("n", 1e-9), ("mic", 1e-6), ("us", 1e-6), ("µs", 1e-6), ("m", 1e-3), ("s", 1.0))


def _factor(unit: str) -> float:
    return next(factor for start, factor in _UNITS if unit.lower().startswith(start))


def _of_t4(content: Mapping[str, Any], path: Path) -> FileGroup:
    metadata = content.get("metadata", {})
    unit = _factor(metadata.get("timeunit", "milliseconds"))
    ours = metadata.get("group", {})
    return FileGroup(
        KERNEL_TUNER,
        str(ours.get("kernel", "")),
        f"{ours['height']} x {ours['width']}" if ours else "",
        str(ours.get("device_name", "")),
        [_of_t4_result(result, unit) for result in content["results"]],
        () if ours else ["which kernel, problem and device"],
    )


def _of_t4_result(result: Mapping[str, Any], unit: float) -> Configuration:
    params = _params(result["configuration"])
    word = result["invalidity"]
    if word != "correct":
        return Configuration(params, _WORDS.get(word, Status.LAUNCH_FAILED))
    samples = [t * unit for t in result["times"].get("runtimes", ())]
    told = {m["name"]: m for m in result.get("measurements", ())}.get("time")
    if told is not None:
        return _timed(params, told["value"] * _factor(told.get("unit") or "ms"), samples)
    return _timed(params, float(np.mean(samples)), samples)


_GPU_TIME = "nv/cold/time/gpu/"
_SAMPLES = "nv/json/bin:nv/cold/sample_times"


def _of_nvbench(
    content: Mapping[str, Any], folder: Path, problem: Collection[str]
) -> Iterator[FileGroup]:
    devices = {device["id"]: device["name"] for device in content["devices"]}
    for benchmark in content["benchmarks"]:
        groups: dict[tuple[str, str], list[Configuration]] = {}
        for state in benchmark["states"]:
            axes = _named(state["axis_values"] or ())
            size = ", ".join(f"{name}={axes.pop(name)}" for name in problem if name in axes)
            key = size, devices[state["device"]]
            groups.setdefault(key, []).append(_of_state(state, _params(axes), folder))
        for (size, device), found in groups.items():
            notes = [] if problem else ["which axes are the problem's (name them: --problem)"]
            yield FileGroup(NVBENCH, benchmark["name"], size, device, found, notes)


def _named(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Named values, whose numbers are texts."""
    kinds = {"int64": int, "float64": float}
    return {v["name"]: kinds.get(v["type"], str)(v["value"]) for v in values}


def _of_state(state: Mapping[str, Any], params: Params, folder: Path) -> Configuration:
    if state["is_skipped"]:
        return Configuration(params, Status.INVALID)
    told = {s["tag"]: _named(s.get("data") or ()) for s in state["summaries"]}

    def value(tag: str) -> float:
        return float(told.get(tag, {}).get("value", math.nan))

    time = value(f"{_GPU_TIME}median")
    mean, count = value(f"{_GPU_TIME}mean"), value("nv/cold/sample_size")
    deviation = value(f"{_GPU_TIME}stdev/absolute")
    if math.isnan(deviation):
        deviation = mean * value(f"{_GPU_TIME}stdev/relative")
    named = folder / str(told.get(_SAMPLES, {}).get("filename", ""))
    # Formerly the name was relative to where nvbench ran.
    found = [f for f in (named, folder / named.parent.name / named.name) if f.is_file()]
    samples = np.fromfile(found[0], "<f4").tolist() if found else ()
    if samples:
        return _timed(params, mean if math.isnan(time) else time, samples)
    told_count = None if math.isnan(count) else int(count)
    return Configuration(params, Status.OK, mean, (), told_count, deviation)


# What a configuration of Triton has beside its own parameters.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def _of_triton(content: Mapping[str, Any], path: Path) -> FileGroup:
    found = []
    for config, timing in content["configs_timings"]:
        options = {n: config[n] for n in _OPTIONS if config.get(n) is not None}
        # The median, the 20th and the 80th percentile; of several Triton compares the first.
        time = float(timing[0] if isinstance(timing, list) else timing) * 1e-3
        status = Status.OK if math.isfinite(time) else Status.RESOURCES
        found.append(Configuration(_params({**config["kwargs"], **options}), status, time))
    key = ", ".join(map(str, content.get("key") or ()))
    name = path.name.removesuffix(".gz").removesuffix(AUTOTUNE)
    return FileGroup(TRITON, name, key, "", found, ["which device"])


def _timed(params: Params, time_s: float, samples_s: Sequence[float]) -> Configuration:
    if not (math.isfinite(time_s) and time_s > 0.0 and all(s > 0.0 for s in samples_s)):
        raise JudgeError(f"A time of {dict(params)} is not a positive number of seconds.")
    return Configuration(params, Status.OK, float(time_s), samples_s, len(samples_s) or None)


def _params(values: Mapping[str, Any]) -> dict[str, int | str]:
    """By names that columns may have, whole numbers and texts."""
    named = {re.sub(r"\W", "_", name): value for name, value in values.items()}
    return {
        n: v if type(v) is int else int(v) if _is_whole(v) else str(v) for n, v in named.items()
    }


def _is_whole(value: object) -> bool:
    return isinstance(value, float | bool) and float(value).is_integer()
