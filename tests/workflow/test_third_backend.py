"""A third backend is one folder and one entry of the registry: a whole run on it, with faults."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gpushmoo.storage.dataset import read_cells
from made_up import add_made_up
from projects import Outcome, Project
from workflow_fixtures import new_project

pytest_plugins = ("workflow_fixtures",)
# A whole run for what no change of a kernel or a page can break.
pytestmark = pytest.mark.fuzz

KERNEL = """
REGISTERS = {"copy_heavy": 200}
if "BROKEN" in globals():
    this_is_no_name

def copy_good(ids, dst, src, n):
    for begin in range(0, n, len(ids)):
        i = begin + ids
        i = i[i < n]
        dst[i] = src[i]

copy_broken = copy_heavy = copy_good

def copy_forgets(ids, dst, src, n):
    copy_good(ids, dst, src, n)
    dst[77] = 0

def copy_wild(ids, dst, src, n):
    dst[2 * n] = src[0]

def copy_traps(ids, dst, src, n):
    raise FloatingPointError("copied nothing")

def copy_strays(ids, dst, src, n):
    copy_good(ids, dst, src, n)
    whole = dst.base
    whole[-1:] = 7
"""
WORKLOAD = """
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Curve, Launch

class Persistent(CopyWorkload):
    name = "persistent"
    title = "A copy by blocks that stay"
    pattern = "each thread strides over the grid"
    dtypes = ("float",)
    variants = ("good", "broken", "forgets", "heavy", "strays", "traps", "wild")
    default_variants = variants[:-1]
    sizes = (64, 1024)
    axes = {"threads": [32, 64, 128], "grid": {"to_resident": 1, "points": 2}}
    views = (Curve("grid", unit="blocks"),)

    def defines(self, dtype, variant):
        return {"BROKEN": "1"} if variant == "broken" else {}

    def launch(self, cell):
        n = cell.problem.height * cell.problem.width
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(n))
        grid, block = (cell["grid"], 1, 1), (cell["threads"], 1, 1)
        return Launch("copy_" + cell.variant, grid, block, args, n)

WORKLOAD = Persistent()
"""


@dataclass(frozen=True)
class MadeUpRun:
    """How the run ended, and its cells."""

    project: Project
    outcome: Outcome
    cells: pd.DataFrame


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> MadeUpRun:
    project = new_project(tmp_path_factory.mktemp("madeup") / "project")
    add_made_up(project.root / "workflow/scripts/gpushmoo")
    folder = project.root / "own/persistent"
    folder.mkdir(parents=True)
    (folder / "kernel.np").write_text(KERNEL)
    (folder / "workload.py").write_text(WORKLOAD)
    config: dict[str, Any] = {
        "run": "madeup",
        "backend": "madeup",
        "kernel_folders": ["own"],
        "only": ["persistent", "lost"],
        "kernels": {
            "persistent": {},
            # Each wild cell costs a process.
            "lost": {
                "kernel": "persistent",
                "variants": ["good", "wild"],
                "sizes": [32],
                "axes": {"threads": [32], "grid": [8]},
            },
        },
        "measure": {"repeats": 1, "min_samples": 6, "max_samples": 6},
        "chapters": {"tesla_c1060": {"simulate": None}},
    }
    outcome = project.snakemake(config=(project.write_config("madeup.yaml", config),))
    dataset: Path = project.root / "results/madeup/dataset"
    assert dataset.exists(), outcome.text
    return MadeUpRun(project, outcome, read_cells(dataset))


def test_the_run_ends_with_its_report_and_verified_cells(run: MadeUpRun) -> None:
    assert run.outcome.status == 0, run.outcome.text
    ok = run.cells[run.cells["status"] == "ok"]
    good = ok[ok["variant"] == "good"]
    assert set(good["threads"]) == {32, 64}
    assert (good["verified_words"] == good["height"] * good["width"]).all()
    assert (good["wrong_words"] == 0).all()
    assert (good["bandwidth_gbs"] > 0).all()
    assert set(run.cells["backend"]) == {"madeup"}
    facts = json.loads((run.project.root / "results/madeup/report.json").read_text())
    assert "persistent" in [kernel["name"] for kernel in facts["first_page"]["kernels"]]
    # Occupancy resolves the axis: 16 blocks of 32 threads fit the 8 multiprocessors, and 8 of 64.
    assert set(run.cells["blocks"]) == {8, 9, 16}
    assert dict(zip(ok["threads"], ok["resident_blocks"], strict=True)) == {32: 2, 64: 1}
    # What does not fit the free memory costs its size alone.
    large = run.cells[(run.cells["height"] == 1024) & (run.cells["threads"] < 128)]
    assert set(large[large["variant"] != "broken"]["status"]) == {"out_of_resources"}


@pytest.mark.parametrize(
    ("variant", "threads", "status", "message"),
    [
        ("good", 32, "ok", None),
        ("good", 128, "too_many_threads", "128 threads"),
        ("broken", 32, "build_failed", "kernel.np:4: error: name 'this_is_no_name'"),
        ("forgets", 32, "wrong_result", "1 of 4096 words"),
        ("heavy", 32, "ok", None),
        ("heavy", 64, "out_of_resources", "MADE_UP_OUT_OF_REGISTERS"),
        ("strays", 32, "wrong_result", "past the end of 'dst'"),
        ("traps", 32, "launch_failed", "MADE_UP_TRAP: copied nothing"),
        ("wild", 32, "launch_failed", "MADE_UP_ILLEGAL_ADDRESS"),
    ],
)
def test_each_fault_of_the_device_is_a_row_with_its_status(
    run: MadeUpRun, variant: str, threads: int, status: str, message: str | None
) -> None:
    rows = run.cells[(run.cells["variant"] == variant) & (run.cells["threads"] == threads)]
    rows = rows[rows["height"] < 1024]
    assert set(rows["status"]) == {status}
    assert all((message or "") in str(text) for text in rows["message"])
