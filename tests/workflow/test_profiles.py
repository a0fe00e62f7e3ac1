"""Profiles of clusters: planned where there is neither a GPU nor a scheduler."""

from __future__ import annotations

import functools
import re

import pytest
from projects import Outcome, Project
from workflow_fixtures import new_project

CLUSTERS = ("slurm", "lsf")
MEASURED = "results/tiny/dataset"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has measured nothing."""
    return new_project(tmp_path_factory.mktemp("profiles") / "project")


@functools.cache
def dry_run(project: Project, profile: str, backend: str) -> Outcome:
    """Which changes nothing, so that one serves all who ask about it."""
    config = ("tiny.yaml", project.write_config(f"{backend}.yaml", {"backend": backend}))
    args = (MEASURED, "-n", "--quiet", "progress", "--profile", f"profiles/{profile}")
    return project.snakemake(*args, config=config, cores=None)


def resources_of(outcome: Outcome, rule: str) -> list[dict[str, str]]:
    """The resources that a dry run tells for each job of a rule."""
    told = re.findall(
        rf"^(?:local)?rule {rule}:\n(?:    .*\n)*?    resources: (.*)$", outcome.text, re.MULTILINE
    )
    return [dict(x.split("=", 1) for x in line.split(", ")) for line in told]


@pytest.mark.parametrize("profile", CLUSTERS)
def test_a_named_backend_is_planned_on_a_host_without_a_device(bare: Project, profile: str) -> None:
    # CuPy is not installed and there is no driver: whoever asked a device would end here.
    outcome = dry_run(bare, profile, "cuda")
    assert outcome.status == 0, outcome.text
    jobs = resources_of(outcome, "measure")
    assert len(jobs) == 4
    for job in jobs:
        assert job["gpu"] == "1"
        assert int(job["mem_mb"]) > 0
        assert int(job["runtime"]) > 0


def test_on_slurm_a_job_is_of_one_node(bare: Project) -> None:
    assert {j["nodes"] for j in resources_of(dry_run(bare, "slurm", "cuda"), "measure")} == {"1"}


def test_on_lsf_bsub_is_asked_for_the_gpu(bare: Project) -> None:
    jobs = resources_of(dry_run(bare, "lsf", "cuda"), "measure")
    assert {j["lsf_extra"] for j in jobs} == {"-gpu num=1:j_exclusive=yes"}


def test_what_is_measured_elsewhere_must_be_named(bare: Project) -> None:
    outcome = dry_run(bare, CLUSTERS[0], "auto")
    assert outcome.status != 0
    assert "gpushmoo: backend: auto asks the host on which Snakemake starts" in outcome.text
    assert "--config backend=cuda" in outcome.text
    assert "Traceback" not in outcome.text


def test_inside_an_allocation_jobs_are_planned_as_on_any_host(bare: Project) -> None:
    outcome = dry_run(bare, "slurm-allocation", "opencl")
    assert outcome.status == 0, outcome.text
    assert len(resources_of(outcome, "measure")) == 4


def test_a_study_that_is_asked_for_is_planned_with_a_gpu_of_its_own(bare: Project) -> None:
    asked = {"backend": "cuda", "studies": ["counters"]}
    config = ("tiny.yaml", bare.write_config("studies.yaml", asked))
    args = ("cells", "-n", "--quiet", "progress", "--profile", "profiles/lsf")
    [job] = resources_of(bare.snakemake(*args, config=config, cores=None), "counters")
    assert job["lsf_extra"] == "-gpu num=1:j_exclusive=yes"
    assert job["gpu"] == "1"
