"""Read and check the configuration of a run. Each error is one sentence that names the key."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from ..chapters import ChapterFolder, ChapterPlan, ChapterRun, find_chapters, load_chapter
from ..core.backends import AUTO
from ..core.display import joined
from ..core.errors import (
    BadParquetError,
    ChapterError,
    ChapterFolderError,
    ConfigError,
    KernelFolderError,
    UnreadableError,
)
from ..core.keys import REQUIRED, keys_of
from ..core.paths import DEFAULTS, RESULTS, ROOT
from ..core.readable import refuse_braces
from ..core.run_plan import plain
from ..core.schema import FAULTS, Status, axis_fault
from ..registry import extras
from ..storage.dataset import data_sets_in, finished_runs, is_run, runs_in
from ..storage.store import read_metadata, unpacked
from ..workloads.loader import find_kernels, misfit
from .digest import folder_digest
from .refusal import did_you_mean, read_section, refuse_unknown
from .settings import Settings, Sweep
from .sweeps import (
    SweepConfig,
    named_sweep,
    refuse_few_samples,
    refuse_impossible,
    refuse_large,
    refuse_shared_cells,
    refuse_timing_modes,
    refuse_too_large,
)


@dataclass(frozen=True)
class PlannedChapter:
    """A chapter of the report that belongs to this run, and its `plan`: the files that it adds."""

    folder: ChapterFolder
    plan: ChapterPlan

    def page_params(self, results: Path) -> dict[str, Any]:
        """Return the parameters with which the report makes the chapter's page, as plain values.

        Parameters
        ----------
        results
            Folder of the run.
        """
        figures = [str(results.joinpath("figures", f"{name}.svg")) for name in self.plan.figures]
        return {
            "code": folder_digest(self.folder.path),
            "folder": os.path.relpath(self.folder.path, ROOT),
            "reads": {kind: list(files) for kind, files in self.plan.reads.items()},
            "params": dict(self.plan.params),
            "tells": sorted(self.folder.chapter.tells),
            "figures": figures,
        }


def plan_chapters(settings: Settings, run: ChapterRun) -> dict[str, PlannedChapter]:
    """Return the chapters of the report whose kernels the run sweeps, by name.

    A chapter compares the run with a published document. It is left out if its options are null.

    Parameters
    ----------
    settings
        The configuration, which has the options of the chapters.
    run
        The kernels and folders of the run.

    Raises
    ------
    ConfigError
        If a chapter's folder cannot be loaded, or if its options are wrong.
    """
    places = ["reports/chapters", *settings.chapter_folders]
    try:
        paths = find_chapters(run.root / place for place in places)
        folders = {name: load_chapter(path) for name, path in paths.items()}
    except ChapterFolderError as err:
        raise ConfigError(str(err)) from err
    options = {} if settings.chapters is None else _options(settings.chapters, folders)
    present = {n: folders[n] for n in options if folders[n].chapter.kernels & set(run.kernels)}
    return {n: PlannedChapter(f, _plan(f, options[n], run)) for n, f in present.items()}


def _plan(folder: ChapterFolder, options: Mapping[str, Any], run: ChapterRun) -> ChapterPlan:
    try:
        return folder.chapter.plan(options, run)
    except ChapterError as err:
        raise ConfigError(f"{err}.") from err


def _options(
    given: Mapping[str, Any], folders: Mapping[str, ChapterFolder]
) -> dict[str, Mapping[str, Any]]:
    """Return the checked options of each chapter as plain values, without those that are null."""
    refuse_unknown("chapters", given, folders)
    found: dict[str, Mapping[str, Any]] = {}
    for name, folder in folders.items():
        options = given.get(name, {})
        if options is not None:
            read = read_section(folder.chapter.options, options, f"chapters.{name}.")
            found[name] = read.given
    return found


# Studies that are sweeps, which config/<study>.yaml holds.
SWEPT_STUDIES = frozenset({"machine"})


@dataclass(frozen=True)
class RunConfig:
    """A checked configuration, and the objects that its keys refer to.

    Attributes
    ----------
    settings
        The keys and their values.
    results
        Folder of the run.
    device_memory
        Memory of the device in bytes, if the configuration limits it.
    sweeps
        The sweeps to measure, by name.
    chapters
        The chapters of the report, by name.
    dataset
        Folder of a recorded data set, which the run analyzes instead of measuring.
    remeasure
        Cells that ended with one of these statuses are measured again.
    compared
        Runs to compare, see `read_compared`.
    earlier
        Folders of earlier runs, see `read_earlier`.
    """

    settings: Settings
    results: Path
    device_memory: int | None
    sweeps: dict[str, SweepConfig]
    chapters: dict[str, PlannedChapter]
    dataset: Path | None
    remeasure: frozenset[Status]
    compared: dict[str, Any] | None
    earlier: list[str] | None


def default_config() -> dict[str, Any]:
    """Return the configuration of a run for which the user sets no key.

    It has the sweeps of config/config.yaml, and the defaults of all other keys.
    """
    given = yaml.CSafeLoader(DEFAULTS.read_text(encoding="utf-8")).get_single_data()
    return with_defaults(given, Settings)


def with_defaults(given: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Return the values of a section, in which keys without a value have their default.

    Parameters
    ----------
    given
        Values by key.
    kind
        Class that defines the keys of the section.
    """
    found = dict(given)
    for name, key in keys_of(kind).items():
        if is_dataclass(key.default):
            found[name] = with_defaults(given.get(name, {}), type(key.default))
        elif key.default is not REQUIRED:
            found.setdefault(name, plain(key.default))
    return found


