"""Analyze files of other tuners: which configurations are tied, and what the files leave open.

A tuner takes the samples of one configuration one after the other in one process. Clocks rise and
fall meanwhile, so these samples are not independent. So the first part is left out as warm-up, and
blocks of successive samples are the replicates. No such file shows the deviation of another
process, so tied sets are rather too small.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from ... import __name__ as library
from ...analysis.best import tied_best
from ...analysis.fastest import params_texts
from ...analysis.statistics import (
    SHARING_CELLS,
    Classes,
    Floats,
    half_widths,
    normal_quantile,
    replicated,
    run_spreads,
    t_quantile,
)
from ...comparing.compare import DELTA, Comparison, compare_runs, percent
from ...comparing.runs import KEY, RunCells, read_run
from ...core.display import one_line, seconds, tied_words
from ...core.errors import JudgeError
from ...core.median import CONFIDENCE, coverage_of
from ...core.names import several
from ...core.schema import (
    DERIVED,
    GROUP,
    TAKEN,
    Bool,
    Float64,
    Int32,
    Meaning,
    Status,
    String,
    Table,
    is_axis,
)
from ...exporting.formats import FORMAT
from ...exporting.vocabulary import AUTOTUNE, ERRORS, INVALIDITY


class _PartError(ValueError):
    """Fault of a part of a file, as a clause."""


Params = Mapping[str, int | str]
KERNEL_TUNER, NVBENCH, TRITON = "Kernel Tuner", "nvbench", "Triton"


@dataclass(frozen=True)
class Configuration:
    """One configuration, and its outcome.

    `time_s` is the file's own figure, NaN unless the status is ``ok``. A file without `samples_s`
    may state their number (`count`) and their standard deviation.
    """

    params: Params
    status: str = Status.OK
    time_s: float = math.nan
    samples_s: Sequence[float] = ()
    count: int | None = None
    deviation_s: float = math.nan


@dataclass(frozen=True)
class FileGroup:
    """Configurations that compete; names that the file lacks are empty.

    `format` is the program's name: times of different programs are not compared. `notes` are
    sentences on questions that the file leaves open.
    """

    format: str
    kernel: str
    problem: str
    device: str
    configurations: Sequence[Configuration]
    notes: Sequence[str] = field(default=())


def read_groups(path: Path, problem: Collection[str] = ()) -> list[FileGroup]:
    """Return the groups of a file; `problem` names nvbench's axes of the problem.

    Raises JudgeError if the file cannot be read.
    """
    content = _content(path)
    try:
        groups = [*_groups(content, path, problem)]
    except JudgeError:
        raise
    except _PartError as err:
        raise JudgeError(f"'{path}' cannot be read: {err}.") from err
    except KeyError as err:
        raise JudgeError(f"'{path}' cannot be read: a part of it misses {err}.") from err
    except (TypeError, ValueError, AttributeError, IndexError) as err:
        # Python's own message describes this program, not the file.
        raise JudgeError(
            f"'{path}' cannot be read: a part of it has another form than {_program(content)} "
            "writes; write the file again."
        ) from err
    if not any(c.status == Status.OK for group in groups for c in group.configurations):
        raise JudgeError(f"'{path}' holds no configuration that has a time.")
    return groups


def _content(path: Path) -> Mapping[str, Any]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as err:
        why = getattr(err, "strerror", None) or "it is not a text file"
        raise JudgeError(f"'{path}' cannot be read ({why}).") from err
    # An interrupted Kernel Tuner leaves out the last brackets.
    for end in ("", "}\n}"):
        try:
            content = json.loads(text.rstrip().removesuffix(",") + end if end else text)
        except ValueError as err:
            fault = err
            continue
        if not isinstance(content, dict):
            raise JudgeError(f"'{path}' does not contain a JSON object.")
        return content
    raise JudgeError(f"'{path}' is not JSON ({fault}).")


_CACHE, _T4 = "Kernel Tuner's cache", "T4"


def _program(content: Mapping[str, Any]) -> str:
    """Return the name of the file's program; "" if the format is not supported."""
    keys = content.keys()
    if {"cache", "tune_params_keys"} <= keys:
        return _CACHE
    # T4's only keys; the results may be missing.
    if keys and keys <= {"results", "schema_version", "metadata"}:
        return _T4
    if {"results", "schema_version"} <= keys or {"results", "metadata"} <= keys:
        return _T4
    if {"benchmarks", "devices"} <= keys:
        return NVBENCH
    return TRITON if "configs_timings" in keys else ""


