"""A run of dot products whose data live on the host, from the configuration to the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from gpushmoo.storage.dataset import read_cells
from projects import Project
from streamed_dot.timeline import COPY, KERNEL, read_timeline
from workflow_fixtures import new_project

pytest_plugins = ("workflow_fixtures",)

SIZES = [0, 1, 3, 1000]
AXES = {
    "streams": 2,
    "min_per_stream": 100,
    "chunk": 90,
    "blocks_per_stream": 3,
    "threads": 32,
    "host_percent": 10,
}
CONFIG: dict[str, Any] = {
    "run": "dots",
    "backend": "opencl",
    "only": ["dot_streamed", "dot_host", "dot_square", "dot_resident"],
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
        "dot_square": {"dtypes": ["double"], "variants": ["pinned-pooled"], "sizes": [1000]},
        "dot_resident": {
            "dtypes": ["double"],
            "sizes": [1000],
            "axes": {"threads": 64, "grid": 3, "unroll": [1, 4]},
        },
    },
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 7},
    "chapters": {
        "streamed_dot": {
            # Beside the default's, which are left out.
            "timeline": {
                "one stream, at once": None,
                "four streams, in pieces": None,
                "in pieces": {
                    "kernel": "dot_streamed",
                    "dtype": "double",
                    "variant": "pinned-pooled",
                    "size": 1000,
                    "axes": AXES,
                },
            },
            "errors": {"sizes": [3, 64], "conditions": [1.0e4], "condition_size": 64},
            "rivals": {
                "lengths": [64, 1000],
                "share_lengths": [1000],
                "parameter_lengths": [],
                "between": [],
                "rounds": 6,
            },
        },
    },
}
ERRORS_OF = {"dot_streamed", "dot_host", "dot_square", "dot_resident"}


@pytest.fixture(scope="module")
def text_and_project(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Project]:
    project = new_project(tmp_path_factory.mktemp("dots") / "project")
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
    assert counts == {
        "dot_streamed": 2 * 4 * 4,
        "dot_host": 4 * 4,
        # By the default's numbers of streams.
        "dot_square": 2,
        "dot_resident": 2,
    }
    square = cells["kernel"] == "dot_square"
    assert (cells[~square]["bytes_read"] == 16 * cells[~square]["width"]).all()
    assert (cells[square]["bytes_read"] == 8 * 1000).all()
    streamed = cells[cells["kernel"].isin(["dot_streamed", "dot_square"]) & (cells["width"] > 0)]
    assert (streamed["copy_gbs"] > 0).all()


def test_the_report_has_the_documents_plots_and_its_page(
    text_and_project: tuple[str, Project],
) -> None:
    _, project = text_and_project
    results = project.root / "results/dots"
    facts = json.loads((results / "report.json").read_text())
    [chapter] = facts["chapters"]
    page = chapter["facts"]
    assert [f["file"] for f in page["figures"]] == [
        "dot-running_time.svg",
        "dot-throughput.svg",
        "dot-running_time_square.svg",
        "dot-throughput_square.svg",
    ]
    assert [f["file"] for f in page["rivals"]] == ["rivals-dot.svg"]
    assert {r["operation"] for r in page["rivalries"]} == {"x·x", "x·y"}
    assert all("not measured" not in r["against"] for r in page["rivalries"])
    assert [c["dtype"] for c in page["sharings"]] == ["double", "float"] * 2
    assert [(r["n"], r["library"]) for r in page["residents"]] == [("1000", "not measured")]
    # What comes over a bus has no share of what the device's own memory can do.
    host_fed = {"dot_streamed", "dot_host", "dot_square"}
    best = pq.read_table(results / "summary/best.parquet").to_pandas()
    assert host_fed < set(best["kernel"])
    assert best.loc[best["kernel"].isin(host_fed), "share_of_ceiling"].isna().all()
    # The page tells of them, and no row of the table of best sets.
    assert facts["best"] == []
    assert (results / "report.pdf").read_bytes().startswith(b"%PDF-")


def test_the_studies_are_measured_drawn_and_told(text_and_project: tuple[str, Project]) -> None:
    _, project = text_and_project
    results = project.root / "results/dots"
    spans = read_timeline(results / "studies/timeline.parquet")
    assert set(spans["case"]) == {"in pieces"}
    # The device's 900 elements in ten pieces over two streams, each with its kernel.
    assert set(spans["stream"]) == {0, 1}
    assert spans["what"].value_counts().to_dict() == {COPY: 2 * 10, KERNEL: 10}
    assert spans["nbytes"].sum() == 900 * 2 * 8

    errors = pq.read_table(results / "studies/errors.parquet").to_pandas()
    assert set(errors["kernel"]) == ERRORS_OF
    assert set(errors["dtype"]) == {"float", "double"}
    assert set(errors["n"]) == {3, 64}
    assert errors["agrees"].all()

    facts = json.loads((results / "report.json").read_text())
    page = facts["chapters"][0]["facts"]
    for key, file in (("timelines", "timeline-dot.svg"), ("errors", "errors-dot.svg")):
        assert [f["file"] for f in page[key]] == [file]
        assert (results / "figures" / file).read_text().lstrip().startswith("<?xml")
        note = json.loads((results / "figures" / file).with_suffix(".json").read_text())
        assert page[key][0]["caption"] == note["caption"]
    timeline = json.loads((results / "figures/timeline-dot.json").read_text())
    assert timeline["finding"] in facts["chapters"][0]["findings"]


def test_changed_code_of_a_studys_figure_draws_it_anew_and_measures_nothing(
    text_and_project: tuple[str, Project], tmp_path: Path
) -> None:
    project = copy_of(text_and_project[1], tmp_path)
    code = project.root / "reports/chapters/streamed_dot/figure_studies.py"
    code.write_text(code.read_text() + "\n_NEW = 1\n")
    # One module draws all studies.
    assert project.plan(config=("dots.yaml",)) == {
        "figure_study": 3,
        "report": 1,
        "verdict": 1,
        "all": 1,
    }


def test_other_data_of_a_study_run_that_study_alone(
    text_and_project: tuple[str, Project], tmp_path: Path
) -> None:
    project = copy_of(text_and_project[1], tmp_path)
    longer = project.write_config(
        "longer.yaml", {"chapters": {"streamed_dot": {"errors": {"sizes": [64]}}}}
    )
    assert project.plan(config=("dots.yaml", longer)) == {
        "study_dot": 1,
        "figure_study": 1,
        "report": 1,
        "verdict": 1,
        "all": 1,
    }


def test_a_run_that_asks_for_no_studies_has_none(text_and_project: tuple[str, Project]) -> None:
    _, project = text_and_project
    none = project.write_config(
        "none.yaml",
        {
            "run": "none",
            "chapters": {"streamed_dot": {"timeline": None, "errors": None, "rivals": None}},
        },
    )
    jobs = project.plan(config=("dots.yaml", none))
    assert jobs["figure_dot"] == 4
    assert {"study_dot", "figure_study"}.isdisjoint(jobs)


def copy_of(project: Project, folder: Path) -> Project:
    """A copy to change."""
    return Project(shutil.copytree(project.root, folder / "project", symlinks=True))
