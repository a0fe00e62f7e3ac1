"""Reads and checks a run's configuration: every fault is one sentence naming the key."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from ..chapters import (
    ChapterError,
    ChapterFolder,
    ChapterFolderError,
    ChapterPlan,
    ChapterRun,
    find_chapters,
    load_chapter,
)
from ..core.backends import AUTO
from ..core.display import joined
from ..core.paths import DEFAULTS, RESULTS, ROOT, NoOtavaError, find_otava
from ..core.readable import UnreadableError, refuse_braces
from ..core.schema import FAULTS, Status, axis_fault
from ..storage.dataset import finished_runs, runs_in
from ..storage.store import BadParquetError, read_metadata, unpacked
from ..workloads.loader import KernelFolder, KernelFolderError, find_kernels, misfit
from .config_schema import (
    ConfigError,
    check_schema,
    config_schema,
    did_you_mean,
    refuse_unknown,
    with_defaults,
)
from .digest import folder_digest
from .sweeps import (
    SweepConfig,
    measure_params,
    named_sweep,
    refuse_impossible,
    refuse_kinds,
    refuse_large,
    refuse_shared_cells,
    refuse_too_large,
)


@dataclass(frozen=True)
class PlannedChapter:
    """A chapter of this run, and what it adds to it."""

    folder: ChapterFolder
    plan: ChapterPlan

    def page_params(self, results: Path) -> dict[str, Any]:
        """What the report is told to make the chapter's page of; `results` is the run's folder."""
        figures = [str(results.joinpath("figures", f"{name}.svg")) for name in self.plan.figures]
        return {
            "code": folder_digest(self.folder.path),
            "folder": os.path.relpath(self.folder.path, ROOT),
            "reads": {kind: list(files) for kind, files in self.plan.reads.items()},
            "params": dict(self.plan.params),
            "tells": sorted(self.folder.chapter.tells),
            "figures": figures,
        }


def plan_chapters(
    raw: Mapping[str, Any],
    schema: Mapping[str, Any],
    root: Path,
    results: Path,
    dataset: Path | None,
    kernels: Mapping[str, KernelFolder],
) -> dict[str, PlannedChapter]:
    """The chapters of a run that sweeps `kernels`, by name. Raises ConfigError."""
    try:
        paths = find_chapters(root / f for f in ["reports/chapters", *raw["chapter_folders"]])
        folders = {name: load_chapter(path) for name, path in paths.items()}
    except ChapterFolderError as err:
        raise ConfigError(str(err)) from err
    options = {} if raw["chapters"] is None else _options(raw["chapters"], schema, folders)
    present = {n: folders[n] for n in options if folders[n].chapter.kernels & set(kernels)}
    run = ChapterRun(results, raw["seed"], kernels, dataset, root)
    return {n: PlannedChapter(f, _plan(f, options[n], run)) for n, f in present.items()}


def _plan(folder: ChapterFolder, options: Mapping[str, Any], run: ChapterRun) -> ChapterPlan:
    try:
        return folder.chapter.plan(options, run)
    except ChapterError as err:
        raise ConfigError(f"{err}.") from err


def _options(
    given: Mapping[str, Any], schema: Mapping[str, Any], folders: Mapping[str, ChapterFolder]
) -> dict[str, Mapping[str, Any]]:
    """What each chapter is told, by its own schema; one that is null is left out."""
    refuse_unknown("chapters", given, folders)
    options = {name: given.get(name, {}) for name in folders if given.get(name, {}) is not None}
    schemas = {name: folders[name].options for name in options}
    check_schema(
        {"chapters": options},
        {"$defs": schema["$defs"], "properties": {"chapters": {"properties": schemas}}},
    )
    return options


# Studies that are sweeps, which config/<study>.yaml holds.
SWEPT_STUDIES = frozenset({"machine"})


@dataclass(frozen=True)
class RunConfig:
    """A checked configuration: ``config["seed"]`` is a key's value as the schema describes it.

    `results` is the run's folder, `device_memory` in bytes, `dataset` the folder of a recorded data
    set to analyse instead of measuring, `measure` the parameters of jobs. Cells that ended with a
    status in `remeasure` are measured again.
    """

    values: Mapping[str, Any]
    results: Path
    device_memory: int | None
    sweeps: dict[str, SweepConfig]
    measure: dict[str, Any]
    chapters: dict[str, PlannedChapter]
    dataset: Path | None
    remeasure: frozenset[Status]
    compared: dict[str, Any] | None
    earlier: dict[str, Any] | None

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def default_config() -> dict[str, Any]:
    """The default run: the sweeps of config/config.yaml, the schema's defaults for other keys."""
    given = yaml.CSafeLoader(DEFAULTS.read_text(encoding="utf-8")).get_single_data()
    return with_defaults(given, config_schema())


