"""A run that is killed in the middle of a shard is taken up where it was."""

from __future__ import annotations

import os

from gated import CELLS_PER_SHARD, Gate
from gpushmoo.storage.store import read_shard
from projects import Project, print_of, wait_until

pytest_plugins = ("workflow_fixtures",)

FIRST = "gated/float/0000-of-0001.parquet"
SECOND = "gated/double/0000-of-0001.parquet"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_after_kill_9_only_the_unfinished_shard_is_measured(bare: Project) -> None:
    gate = Gate(bare)
    gate.open("float")
    cells = bare.root / "results/gated/cells"
    targets = [str((cells / name).relative_to(bare.root)) for name in (FIRST, SECOND)]
    # Leaving it kills its process group with -9.
    with bare.start(*targets, "--prioritize", targets[0], config=gate.config) as run:
        second = "the second shard in its middle"
        wait_until(lambda: bool(gate.workers("double")) or run.ended, second)
        assert not run.ended, run.text
    before = print_of(cells)
    assert set(before) == {FIRST}
    # The measuring process goes with the run, and does not hold the device at the closed gate.
    (measuring,) = gate.workers("double")
    wait_until(lambda: not alive(measuring), "the end of the measuring process")

    gate.open()
    unlocked = bare.snakemake("--unlock", config=gate.config)
    assert unlocked.status == 0, unlocked.text
    # The default profile sets --rerun-incomplete.
    resumed = bare.snakemake(*targets, config=gate.config)
    assert resumed.status == 0, resumed.text
    assert resumed.jobs == {"measure": 1}
    assert "waiting until a device is free" not in resumed.text
    after = print_of(cells)
    assert set(after) == {FIRST, SECOND}
    assert after[FIRST] == before[FIRST]
    assert len(read_shard(cells / SECOND)[0]) == CELLS_PER_SHARD
