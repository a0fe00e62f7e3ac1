"""Which chapters a run has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..chapters.contract import ChapterError, ChapterPlan, ChapterRun
from ..chapters.loader import ChapterFolder, ChapterFolderError, find_chapters, load_chapter
from ..core.paths import ROOT
from ..workloads.loader import KernelFolder
from ..workloads.user_code import blamed
from .config_schema import ConfigError, check_schema, refuse_unknown
from .digest import code_digest


@dataclass(frozen=True)
class PlannedChapter:
    """A chapter of this run, and what it adds to it."""

    folder: ChapterFolder
    plan: ChapterPlan

    def page_params(self, results: Path) -> dict[str, Any]:
        """What the report is told to make the chapter's page of; `results` is the run's folder."""
        figures = [str(results.joinpath("figures", f"{name}.svg")) for name in self.plan.figures]
        return {
            "code": code_digest(self.folder.path / "pages.py"),
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
        plan = folder.chapter.plan(options, run)
    except ChapterError as err:
        raise ConfigError(f"{err}.") from err
    except Exception as err:
        where = blamed(folder.path / "chapter.py", "plan", err)
        raise ConfigError(f"Chapter '{folder.name}': it cannot be planned ({where}).") from err
    if not isinstance(plan, ChapterPlan):
        raise ConfigError(
            f"Chapter '{folder.name}': plan returns {type(plan).__name__}, not a ChapterPlan."
        )
    return plan


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
