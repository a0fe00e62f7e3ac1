"""What strikes a run on one host: each fault on purpose, in the middle of a shard where it can be.

For each of them: nothing that was measured is lost, no cell counts twice, the message says what
happened and what to do, and the run started again finishes. Faults of clusters: tests/cluster;
damaged files: test_what_runs_again.
"""

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from gated import CELLS_PER_SHARD, DATASET, Gate
from gpushmoo.devices.build_file import read_build
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard, write_parquet
from mounts import Mount, fill
from projects import Project, print_of, wait_until

pytest_plugins = ("workflow_fixtures",)

SHARDS = "results/gated/cells/gated"
FLOAT = f"{SHARDS}/float/0000-of-0001.parquet"
OTHER = "Another GPU"
TINY_DATASET, TINY_CELLS = "results/tiny/dataset", 4 * 12 + 4 * 9


@pytest.mark.slow
def test_a_run_refuses_a_second_one_and_outlives_its_measuring_process(bare: Project) -> None:
    gate = Gate(bare, ["float"])
    with bare.start(DATASET, config=gate.config) as run:
        first = gate.wait_for("float")
        second = bare.snakemake(DATASET, config=gate.config)
        assert second.status != 0
        assert "Directory cannot be locked" in second.text
        assert "--unlock" in second.text
        assert gate.workers("float") == {first}
        os.kill(first, signal.SIGKILL)
        gate.open()
        assert run.end() == 0, run.text
    # Another one has measured the second half, and nothing but that.
    assert len(gate.workers("float")) == 2
    gate.cells()
    log = (bare.root / "results/gated/logs/measure/gated-float-0000-of-0001.log").read_text()
    assert "ended by SIGKILL while workload.py made the data of 128x128; cells that had" in log
    assert bare.plan(DATASET, config=gate.config) == {}


@pytest.mark.slow
def test_a_read_only_folder_is_refused_a_full_disk_told(bare: Project, mount: Mount) -> None:
    gate = Gate(bare, ["float"])
    mount(bare.root / "results", "ro")
    auto = bare.write_config("auto.yaml", {"backend": "auto"})
    for config in (gate.config, (*gate.config, auto)):
        refused = bare.snakemake(DATASET, config=config)
        assert refused.status != 0
        # One before it may say how much the run asks for.
        *_, said = [x for x in refused.text.splitlines() if x.startswith("gpushmoo: ")]
        assert said.startswith("gpushmoo: 'results' cannot be written to")
        assert "make it writable" in said
        assert "Traceback" not in refused.text
    assert gate.workers("float") == set()

    mount(bare.root / "results", "rw")
    cells = bare.root / "results/gated/cells"
    mount(cells, "size=64k")
    with bare.start(DATASET, config=gate.config) as run:
        gate.wait_for("float")
        fill(cells / "filler")
        gate.open()
        assert run.end() != 0
    assert "cannot be written to (No space left on device): make room" in run.text
    assert "Traceback" not in run.text
    # Nothing half-written is left, and the next start measures this shard.
    assert [p.name for p in cells.rglob("*") if p.is_file()] == ["filler"]
    (cells / "filler").unlink()
    again = bare.snakemake(DATASET, config=gate.config)
    assert again.status == 0, again.text
    gate.cells()


def test_a_full_disk_blames_no_kernel_and_with_room_it_is_built(
    bare: Project, mount: Mount
) -> None:
    target = "results/tiny/builds/copy2d_coalesced/float.json"
    cache = bare.results / ".cache"
    mount(cache, "size=64k")
    # Some compilers need less than that.
    fill(cache / "filler")
    full = bare.snakemake(target)
    assert full.status != 0
    assert "(No space left on device): make room there" in full.text
    assert not (bare.root / target).exists()
    mount(cache, "size=64m")
    assert bare.snakemake(target).status == 0
    ((_, made),) = read_build(bare.root / target).targets.items()
    assert all(version.code for version in made.values())


def test_a_shard_of_another_device_model_is_named_and_not_mixed_in(project: Project) -> None:
    # Of two models that have as many shards each the name would decide.
    path, *_ = project.shards
    name, own = str(path.relative_to(project.root)), path.read_bytes()
    table, metadata = read_shard(path)
    other = [row | {"device_name": OTHER, "device_uuid": OTHER} for row in table.to_pylist()]
    metadata["device"] |= {"name": OTHER, "uuid": OTHER}
    write_parquet(pa.Table.from_pylist(other, schema=table.schema), path, metadata)

    refused = project.snakemake(TINY_DATASET)
    assert refused.status != 0
    lines = [x for x in refused.text.splitlines() if x.startswith("gpushmoo: ")]
    [said] = set(lines[1:])
    assert f"'{name}'" in said
    assert f"'{OTHER}'" in said
    assert "start the run again" in said
    assert not path.exists()
    assert len(list((project.results / "quarantine").rglob("*.parquet"))) == 1
    again = project.snakemake(TINY_DATASET)
    assert again.status == 0, again.text
    assert again.jobs == {"measure": 1, "aggregate": 1}
    cells = read_cells(project.root / TINY_DATASET)
    assert len(cells) == TINY_CELLS
    assert cells["cell_key"].is_unique
    assert cells["device_name"].nunique() == 1
    assert OTHER not in set(cells["device_name"])
    assert path.read_bytes() != own


@pytest.mark.slow
def test_after_kill_9_only_the_unfinished_shard_is_measured(bare: Project) -> None:
    gate = Gate(bare)
    gate.open("float")
    cells = bare.root / "results/gated/cells/gated"
    targets = [f"{SHARDS}/{dtype}/0000-of-0001.parquet" for dtype in ("float", "double")]
    with bare.start(*targets, "--prioritize", FLOAT, config=gate.config) as run:
        orphan = gate.wait_for("double")
        run.kill()
        # What measures goes with the run, and does not hold the device at the closed gate.
        wait_until(lambda: not Path(f"/proc/{orphan}").exists(), "the end of what measured")
    before = print_of(cells)
    assert set(before) == {"float/0000-of-0001.parquet"}
    gate.open()
    unlocked = bare.snakemake("--unlock", config=gate.config)
    assert unlocked.status == 0, unlocked.text
    # The default profile sets --rerun-incomplete.
    resumed = bare.snakemake(*targets, config=gate.config)
    assert resumed.status == 0, resumed.text
    assert resumed.jobs == {"measure": 1}
    assert "waiting until a device is free" not in resumed.text
    after = print_of(cells)
    assert set(after) == {*before, "double/0000-of-0001.parquet"}
    assert after.items() >= before.items()
    assert len(read_shard(bare.root / targets[1])[0]) == CELLS_PER_SHARD