def _groups(
    content: Mapping[str, Any], path: Path, problem: Collection[str]
) -> Iterator[FileGroup]:
    keys = content.keys()
    program = _program(content)
    if program == _CACHE:
        yield _of_cache(content, path)
    elif program == _T4:
        yield _of_t4(content)
    elif program == NVBENCH:
        yield from _of_nvbench(content, path.parent, problem)
    elif program == TRITON:
        yield _of_triton(content, path)
    elif content.get("format") == FORMAT or (keys and all(map(str.isdecimal, keys - _OF_VLLM))):
        raise JudgeError(
            f"'{path}' contains choices without times; judge the results that they were made from."
        )
    else:
        raise JudgeError(
            f"'{path}' is not in a supported format; supported are Kernel Tuner's cache, T4, "
            "nvbench's --json, and Triton's *.autotune.json."
        )


# Keys of vLLM's tables besides sizes.
_OF_VLLM = {"triton_version"}


# T4's words, and Kernel Tuner's entry instead of a time.
_WORDS = {word: status for status, word in reversed(INVALIDITY.items())}
_ENDS = {error: _WORDS[word] for word, error in ERRORS.items()}


def _of_cache(content: Mapping[str, Any], path: Path) -> FileGroup:
    objective = content.get("objective", "time")
    names = content["tune_params_keys"]
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
    # A failed configuration may have no time at all.
    time = entry.get("__error__") or entry["time"]
    if isinstance(time, str):
        return Configuration(params, _ENDS.get(time, Status.LAUNCH_FAILED))
    return _timed(params, 1e-3 * _number(time), _scaled(entry.get("times", ()), 1e-3))


# Most characters of a bad value in a sentence.
_MAX_SHOWN = 60
# Factors by `timeunit`, and by the unit of a measurement.
_UNITS = (("n", 1e-9), ("mic", 1e-6), ("us", 1e-6), ("µs", 1e-6), ("m", 1e-3), ("s", 1.0))


def _factor(unit: str) -> float:
    for start, factor in _UNITS:
        if str(unit).lower().startswith(start):
            return factor
    raise _PartError(f"a time has the unit {_shown(unit)}; give ns, us, ms or s")


def _shown(value: Any) -> str:
    return one_line(repr(value), _MAX_SHOWN)


