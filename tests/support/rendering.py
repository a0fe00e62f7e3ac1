"""All stages from shards to the report, for the tests of the report."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pypdfium2
from conftest import ROOT
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import best_table
from gpushmoo.analysis.peak import PeakRow, peak_rows, write_peak
from gpushmoo.chapters import find_chapters, load_chapter
from gpushmoo.core.paths import CHAPTERS
from gpushmoo.core.schema import REPEAT_COLUMNS
from gpushmoo.model.fit import partition_table
from gpushmoo.report.build import build_report
from gpushmoo.storage.dataset import matching, read_cells
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.loader import load_kernel
from gpushmoo.workloads.views import Curve, FigureData, HeatMap, View, WorkingSet

KINDS = {"global_load": "load", "global_store": "store"}
HOSTILE = '#panic("x") *bold* <b>&amp; $1/0$ @ref // \\ "quoted" `raw`'
PEAKS = ("global_copy", "global_load", "global_store")


@dataclass(frozen=True)
class Rendered:
    pages: list[str]
    facts: dict[str, Any]
    pdf: bytes

    @property
    def text(self) -> str:
        return " ".join(self.pages)

    def chapter(self, name: str) -> Any:
        """What the page of a chapter shows; None where it has none."""
        return next((c["facts"] for c in self.facts["chapters"] if c["name"] == name), None)


def workloads_of(cells: pd.DataFrame) -> dict[str, Workload]:
    kernels = sorted(cells["kernel"].unique())
    return {n: load_kernel(ROOT / "kernels" / n).workload for n in kernels}


# A figure's file, its view, and the kernel that it shows.
Drawn = tuple[Path, View, str]


def spec(workloads: Mapping[str, Workload], drawn: Sequence[Drawn]) -> dict[str, Any]:
    sections: dict[str, list[str]] = {}
    for path, view, _ in drawn:
        sections.setdefault(view.section(), []).append(path.name)
    return {
        "run": "test",
        "persistent": ["block_eq_partition"],
        "host_fed": ["dot_host", "dot_streamed"],
        "recorded": True,
        "cells_page": None,
        "kernels": {
            n: {"title": f"title of {n}", "pattern": "pattern", "controls": list(w.controls)}
            for n, w in workloads.items()
        },
        "sections": sections,
        "figure_kernels": {path.name: kernel for path, _, kernel in drawn},
        "seed": 1,
        "chapters": {
            name: {
                "folder": str(path),
                "reads": {},
                "params": {},
                "tells": sorted(chapter.tells),
                "figures": [],
            }
            for name, path in find_chapters([CHAPTERS]).items()
            if (chapter := load_chapter(path).chapter).kernels & set(workloads)
        },
    }


def render(
    folder: Path,
    out: Path,
    change: Callable[[pd.DataFrame, dict[str, Any]], None] | None = None,
    energy: Path | None = None,
    history: Path | None = None,
) -> Rendered:
    """Aggregate the shards (after `change` of cells and provenance), draw and render them.

    With the table of `energy` and the folder of a `history`, if there are any.
    """
    paths = []
    for path in sorted(folder.glob("*.parquet")):
        table, metadata = read_shard(path)
        cells = table.to_pandas()
        if change is not None:
            change(cells, metadata)
            forget_faulty(cells)
        paths.append(out / "shards" / path.name)
        changed = pa.Table.from_pandas(
            cells, schema=table.schema.remove_metadata(), preserve_index=False
        )
        write_parquet(changed, paths[-1], metadata)
    aggregate(paths, out / "dataset")
    cells = read_cells(out / "dataset")
    conclude(cells, best_table(cells, peak_rows(cells, KINDS)), out, energy, history)
    document = pypdfium2.PdfDocument(out / "report.pdf")
    texts = [document[i].get_textpage().get_text_range() for i in range(len(document))]
    facts = json.loads((out / "report.json").read_text())
    pages = [" ".join(text.split()) for text in texts]
    return Rendered(pages, facts, (out / "report.pdf").read_bytes())


def conclude(
    cells: pd.DataFrame,
    best: pa.Table,
    out: Path,
    energy: Path | None = None,
    history: Path | None = None,
) -> None:
    """All stages behind a data set in `out`, of which these are the cells."""
    peak = peak_rows(cells, KINDS)
    write_peak(peak, out / "peak.json")
    write_parquet(best, out / "best.parquet", {})
    drawn = draw(cells, peak, out)
    figures = [path for path, *_ in drawn]
    if energy is not None:
        from gpushmoo.extras.studies.figure import energy_figure

        figures.append(out / "energy.svg")
        energy_figure(energy, figures[-1])
    tables = [] if history is None else [history / "history.parquet"]
    if tables:
        from gpushmoo.extras.history.figure import history_figure

        figures.append(out / "history.svg")
        history_figure(tables, figures[-1])
    files = {
        "dataset": out / "dataset",
        "best": out / "best.parquet",
        "peak": out / "peak.json",
        "figures": figures,
        "machine": [],
        "device": [],
        "counted": [],
        "extras": {
            **({"history": tables} if tables else {}),
            **({"studies": [energy]} if energy is not None else {}),
        },
    }
    asked = spec(workloads_of(cells), drawn)
    build_report(files, asked, out / "report.json", out / "report.pdf")


# Null in a row that is not ``ok``.
TIMES = (
    "bandwidth_gbs",
    "bandwidth_low_gbs",
    "bandwidth_high_gbs",
    "median_s",
    "median_low_s",
    "median_high_s",
    "coverage",
    "group_low_s",
    "group_high_s",
    "sample_half_width",
    "vs_memcpy",
)


def forget_faulty(cells: pd.DataFrame) -> None:
    """Take the times of cells that are not ok, as the measuring job leaves them out."""
    faulty = cells["status"] != "ok"
    for name in TIMES:
        cells.loc[faulty, name] = None
    for name in REPEAT_COLUMNS:
        cells[name] = [[] if bad else kept for bad, kept in zip(faulty, cells[name], strict=True)]


def draw(cells: pd.DataFrame, peak: Sequence[PeakRow], out: Path) -> list[Drawn]:
    """A figure of each kind that the kernels have, those of one state for the warm one."""
    several = ("cache_state",) if cells["cache_state"].nunique() > 1 else ()
    warm = {"height": 1024, "width": 1024, "cache_state": "warm"}
    asked: list[tuple[str, View, str, dict[str, Any]]] = [
        ("heatmap-a", HeatMap("block_x", "block_y"), "copy2d_coalesced", warm),
        ("curve-b", Curve("num_partition", "blocks"), "block_eq_partition", warm),
        *((f"workingset-{kernel}", WorkingSet(), kernel, {}) for kernel in sorted(PEAKS)),
    ]
    drawn = []
    for name, view, kernel, where in asked:
        mine = matching(cells, {"kernel": kernel, **where})
        if mine.empty:
            continue
        device = partition_table(mine) if isinstance(view, Curve) else None
        dtypes = tuple(sorted(mine["dtype"].unique()))
        path = out / f"{name}.svg"
        view.draw(FigureData(kernel, dtypes, (), several, mine, peak, device), path)
        drawn.append((path, view, kernel))
    return drawn
