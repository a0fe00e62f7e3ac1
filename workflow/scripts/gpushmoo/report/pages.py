"""Write the report's pages of chapters and of energy."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from ..analysis.energy import (
    TIED_SPEED,
    EnergyGroup,
    EnergyTable,
    Row,
    energy_groups,
    is_told_apart,
    joules_ratio,
    launch_text,
)
from ..analysis.peak import PeakRow
from ..chapters import package
from ..core.display import percent, significant, size_words
from ..workloads.user_code import blamed
from .findings import WORTH_TELLING, Finding
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
    sentence each on the document (author, year, device), on its question, and on the comparison.
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


ENERGY_FIGURE = "energy.svg"


def energy_page(table: EnergyTable) -> Json:
    """Return sentences and the rows of a table, as display strings."""
    if table.why is not None:
        return {"sentences": [table.why], "rows": [], "device": table.device}
    groups = energy_groups(table.rows)
    sentences = [_idle(table), _ties(groups), _cheapest(groups)]
    slowed = sum(bool(row["throttled"]) for row in table.rows)
    if slowed:
        sentences.append(f"In {slowed} of {len(table.rows)} cells the device protected itself.")
    return {
        "device": table.device,
        "sentences": sentences,
        "rows": [_row(row, group) for group in groups for row in group.rows],
    }


def energy_findings(table: EnergyTable) -> list[Finding]:
    """Return for the first page the launch that saves most energy over the fastest of its group."""
    saved = _savings(energy_groups(table.rows))
    if not saved or saved[0][0] < WORTH_TELLING:
        return []
    share, group = saved[0]
    # Few programs are tuned for energy.
    return [Finding(_saving_words(share, group), share / 2, ENERGY_FIGURE)]


def _idle(table: EnergyTable) -> str:
    before, *after = (f"{significant(watts)} W" for watts in table.idle_w)
    return (
        f"Energy is that of the whole board, by its own counter. Idle, with the program's context "
        f"open, it took {before} before{f' and {after[-1]} after' if after else ''}; net figures "
        "have the mean of that subtracted."
    )


def _ties(groups: Sequence[EnergyGroup]) -> str:
    """State whether launches of about the same speed differ in energy."""
    several = [group.tied for group in groups if len(group.tied) > 1]
    if not several:
        return (
            f"No group has two launches within {percent(TIED_SPEED)} of its fastest, so there is "
            "no tie that energy could break."
        )
    ends = [[f(tied, key=_joules) for f in (min, max)] for tied in several]
    ratios = [(joules_ratio(dear, cheap), cheap, dear) for cheap, dear in ends]
    apart = [found for found in ratios if is_told_apart(found[0])]
    words = (
        f"Of {len(several)} groups with several launches within {percent(TIED_SPEED)} of the "
        f"fastest, energy distinguishes the cheapest from the dearest of these in {len(apart)}"
    )
    if not apart:
        return f"{words}: it breaks no tie."
    ratio, cheap, dear = max(apart, key=lambda found: found[0].mean)
    return (
        f"{words}; at most they differ by {percent(ratio.mean - 1)} ({_who(cheap)}: "
        f"{launch_text(cheap)} takes {_mj(cheap)} mJ/GB, {launch_text(dear)} {_mj(dear)} mJ/GB)."
    )


def _savings(groups: Sequence[EnergyGroup]) -> list[tuple[float, EnergyGroup]]:
    """Return the significant savings of energy of the cheapest launches over the fastest."""
    found = []
    for group in groups:
        if group.cheapest is not group.fastest:
            ratio = joules_ratio(group.cheapest, group.fastest)
            if is_told_apart(ratio) and ratio.mean < 1:
                found.append((1 - ratio.mean, group))
    return sorted(found, key=lambda pair: -pair[0])


def _cheapest(groups: Sequence[EnergyGroup]) -> str:
    saved = _savings(groups)
    several = sum(len(group.rows) > 1 for group in groups)
    if not saved:
        return (
            f"In none of {several} groups a launch is cheaper than the fastest one, significant at "
            "95 %."
        )
    return (
        f"In {len(saved)} of {several} groups a launch is cheaper than the fastest one, "
        "significant at 95 %. " + _saving_words(*saved[0])
    )


def _saving_words(share: float, group: EnergyGroup) -> str:
    cheap, fast = group.cheapest, group.fastest
    slower = 1 - cheap["gbs"] / fast["gbs"]
    return (
        f"The cheapest launch need not be the fastest: {launch_text(cheap)} takes {percent(share)} "
        f"less energy a byte than {launch_text(fast)} and is {percent(slower)} slower "
        f"({_who(fast)})."
    )


def _who(row: Row) -> str:
    return f"{row['kernel']}, {row['dtype']}, {size_words(row['height'], row['width'])}"


def _joules(row: Row) -> float:
    return float(row["joules_per_gb"])


def _mj(row: Row) -> str:
    return significant(1e3 * row["joules_per_gb"], 4)


def _row(row: Row, group: EnergyGroup) -> Json:
    marks = {"fastest": group.fastest, "cheapest": group.cheapest}
    mark = ", ".join(name for name, one in marks.items() if row is one)
    high = row["joules_per_gb_high"]
    return {
        "kernel": row["kernel"],
        "dtype": row["dtype"],
        "size": size_words(row["height"], row["width"]),
        "launch": launch_text(row),
        "gbs": significant(row["gbs"]),
        "power": significant(row["power_w"]),
        "energy": _mj(row),
        "half": "—" if high is None else percent((high - _joules(row)) / _joules(row)),
        "net": significant(1e3 * row["net_joules_per_gb"], 4),
        "mark": mark or ("front" if any(row is one for one in group.front) else ""),
    }
