"""Users' kernels, each broken in its own way, and one that is not: one run to its report."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import OPENCL_WORDS, USER_OPENCL, WORKLOAD_TEMPLATE
from gpushmoo.storage.dataset import read_cells
from projects import Outcome, Project
from workflow_fixtures import new_project

pytest_plugins = ("workflow_fixtures",)

PAST = """
%(kernel)s void copy_past(%(g)sfloat *dst, %(g)sconst float *src, %(u)s n) { %(i)s
    if (i < n) dst[i] = dst[i + n] = src[i]; }
"""
# Each kernel's variant, and what it does at the beginning of a method.
KERNELS: dict[str, tuple[str, dict[str, str]]] = {
    "fine": ("good", {}),
    "unbuilt": ("broken", {}),
    "strays": ("past", {}),
    "raises": ("good", {"reference(self, inputs)": "return inputs['source']"}),
    "some": (
        "good",
        {"proof(self, cell)": "return self.launch(cell) if cell['block_x'] == 32 else 1"},
    ),
}
FAILED = ("unbuilt", "strays", "raises")


@dataclass(frozen=True)
class BrokenRun:
    """The run's folder, and how it ended."""

    project: Project
    outcome: Outcome
    cells: pd.DataFrame

    @property
    def facts(self) -> Any:
        """What the report says."""
        return json.loads((self.project.root / "results/broken/report.json").read_text())

    def told(self, kernel: str) -> dict[int, tuple[str, str | None]]:
        """Status and message of a kernel's cells by block_x."""
        own = self.cells[self.cells["kernel"] == kernel].set_index("block_x").sort_index()
        return {x: (row["status"], row["message"]) for x, row in own.iterrows()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> BrokenRun:
    project = new_project(tmp_path_factory.mktemp("broken") / "project")
    for name, (variant, methods) in KERNELS.items():
        folder = project.root / "own" / name
        folder.mkdir(parents=True)
        (folder / "kernel.cl").write_text(USER_OPENCL + PAST % OPENCL_WORDS)
        text = WORKLOAD_TEMPLATE.format(name=name, variants=(variant,))
        for method, line in methods.items():
            text = text.replace(
                "    def launch", f"    def {method}:\n        {line}\n\n    def launch"
            )
        (folder / "workload.py").write_text(text)
    config = {
        "run": "broken",
        "backend": "opencl",
        "kernel_folders": ["own"],
        "only": list(KERNELS),
        "kernels": {name: {} for name in KERNELS},
        "measure": {"repeats": 1, "min_samples": 6, "max_samples": 6},
        "chapters": {"tesla_c1060": {"simulate": None}},
    }
    outcome = project.snakemake(config=(project.write_config("broken.yaml", config),))
    dataset: Path = project.root / "results/broken/dataset"
    assert dataset.exists(), outcome.text
    return BrokenRun(project, outcome, read_cells(dataset))


def test_each_fault_is_a_row_with_its_status(run: BrokenRun) -> None:
    statuses = {name: [status for status, _ in run.told(name).values()] for name in KERNELS}
    over = "too_many_threads"
    assert statuses == {
        "fine": ["ok", "ok", over],
        "unbuilt": ["build_failed", "build_failed", over],
        "strays": ["wrong_result", "wrong_result", over],
        "raises": ["workload_failed", "workload_failed", over],
        "some": ["ok", "workload_failed", over],
    }


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("unbuilt", r"^kernel.cl does not compile: kernel.cl:\d+: error: .*this"),
        ("strays", "^wrote 4096 words past the end of 'dst'$"),
        ("raises", r"^own/raises/workload.py:\d+: KeyError: 'source'$"),
        ("some", r"^own/some/workload.py: proof returns 1 \(int\), not a Launch$"),
    ],
)
def test_each_row_says_why(run: BrokenRun, kernel: str, said: str) -> None:
    assert re.search(said, str(run.told(kernel)[64][1]))


def test_the_terminal_names_the_first_error_with_its_log_and_every_failed_sweep(
    run: BrokenRun,
) -> None:
    own = [x for x in run.outcome.text.splitlines() if x.startswith("gpushmoo: ")]
    asked, build, report, counts, failed = own
    assert "results/broken/report.pdf" in report
    assert asked.startswith("gpushmoo: 15 cells, ")
    log = "results/broken/logs/build/unbuilt-float.log"
    assert re.search(r"own/unbuilt, float, variant broken: .*kernel.cl:\d+: error: ", build)
    assert build.endswith(f"(whole message: {log})")
    assert "this" in (run.project.root / log).read_text()
    assert "7 of 15 cells ended in a fault" in counts
    for name in KERNELS:
        assert (f"No cell of the sweep '{name}' could be measured" in failed) == (name in FAILED)
    assert "Traceback" not in run.outcome.text


def test_the_run_ends_with_an_error_after_its_report(run: BrokenRun) -> None:
    assert run.outcome.status != 0
    assert (run.project.root / "results/broken/report.pdf").read_bytes().startswith(b"%PDF-")


def test_a_kernel_that_ends_the_program_as_it_is_loaded_ends_the_run_with_a_sentence(
    run: BrokenRun,
) -> None:
    folder = run.project.root / "own/quits"
    folder.mkdir()
    (folder / "workload.py").write_text("import sys\n\nsys.exit(0)\n")
    kernels = {"kernels": {"quits": {}}, "only": ["quits"], "kernel_folders": ["own"]}
    config = run.project.write_config("quits.yaml", {"run": "quits", **kernels})
    outcome = run.project.snakemake("-n", config=(config,))
    assert outcome.status == 1
    assert outcome.text.splitlines()[-1] == (
        "gpushmoo: Kernel 'quits': workload.py does not load (own/quits/workload.py:3: "
        "SystemExit: 0 (a workload must not end the program))."
    )


def test_the_report_names_what_failed(run: BrokenRun) -> None:
    named = {f["where"].split(",")[0]: f["status"] for f in run.facts["faults"]}
    assert named == {
        "unbuilt": "build_failed",
        "strays": "wrong_result",
        "raises": "workload_failed",
        "some": "workload_failed",
    }
    findings = " ".join(f["sentence"] for f in run.facts["findings"])
    shown = {
        k["name"]: [row["dtype"] for row in k["rows"]] for k in run.facts["first_page"]["kernels"]
    }
    assert shown["fine"] == ["float"]
    assert not shown.keys() & {"unbuilt", "raises"}
    assert "2 cells computed a wrong result" in findings
    assert "unbuilt, float, broken: kernel.cl does not compile" in findings
    assert "raises, float, good: own/raises/workload.py:" in findings
