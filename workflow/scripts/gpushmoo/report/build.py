"""Render the report: write its facts as JSON, and facts, figures and templates as one PDF.

The page on a comparison of runs has the verdicts, a picture of the changes, and other differences.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import typst

from ..analysis.best import Advice, advice, read_best
from ..analysis.peak import PeakRow, read_peak
from ..analysis.run_quality import dataset_provenance, steadiness
from ..comparing.compare import (
    HEADS,
    VERDICTS,
    Comparison,
    changed_groups,
    changed_rows,
    compare,
    group_words,
)
from ..comparing.compare import percent as signed_percent
from ..core.display import one_line, percent
from ..core.metric import heading_of
from ..core.paths import ROOT
from ..core.schema import GROUP, is_axis
from ..figures.run_changes import MAX_GROUPS, draw_changes
from ..figures.style import apply_style, save
from ..model.limits import GAIN, read_counted
from ..registry import Section, extra_folders, extra_sections
from ..storage.dataset import of_one_mode, read_medians
from ..storage.wholefile import read_complete, read_json, write_atomic, write_json
from ..workloads.views import BLOCK_SHAPE, CACHES, ONE_PARAMETER
from . import findings, method, tables
from .findings import Finding, parameter_tables, partition_rows, why_parts
from .pages import Measured, Page, broken_page, chapter_page
from .tables import Json

log = logging.getLogger(__name__)


def build_report(files: Mapping[str, Any], spec: Mapping[str, Any], facts: Path, pdf: Path) -> None:
    """Write the report's `facts` as JSON and the `pdf`.

    Parameters
    ----------
    files
        Input of the rule, by name.
    spec
        Parameters of the rule, see `Flow.report_params`.
    facts, pdf
        Files to write.
    """
    cells, peak = read_medians(files["dataset"]), read_peak(files["peak"])
    provenance = dataset_provenance(files["dataset"])
    pages = {
        name: _page(chapter, cells, peak, provenance) for name, chapter in spec["chapters"].items()
    }
    content = report_facts(files, spec, pages, cells, peak, provenance)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(root, files["figures"])
        for name, chapter in spec["chapters"].items():
            (root / "chapters" / name).mkdir(parents=True)
            layout = ROOT / chapter["folder"] / "pages.typ"
            if layout.is_file():
                shutil.copy(layout, root / "chapters" / name)
        for name in files["extras"]:
            (root / "extras" / name).mkdir(parents=True)
            shutil.copy(extra_folders()[name] / "section.typ", root / "extras" / name)
        try:
            rendered = compile_pages(root, content)
        except typst.TypstError:
            broken = _broken_layouts(root, content)
            if not broken:
                raise
            content = report_facts(files, spec, pages | broken, cells, peak, provenance)
            rendered = compile_pages(root, content)
    write_json(facts, content)
    write_atomic(pdf, rendered)


def lay_out(root: Path, figures: Sequence[Path]) -> None:
    """Put the project's templates and the `figures` into `root`, where templates look for them."""
    for template in (ROOT / "reports").glob("*.typ"):
        shutil.copy(template, root)
    (root / "figures").mkdir()
    for figure in figures:
        (root / "figures" / figure.name).write_bytes(read_complete(figure))


def compile_pages(root: Path, facts: Mapping[str, Any], template: str = "report.typ") -> bytes:
    """Compile the `template` in the folder `root` with `facts` as its ``report.json``.

    Return PDF.
    """
    write_json(root / "report.json", facts)
    # The fonts in which matplotlib set the figures' texts.
    package = find_spec("matplotlib")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("matplotlib, whose fonts the figures need, is not installed.")
    rendered: bytes = typst.compile(
        str(root / template),
        ignore_system_fonts=True,
        font_paths=[str(Path(package.origin).parent / "mpl-data" / "fonts" / "ttf")],
        pdf_standards=["a-2a", "ua-1"],
    )
    # False is the default, but Poppler, up to the version of Debian 12, reports it as an error.
    word = b"/Suspects false"
    return rendered.replace(word, b" " * len(word))


def _broken_layouts(root: Path, facts: Mapping[str, Any]) -> dict[str, Page]:
    """Return chapters that fail to compile even alone, by name."""
    broken = {}
    for chapter in facts["chapters"]:
        try:
            compile_pages(root, {**facts, "chapters": [chapter]})
        except typst.TypstError as err:
            log.exception("chapter %s", chapter["name"])
            fault = f"{chapter['name']}/pages.typ: {one_line(str(err))}"
            broken[chapter["name"]] = broken_page(chapter["name"], fault)
    return broken


def _note(figure: Path) -> Any:
    """Read title and caption of a figure."""
    return read_json(figure.with_suffix(".json"))