def load_config(raw: Mapping[str, Any], root: Path, results: Path = RESULTS) -> RunConfig:
    """Check `raw`, the merged YAML; relative paths refer to `root`. Raises ConfigError."""
    schema = config_schema()
    check_schema(raw, schema)
    raw = _with_studies(_at_home(with_defaults(raw, schema)), root)
    try:
        paths = find_kernels(root / f for f in ["kernels", *raw["kernel_folders"]])
        configured = {
            name: named_sweep(name, spec, paths)
            for name, spec in sorted(raw["kernels"].items())
            if spec is not None
        }
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err
    if not configured:
        raise ConfigError("kernels: every kernel is null; at least one must be swept.")
    sweeps = _chosen(raw["only"], configured, raw["kernels"])
    fault = axis_fault(axis for sweep in sweeps.values() for axis in sweep.axes)
    if fault is not None:
        named = {s.folder.name for s in sweeps.values() if any(f"'{a}'" in fault for a in s.axes)}
        raise ConfigError(f"kernels: {fault}, or leave one out ({', '.join(sorted(named))}).")
    m = raw["measure"]
    refuse_large(sweeps, raw["backend"], m["max_cells"], m["max_builds"])
    refuse_shared_cells(sweeps)
    if raw["backend"] != AUTO:
        refuse_kinds(sweeps, raw["backend"])
    refuse_impossible(sweeps)
    memory = raw["device_memory_gib"]
    dataset = _dataset(raw["dataset"], root)
    kernels = {s.folder.name: s.folder for s in sweeps.values()}
    chapters = plan_chapters(raw, schema, root, results / raw["run"], dataset, kernels)
    remeasure = _statuses_to_remeasure(raw)
    if dataset is not None:
        told = (c.folder.chapter.tells for c in chapters.values())
        _refuse_others(raw["dataset"], dataset, {*kernels, *chain.from_iterable(told)})
    if raw["studies"] and dataset is not None:
        raise ConfigError(
            "studies: nothing of a recorded dataset is measured; leave one of both out."
        )
    return RunConfig(
        values=raw,
        results=results / raw["run"],
        device_memory=None if memory is None else int(memory * 2**30),
        sweeps=sweeps,
        measure=measure_params("measure.", m),
        chapters=chapters,
        dataset=dataset,
        remeasure=remeasure,
        compared=read_compared(raw),
        earlier=read_earlier(raw, results / raw["run"]),
    )


# Keys that name folders.
_FOLDERS = ("kernel_folders", "chapter_folders")
_DATA = ("dataset", "history", "before", "after", "noise_runs")


