"""Each use of Snakemake's inner objects, with the installed Snakemake."""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, environment
from gpushmoo.core.paths import CHAPTERS, PACKAGE
from gpushmoo.planning.inside_snakemake import Inside
from snakemake.api import Workflow
from snakemake.logging import DefaultFilter
from snakemake.scheduling.job_scheduler import JobRateLimiter
from snakemake.settings.types import (
    DeploymentMethod,
    DeploymentSettings,
    MaxJobsPerTimespan,
    OutputSettings,
    Quietness,
    ResourceSettings,
)
from snakemake_interface_executor_plugins.settings import ExecMode
from snakemake_interface_logger_plugins.common import LogEvent

# Reads the file `faulty`, which names products to be made again.
RULES = """
import json
from pathlib import Path
from gpushmoo.planning.inside_snakemake import Inside

inside = Inside(workflow)
results = inside.take_prefix("results/")
asked = []

def faulty(script, wildcards, paths):
    asked.append([Path(script).name, sorted(wildcards), paths])
    return set(Path("faulty").read_text().split()) & set(paths)

def write(name, value):
    Path(name).write_text(json.dumps(value))

parts = inside.configuration
write("read.json", {
    "results": results,
    "configuration": parts and [[str(path) for path in parts[0]], parts[1]],
    "is_users_process": inside.is_users_process,
    "on_cluster": inside.on_cluster,
    "in_environments": inside.in_environments,
    "quiet": inside.quiet_about_rules(),
})
inside.limit("gpu", 2)
inside.filter_terminal(lambda record: "Select jobs" not in str(record.msg))

rule ours:
    input:
        expand(results + "{name}.txt", name=["a", "b"]),
    output:
        results + "all.txt",
    script:
        "note.py"

rule part:
    output:
        results + "{name}.txt",
    wildcard_constraints:
        name="[ab]",
    resources:
        gpu=lambda wildcards: int(wildcards.name == "b"),
    script:
        "note.py"

inside.remake(faulty)

onstart:
    jobs = inside.planned_jobs()
    inside.start_jobs_when_ready()
    inside.serve_scripts({job.rule for job in jobs})
    write("started.json", {
        "jobs": sorted([j.rule, Path(j.script).name, j.gpus, *j.outputs, dict(j.wildcards)]
                       for j in jobs),
        "limit": str(workflow.scheduler.job_rate_limiter),
        "asked": asked,
    })
"""
INCLUDING = """
include: "rules.smk"

inside.set_default_target("ours")
"""
IMPORTING = """
rule first:
    input:
        "sub/results/all.txt",
    output:
        "first.txt",
    script:
        "note.py"

module own:
    snakefile: "rules.smk"
    prefix: "sub"
    config: {"key": 1}

use rule * from own as own_*

onstart:
    own.onstart()
"""
# Whether the script runs in a process of the library.
SCRIPT = """
import sys
with open(snakemake.output[0], "w") as file:
    file.write(str("gpushmoo.devices.building" in sys.modules))
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Snakemake in a folder with these rules; return what it prints."""
    (tmp_path / "rules.smk").write_text(RULES)
    (tmp_path / "note.py").write_text(SCRIPT)
    (tmp_path / "faulty").touch()
    (tmp_path / "Snakefile").write_text(INCLUDING)

    def snakemake(*words: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "snakemake", "--cores", "1", *words]
        how: dict[str, Any] = {"capture_output": True, "text": True, "env": environment()}
        done = subprocess.run(command, cwd=tmp_path, check=False, **how)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return snakemake


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_a_run_of_an_included_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("key: 1\n")
    configured = ("--configfile", "mine.yaml", "--config", "other=2")
    said = run("--quiet", "rules", *configured)
    assert read(tmp_path, "read.json") == {
        "results": "results/",
        "configuration": [[str(tmp_path / "mine.yaml")], {"other": 2}],
        "is_users_process": True,
        "on_cluster": False,
        "in_environments": False,
        "quiet": True,
    }
    started = read(tmp_path, "started.json")
    # The last one is not the default target.
    assert started["jobs"] == [
        ["ours", "note.py", 0, "results/all.txt", {}],
        ["part", "note.py", 0, "results/a.txt", {"name": "a"}],
        ["part", "note.py", 1, "results/b.txt", {"name": "b"}],
    ]
    assert started["limit"] == "None"
    assert ["note.py", ["name"], ["results/a.txt"]] in started["asked"]
    # What claims a GPU has its own Python.
    by_library = {path.stem: path.read_text() for path in (tmp_path / "results").iterdir()}
    assert by_library == {"all": "True", "a": "True", "b": "False"}
    assert re.search(r"Provided resources: gpu.*2", said)
    assert "Select jobs" not in said
    [log] = (tmp_path / ".snakemake/log").iterdir()
    assert "Select jobs" in log.read_text()
    # A fault has a product and what follows made again; the file stays in a dry run.
    assert "Nothing to be done" in run("-n", *configured)
    (tmp_path / "faulty").write_text("results/b.txt")
    planned = run("-n", "--resources", "gpu=1", *configured)
    assert set(re.findall(r"^rule (\w+):", planned, re.MULTILINE)) == {"part", "ours"}
    assert "results/a.txt" not in re.findall(r"output: (\S+)", planned)
    assert (tmp_path / "results/b.txt").exists()


