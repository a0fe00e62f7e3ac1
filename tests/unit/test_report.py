"""The report: strings from data are text, a failed fit is said, same data, same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pypdfium2
import pytest
from conftest import ROOT
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import best_table
from gpushmoo.dataset import read_cells
from gpushmoo.display import gbs, number, percent, seconds, significant, size_bytes
from gpushmoo.figures.curve import curve
from gpushmoo.figures.heatmap import heatmap
from gpushmoo.model.series import fit_dataset
from gpushmoo.report.build import ReportFiles, build_report
from gpushmoo.schema import Status
from gpushmoo.store import read_shard, write_parquet

RECORD = ROOT / "reports/reference/nvidia-h200"
HOSTILE = '#panic("x") *bold* <b>&amp; $1/0$ @ref // \\ "quoted" `raw`'


@dataclass(frozen=True)
class Rendered:
    text: str
    facts: dict[str, Any]
    pdf: bytes
    predictions: Path


def spec(recorded: bool = True) -> dict[str, Any]:
    names = ("copy2d_coalesced", "block_eq_partition")
    kernels = {n: {"title": f"title of {n}", "pattern": "pattern"} for n in names}
    return {"run": "test", "recorded": recorded, "kernels": kernels, "seed": 1}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded float shards of both kernels, free to be changed."""
    folder = tmp_path_factory.mktemp("shards")
    for kernel in ("copy2d_coalesced", "block_eq_partition"):
        table, metadata = read_shard(RECORD / kernel / "float" / "0000-of-0001.parquet")
        write_parquet(table, folder / f"{kernel}.parquet", metadata)
    return folder


def render(
    folder: Path, out: Path, change: Callable[[pd.DataFrame, dict[str, Any]], None] | None = None
) -> Rendered:
    """Aggregate the shards (after `change` of cells and provenance), draw and render them."""
    paths = []
    for path in sorted(folder.glob("*.parquet")):
        table, metadata = read_shard(path)
        cells = table.to_pandas()
        if change is not None:
            change(cells, metadata)
        paths.append(out / "shards" / path.name)
        changed = pa.Table.from_pandas(
            cells, schema=table.schema.remove_metadata(), preserve_index=False
        )
        write_parquet(changed, paths[-1], metadata)
    aggregate(paths, out / "dataset")
    cells = read_cells(out / "dataset")
    write_parquet(best_table(cells), out / "best.parquet", {})
    fit_dataset(cells, ["block_eq_partition"], 0.25, 1, out / "params.json", out / "p.parquet")
    copies, blocks = (cells[cells["kernel"] == k] for k in spec()["kernels"])
    heatmap(copies, "block_x", "block_y", ["float"], out / "heatmap-a.svg")
    predictions = pd.read_parquet(out / "p.parquet")
    curve(blocks, predictions, "num_partition", "blocks", out / "curve-b.svg")
    files = ReportFiles(
        dataset=out / "dataset",
        best=out / "best.parquet",
        model=out / "params.json",
        checks=(),
        figures=(out / "heatmap-a.svg", out / "curve-b.svg"),
    )
    build_report(files, spec(), ROOT / "reports", out / "report.json", out / "report.pdf")
    document = pypdfium2.PdfDocument(out / "report.pdf")
    pages = [document[i].get_textpage().get_text_range() for i in range(len(document))]
    facts = json.loads((out / "report.json").read_text())
    text = " ".join(" ".join(pages).split())
    return Rendered(text, facts, (out / "report.pdf").read_bytes(), out / "p.parquet")


@pytest.fixture(scope="module")
def plain(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(shards, tmp_path_factory.mktemp("plain"))


def test_report_shows_what_was_measured(plain: Rendered) -> None:
    assert "NVIDIA H200" in plain.text
    cells = read_shard(RECORD / "copy2d_coalesced/float/0000-of-0001.parquet")[0].to_pandas()
    assert gbs(cells["bandwidth_gbs"].max()) in plain.text
    assert "too_many_threads" in plain.text
    assert str(int((cells["status"] == Status.TOO_MANY_THREADS).sum() // 2)) in plain.text


def test_same_data_give_the_same_bytes(plain: Rendered, shards: Path, tmp_path: Path) -> None:
    assert render(shards, tmp_path).pdf == plain.pdf


def test_strings_from_data_are_text(shards: Path, tmp_path: Path) -> None:
    def hostile(cells: pd.DataFrame, metadata: dict[str, Any]) -> None:
        metadata["device"]["name"] = HOSTILE
        metadata["host"]["system"] = HOSTILE
        cells.loc[0, ["status", "message"]] = [Status.LAUNCH_FAILED.value, HOSTILE]

    found = render(shards, tmp_path, hostile)
    shown = found.text.replace("“", '"').replace("”", '"')
    # Once as the device, once as the host, once for each kernel's fault.
    assert shown.count('#panic("x") *bold* <b>&amp; $1/0$ @ref // \\ "quoted" `raw`') >= 3


def test_fit_that_does_not_converge_is_said(shards: Path, tmp_path: Path) -> None:
    def almost_empty(cells: pd.DataFrame, metadata: dict[str, Any]) -> None:
        if "num_partition" in cells.columns:
            cells.loc[cells["num_partition"] > 3, "status"] = Status.TIMEOUT.value

    found = render(shards, tmp_path, almost_empty)
    assert "did not converge" in found.text
    assert "points are too few" in found.text
    assert "timeout" in found.text
    assert all(not f["converged"] for f in found.facts["fits"])


def test_wrong_results_are_named_and_never_best(shards: Path, tmp_path: Path) -> None:
    def fastest_is_wrong(cells: pd.DataFrame, metadata: dict[str, Any]) -> None:
        i = cells["median_s"].idxmin()
        cells.loc[i, ["status", "message"]] = [Status.WRONG_RESULT.value, "7 of 9 words differ"]

    found = render(shards, tmp_path, fastest_is_wrong)
    assert "2 cells computed a wrong result" in found.text
    assert "7 of 9 words differ" in found.text


def test_display_strings() -> None:
    assert significant(3164.47) == "3164"
    assert significant(0.012345) == "0.0123"
    assert significant(99.96) == "100.0"
    assert percent(0.0123) == "1.2 %"
    assert [seconds(v) for v in (2.0, 1.5e-3, 4.41e-7, 4e-15)] == [
        "2.00 s",
        "1.50 ms",
        "441 ns",
        "0 s",
    ]
    assert number(3e-14) == "0"
    assert size_bytes(62914560) == "60.0 MiB"


def test_predictions_repeat_the_measured_bandwidth(plain: Rendered, shards: Path) -> None:
    """The model's table and the cells must not disagree about what was measured."""
    cells = read_shard(shards / "block_eq_partition.parquet")[0].to_pandas()
    predicted = pd.read_parquet(plain.predictions)
    merged = predicted.merge(cells, on=["variant", "blocks"])
    assert len(merged) == len(predicted) == (cells["status"] == Status.OK).sum()
    assert merged["measured_gbs"].to_numpy() == pytest.approx(merged["bandwidth_gbs"].to_numpy())
    error = merged["measured_gbs"] / merged["predicted_gbs"] - 1.0
    assert merged["relative_error"].to_numpy() == pytest.approx(error.to_numpy())