def load_config(raw: Mapping[str, Any], root: Path, results: Path = RESULTS) -> RunConfig:
    """Check a configuration and load the kernels and chapters that it names.

    Parameters
    ----------
    raw
        The merged values of all configuration files and of the command line.
    root
        Folder to which relative paths in the configuration refer.
    results
        Folder of the folders of all runs.

    Raises
    ------
    ConfigError
        With one sentence that names the key, for the first fault.
    """
    settings = _with_studies(_at_home(read_section(Settings, raw)), root)
    try:
        paths = find_kernels(root / f for f in ["kernels", *settings.kernel_folders])
        configured = {
            name: named_sweep(name, spec, paths)
            for name, spec in sorted(settings.kernels.items())
            if spec is not None
        }
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err
    if not configured:
        raise ConfigError("kernels: every kernel is null; at least one must be swept.")
    sweeps = _chosen(settings.only, configured, settings.kernels)
    fault = axis_fault(axis for sweep in sweeps.values() for axis in sweep.axes)
    if fault is not None:
        named = {s.folder.name for s in sweeps.values() if any(f"'{a}'" in fault for a in s.axes)}
        raise ConfigError(f"kernels: {fault}, or leave one out ({', '.join(sorted(named))}).")
    measure, backend = settings.measure, settings.backend
    refuse_large(sweeps, backend, measure.max_cells, measure.max_builds)
    refuse_shared_cells(sweeps)
    if backend != AUTO:
        refuse_timing_modes(sweeps, backend)
    refuse_impossible(sweeps)
    refuse_few_samples("measure.", measure)
    memory = settings.device_memory_gib
    dataset = _dataset(settings.dataset, root)
    own = results / settings.run
    kernels = {s.folder.name: s.folder for s in sweeps.values()}
    chapters = plan_chapters(settings, ChapterRun(own, settings.seed, kernels, dataset, root))
    remeasure = _statuses_to_remeasure(settings)
    if dataset is not None:
        told = (c.folder.chapter.tells for c in chapters.values())
        _refuse_others(str(settings.dataset), dataset, {*kernels, *chain.from_iterable(told)})
    if settings.studies and dataset is not None:
        raise ConfigError(
            "studies: nothing of a recorded dataset is measured; leave one of both out."
        )
    config = RunConfig(
        settings=settings,
        results=own,
        device_memory=None if memory is None else int(memory * 2**30),
        sweeps=sweeps,
        chapters=chapters,
        dataset=dataset,
        remeasure=remeasure,
        compared=read_compared(settings),
        earlier=read_earlier(settings, own),
    )
    _refuse_without_extra(settings)
    return config