def _number(value: Any) -> float:
    """Return a time as a float; raise _PartError if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _PartError(f"a time is {_shown(value)}; it must be a number")
    return float(value)


def _scaled(times: Any, unit: float) -> list[float]:
    """Return times in seconds; raise _PartError for invalid ones."""
    if not isinstance(times, list | tuple):
        raise _PartError(f"the times of a configuration are {_shown(times)}; they must be a list")
    return [_number(time) * unit for time in times]


def _of_t4(content: Mapping[str, Any]) -> FileGroup:
    metadata = content.get("metadata", {})
    unit = _factor(metadata.get("timeunit", "milliseconds"))
    ours = metadata.get("group", {})
    return FileGroup(
        KERNEL_TUNER,
        str(ours.get("kernel", "")),
        f"{ours['height']} x {ours['width']}" if ours else "",
        str(ours.get("device_name", "")),
        [_of_t4_result(result, unit) for result in content.get("results", ())],
        () if ours else ["which kernel, problem and device"],
    )


def _of_t4_result(result: Mapping[str, Any], unit: float) -> Configuration:
    params = _params(result["configuration"])
    word = result["invalidity"]
    if word != "correct":
        return Configuration(params, _WORDS.get(word, Status.LAUNCH_FAILED))
    samples = _scaled(result["times"].get("runtimes", ()), unit)
    told = {m["name"]: m for m in result.get("measurements", ())}.get("time")
    if told is not None:
        return _timed(params, _number(told["value"]) * _factor(told.get("unit") or "ms"), samples)
    return _timed(params, float(np.mean(samples)) if samples else math.nan, samples)


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
    """Return named values, whose numbers are texts."""
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


# Parts of a Triton configuration besides its own parameters.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def _of_triton(content: Mapping[str, Any], path: Path) -> FileGroup:
    found = []
    for config, timing in content["configs_timings"]:
        options = {n: config[n] for n in _OPTIONS if config.get(n) is not None}
        # The median, and the 20th and 80th percentile. If there are several, Triton compares the
        # first.
        time = 1e-3 * _number(timing[0] if isinstance(timing, list) else timing)
        status = Status.OK if math.isfinite(time) else Status.OUT_OF_RESOURCES
        found.append(Configuration(_params({**config["kwargs"], **options}), status, time))
    key = ", ".join(map(str, content.get("key") or ()))
    name = path.name.removesuffix(".gz").removesuffix(AUTOTUNE)
    return FileGroup(TRITON, name, key, "", found, ["which device"])


def _timed(params: Params, time_s: float, samples_s: Sequence[float]) -> Configuration:
    if not (math.isfinite(time_s) and time_s > 0.0 and all(s > 0.0 for s in samples_s)):
        raise _PartError(f"a time of {_shown(dict(params))} is not a positive number")
    return Configuration(params, Status.OK, float(time_s), samples_s, len(samples_s) or None)


def _params(values: Mapping[str, Any]) -> dict[str, int | str]:
    """Return whole numbers and texts, by names that columns may have."""
    named = {re.sub(r"\W", "_", name): value for name, value in values.items()}
    return {
        n: v if type(v) is int else int(v) if _is_whole(v) else str(v) for n, v in named.items()
    }


def _is_whole(value: object) -> bool:
    return isinstance(value, float | bool) and float(value).is_integer()


Place = str | os.PathLike[str]
# Number of blocks of samples, if each has two or more; the first is the warm-up.
BLOCKS = 8
# With fewer samples there is no interval.
MIN_SAMPLES = 4
# Blocks that correlate more than this count as one.
_MAX_ALIKE = 0.8
# Columns besides those of a run: the file's own figure, the number of samples, and whether an
# interval is known.
PUBLISHED, COUNT, KNOWN = (f"{DERIVED}{name}" for name in ("published", "count", "known"))


def blocks_of(samples: Floats) -> Floats:
    """Blocks of successive samples, without the warm-up: (configurations, blocks, samples)."""
    n = samples.shape[1]
    size = max(1, n // BLOCKS if n >= 2 * BLOCKS else n // (BLOCKS // 2))
    count = n // size - 1
    return samples[:, n - count * size :].reshape(len(samples), count, size)


def centres(blocks: Floats) -> tuple[Floats, Floats]:
    """Return log times of configurations from their `blocks`, and half of their 95 % intervals."""
    logs = np.log(np.median(blocks, axis=2))
    alike = Classes(["all"] * len(logs))
    found = replicated([logs], alike)
    spreads = run_spreads([found])
    assert spreads is not None
    none = np.zeros(len(logs))
    priors = spreads.at(alike, alike.each())
    own, _ = half_widths(logs.shape[1], found.own, none, priors)
    return logs.mean(axis=1), own * math.sqrt(_widening(logs))


def _widening(logs: Floats) -> float:
    """Return the factor by which correlation of neighboring blocks raises a mean's variance.

    It is (1 + r) / (1 - r), as in a first-order series. r is the mean over configurations,
    corrected for the bias of short series (Marriott and Pope, Biometrika 41, 1954).
    """
    n = logs.shape[1]
    rest = logs - logs.mean(axis=1, keepdims=True)
    # A change that all have in common, such as a slow-down as the device warms up, favors none of
    # them.
    rest -= np.median(rest, axis=0)
    rest = rest[(rest**2).sum(axis=1) > 0.0]
    if n < MIN_SAMPLES or len(rest) < SHARING_CELLS:
        return 1.0
    r = float(np.mean((rest[:, 1:] * rest[:, :-1]).sum(axis=1) / (rest**2).sum(axis=1)))
    r = min(max((n * r + 1.0) / (n - 3.0), 0.0), _MAX_ALIKE)
    return float((1.0 + r) / (1.0 - r))


def run_of(groups: Sequence[FileGroup], path: Path) -> RunCells:
    """Return the groups of a file as a run to compare, with the file's own figures, PUBLISHED."""
    cells = pd.concat([_table(group) for group in groups], ignore_index=True)
    cells = cells.drop_duplicates(KEY, keep="last").set_index(KEY, drop=False)
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    told = {
        "protocol_version": groups[0].format,
        "written_at": written,
        "params": {"folder": "", "dtype": "", "measure": {}},
        "controls": [],
    }
    return RunCells(path.name, cells.rename_axis([None, None]).sort_index(), [told])