def _page(
    chapter: Mapping[str, Any],
    cells: pd.DataFrame,
    peak: Sequence[PeakRow],
    provenance: Sequence[Any],
) -> Page:
    """Return the page of a chapter.

    `chapter` is one of those that `Flow.report_params` describes.
    """
    return chapter_page(
        Measured(
            cells=of_one_mode(cells),
            peak=peak,
            provenance=provenance,
            reads={kind: [Path(f) for f in files] for kind, files in chapter["reads"].items()},
            folder=ROOT / chapter["folder"],
            params=chapter["params"],
            figures={Path(f).name: _note(Path(f)) for f in chapter["figures"]},
        )
    )


# Facts


def report_facts(
    files: Mapping[str, Any],
    spec: Mapping[str, Any],
    pages: Mapping[str, Page],
    cells: pd.DataFrame,
    peak: Sequence[PeakRow],
    provenance: Sequence[Json],
) -> Json:
    """Return all content of the report as JSON values; `pages` are those of the chapters."""
    best = read_best(files["best"], [c for c in cells if is_axis(c)])
    devices, models = (
        [d for path in files[name] for d in read_json(path)["devices"]]
        for name in ("machine", "device")
    )
    sections = {n: s for n, s in extra_sections().items() if n in files["extras"]}
    chapter_figures = {Path(f).name for c in spec["chapters"].values() for f in c["figures"]}
    figures = {p.name: _note(p) for p in files["figures"] if p.name not in chapter_figures}
    names = tables.Namer(cells)
    elsewhere = {
        kernel
        for name, page in pages.items()
        if page.facts
        for kernel in spec["chapters"][name]["tells"]
    }
    own_cells, own_best = (rows[~rows["kernel"].isin(elsewhere)] for rows in (cells, best))
    variants = zip(own_best["kernel"], own_best["variant"], strict=True)
    is_control = [v in spec["kernels"][k]["controls"] for k, v in variants]
    own_best = own_best[~pd.Series(is_control, own_best.index, bool)]
    to_use = advice(own_cells, own_best, peak)
    notes = [figures[name] for named in spec["sections"].values() for name in named]
    candidates = [
        *findings.fault_findings(own_cells, notes),
        *(Finding(page.findings[0], float("inf")) for page in pages.values() if page.fault),
        *findings.advice_findings(findings.of_first_kind(to_use)),
        *findings.kind_findings(to_use, own_cells),
        *findings.step_findings(own_cells, spec["persistent"], names),
        *(
            Finding(sentence, worth, f"{section.figure}.svg")
            for name, section in sections.items()
            for sentence, worth in section.findings(files["extras"][name])
        ),
        *(
            # By default a view's finding ranks highest. Its author may set a lower worth.
            Finding(note["finding"], float(note.get("worth", 1.0)), name)
            for name, note in figures.items()
            if "finding" in note
        ),
    ]
    first = findings.ranked(candidates)

    def in_section(title: str) -> list[Json]:
        return _named(figures, spec["sections"].get(title, []))

    is_cpu = method.only_cpus(provenance)
    steady = steadiness(provenance, spec["host_fed"])
    return {
        "run": spec["run"],
        "recorded": spec["recorded"],
        "cells_page": spec["cells_page"],
        "title": method.title_device(provenance),
        "measured": method.measured_words(provenance),
        "date": method.measured_date(provenance),
        "is_cpu": is_cpu,
        "first_page": tables.first_page(to_use, own_cells, is_cpu),
        "findings": [
            {"sentence": f.sentence, "figure": f.figure or _first_figure(f.kernel, spec)}
            for f in first
        ],
        "more_faults": sum(f.worth == float("inf") for f in candidates if f not in first),
        "clock_warning": method.clock_warning(provenance),
        "unsteady": method.unsteady_words(steady),
        "machine": [
            method.steadiness_finding(steady),
            *method.budget_finding(provenance, best, spec["host_fed"]),
            *method.locked_clause(provenance),
            *method.searched_findings(provenance),
            *method.earlier_finding(provenance),
        ],
        "workingsets": in_section(CACHES),
        "peaks": tables.peak_table(peak),
        "heatmaps": in_section(BLOCK_SHAPE),
        "curves": in_section(ONE_PARAMETER),
        "heading": heading_of(a.cell for a in to_use),
        "best": tables.best_rows(to_use, own_best, names),
        "why": why_parts(models, names, read_counted(files["counted"])),
        "gain": percent(GAIN - 1),
        "parameters": parameter_tables(models),
        "partitions": partition_rows(
            _without_model(own_cells, models, spec["persistent"], to_use), names
        ),
        "sections": [
            {"title": title, "figures": in_section(title)}
            for title in spec["sections"]
            if title not in (CACHES, BLOCK_SHAPE, ONE_PARAMETER)
        ],
        "extras": [
            _extra_section(name, section, files["extras"][name], figures)
            for name, section in sections.items()
        ],
        "sureness": method.sureness_rows(cells),
        "statuses": method.status_words(cells),
        "faults": method.fault_rows(cells),
        "method": method.method_facts(cells, provenance, spec["host_fed"]),
        "kernels": [{"name": n, **spec["kernels"][n]} for n in sorted(spec["kernels"])],
        "device": method.device_card(provenance),
        "provenance": method.provenance_rows(provenance),
        "devices": method.machine_tables(devices),
        "chapters": [
            {
                "name": name,
                "title": page.title or name,
                "introduction": list(page.introduction),
                "facts": page.facts,
                "findings": list(page.findings),
            }
            for name, page in sorted(pages.items(), key=lambda each: (each[1].place, each[0]))
            if page.facts
        ],
        "broken_chapters": [
            {"name": name, "fault": page.fault} for name, page in pages.items() if page.fault
        ],
    }