# Keys that name folders.
_FOLDERS = ("kernel_folders", "chapter_folders")
_DATA = ("dataset", "history", "before", "after", "noise_runs")


def _at_home(settings: Settings) -> Settings:
    """Replace a leading ``~`` by the user's home in all keys that name folders."""
    found = {name: _expanded(getattr(settings, name)) for name in (*_FOLDERS, *_DATA)}
    return settings.model_copy(update=found)


def _expanded(value: Any) -> Any:
    # `Path.expanduser` raises if there is no such user.
    if isinstance(value, str):
        return os.path.expanduser(value)
    return tuple(_expanded(one) for one in value) if isinstance(value, tuple) else value


def _with_studies(settings: Settings, root: Path) -> Settings:
    """Add the sweeps of the chosen studies to `settings`, named ``<study>_<sweep>``.

    A sweep of that name in the configuration takes precedence.
    """
    kernels, only = dict(settings.kernels), settings.only
    for study in sorted(SWEPT_STUDIES.intersection(settings.studies)):
        text = (root / f"config/{study}.yaml").read_text(encoding="utf-8")
        file = yaml.CSafeLoader(text).get_single_data()
        added = {
            f"{study}_{n}": read_section(Sweep, {"kernel": n, **file["kernels"][n]})
            for n in file["only"]
        }
        kernels = {**added, **kernels}
        only = only and (*only, *(n for n in added if kernels[n] is not None))
    return settings.model_copy(update={"kernels": kernels, "only": only})


def _statuses_to_remeasure(settings: Settings) -> frozenset[Status]:
    """Return the statuses that the key `remeasure` selects. Refuse it for a recorded data set."""
    asked = settings.remeasure
    if asked is not None and settings.dataset is not None:
        raise ConfigError(
            "remeasure: nothing of a recorded dataset is measured; set one of both null."
        )
    named = {"failed": FAULTS, "all": frozenset(Status)}
    return named[asked] if isinstance(asked, str) else frozenset(map(Status, asked or ()))