def _table(group: FileGroup) -> pd.DataFrame:
    """Return the group's configurations with the columns by which runs are compared."""
    table = pd.DataFrame([_row(group, c) for c in group.configurations])
    lengths = table["samples_s"].str.len().where(table["status"] == Status.OK, 0)
    for n in set(lengths) - set(range(MIN_SAMPLES)):
        places = np.flatnonzero(lengths == n)
        blocks = blocks_of(np.array(table["samples_s"].iloc[places].tolist()))
        middle, half = centres(blocks)
        kept = [*blocks.reshape(len(blocks), -1)]
        # Number of standard errors in the interval of this number of samples.
        errors = half / normal_quantile(CONFIDENCE) * normal_quantile(coverage_of(len(kept[0])))
        for column, values in (
            ("median_s", np.exp(middle)),
            ("group_low_s", np.exp(middle - half)),
            ("group_high_s", np.exp(middle + half)),
            ("sample_half_width", errors),
            ("samples_s", pd.Series(kept, places)),
            ("repeat_samples", pd.Series([[len(kept[0])]] * len(kept), places)),
        ):
            table.loc[places, column] = values
        table.loc[places, KNOWN] = True
    return table.assign(median_low_s=table["group_low_s"], median_high_s=table["group_high_s"])


def _row(group: FileGroup, of: Configuration) -> dict[str, Any]:
    half = 0.0
    known = False
    count = of.count or 0
    if not of.samples_s and count > 1 and not math.isnan(of.deviation_s):
        half = float(t_quantile(np.array(count - 1.0))) * of.deviation_s / math.sqrt(count)
        known = True
    samples = list(of.samples_s) or [of.time_s]
    params = [f"{name}={value}" for name, value in sorted(of.params.items())]
    bands = ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs")
    unknown = (*bands, "memcpy_gbs", "launches_per_sample", "overhead_s")
    return {
        **dict.fromkeys(("dtype", "cache_state", "device_uuid", "message"), ""),
        **dict.fromkeys(("height", "width"), 0),
        **dict.fromkeys(unknown, math.nan),
        "kernel": group.kernel,
        "variant": group.problem,
        "timing_mode": group.format,
        "device_name": group.device,
        "cell_key": "|".join([group.kernel, group.problem, *params]),
        "status": of.status,
        "median_s": of.time_s,
        "group_low_s": of.time_s - half,
        "group_high_s": of.time_s + half,
        "sample_half_width": half / of.time_s,
        "samples_s": samples,
        "repeat_samples": [len(samples)],
        "repeat_medians_s": [of.time_s],
        "repeat_memcpy_gbs": [math.nan],
        PUBLISHED: of.time_s,
        COUNT: count,
        KNOWN: known,
        **{f"{name}_" if name in TAKEN else name: value for name, value in of.params.items()},
    }


