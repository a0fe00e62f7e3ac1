"""A run of dot products whose data live on the host, from the configuration to the report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpushmoo.dataset import read_cells
from projects import Project

pytest_plugins = ("workflow_fixtures",)

SIZES = [0, 1, 3, 1000]
CONFIG: dict[str, Any] = {
    "run": "dots",
    "backend": "opencl",
    "only": ["dot_streamed", "dot_host"],
    "kernels": {
        "dot_streamed": {
            "dtypes": ["double"],
            "variants": ["pinned-pooled", "pageable-fresh"],
            "sizes": SIZES,
            "axes": {
                "streams": [1, 3],
                "min_per_stream": 100,
                "chunk": 90,
                "host_percent": [0, 40],
            },
        },
        "dot_host": {"dtypes": ["double"], "sizes": SIZES},
    },
    "measure": {"min_samples": 6, "max_samples": 7},
    "simulate": {"tesla-c1060": None},
}


@pytest.fixture(scope="module")
def text_and_project(
    copy_finished: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Project]:
    project = copy_finished(tmp_path_factory.mktemp("dots") / "project")
    outcome = project.snakemake(config=(project.write_config("dots.yaml", CONFIG),))
    assert outcome.status == 0, outcome.text
    return outcome.text, project


def test_every_length_is_computed_right_by_every_way(
    text_and_project: tuple[str, Project],
) -> None:
    _, project = text_and_project
    cells = read_cells(project.root / "results/dots/dataset")
    assert set(cells["status"]) == {"ok"}
    counts = cells.groupby("kernel", observed=True).size().to_dict()
    assert counts == {"dot_streamed": 2 * 4 * 4, "dot_host": 3 * 4}
    assert (cells["bytes_read"] == 16 * cells["width"]).all()
    streamed = cells[(cells["kernel"] == "dot_streamed") & (cells["width"] > 0)]
    assert (streamed["copy_gbs"] > 0).all()


def test_the_report_has_the_documents_plots_and_its_page(
    text_and_project: tuple[str, Project],
) -> None:
    _, project = text_and_project
    results = project.root / "results/dots"
    facts = json.loads((results / "report.json").read_text())
    assert [f["file"] for f in facts["dot_figures"]] == [
        "dot-running_time.svg",
        "dot-throughput.svg",
    ]
    assert {c["variant"] for c in facts["dots"]["crossovers"]} == {
        "pinned-pooled",
        "pageable-fresh",
    }
    assert {e["axis"] for e in facts["dots"]["effects"]} == {"streams", "host_percent"}
    # What comes over a bus has no share of what the device's own memory can do.
    assert {b["share"] for b in facts["best"]} == {"—"}
    assert (results / "report.pdf").read_bytes().startswith(b"%PDF-")
