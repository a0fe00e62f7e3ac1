"""Profiles of clusters: planned where there is neither a GPU nor a scheduler."""

import re
from typing import Any

import pytest
from projects import Outcome, Project
from workflow_fixtures import new_project


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has measured nothing."""
    return new_project(tmp_path_factory.mktemp("profiles") / "project")


def dry_run(project: Project, profile: str, **config: Any) -> Outcome:
    names = ("tiny.yaml", project.write_config("more.yaml", config))
    return project.snakemake(
        "cells",
        "-n",
        "--quiet",
        "progress",
        "--profile",
        f"profiles/{profile}",
        config=names,
        cores=None,
    )


def resources_of(outcome: Outcome, rule: str) -> list[dict[str, str]]:
    """The resources that a dry run tells for each job of a rule."""
    told = re.findall(
        rf"^(?:local)?rule {rule}:\n(?:    .*\n)*?    resources: (.*)$", outcome.text, re.MULTILINE
    )
    return [dict(x.split("=", 1) for x in line.split(", ")) for line in told]


# CuPy is not installed and there is no driver: whoever asked a device would end here.
@pytest.mark.parametrize(
    ("profile", "backend", "own"),
    [
        ("slurm", "cuda", {"nodes": "1", "gpu": "1"}),
        # Inside an allocation jobs are planned as on any host.
        ("slurm-allocation", "opencl", {}),
    ],
)
def test_a_named_backend_is_planned_on_a_host_without_a_device(
    bare: Project, profile: str, backend: str, own: dict[str, str]
) -> None:
    outcome = dry_run(bare, profile, backend=backend, studies=["counters"] if own else [])
    assert outcome.status == 0, outcome.text
    assert len(resources_of(outcome, "measure")) == 4
    # A study has a GPU of its own.
    for job in resources_of(outcome, "measure") + resources_of(outcome, "counters"):
        assert job.items() >= own.items()
        assert not own or min(int(job["mem_mb"]), int(job["runtime"])) > 0


def test_what_is_measured_elsewhere_must_be_named(bare: Project) -> None:
    outcome = dry_run(bare, "slurm", backend="auto")
    assert outcome.status != 0
    assert "gpushmoo: backend: auto asks the host on which Snakemake starts" in outcome.text
    assert "--config backend=cuda" in outcome.text
    assert "Traceback" not in outcome.text