def _chosen(
    only: Sequence[str] | None, sweeps: dict[str, SweepConfig], kernels: Collection[str]
) -> dict[str, SweepConfig]:
    """Return the sweeps that the key `only` names, or all sweeps if it is not set."""
    if only is None:
        return sweeps
    for name in only:
        if name in kernels and name not in sweeps:
            raise ConfigError(
                f"only: kernels.{name} is null, which leaves the sweep out; write '{name}: {{}}'."
            )
        if name not in sweeps:
            raise ConfigError(
                f"only: there is no sweep '{name}' under kernels; there are: {', '.join(sweeps)}; "
                f"add '{name}: {{}}' under kernels, and for your own kernel the folder that has "
                f"it to the key kernel_folders.{did_you_mean(name, sweeps)}"
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
    _refuse_no_shards(value, shards)
    return path


def _refuse_no_shards(value: str, folder: Path) -> None:
    """Raise ConfigError if the folder is that of a run, or contains several data sets."""
    if is_run(folder):
        raise ConfigError(
            f"dataset: '{value}' is the folder of a run or of its aggregated cells; name the "
            f"folder of its shards, such as {RESULTS.name}/local/cells."
        )
    if several := data_sets_in(folder):
        raise ConfigError(
            f"dataset: '{value}' contains several data sets; name the shards of one, such as "
            f"'{os.path.join(value, _shards_of(several[0]))}'."
        )


def _shards_of(folder: Path) -> str:
    """Return the folder with the shards of a run or data set, relative to its parent."""
    return os.path.join(folder.name, "cells") if is_run(folder) else folder.name


def _refuse_others(value: str, dataset: Path, kernels: Collection[str]) -> None:
    """Raise ConfigError if a data set has cells of others than the run's `kernels`."""
    # The files in one folder are of one kernel.
    firsts = {file.parent: file for file in sorted(unpacked(dataset).rglob("*.parquet"))}
    found = set[str]()
    for file in firsts.values():
        # Aggregation reports a damaged file with a separate error.
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
    """Raise ConfigError if a problem of a sweep or of a chapter does not fit on the device.

    Parameters
    ----------
    config
        The checked configuration.
    memory
        Memory of the device in bytes.
    allocation
        Largest size of one buffer in bytes.
    """
    refuse_too_large(config.sweeps, memory, allocation)
    workloads = {s.folder.name: s.folder.workload for s in config.sweeps.values()}
    single = (item for c in config.chapters.values() for item in c.plan.cells.items())
    for key, cell in single:
        workload = workloads[cell.kernel]
        reason = misfit(workload, cell.problem, cell.dtype, memory, allocation)
        if reason is not None:
            raise ConfigError(f"{key}.size: {reason}; choose a smaller size.")


def read_compared(settings: Settings) -> dict[str, Any] | None:
    """Return the runs that the target ``compare`` compares, or None without such runs.

    Returns
    -------
    dict
        Folders of runs under ``a`` (before), ``b`` (after) and ``noise_runs``, and under
        ``threshold`` the relative change that does not matter.

    Raises
    ------
    ConfigError
        If a side is missing, if the sides have different lengths, or if a folder is not a run.
    """
    named = {
        "before": _several(settings.before),
        "after": _several(settings.after),
        "noise_runs": list(settings.noise_runs),
    }
    sides = [named["before"], named["after"]]
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
    if len(settings.noise_runs) == 1:
        raise ConfigError(
            "noise_runs: one run does not show the run-to-run spread; list two or more."
        )
    for key, folders in named.items():
        for folder in folders:
            if not unpacked(Path(folder)).is_dir():
                raise ConfigError(f"{key}: '{folder}' is not the folder of a run or of shards.")
    return {
        "a": sides[0],
        "b": sides[1],
        "noise_runs": named["noise_runs"],
        "threshold": settings.threshold,
    }


def _several(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def own_studies(settings: Settings) -> list[str]:
    """Return the names of the chosen studies that run as separate jobs and not as sweeps."""
    return [name for name in settings.studies if name not in SWEPT_STUDIES]


def _refuse_without_extra(settings: Settings) -> None:
    """Raise ConfigError if a key asks for an extra whose folder is missing."""
    there = {key for extra in extras().values() for key in extra.keys}
    asked = {"history": settings.history, "studies": own_studies(settings)}
    for key, value in asked.items():
        if value and key not in there:
            raise ConfigError(
                f"{key}: this gpushmoo has no extra that reads it (no folder of gpushmoo/extras/ "
                "names the key); leave it out."
            )


def read_earlier(settings: Settings, own: Path) -> list[str] | None:
    """Return the folders of earlier runs, or None if the key `history` is not set.

    A folder of runs means the finished ones in it, except the run's `own` folder. Relative folders
    begin at the working directory.

    Raises
    ------
    ConfigError
        If a name is not the folder of a run, of runs or of shards.
    """
    if settings.history is None:
        return None
    found = [path for name in _several(settings.history) for path in _runs_in(name, own.parent)]
    others = (path for path in found if path.resolve() != own.resolve())
    return list(dict.fromkeys(map(str, others)))


def _runs_in(name: str, results: Path) -> list[Path]:
    """Return the runs that a folder contains; the folder of all `results` may still be empty."""
    folder = Path(name)
    if folder.resolve() == results.resolve():
        return finished_runs(folder)
    if not unpacked(folder).is_dir():
        raise ConfigError(f"history: '{name}' is not the folder of a run, of runs or of shards.")
    return runs_in(folder) if folder.is_dir() else [folder]


def merged(
    base: Mapping[str, Any], part: Mapping[str, Any], folder: Path, parent: str = ""
) -> dict[str, Any]:
    """Return the configuration `base`, overridden by the values of `part`.

    Mappings are merged key by key, but not axes: otherwise a range would keep the step of the range
    that it replaces.

    Parameters
    ----------
    base, part
        Values by key.
    folder
        Folder of the file that contains `part`. Relative paths in `kernel_folders` and
        `chapter_folders` start there.
    parent
        Key under which both mappings are, empty for whole configurations.
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
