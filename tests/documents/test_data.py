"""What one does with the data: the how-to's query, the dictionary of columns, the notebook."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import nbformat
import pytest
from conftest import ROOT, environment
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.storage.dataset import read_cells
from nbclient import NotebookClient
from recompute import dictionary
from synthetic import write_shard

HOWTO = (ROOT / "docs/howto.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "docs/notebook.ipynb"
SHAPE = ["variant", "block_x", "block_y"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `results/local` of a small run."""
    folder = tmp_path_factory.mktemp("run")
    axes = {"block_x": (32, 64, 128, 2048), "block_y": (1, 2, 4)}
    paths = [
        write_shard(folder / f"{dtype}.parquet", "copy2d_coalesced", dtype, axes=axes)
        for dtype in ("float", "double", "float3")
    ]
    other = write_shard(folder / "other.parquet", "block_tiles", "float", axes=OTHER)
    aggregate([*paths, other], folder / "results/local/dataset")
    return folder


OTHER = {"num_partition": (8, 16), "row_bytes": (256,), "pad_bytes": (0,)}


def test_the_query_of_the_howto_answers_its_question(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (query,) = re.findall(r"(?s)^```sql\n(.*?)^```$", HOWTO, re.M)
    monkeypatch.chdir(folder)
    found = duckdb.sql(query).df()
    cells = read_cells(folder / "results/local/dataset", {"kernel": "copy2d_coalesced"})
    ok = cells[cells["status"] == "ok"]
    assert len(ok) < len(cells)
    tops = ok.groupby(["variant", "dtype"])["bandwidth_gbs"].transform("max")
    worst = (ok["bandwidth_gbs"] / tops).groupby([ok[name] for name in SHAPE]).min()
    expected = worst[worst >= 0.98].sort_values(ascending=False)
    assert 0 < len(expected) < len(worst)
    assert set(found[SHAPE].itertuples(index=False, name=None)) == set(expected.index)
    assert found["loses_percent"].tolist() == pytest.approx(
        (100 - 100 * expected).tolist(), abs=0.051
    )


def test_every_column_has_a_meaning_and_the_unit_that_its_name_tells() -> None:
    units = {"_s": "s", "_gbs": "GB/s", "_share": "0 to 1", "_bytes": "bytes"}
    for table in [*dictionary.FILES.values(), *dictionary.OF_CHAPTERS.values()]:
        for name, unit, text in dictionary.rows(table):
            assert text, name
            ending = name.strip("`").rpartition("_")[2]
            assert unit == units.get(f"_{ending}", unit), name


def test_the_notebook_holds_no_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == (
            [],
            None,
        )


def test_the_notebook_runs_to_its_figure() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    place = {"metadata": {"path": str(ROOT / "docs")}}
    NotebookClient(notebook, timeout=120, resources=place).execute(env=environment())
    shown = [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type in ("display_data", "execute_result")
    ]
    assert any("image/png" in data for data in shown)
    # What its last words say: padding pays for every tile but the smallest of floats.
    (beyond,) = [t for data in shown if "beyond doubt" in (t := data.get("text/plain", ""))]
    answers = re.findall(r"(\d+) +(True|False)$", beyond, re.M)
    assert [side for side, faster in answers if faster == "False"] == ["16"]
    assert "float   16      False" in beyond
    assert len(answers) == 6