def _extra_section(
    name: str, section: Section, files: Sequence[Path], figures: Mapping[str, Json]
) -> Json:
    """Return the section of an extra, which is made of `files`."""
    facts = section.content(files)
    shown = [f"{section.figure}.svg"] if facts["figured"] else []
    return {"name": name, "facts": facts, "figures": _named(figures, shown)}


def _without_model(
    cells: pd.DataFrame,
    models: Sequence[Json],
    persistent: Collection[str],
    to_use: Sequence[Advice],
) -> pd.DataFrame:
    """Return cells of `persistent` kernels in groups of page one, on devices without a model."""
    modelled = {device["device"] for device in models if "parameters" in device}
    cells = cells[cells["kernel"].isin(persistent) & ~cells["device_name"].isin(modelled)]
    shown = {tuple(advised.group[n] for n in GROUP) for advised in to_use}
    keys = zip(*(cells[n] for n in GROUP), strict=True)
    return cells[pd.Series([key in shown for key in keys], cells.index, bool)]


def _named(figures: Mapping[str, Json], names: Sequence[str]) -> list[Json]:
    """Return file, title and caption of the figures of these names."""
    return [{"file": n, **{w: figures[n][w] for w in ("title", "caption")}} for n in names]


def _first_figure(kernel: str | None, spec: Mapping[str, Any]) -> str | None:
    """Return the first figure of a kernel's views: maps and curves before those over its sizes."""
    shown = [n for title, names in spec["sections"].items() if title != CACHES for n in names]
    shown += spec["sections"].get(CACHES, [])
    return next((name for name in shown if spec["figure_kernels"].get(name) == kernel), None)


# Rows and lines that fit on the page. The tables have the rest.
_MAX_ROWS, _MAX_LINES = 10, 8
_FIGURE = "changes.svg"


def compare_runs(spec: Mapping[str, Any], tables: Sequence[Path]) -> None:
    """Compare the runs that `spec` names; write the tables, the picture and the page."""
    found = compare(
        spec["a"], spec["b"], noise_runs=spec["noise_runs"], threshold=spec["threshold"]
    )
    folder = tables[0].parent
    found.save(folder)
    build_comparison(found, folder)


def build_comparison(found: Comparison, folder: Path) -> None:
    """Write the picture ``changes.svg`` and the page ``compare.pdf`` into `folder`."""
    apply_style()
    names = [group_words(row) for row in found.groups.to_dict("records")]
    facts = comparison_facts(found)
    picture = folder / _FIGURE
    figure = draw_changes(found.groups, names, found.delta)
    save(figure, picture, facts["figure"]["title"], facts["figure"]["caption"])
    with tempfile.TemporaryDirectory() as scratch:
        lay_out(Path(scratch), [picture])
        write_atomic(folder / "compare.pdf", compile_pages(Path(scratch), facts, "compare.typ"))


def _caption(found: Comparison) -> str:
    n = len(found.groups)
    most = f"The {MAX_GROUPS} of {n} groups whose bests changed most"
    which = most if n > MAX_GROUPS else f"All {n} groups"
    delta = signed_percent(found.delta, sign=False)
    return (
        f"{which}, with 95 % intervals of another run. Filled: the raw "
        "change; hollow: beside the memcpy baseline. To the right is slower; triangles are "
        f"verdicts slower and faster, blue is the same, grey undecided. The band is ±{delta}."
    )


def comparison_facts(found: Comparison) -> dict[str, Any]:
    """Return the content of the page, as strings."""
    left = len(found.differences) - _MAX_LINES
    more = [f"and {left} more"] if left > 0 else []
    return {
        "title": found.title,
        "date": [int(part) for part in found.day.split("-")],
        "alarm": bool(len(found.slower)),
        "headline": found.headline,
        "verdicts": list(VERDICTS),
        "counts": [[what, *map(str, numbers)] for what, numbers in found.counts()],
        "heads": list(HEADS),
        "changed": changed_rows(changed_groups(found.groups).head(_MAX_ROWS)),
        "remarks": found.remarks(),
        "differences": [*found.differences[:_MAX_LINES], *more],
        "method": found.method(),
        "figure": {
            "file": _FIGURE,
            "title": "Changes of the groups' bests",
            "caption": _caption(found),
        },
    }