def _at_home(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with the user's home for ``~`` in each key that names folders."""
    return {**raw, **{name: _expanded(raw[name]) for name in (*_FOLDERS, *_DATA)}}


def _expanded(value: Any) -> Any:
    # `Path.expanduser` raises if there is no such user.
    if isinstance(value, str):
        return os.path.expanduser(value)
    return [_expanded(one) for one in value] if isinstance(value, list) else value


def _with_studies(raw: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """`raw` with the sweeps of its studies' files as ``<study>_<sweep>``, unless it has its own."""
    kernels, only = raw["kernels"], raw["only"]
    for study in SWEPT_STUDIES.intersection(raw["studies"]):
        text = (root / f"config/{study}.yaml").read_text(encoding="utf-8")
        file = yaml.CSafeLoader(text).get_single_data()
        added = {f"{study}_{n}": {"kernel": n, **file["kernels"][n]} for n in file["only"]}
        kernels = added | kernels
        only = only and [*only, *(n for n in added if kernels[n] is not None)]
    return {**raw, "kernels": kernels, "only": only}


def _statuses_to_remeasure(raw: Mapping[str, Any]) -> frozenset[Status]:
    """Cells that ended so are measured again."""
    asked = raw["remeasure"]
    if asked is not None and raw["dataset"] is not None:
        raise ConfigError(
            "remeasure: nothing of a recorded dataset is measured; set one of both null."
        )
    named = {"failed": FAULTS, "all": frozenset(Status)}
    return named[asked] if isinstance(asked, str) else frozenset(map(Status, asked or ()))


def _chosen(
    only: Sequence[str] | None, sweeps: dict[str, SweepConfig], kernels: Mapping[str, Any]
) -> dict[str, SweepConfig]:
    """The sweeps that `only` names; without it, all."""
    if only is None:
        return sweeps
    for name in only:
        if name in kernels and name not in sweeps:
            raise ConfigError(
                f"only: kernels.{name} is null, which leaves the sweep out; write '{name}: {{}}'."
            )
        if name not in sweeps:
            raise ConfigError(
                f"only: there is no sweep '{name}' under kernels; there are: {', '.join(sweeps)}."
                f"{did_you_mean(name, sweeps)}"
            )
    return {name: sweep for name, sweep in sweeps.items() if name in only}


def _dataset(value: str | None, root: Path) -> Path | None:
    if value is None:
        return None
    path = root / value
    try:
        shards = unpacked(path)
        files = list(shards.rglob("*.parquet")) if shards.is_dir() else []
        for file in files:
            refuse_braces(os.path.relpath(file))
    except (BadParquetError, UnreadableError) as err:
        raise ConfigError(f"dataset: {err}") from err
    except OSError as err:
        raise ConfigError(f"dataset: '{value}' cannot be read ({err.strerror}).") from err
    if not files:
        raise ConfigError(f"dataset: '{value}' is not a folder that holds Parquet files.")
    return path


def _refuse_others(value: str, dataset: Path, kernels: Collection[str]) -> None:
    """Raise ConfigError if a data set has cells of others than the run's `kernels`."""
    # The files in one folder are of one kernel.
    firsts = {file.parent: file for file in sorted(unpacked(dataset).rglob("*.parquet"))}
    found = set[str]()
    for file in firsts.values():
        # A damaged file has an error of its own when it is aggregated.
        with suppress(BadParquetError, KeyError, OSError):
            found.add(Path(read_metadata(file)["params"]["folder"]).name)
    others = sorted(found.difference(kernels))
    if others:
        raise ConfigError(
            f"dataset: '{value}' has cells of {joined(others)}, which this run does not sweep; "
            "name a further --configfile that does (and set 'only' null), or one kernel's folder "
            "within the data set."
        )


def check_memory(config: RunConfig, memory: int, allocation: int) -> None:
    """Refuse problems that do not fit `memory` bytes, `allocation` in one buffer: ConfigError."""
    refuse_too_large(config.sweeps, memory, allocation)
    workloads = {s.folder.name: s.folder.workload for s in config.sweeps.values()}
    single = (item for c in config.chapters.values() for item in c.plan.cells.items())
    for key, cell in single:
        workload = workloads[cell.kernel]
        reason = misfit(workload, cell.problem, cell.dtype, memory, allocation)
        if reason is not None:
            raise ConfigError(f"{key}.size: {reason}; choose a smaller size.")


def read_compared(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Folders `a`, `b`, `noise_runs`, and `threshold`; None where nothing is compared."""
    sides = [_several(raw[side]) for side in ("before", "after")]
    if not any(sides):
        return None
    if not all(sides):
        missing, other = ("after", "before") if sides[0] else ("before", "after")
        raise ConfigError(f"{missing}: null, and {other} is not; compare needs both.")
    if len(sides[0]) != len(sides[1]):
        raise ConfigError(
            f"before, after: {len(sides[0])} folders and {len(sides[1])}; they are compared in "
            "pairs."
        )
    if len(raw["noise_runs"]) == 1:
        raise ConfigError(
            "noise_runs: one run does not tell how far runs lie apart; name two or more."
        )
    for key in ("before", "after", "noise_runs"):
        for folder in _several(raw[key]):
            if not unpacked(Path(folder)).is_dir():
                raise ConfigError(f"{key}: '{folder}' is not the folder of a run or of shards.")
    return {"a": sides[0], "b": sides[1], **{n: raw[n] for n in ("noise_runs", "threshold")}}


def _several(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def read_earlier(raw: Mapping[str, Any], own: Path) -> dict[str, Any] | None:
    """The folders of `earlier` runs, `otava` and `threshold`; None without a history: ConfigError.

    A folder of runs stands for the finished ones in it, but for the run's `own` folder. Relative
    folders begin at the working directory.
    """
    if raw["history"] is None:
        if raw["otava"] is not None:
            raise ConfigError("otava: it finds change points in a history, and history is null.")
        return None
    found = [path for name in _several(raw["history"]) for path in _runs_in(name, own.parent)]
    others = (path for path in found if path.resolve() != own.resolve())
    earlier = list(dict.fromkeys(map(str, others)))
    return {"earlier": earlier, "otava": raw["otava"], "threshold": raw["threshold"]}


def _runs_in(name: str, results: Path) -> list[Path]:
    """The runs that a folder stands for; in that of all `results` there may be none yet."""
    folder = Path(name)
    if folder.resolve() == results.resolve():
        return finished_runs(folder)
    if not unpacked(folder).is_dir():
        raise ConfigError(f"history: '{name}' is not the folder of a run, of runs or of shards.")
    return runs_in(folder) if folder.is_dir() else [folder]


def refuse_without_otava(otava: str | None) -> None:
    """Raise ConfigError, one sentence, where the program that finds change points is missing."""
    try:
        find_otava(otava)
    except NoOtavaError as err:
        raise ConfigError(f"otava: {err}") from err


def merged(
    base: Mapping[str, Any], part: Mapping[str, Any], folder: Path, parent: str = ""
) -> dict[str, Any]:
    """`base` with the values of `part`, which a file in `folder` gives, over it.

    Mappings are merged key by key, but not an axis: a range would keep the step of the one that it
    replaces. Relative `kernel_folders` and `chapter_folders` begin at `folder`.
    """
    both = dict(base)
    for key, value in part.items():
        inner = base.get(key)
        names = value if isinstance(value, list) else []
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and parent != "axes":
            both[key] = merged(inner, value, folder, key)
        elif not parent and key in _FOLDERS and all(isinstance(name, str) for name in names):
            both[key] = [os.path.join(folder, _expanded(n)) for n in names] if names else value
        else:
            both[key] = value
    return both
