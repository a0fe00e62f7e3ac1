"""A run that is killed in the middle of a shard is taken up where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from gpushmoo.store import read_shard
from projects import DEADLINE_S, Project, print_of

pytest_plugins = ("workflow_fixtures",)

# The first shard has two cells, the second has 36 with 200 samples each: seconds of sampling.
SLOW = {
    "run": "killed",
    "only": ["block_eq_partition", "copy2d_coalesced"],
    "kernels": {
        "block_eq_partition": {"axes": {"num_partition": [1]}},
        "copy2d_coalesced": {
            "axes": {"block_x": [4, 8, 16, 24, 32, 64], "block_y": [4, 8, 16]},
        },
    },
    "measure": {"min_samples": 200, "max_samples": 200, "cell_budget_s": 600.0},
}
FIRST = "block_eq_partition/float/0000-of-0001.parquet"
SECOND = "copy2d_coalesced/float/0000-of-0001.parquet"


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll `condition`; fails the test when it does not come true in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_and_kill(project: Project, command: list[str], screen: Path) -> None:
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
            lambda: (
                "copy2d_coalesced float: 36 cells" in screen.read_text() or run.poll() is not None
            )
        )
        assert run.poll() is None, screen.read_text()
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def test_after_kill_9_only_the_unfinished_shard_is_measured(
    project: Project, tmp_path: Path
) -> None:
    config = ("tiny.yaml", project.write_config("slow.yaml", SLOW))
    cells = project.root / "results/killed/cells"
    targets = [str((cells / name).relative_to(project.root)) for name in (FIRST, SECOND)]
    command = project.command(*targets, "--prioritize", targets[0], config=config)
    start_and_kill(project, command, tmp_path / "screen")
    before = print_of(cells)
    assert set(before) == {FIRST}

    unlocked = project.snakemake("--unlock", config=config)
    assert unlocked.status == 0, unlocked.text
    # The default profile sets --rerun-incomplete.
    resumed = project.snakemake(*targets, config=config)
    assert resumed.status == 0, resumed.text
    assert resumed.jobs == {"measure": 1}
    # Nothing of the killed run is alive and holds the device.
    assert "waiting until a device is free" not in resumed.text
    after = print_of(cells)
    assert set(after) == {FIRST, SECOND}
    assert after[FIRST] == before[FIRST]
    assert len(read_shard(cells / SECOND)[0]) == 36