def test_limits_of_the_user_stay(run: Run, tmp_path: Path) -> None:
    said = run("--resources", "gpu=1", "--max-jobs-per-timespan", "7/1s", "results/a.txt")
    assert re.search(r"Provided resources: gpu.*1", said)
    assert read(tmp_path, "started.json")["limit"] != "None"
    assert not read(tmp_path, "read.json")["quiet"]


def test_an_imported_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(IMPORTING)
    run()
    seen = read(tmp_path, "read.json")
    assert (seen["results"], seen["configuration"]) == ("sub/results/", None)
    started = read(tmp_path, "started.json")
    names = [(job[0], job[3]) for job in started["jobs"]]
    parts = [("own_part", f"sub/results/{name}.txt") for name in "ab"]
    assert names == [("own_ours", "sub/results/all.txt"), *parts]
    assert (tmp_path / "first.txt").read_text() == "False"
    assert (tmp_path / "sub/results/all.txt").read_text() == "True"
    (tmp_path / "faulty").write_text("first.txt")
    assert "Nothing to be done" in run("-n")


@pytest.mark.parametrize("nodes", [None, 2])
def test_only_a_cluster_has_nodes(nodes: int | None) -> None:
    settings = ResourceSettings(cores=1, nodes=nodes)
    workflow = SimpleNamespace(modifier=None, resource_settings=settings)
    assert Inside(workflow).on_cluster is (nodes is not None)
    # There nothing but Snakemake says which jobs the scheduler ended.
    workflow.output_settings = OutputSettings(quiet={Quietness.RULES})
    assert Inside(workflow).quiet_about_rules() is (nodes is None)
    assert DefaultFilter(workflow.output_settings.quiet, *[False] * 4).filter(
        logging.makeLogRecord({"event": LogEvent.JOB_ERROR})
    ) is (nodes is not None)


@pytest.mark.parametrize(
    ("jobs", "per_s", "nodes", "stays"),
    [(100, 1, None, False), (100, 1, 8, True), (20, 1, None, True), (100, 60, None, True)],
)
def test_snakemakes_own_limit_on_starts_is_lifted_on_this_host_alone(
    jobs: int, per_s: int, nodes: int | None, stays: bool
) -> None:
    scheduler = SimpleNamespace(
        job_rate_limiter=JobRateLimiter(MaxJobsPerTimespan(jobs, f"{per_s}s"))
    )
    settings = ResourceSettings(cores=1, nodes=nodes)
    workflow = SimpleNamespace(modifier=None, scheduler=scheduler, resource_settings=settings)
    Inside(workflow).start_jobs_when_ready()
    assert (scheduler.job_rate_limiter is not None) == stays


def test_environments_and_processes_of_jobs_are_known() -> None:
    conda = DeploymentSettings(deployment_method={DeploymentMethod.CONDA})
    for settings, own in ((conda, True), (DeploymentSettings(), False)):
        workflow = SimpleNamespace(modifier=None, deployment_settings=settings)
        assert Inside(workflow).in_environments is own
    is_main = Workflow.is_main_process.fget
    remote = SimpleNamespace(exec_mode=ExecMode.REMOTE)
    assert is_main(SimpleNamespace(exec_mode=ExecMode.DEFAULT))
    assert not is_main(remote)


def test_there_are_few_uses_and_they_are_in_one_file() -> None:
    uses = [name for name in vars(Inside) if not name.startswith("_")]
    assert len(uses) <= 15
    for name in uses:
        use = vars(Inside)[name]
        assert re.search("public", use.__doc__, re.IGNORECASE), f"{name}: why no public way?"
    # Snakemake documents `basedir`; the folder of an included file is the same for included ones.
    inner = re.compile(
        r"\bworkflow\.(?!current_basedir|basedir|source_path)\w+|snakemake\.(script|workflow|dag)\b"
    )
    rules = [ROOT / "Snakefile", *ROOT.glob("workflow/**/*.smk"), ROOT / "workflow/Snakefile"]
    files = {*rules, *CHAPTERS.rglob("*.smk"), *PACKAGE.rglob("*.py")}
    for path in files - {PACKAGE / "planning/inside_snakemake.py"}:
        code = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
        assert not inner.findall(code), path
