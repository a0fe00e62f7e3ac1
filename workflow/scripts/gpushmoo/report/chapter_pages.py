"""The report's chapters: what their pages are made of, and what they make of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from ..analysis.ceiling import CeilingRow
from ..chapters.loader import package
from ..workloads.user_code import blamed

log = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What a chapter's page is made of.

    `cells` are those of the whole run and its first kind of launch, as `read_medians` gives them;
    `ceiling` what the device can
    load and store at most; `provenance` an entry a shard. `reads` are the chapter's own files, by
    what they hold, and `folder` is the chapter's; `params` are its plan's. `figures` are its
    figures' title and caption, and finding if any, by file name, in the order of its plan.
    """

    cells: pd.DataFrame
    ceiling: Sequence[CeilingRow]
    provenance: Sequence[Json]
    reads: Mapping[str, Sequence[Path]]
    folder: Path
    params: Mapping[str, Any]
    figures: Mapping[str, Json]


@dataclass(frozen=True)
class Page:
    """A chapter's part of the report.

    `facts` are JSON values for its ``pages.typ``; without any it has no page. `findings` are
    sentences for the report's first page. `fault` is why there is no page where it should be.
    """

    facts: Json | None
    findings: Sequence[str] = field(default_factory=tuple)
    fault: str | None = None


def broken_page(chapter: str, fault: str) -> Page:
    """What stands in the place of a page that cannot be made: why, and a finding that says so."""
    finding = f"The page of the chapter '{chapter}' could not be made ({fault})."
    return Page(None, [finding], fault)


def chapter_page(measured: Measured) -> Page:
    """What the chapter's own ``pages.py`` makes of it, or a broken page."""
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
    return [figure for kind in kinds for figure in figures_in(measured.figures, kind)]


def figures_in(figures: Mapping[str, Json], kind: str) -> list[Json]:
    """File, title and caption of those of the `figures` whose names begin with `kind`."""
    return [
        {"file": name, "title": note["title"], "caption": note["caption"]}
        for name, note in figures.items()
        if name.startswith(f"{kind}-")
    ]
