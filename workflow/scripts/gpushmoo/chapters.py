"""Define the contract of a chapter's folder ``reports/chapters/<name>/``, and find chapters.

A chapter compares measurements with one document: its numbers, its errors, its questions. The
folder is a Python package of these files, of which the second and the last two may be missing:

- ``chapter.py`` defines CHAPTER, an instance of a subclass of `Chapter`; it is imported whenever a
run is planned, so it must import quickly;
- ``options.py`` defines the section of the configuration at the key ``chapters.<name>``, if it has
options;
- ``pages.py`` defines ``page(measured)``, which makes a `report.pages.Page` from the measurements:
the appendix, its title and the three sentences that introduce it;
- ``pages.typ`` defines ``pages(facts, kit)``, which lays out that appendix below its heading;
- ``rules.smk`` contains the chapter's rules;
- ``tests/`` contains its tests.

If a chapter cannot be planned, the run ends before its first job. If its appendix cannot be made,
the report has the error instead of the appendix, and on its first page.

A run has the chapters whose kernels it sweeps, and nothing from other chapters.
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

    Attributes
    ----------
    results
        Folder of the run's files, relative to the working directory.
    kernels
        The swept kernels, by name.
    dataset
        Folder of recorded shards that the run renders; None if it measures.
    root
        Folder that relative paths in the configuration refer to.
    """

    results: Path
    seed: int
    kernels: Mapping[str, KernelFolder]
    dataset: Path | None
    root: Path

    def path(self, *parts: str) -> str:
        """Return a path inside the run's folder."""
        return str(self.results.joinpath(*parts))


@dataclass(frozen=True)
class ChapterPlan:
    """Files that a chapter adds to a run, all made by its own rules.

    Attributes
    ----------
    figures
        Names of figures (``figures/<name>.svg`` and ``.json`` beside it), in their order on the
        page.
    measured
        Files that a job on the device makes.
    products
        Files beside the report.
    reads
        Inputs of the page besides the run's cells, by their content.
    params
        Plain values for the page.
    noted
        Files, with the reason that the terminal shows before they are made.
    """

    figures: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    noted: Mapping[str, str] = field(default_factory=dict)
    # Cells that the chapter's jobs launch, by the configuration's key: they must fit in memory.
    cells: Mapping[str, Cell] = field(default_factory=dict)


class Chapter(ABC):
    """One published document: its kernels, files and page."""

    # Options that the configuration's key of this chapter may have.
    options: ClassVar[type[Section]] = Section
    # Full title of the chapter's document, with its author or place of publication.
    document: ClassVar[str]
    # A run that sweeps one of these kernels has the chapter.
    kernels: ClassVar[frozenset[str]]
    # Kernels whose best cells are on the chapter's page instead of in the report's own tables.
    tells: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def plan(self, options: Mapping[str, Any], run: ChapterRun) -> ChapterPlan:
        """Return the files that the chapter adds to `run`; may raise ChapterError.

        `options` are plain values of the configuration.
        """


@dataclass(frozen=True)
class ChapterFolder:
    """Chapter loaded from its folder, as ``chapter.py`` defines it."""

    path: Path
    chapter: Chapter

    @property
    def name(self) -> str:
        """Name of the folder, the chapter and its Python package."""
        return self.path.name

    @property
    def rules(self) -> Path | None:
        """The chapter's ``rules.smk``, which the Snakefile includes; None without rules."""
        path = self.path / "rules.smk"
        return path if path.is_file() else None


def find_chapters(folders: Iterable[Path]) -> dict[str, Path]:
    """Return folders of chapters by name; a chapter's folder contains ``chapter.py``."""
    return find_folders("chapter", "chapter.py", folders, ChapterFolderError)


def load_chapter(path: Path) -> ChapterFolder:
    """Import the ``chapter.py`` of a chapter's folder."""
    return ChapterFolder(path, import_module(f"{package(path)}.chapter").CHAPTER)


def package(path: Path) -> str:
    """Make the chapter in `path` importable, and return the name of its package."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    return path.name