class JudgedGroup(Table):
    """A group of configurations in a file."""

    file: Annotated[String, Meaning("its name, or that of a run")]
    format: Annotated[String, Meaning("whose form the file has")]
    kernel: String
    problem: Annotated[String, Meaning("what the configurations compete in")]
    device_name: String
    configurations: Annotated[Int32, Meaning("configurations that the file has")]
    timed: Annotated[Int32, Meaning("those of them that have a time")]
    samples: Annotated[Int32, Meaning("the fewest samples of one of these")]
    winner: Annotated[String, Meaning("the fastest one's parameters")]
    winner_s: Annotated[Float64, Meaning("its median", "s")]
    tied: Annotated[
        Int32 | None,
        Meaning("how many are statistically tied with it; null where nothing tells it"),
    ]
    near: Annotated[Int32, Meaning("how many are within the threshold of it")]
    published: Annotated[String, Meaning("the fastest one by the file's own figure")]
    published_tied: Annotated[
        Bool | None, Meaning("whether that is among the tied; null where nothing tells it")
    ]
    halves_agree: Annotated[
        Bool | None, Meaning("whether both halves of the samples name the same; null of few")
    ]
    cannot_tell: Annotated[list[String], Meaning("what the file leaves open")]


@dataclass(frozen=True)
class Judgement:
    """Analysis of files, and the `comparison` with earlier files, if there are any."""

    rows: pd.DataFrame
    threshold: float
    comparison: Comparison | None = None

    def __str__(self) -> str:
        page = "" if self.comparison is None else f"\n\n{self.comparison.markdown().rstrip()}"
        return self.summary() + page

    def summary(self) -> str:
        """Return the text on each file, without the comparison."""
        return "\n\n".join("\n".join(self._lines(row)) for row in self.rows.to_dict("records"))

    def _lines(self, row: Mapping[str, Any]) -> list[str]:
        names = (row["file"], row["kernel"], row["problem"], row["device_name"])
        n = row["timed"]
        near = f"{row['near']} within {percent(self.threshold, sign=False)}"
        if row["tied"] is None:
            words = f"the fastest of {n}; nobody can say how many are statistically tied with it"
        else:
            words = tied_words(row["tied"], n)
        lines = [
            ", ".join(filter(None, names)),
            f"  {words}; {near}",
            f"  the fastest: {row['winner'] or 'it'} ({seconds(row['winner_s'])})",
        ]
        if row["published"] != row["winner"]:
            how = {True: "which is tied", False: "which is not tied", None: ""}[
                row["published_tied"]
            ]
            told = ", ".join(filter(None, [row["published"], how]))
            lines.append(f"  the file's own figure names another: {told}")
        if row["halves_agree"] is False:
            lines.append("  the two halves of its samples name different ones")
        if row["cannot_tell"]:
            lines.append(f"  the file cannot tell: {'; '.join(row['cannot_tell'])}")
        return lines


def judge(
    files: Place | Sequence[Place],
    *,
    before: Place | Sequence[Place] = (),
    noise_runs: Place | Sequence[Place] = (),
    problem: str | Collection[str] = (),
    threshold: float = DELTA,
) -> Judgement:
    """Analyze results of other tuners, and state what they leave open.

    Parameters
    ----------
    files : list of paths
        Kernel Tuner's cache files, T4, nvbench's JSON, Triton's ``*.autotune.json``, each also
        gzipped, or folders of runs.
    before : list of paths
        The same number of earlier files, with which these are compared (`compare`).
    noise_runs : list of paths
        Two or more repeated files without a change, which show the spread between files.
    problem : list of str
        Axes of nvbench that are the problem's, not the launch's.
    threshold : float
        The change that does not matter, as a share of the time.

    Returns
    -------
    Judgement
        With `rows` (a data frame) and `comparison`.

    Raises
    ------
    JudgeError, CompareError
        If a file cannot be read, analyzed or compared. Both are ValueErrors with one sentence.
    """
    if not 0.0 < threshold < 1.0:
        raise JudgeError(f"threshold is {threshold}; it must be a share between 0 and 1.")
    files, before, problem = several(files), several(before), several(problem)
    read = [_read(Path(file).expanduser(), problem) for file in files]
    rows = [row for run, notes in read for row in _rows(run, notes, threshold)]
    comparison = None
    if before:
        first, same = (
            [_read(Path(file).expanduser(), problem)[0] for file in some]
            for some in (before, several(noise_runs))
        )
        comparison = compare_runs(first, [run for run, _ in read], same, threshold)
    return Judgement(pd.DataFrame(rows).astype(object), threshold, comparison)


