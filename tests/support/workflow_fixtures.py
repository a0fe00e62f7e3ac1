"""Fixtures of the workflow tests.

A plugin and not a conftest.py: other tests import the one conftest by that name. Test modules name
it in ``pytest_plugins`` and import the rest from `projects`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from compiled import copy_compiled
from conftest import ROOT
from filelock import FileLock
from projects import TINY, FinishedProject, Outcome, Project
from tesla_c1060.stages import make_table

RECORD = "reports/reference"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedProject:
    """The one complete run that all tests share. Look and dry-run; its results stay as they are.

    Workers of pytest-xdist make it once: the first one runs, the others wait, each takes a copy.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    made = Project(shared / "workflow-run")
    terminal = shared / "workflow-run.terminal"
    with FileLock(shared / "workflow-run.lock"):
        if not terminal.exists():
            compile_simulator(shared)
            new_project(made.root)
            outcome = made.snakemake_afresh()
            assert outcome.status == 0, outcome.text
            terminal.write_text(outcome.text)
    mine = tmp_path_factory.mktemp("workflow") / "finished"
    shutil.copytree(made.root, mine, symlinks=True)
    return FinishedProject(mine, Outcome(0, terminal.read_text()))


def new_project(root: Path, config: Mapping[str, Any] = TINY) -> Project:
    """A copy of the project at `root` that has measured nothing, with ``tiny.yaml`` in it."""
    copy_project(root)
    project = Project(root)
    project.write_config("tiny.yaml", config)
    return project


@pytest.fixture
def bare(tmp_path: Path) -> Project:
    """A project that has measured nothing."""
    return new_project(tmp_path / "project")


def compile_simulator(folder: Path) -> None:
    """Have Numba keep the simulator's machine code beside its source.

    Else all jobs that simulate would make it for themselves at once, some ten seconds each.
    """
    device = "reports/chapters/tesla_c1060/devices/tesla-c1060.yaml"
    asked = {"kind": "blocks", "file": device, "levels": ["bus", "partitions", "banks"]}
    asked |= {"sizes": [256], "num_partition": [1]}
    make_table(asked, folder / "simulated.parquet", 1)


def copy_project(root: Path) -> None:
    """Copy the project's own files to `root`: no results, no virtual environment.

    The record of an H200, most of the bytes, is linked: copies of a copy need not hold it, too.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(f"{RECORD}/"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    (root / RECORD).symlink_to(ROOT / RECORD)
    copy_compiled(root)


@pytest.fixture(scope="session")
def copy_finished(finished: FinishedProject) -> Callable[[Path], Project]:
    """Copies the finished project, with Snakemake's records, to where a test may damage it."""

    def copy(root: Path) -> Project:
        shutil.copytree(finished.root, root, symlinks=True)
        return Project(root)

    return copy


@pytest.fixture
def project(copy_finished: Callable[[Path], Project], tmp_path: Path) -> Iterator[Project]:
    """A copy of the finished project for one test."""
    copied = copy_finished(tmp_path / "project")
    yield copied
    shutil.rmtree(copied.root, ignore_errors=True)
