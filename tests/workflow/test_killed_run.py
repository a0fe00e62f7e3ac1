"""A run that is killed in the middle of a shard is taken up where it was."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from gated import CELLS_PER_SHARD, Gate, wait_until
from gpushmoo.store import read_shard
from projects import Project, print_of
from workflow_fixtures import copy_project

FIRST = "gated/float/0000-of-0001.parquet"
SECOND = "gated/double/0000-of-0001.parquet"


def start_and_kill(project: Project, command: list[str], gate: Gate, screen: Path) -> None:
    """Start a run in a process group of its own; kill -9 the group in the second shard."""
    with screen.open("w") as out:
        run = subprocess.Popen(
            command,
            cwd=project.root,
            env=project.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: bool(gate.workers("double")) or run.poll() is not None,
            "the second shard in its middle",
        )
        assert run.poll() is None, screen.read_text()
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_after_kill_9_only_the_unfinished_shard_is_measured(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    copy_project(project.root)
    gate = Gate(project)
    gate.open("float")
    cells = project.root / "results/gated/cells"
    targets = [str((cells / name).relative_to(project.root)) for name in (FIRST, SECOND)]
    command = project.command(*targets, "--prioritize", targets[0], config=gate.config)
    start_and_kill(project, command, gate, tmp_path / "screen")
    before = print_of(cells)
    assert set(before) == {FIRST}
    # The measuring process goes with the run, and does not hold the device at the closed gate.
    (measuring,) = gate.workers("double")
    wait_until(lambda: not alive(measuring), "the end of the measuring process")

    gate.open()
    unlocked = project.snakemake("--unlock", config=gate.config)
    assert unlocked.status == 0, unlocked.text
    # The default profile sets --rerun-incomplete.
    resumed = project.snakemake(*targets, config=gate.config)
    assert resumed.status == 0, resumed.text
    assert resumed.jobs == {"measure": 1}
    assert "waiting until a device is free" not in resumed.text
    after = print_of(cells)
    assert set(after) == {FIRST, SECOND}
    assert after[FIRST] == before[FIRST]
    assert len(read_shard(cells / SECOND)[0]) == CELLS_PER_SHARD