Notes = Mapping[tuple[str, str, str], Sequence[str]]


def _read(path: Path, problem: Collection[str]) -> tuple[RunCells, Notes]:
    """Read a file, or a run's folder, as a run; also return the open questions by group."""
    if path.is_dir():
        return read_run(path), {}
    groups = read_groups(path, problem)
    return run_of(groups, path), {(g.kernel, g.problem, g.device): g.notes for g in groups}


def _rows(run: RunCells, notes: Notes, threshold: float) -> Iterator[dict[str, Any]]:
    for key, cells in run.cells.reset_index(drop=True).groupby([*GROUP], sort=True):
        ok = cells[cells["status"] == Status.OK]
        if ok.empty:
            continue
        group = dict(zip(GROUP, key, strict=True))
        foreign = PUBLISHED in ok
        fastest = ok.loc[ok["median_s"].idxmin()]
        tied = tied_best(ok)
        known = bool(ok[KNOWN].all()) if foreign else True
        published = ok.loc[ok[PUBLISHED].idxmin()] if foreign else fastest
        varied = [c for c in ok if not is_axis(c) or ok[c].nunique() > 1]
        names = params_texts(ok[varied] if len(ok) > 1 else ok)
        size = f"{group['height']} x {group['width']}" if group["height"] else ""
        words = (group["dtype"], group["variant"], size, group["cache_state"])
        counts = ok[COUNT] if foreign else ok["samples_s"].str.len()
        left = notes.get((group["kernel"], group["variant"], group["device_name"]), ())
        yield {
            "file": run.name,
            "format": group["timing_mode"] if foreign else library,
            "kernel": group["kernel"],
            "problem": ", ".join(filter(None, words)),
            "device_name": group["device_name"],
            "configurations": len(cells),
            "timed": len(ok),
            "samples": int(counts.min()),
            "winner": names[fastest.name],
            "winner_s": float(fastest["median_s"]),
            "tied": len(tied) if known else None,
            "near": int((ok["median_s"] <= (1.0 + threshold) * fastest["median_s"]).sum()),
            "published": names[published.name],
            "published_tied": published["cell_key"] in set(tied["cell_key"]) if known else None,
            "halves_agree": _halves_agree(ok),
            "cannot_tell": [*left, *_open_questions(ok, foreign, known, counts)],
        }


def _open_questions(
    ok: pd.DataFrame, foreign: bool, known: bool, counts: pd.Series
) -> Iterator[str]:
    if not known:
        samples, without = int(counts.min()), int((counts == 0).sum())
        told = f"{samples} samples" if samples else "no number of samples"
        told = f"{told} a configuration"
        if 0 < without < len(counts):
            told = f"{without} of {len(counts)} configurations have no samples"
        yield f"which are tied ({told})"
    elif foreign and (ok["samples_s"].str.len() < MIN_SAMPLES - 1).any():
        yield "whether samples drift (it holds only their number and deviation)"
    if foreign:
        yield "how far another process would be off"
    elif ok["repeat_medians_s"].str.len().max() < 2:
        yield "how far another run would be off (there was one repeat)"


def _halves_agree(ok: pd.DataFrame) -> bool | None:
    """Return whether both halves of the samples have the same fastest; None with too few."""
    lengths = ok["samples_s"].str.len()
    if lengths.min() < 2 * MIN_SAMPLES:
        return None
    halves = [
        [np.median(samples[: len(samples) // 2]), np.median(samples[len(samples) // 2 :])]
        for samples in ok["samples_s"]
    ]
    first, second = np.argmin(halves, axis=0)
    return bool(first == second)
