"""Renders the report: facts as JSON, the figures and the template into one PDF."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typst

from ..analysis.aggregate import dataset_provenance
from ..analysis.ceiling import read_ceiling
from ..dataset import read_medians
from ..schema import BEST_SCHEMA, SAME_MACHINE_SCHEMA, SIMULATION_SCHEMA
from ..store import read_table
from ..wholefile import read_json, read_summed, write_json, write_summed
from .facts import report_facts
from .simulated import simulated_pages


@dataclass(frozen=True)
class ReportFiles:
    """What the report is made of."""

    dataset: Path
    best: Path
    ceiling: Path
    model: Path
    shapes: Path
    checks: tuple[Path, ...]
    tables: tuple[Path, ...]
    questions: tuple[Path, ...]
    measured: tuple[Path, ...]
    figures: tuple[Path, ...]


def build_report(
    files: ReportFiles, spec: Mapping[str, Any], reports: Path, facts_out: Path, pdf: Path
) -> None:
    """Write the facts to `facts_out` and the PDF to `pdf`.

    `reports` holds the template ``report.typ`` and ``published/``. The same files in give the same
    bytes out: no date, no system fonts, figures without dates.
    """
    facts = report_facts(
        cells=read_medians(files.dataset),
        best=read_table(files.best, BEST_SCHEMA).to_pandas(),
        ceiling=read_ceiling(files.ceiling),
        fits=read_json(files.model)["fits"],
        shapes=read_json(files.shapes),
        checks={p.stem.removesuffix("-checks"): read_json(p)["checks"] for p in files.checks},
        simulations=simulated_pages(
            *(
                [read_table(path, schema).to_pandas() for path in paths]
                for paths, schema in (
                    (files.tables, SIMULATION_SCHEMA),
                    (files.questions, SIMULATION_SCHEMA),
                    (files.measured, SAME_MACHINE_SCHEMA),
                )
            )
        ),
        provenance=dataset_provenance(files.dataset),
        figures={p.name: read_json(p.with_suffix(".json")) for p in files.figures},
        slips=_published(reports, "slips.json"),
        textures=_published(reports, "textures.json"),
        dot_slips=_published(reports, "dot", "slips.json"),
        spec=spec,
    )
    write_json(facts_out, facts)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for template in reports.glob("*.typ"):
            shutil.copy(template, root)
        shutil.copy(facts_out, root / "report.json")
        (root / "figures").mkdir()
        for figure in files.figures:
            (root / "figures" / figure.name).write_bytes(read_summed(figure))
        write_summed(pdf, typst.compile(str(root / "report.typ"), ignore_system_fonts=True))


def _published(reports: Path, *name: str) -> Any:
    return json.loads(reports.joinpath("published", *name).read_text(encoding="utf-8"))
