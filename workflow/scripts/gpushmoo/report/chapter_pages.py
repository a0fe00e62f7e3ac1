"""Pages of the report's chapters: their input, their result, and how they are made."""

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
from ..chapters.contract import package
from ..workloads.user_code import blamed

log = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """The input of a chapter's page.

    `cells` are all of the run in its first timing mode, from `read_medians`; `peak` is the peak
    load and store; `provenance` has an entry for each shard. `reads` are the chapter's own files by
    their content, `folder` is the chapter's, `params` are those of its plan. `figures` has title,
    caption and finding (if any) of its figures by file name, in the order of the plan.
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
    """A chapter's part of the report.

    `facts` are JSON values for its ``pages.typ``; without any it has no page. `findings` are
    sentences for the report's first page. `fault` is the reason for a missing page.
    """

    facts: Json | None
    findings: Sequence[str] = field(default_factory=tuple)
    fault: str | None = None


def broken_page(chapter: str, fault: str) -> Page:
    """The page of a chapter that cannot be made: the `fault`, also as a finding."""
    finding = f"The page of the chapter '{chapter}' could not be made ({fault})."
    return Page(None, [finding], fault)


def chapter_page(measured: Measured) -> Page:
    """The page that the chapter's ``pages.py`` makes, or a broken page."""
    file = measured.folder / "pages.py"
    try:
        page = import_module(f"{package(measured.folder)}.pages").page(measured)
        if not isinstance(page, Page):
            raise TypeError(f"page returns {type(page).__name__}, not a Page")
        json.dumps([page.facts, list(page.findings)], allow_nan=False)
    except Exception as err:
        log.exception("chapter %s", measured.folder.name)
        return broken_page(measured.folder.name, blamed(file, "page", err))
    return page


def figures_of(measured: Measured, *kinds: str) -> list[Json]:
    """File, title and caption of the chapter's figures whose names begin with one of `kinds`."""
    return [
        {"file": name, "title": note["title"], "caption": note["caption"]}
        for kind in kinds
        for name, note in measured.figures.items()
        if name.startswith(f"{kind}-")
    ]
