"""Renders the report: facts as JSON, the figures and the template into one PDF."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import typst

from ..analysis.best import read_best
from ..analysis.ceiling import CeilingRow, read_ceiling
from ..analysis.energy import read_energy
from ..analysis.history import read_history
from ..analysis.run_quality import dataset_provenance
from ..core.display import one_line
from ..core.paths import ROOT
from ..core.schema import is_axis
from ..model.limits import read_counted
from ..storage.dataset import of_one_kind, read_medians
from ..storage.wholefile import read_json, read_summed, write_json, write_summed
from .chapter_pages import Measured, Page, broken_page, chapter_page
from .facts import report_facts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportFiles:
    """What the report is made of.

    `machine`, `device`, `counted`, `energy`, and `history` (its folder) may be empty.
    """

    dataset: Path
    best: Path
    ceiling: Path
    figures: Sequence[Path]
    machine: Sequence[Path] = ()
    device: Sequence[Path] = ()
    counted: Sequence[Path] = ()
    energy: Sequence[Path] = ()
    history: Sequence[Path] = ()


def report_of_run(
    files: Mapping[str, Any], spec: Mapping[str, Any], facts: Path, pdf: Path
) -> None:
    """`build_report` of the rule's input `files`, by name."""
    names = {field.name for field in fields(ReportFiles)}
    named = {name: found for name, found in files.items() if name in names}
    named["history"] = sorted({path.parent for path in files["history"]})
    build_report(ReportFiles(**named), spec, ROOT / "reports", facts, pdf)


def build_report(
    files: ReportFiles, spec: Mapping[str, Any], reports: Path, facts_out: Path, pdf: Path
) -> None:
    """Write the facts to `facts_out` and the PDF to `pdf`.

    `reports` holds the template ``report.typ``. The same files in give the same bytes out: no date,
    no system fonts, figures without dates.
    """
    cells, ceiling = read_medians(files.dataset), read_ceiling(files.ceiling)
    provenance = dataset_provenance(files.dataset)
    chapters = {
        name: _page(chapter, cells, ceiling, provenance)
        for name, chapter in spec["chapters"].items()
    }
    chapter_figures = {
        Path(f).name for chapter in spec["chapters"].values() for f in chapter["figures"]
    }
    facts_with = partial(
        report_facts,
        cells=cells,
        best=read_best(files.best, [c for c in cells if is_axis(c)]),
        ceiling=ceiling,
        devices=[d for path in files.machine for d in read_json(path)["devices"]],
        device_models=[d for path in files.device for d in read_json(path)["devices"]],
        counted=read_counted(files.counted),
        energy=[read_energy(path) for path in files.energy],
        history=[read_history(path) for path in files.history],
        provenance=provenance,
        figures={p.name: _note(p) for p in files.figures if p.name not in chapter_figures},
        spec=spec,
    )
    facts = facts_with(chapters=chapters)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _lay_out(root, files, spec, reports)
        try:
            rendered = compile_pages(root, facts)
        except typst.TypstError:
            broken = _broken_layouts(root, facts)
            if not broken:
                raise
            facts = facts_with(chapters=chapters | broken)
            rendered = compile_pages(root, facts)
    write_json(facts_out, facts)
    write_summed(pdf, rendered)


def _lay_out(root: Path, files: ReportFiles, spec: Mapping[str, Any], reports: Path) -> None:
    """Put the templates and figures where the template finds them, below `root`."""
    for template in reports.glob("*.typ"):
        shutil.copy(template, root)
    for name, chapter in spec["chapters"].items():
        (root / "chapters" / name).mkdir(parents=True)
        layout = ROOT / chapter["folder"] / "pages.typ"
        if layout.is_file():
            shutil.copy(layout, root / "chapters" / name)
    (root / "figures").mkdir()
    for figure in files.figures:
        (root / "figures" / figure.name).write_bytes(read_summed(figure))


def compile_pages(root: Path, facts: Mapping[str, Any], template: str = "report.typ") -> bytes:
    """The PDF that the `template` in the folder `root` makes of `facts`, its ``report.json``."""
    write_json(root / "report.json", facts)
    rendered: bytes = typst.compile(
        str(root / template),
        ignore_system_fonts=True,
        font_paths=[str(_figure_fonts())],
        pdf_standards=["a-2a", "ua-1"],
    )
    # False is the default. Poppler, up to the version of Debian 12, takes it for a fault.
    word = b"/Suspects false"
    return rendered.replace(word, b" " * len(word))


def _figure_fonts() -> Path:
    """Folder of the fonts in which matplotlib has set the figures' texts."""
    package = find_spec("matplotlib")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("matplotlib, whose fonts the figures need, is not installed.")
    return Path(package.origin).parent / "mpl-data" / "fonts" / "ttf"


def _broken_layouts(root: Path, facts: Mapping[str, Any]) -> dict[str, Page]:
    """Chapters that cannot be laid out even alone, by name."""
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
    """Title and caption of a figure."""
    return read_json(figure.with_suffix(".json"))


def _page(
    chapter: Mapping[str, Any],
    cells: pd.DataFrame,
    ceiling: Sequence[CeilingRow],
    provenance: Sequence[Any],
) -> Page:
    """The page of a chapter; `chapter` is one of those that `Flow.report_params` describes."""
    return chapter_page(
        Measured(
            cells=of_one_kind(cells),
            ceiling=ceiling,
            provenance=provenance,
            reads={kind: [Path(f) for f in files] for kind, files in chapter["reads"].items()},
            folder=ROOT / chapter["folder"],
            params=chapter["params"],
            figures={Path(f).name: _note(Path(f)) for f in chapter["figures"]},
        )
    )
