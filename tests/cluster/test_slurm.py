"""Sweeps on a real Slurm of several virtual nodes, and what strikes them there."""

import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from gated import DATASET, Gate
from gpushmoo.storage.dataset import read_cells
from projects import DEADLINE_S, Project, Run, wait_until
from slurm import Slurm, why_not
from workflow_fixtures import new_project

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
PROFILE = ("--profile", "profiles/slurm")
# The profile's 30 s are for jobs of minutes.
QUICK = ("--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1")
QUICK += ("--latency-wait", "10")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    # A host has one /etc/slurm.
    with FileLock("/tmp/gpushmoo-test-slurm.lock", timeout=DEADLINE_S):
        # Not in pytest's folder, which others may not enter: munged would refuse it.
        cluster = Slurm(Path(tempfile.mkdtemp(prefix="gpushmoo-slurm-")))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            shutil.rmtree(cluster.root)


def start(project: Project, gate: Gate) -> Run:
    """A run on Slurm in the background, of a gated project's dataset."""
    return project.start(DATASET, *PROFILE, *QUICK, config=gate.config, cores=None)


def jobs_of(run: Run, dtype: str) -> list[str]:
    """Slurm's numbers of the jobs that the shard of `dtype` was given, in their order."""
    said = rf"SLURM jobid (\d+) \(log: \S+/gated_{dtype}_0000-of-0001/"
    return re.findall(said, run.text)


def stop(run: Run) -> None:
    """As Ctrl-C does: the jobs are cancelled."""
    run.process.send_signal(signal.SIGINT)
    try:
        run.end(30)
    except subprocess.TimeoutExpired:
        run.kill()


def test_a_sweep_on_slurm_has_the_cells_of_a_local_run(slurm: Slurm, tmp_path: Path) -> None:
    project = new_project(tmp_path)
    local = ("tiny.yaml",)
    there = (*local, project.write_config("there.yaml", {"run": "there"}))
    outcome = project.snakemake("results/tiny/dataset", config=local)
    assert outcome.status == 0, outcome.text
    outcome = project.snakemake("results/there/dataset", *PROFILE, *QUICK, config=there, cores=None)
    assert outcome.status == 0, outcome.text
    # Compiling waits for the device that says what for: it is submitted as measuring is.
    submitted = re.findall(r"SLURM jobid \d+ \(log: \S+/slurm_logs/(\w+)/", outcome.text)
    assert sorted(submitted) == ["rule_build_kernel"] * 4 + ["rule_measure"] * 4, outcome.text

    here = read_cells(project.root / "results/tiny/dataset").set_index("cell_key")
    away = read_cells(project.root / "results/there/dataset").set_index("cell_key")
    assert len(here) == 4 * 9 + 4 * 12
    assert here.index.is_unique
    assert away.index.is_unique
    assert here["status"].to_dict() == away["status"].to_dict()


def test_jobs_outlive_the_kill_of_snakemake_and_count_once(slurm: Slurm, tmp_path: Path) -> None:
    project = new_project(tmp_path)
    gate = Gate(project, ["float"])
    killed = start(project, gate)
    gate.wait_for("float")
    killed.kill()
    unlocked = project.snakemake("--unlock", config=gate.config)
    assert unlocked.status == 0, unlocked.text
    run = start(project, gate)
    try:
        # Both jobs are in the middle of one shard; both finish it.
        wait_until(lambda: len(gate.workers("float")) == 2, "the second run's job")
        gate.open()
        assert run.end() == 0, run.text
    finally:
        stop(run)
    gate.cells()


def test_an_allocation_near_its_end_finishes_its_shard(slurm: Slurm, tmp_path: Path) -> None:
    project = new_project(tmp_path)
    gate = Gate(project)
    screen = project.root / "screen"
    target = [DATASET, "--profile", "profiles/slurm-allocation"]
    command = shlex.join(project.command(*target, config=gate.config, cores=None))
    batch = ["--nodes=1", "--gpus=1", "--cpus-per-task=2", "--output=screen", "--open-mode=append"]
    first = slurm.submit(*batch, "--wrap", f"exec {command}", where=project.root)
    dtype = gate.wait_for_any()
    # What --signal=B:TERM@600 does.
    slurm.cancel("--batch", "--signal=TERM", first)
    wait_until(lambda: "Will exit after finishing" in screen.read_text(), "the signal's effect")
    gate.open()
    wait_until(lambda: slurm.job(first)["JobState"] in ENDED, "the allocation's end")
    made = [p.parent.name for p in project.root.rglob("cells/gated/*/*.parquet")]
    assert made == [dtype]
    second = slurm.submit(*batch, "--wrap", f"exec {command}", where=project.root)
    wait_until(lambda: slurm.job(second)["JobState"] in ENDED, "the second allocation's end")
    assert slurm.job(second)["JobState"] == "COMPLETED", screen.read_text()
    assert len(gate.workers(dtype)) == 1
    gate.cells()


