"""The contract of a chapter's folder ``reports/chapters/<name>/``, and how it is found and loaded.

A chapter holds measurements against one document: its numbers, its slips, its questions. The folder
is a Python package of these files, of which the second and the last two may be missing:

- ``chapter.py`` defines CHAPTER, an instance of a subclass of `Chapter`; it is imported whenever a
  run is planned, so it imports nothing that takes long;
- ``options.py`` defines the section of the configuration at the key ``chapters.<name>``, if it may
  hold anything;
- ``pages.py`` defines ``page(measured)``, which makes a `report.pages.Page` out of what
  was measured: the appendix, its title and the three sentences that introduce it;
- ``pages.typ`` defines ``pages(facts, kit)``, which lays that appendix out, below its heading;
- ``rules.smk`` holds rules of its own;
- ``tests/`` holds its tests.

A chapter that cannot be planned ends the run before its first job. One whose appendix cannot be
made costs its appendix: the report says there, and on its first page, what went wrong.

A run has the chapters whose kernels it sweeps, and nothing of the others.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

# Chapters import the first one from here, with the rest of their contract.
from .core.errors import ChapterError as ChapterError
from .core.errors import ChapterFolderError
from .core.keys import Section
from .core.space import Cell
from .workloads.loader import KernelFolder, find_folders


@dataclass(frozen=True)
class ChapterRun:
    """The run as a chapter's plan sees it.

    `results` is the folder of the run's files, relative to the working directory. `kernels` are the
    swept ones, by name. `dataset` is the folder of recorded shards that the run renders, None where
    it measures. `root` is the folder that relative paths in the configuration refer to.
    """

    results: Path
    seed: int
    kernels: Mapping[str, KernelFolder]
    dataset: Path | None
    root: Path

    def path(self, *parts: str) -> str:
        """A path inside the run's folder."""
        return str(self.results.joinpath(*parts))


@dataclass(frozen=True)
class ChapterPlan:
    """The files that a chapter adds to a run, all made by its own rules.

    `figures` are names of figures (``figures/<name>.svg`` and ``.json`` beside it), in their order
    on the page. `measured` are files that a job on the device makes, `products` are beside the
    report, and `reads` are what the page is made of besides the run's cells, by what they hold.
    `params` are plain values for the page. `noted` maps files to the reason that the terminal shows
    before they are made.
    """

    figures: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    noted: Mapping[str, str] = field(default_factory=dict)
    # Cells that its own jobs launch, by the configuration's key: they must fit the device's memory.
    cells: Mapping[str, Cell] = field(default_factory=dict)


class Chapter(ABC):
    """One published document, as far as the instrument knows it: its kernels, files and page."""

    # What the configuration's key of this chapter may hold.
    options: ClassVar[type[Section]] = Section
    # Full title of the chapter's document, with its author or where it was published.
    document: ClassVar[str]
    # The chapter is in a run that sweeps one of these kernels.
    kernels: ClassVar[frozenset[str]]
    # Kernels whose best cells are on the chapter's page instead of in the report's own tables.
    tells: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def plan(self, options: Mapping[str, Any], run: ChapterRun) -> ChapterPlan:
        """What the chapter adds to `run`; its `options` are plain values. Raises ChapterError."""


@dataclass(frozen=True)
class ChapterFolder:
    """A chapter loaded from its folder: what ``chapter.py`` defines."""

    path: Path
    chapter: Chapter

    @property
    def name(self) -> str:
        """The folder's name, which is the chapter's and that of its Python package."""
        return self.path.name

    @property
    def rules(self) -> Path | None:
        """The chapter's ``rules.smk``, which the Snakefile includes; None where it has no rules."""
        path = self.path / "rules.smk"
        return path if path.is_file() else None


def find_chapters(folders: Iterable[Path]) -> dict[str, Path]:
    """Folders of chapters by name; a folder is a chapter when it holds ``chapter.py``."""
    return find_folders("chapter", "chapter.py", folders, ChapterFolderError)


def load_chapter(path: Path) -> ChapterFolder:
    """Import the ``chapter.py`` of a chapter's folder."""
    return ChapterFolder(path, import_module(f"{package(path)}.chapter").CHAPTER)


def package(path: Path) -> str:
    """Name under which the chapter in `path` can be imported from now on."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    return path.name
