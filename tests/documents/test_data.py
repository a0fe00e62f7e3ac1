"""What one does with the data: the dictionary of columns, the notebook."""

import json
import re

import nbformat
from conftest import ROOT, environment
from nbclient import NotebookClient
from recompute import dictionary

NOTEBOOK = ROOT / "docs/notebook.ipynb"


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
    # The notebook's answer: padding pays for every tile.
    (beyond,) = [t for data in shown if "beyond doubt" in (t := data.get("text/plain", ""))]
    answers = re.findall(r"(\d+) +(True|False)$", beyond, re.M)
    assert [faster for _, faster in answers] == ["True"] * 6