# One run of six shards, each on a node of its own and in its middle when something strikes it.

FAULTS = {
    "float": "scancel",
    "double": "power cut of the node",
    "float2": "node cut off, its job goes on",
    "float3": "node drained",
    "float4": "time limit",
    "unorm8x4": "node set down",
}


@dataclass(frozen=True)
class Storm:
    """What became of the run."""

    run: Run
    gate: Gate
    first: dict[str, dict[str, str]]
    second: dict[str, dict[str, str]]

    def said(self, dtype: str) -> str:
        """What Snakemake said of the first job's end."""
        number = self.first[dtype]["JobId"]
        found = re.search(rf"SLURM-job '{number}' failed(.*)", self.run.text)
        return found.group(1) if found else ""


@pytest.fixture(scope="module")
def storm(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storm]:
    project = new_project(tmp_path_factory.mktemp("storm"))
    gate = Gate(project, list(FAULTS))
    run = start(project, gate)
    try:
        for dtype in FAULTS:
            gate.wait_for(dtype)
        first = {dtype: slurm.job(jobs_of(run, dtype)[0]) for dtype in FAULTS}
        node = {dtype: told["NodeList"] for dtype, told in first.items()}
        # A minute from its start is the shortest time limit there is.
        slurm.control("update", f"jobid={first['float4']['JobId']}", "timelimit=1")
        slurm.cancel(first["float"]["JobId"])
        slurm.lose_node(node["double"])
        slurm.lose_daemon(node["float2"])
        slurm.control("update", f"nodename={node['float3']}", "state=drain", "reason=test")
        slurm.control("update", f"nodename={node['unorm8x4']}", "state=down", "reason=test")
        wait_until(lambda: all(len(jobs_of(run, d)) == 2 for d in STRUCK), "the second jobs")
        second = {dtype: slurm.job(jobs_of(run, dtype)[1]) for dtype in STRUCK}
        for dtype in STRUCK:
            wait_until(lambda d=dtype: len(gate.workers(d)) == 2, f"{dtype} measured again")
        slurm.stop_controller()
        slurm.start_controller()
        gate.open()
        assert run.end() == 0, run.text
        yield Storm(run, gate, first, second)
    finally:
        stop(run)


# All but the drained node's.
STRUCK = [dtype for dtype in FAULTS if dtype != "float3"]


def test_a_job_gets_what_the_profile_asks_for(storm: Storm) -> None:
    for told in storm.first.values():
        assert told["TresPerJob"] == "gres:gpu:1"
        assert (told["NumNodes"], told["CPUs/Task"], told["MinMemoryNode"]) == ("1", "8", "16000M")
        assert (told["TimeLimit"], told["Requeue"]) == ("01:00:00", "0")


@pytest.mark.parametrize(
    ("dtype", "state"),
    [
        pytest.param("float", "CANCELLED", id="scancel"),
        pytest.param("double", "NODE_FAIL", id="power cut of the node"),
        pytest.param("float2", "NODE_FAIL", id="node cut off"),
        pytest.param("float4", "TIMEOUT", id="time limit"),
        pytest.param("unorm8x4", "NODE_FAIL", id="node set down"),
    ],
)
def test_a_lost_job_is_named_and_measured_again(storm: Storm, dtype: str, state: str) -> None:
    assert f"SLURM status is: '{state}'" in storm.said(dtype)
    assert len(jobs_of(storm.run, dtype)) == 2


def test_a_drained_node_finishes_its_shard(storm: Storm) -> None:
    assert len(jobs_of(storm.run, "float3")) == 1
    assert len(storm.gate.workers("float3")) == 1


def test_a_second_job_has_more_time(storm: Storm) -> None:
    assert storm.second["float4"]["TimeLimit"] == "02:00:00"


def test_after_all_that_every_cell_is_there_once(storm: Storm) -> None:
    # The job on the node that was cut off was at work together with the second one, and wrote, too.
    storm.gate.cells()
