"""Write the report's pages of chapters."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from ..analysis.peak import PeakRow
from ..chapters import package
from ..workloads.user_code import blamed
from .tables import Json

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """Input of a chapter's page.

    Attributes
    ----------
    cells
        All cells of the run in its first timing mode, from `read_medians`.
    peak
        Measured peaks of loads and stores.
    provenance
        An entry for each shard.
    reads
        Content of the chapter's own files.
    folder, params
        The chapter's folder, and its parameters from the plan.
    figures
        Title, caption and finding (if any) of its figures by file name, in the plan's order.
    """

    cells: pd.DataFrame
    peak: Sequence[PeakRow]
    provenance: Sequence[Json]
    reads: Mapping[str, Sequence[Path]]
    folder: Path
    params: Mapping[str, Any]
    figures: Mapping[str, Json]


@dataclass(frozen=True)
class Page:
    """A chapter's appendix (`facts`, or None) and its findings in short, or its `fault`.

    `title` is the appendix's heading, by default the chapter's name. `introduction` has one
    sentence each on its source (author, year, device), on its question, and on the comparison.
    Appendices are sorted by `place`, then by name.
    """

    facts: Json | None
    findings: Sequence[str] = field(default_factory=tuple)
    fault: str | None = None
    title: str = ""
    introduction: Sequence[str] = field(default_factory=tuple)
    place: int = 100


def broken_page(chapter: str, fault: str) -> Page:
    """Return the page of a chapter that cannot be made: the `fault`, also as a finding."""
    finding = f"The page of the chapter '{chapter}' could not be made ({fault})."
    return Page(None, [finding], fault)


def chapter_page(measured: Measured) -> Page:
    """Return the page that the chapter's ``pages.py`` makes, or a broken page."""
    file = measured.folder / "pages.py"
    try:
        page = import_module(f"{package(measured.folder)}.pages").page(measured)
        if not isinstance(page, Page):
            raise TypeError(f"page returns {type(page).__name__}, not a Page")
        shown = [page.facts, list(page.findings), page.title, list(page.introduction), page.place]
        json.dumps(shown, allow_nan=False)
    except Exception as err:
        log.exception("chapter %s", measured.folder.name)
        return broken_page(measured.folder.name, blamed(file, "page", err))
    return page


def figures_of(measured: Measured, *kinds: str) -> list[Json]:
    """Return the chapter's figures whose names begin with one of `kinds`: file, title, caption."""
    return [
        {"file": name, "title": note["title"], "caption": note["caption"]}
        for kind in kinds
        for name, note in measured.figures.items()
        if name.startswith(f"{kind}-")
    ]
