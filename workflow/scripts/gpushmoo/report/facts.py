"""Facts for the report's template: display strings, so that the template decides only layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from ..analysis.best import Advice, advice
from ..analysis.ceiling import CeilingRow
from ..analysis.energy import EnergyTable
from ..analysis.history import HistoryTables
from ..analysis.run_quality import steadiness
from ..core.schema import GROUP
from ..model.limits import CountedCells
from ..workloads.views import BLOCK_SHAPE, CACHES, ONE_PARAMETER
from . import tables
from .appendix import (
    device_card,
    fault_rows,
    machine_tables,
    measured_date,
    measured_words,
    provenance_rows,
    title_device,
)
from .chapter_pages import Page
from .energy import FIGURE, energy_findings, energy_page
from .findings import (
    Finding,
    advice_findings,
    contrast_findings,
    fault_findings,
    kind_findings,
    of_first_kind,
    ranked,
)
from .first_page import first_page
from .history import FIGURE as HISTORY_FIGURE
from .history import history_findings, history_page
from .sureness import (
    clock_warning,
    earlier_finding,
    locked_clause,
    method_facts,
    searched_findings,
    status_words,
    steadiness_finding,
    sureness_rows,
)
from .tables import Json
from .why import gain_words, parameter_tables, partition_rows, why_parts


def report_facts(
    *,
    cells: pd.DataFrame,
    best: pd.DataFrame,
    ceiling: Sequence[CeilingRow],
    devices: Sequence[Json],
    device_models: Sequence[Json],
    counted: Mapping[str, CountedCells],
    energy: Sequence[EnergyTable],
    history: Sequence[HistoryTables],
    provenance: Sequence[Json],
    figures: Mapping[str, Json],
    chapters: Mapping[str, Page],
    spec: Mapping[str, Any],
) -> Json:
    """All that the template shows, as JSON values."""
    names = tables.namer(cells)
    told = (spec["chapters"][name]["tells"] for name, page in chapters.items() if page.facts)
    elsewhere = {kernel for kernels in told for kernel in kernels}
    own_cells, own_best = _without(cells, elsewhere), _without(best, elsewhere)
    controls = {kernel: words["controls"] for kernel, words in spec["kernels"].items()}
    variants = zip(own_best["kernel"], own_best["variant"], strict=True)
    is_control = pd.Series([v in controls[k] for k, v in variants], own_best.index, bool)
    own_best = own_best[~is_control]
    to_use = advice(own_cells, own_best, ceiling)
    others = [k for k in sorted(set(own_cells["kernel"])) if k not in spec["persistent"]]
    contrasts = contrast_findings(
        own_cells, spec["persistent"], others, names, lambda kernel: _figure_of(kernel, spec)
    )
    notes = [figures[name] for named in spec["sections"].values() for name in named]
    candidates = [
        *fault_findings(own_cells, notes),
        *(Finding(page.findings[0], float("inf")) for page in chapters.values() if page.fault),
        *advice_findings(of_first_kind(to_use), lambda kernel: _figure_of(kernel, spec)),
        *kind_findings(to_use, own_cells),
        *contrasts,
        *(finding for table in energy for finding in energy_findings(table)),
        *(finding for found in history for finding in history_findings(found)),
        *(_view_finding(name, figures[name]) for name in figures if "finding" in figures[name]),
    ]
    first = ranked(candidates)
    is_cpu = provenance[0]["device"]["kind"] == "cpu"
    return {
        "run": spec["run"],
        "recorded": spec["recorded"],
        "title": title_device(provenance),
        "measured": measured_words(provenance),
        "date": measured_date(provenance),
        "is_cpu": is_cpu,
        "first_page": first_page(to_use, own_cells, spec["kernels"], is_cpu),
        "findings": [{"sentence": f.sentence, "figure": f.figure} for f in first],
        "more_faults": sum(f.worth == float("inf") for f in candidates if f not in first),
        "clock_warning": clock_warning(provenance),
        "machine": [
            steadiness_finding(steadiness(provenance, spec["host_fed"])),
            *locked_clause(provenance),
            *searched_findings(provenance),
            *earlier_finding(provenance),
        ],
        "workingsets": _in_section(figures, spec, CACHES),
        "ceilings": tables.ceiling_table(ceiling),
        "heatmaps": _in_section(figures, spec, BLOCK_SHAPE),
        "curves": _in_section(figures, spec, ONE_PARAMETER),
        "contrasts": [f.sentence for f in contrasts if f not in first],
        "best": tables.best_rows(to_use, own_best, names),
        "why": why_parts(device_models, names, counted),
        "gain": gain_words(),
        "parameters": parameter_tables(device_models),
        "partitions": partition_rows(
            _without_model(own_cells, device_models, spec["persistent"], to_use), names
        ),
        "sections": [
            {"title": title, "figures": _in_section(figures, spec, title)}
            for title in spec["sections"]
            if title not in (CACHES, BLOCK_SHAPE, ONE_PARAMETER)
        ],
        "energy": [energy_page(table) for table in energy],
        "energy_figures": _named(figures, [FIGURE] if any(t.rows for t in energy) else []),
        "history": [history_page(found) for found in history],
        "history_figures": _named(
            figures, [HISTORY_FIGURE] if any(h.why is None for h in history) else []
        ),
        "sureness": sureness_rows(cells),
        "statuses": status_words(cells),
        "faults": fault_rows(cells),
        "method": method_facts(cells, provenance, spec["host_fed"]),
        "kernels": [{"name": n, **spec["kernels"][n]} for n in sorted(spec["kernels"])],
        "device": device_card(provenance),
        "provenance": provenance_rows(provenance),
        "devices": machine_tables(devices),
        "chapters": [
            {"name": name, "facts": page.facts, "findings": list(page.findings)}
            for name, page in chapters.items()
            if page.facts
        ],
        "broken_chapters": [
            {"name": name, "fault": page.fault} for name, page in chapters.items() if page.fault
        ],
    }


def _without(rows: pd.DataFrame, kernels: Collection[str]) -> pd.DataFrame:
    return rows[~rows["kernel"].isin(kernels)]


def _without_model(
    cells: pd.DataFrame,
    device_models: Sequence[Json],
    persistent: Collection[str],
    to_use: Sequence[Advice],
) -> pd.DataFrame:
    """Cells of `persistent` kernels in groups of the first page, on devices without a model."""
    modelled = {device["device"] for device in device_models if "parameters" in device}
    cells = cells[cells["kernel"].isin(persistent) & ~cells["device_name"].isin(modelled)]
    shown = {tuple(advised.group[n] for n in GROUP) for advised in to_use}
    keys = zip(*(cells[n] for n in GROUP), strict=True)
    return cells[pd.Series([key in shown for key in keys], cells.index, bool)]


def _in_section(figures: Mapping[str, Json], spec: Mapping[str, Any], title: str) -> list[Json]:
    """The figures of kernels' views that stand under the heading `title`."""
    return _named(figures, spec["sections"].get(title, []))


def _named(figures: Mapping[str, Json], names: Sequence[str]) -> list[Json]:
    """File, title and caption of the figures of these names."""
    return [{"file": n, **{w: figures[n][w] for w in ("title", "caption")}} for n in names]


def _figure_of(kernel: str, spec: Mapping[str, Any]) -> str | None:
    """The first figure of a kernel's views: maps and curves before those over its sizes."""
    shown = [n for title, names in spec["sections"].items() if title != CACHES for n in names]
    shown += spec["sections"].get(CACHES, [])
    return next((name for name in shown if spec["figure_kernels"][name] == kernel), None)


def _view_finding(name: str, note: Json) -> Finding:
    """What a kernel's own view found: its author wants it seen, and says less of it by a worth."""
    return Finding(note["finding"], float(note.get("worth", 1.0)), name)
