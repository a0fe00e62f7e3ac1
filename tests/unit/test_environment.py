"""pyproject.toml, conda's environments and the lock files tell one story."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = dict(PROJECT["optional-dependencies"])
# What a clone runs with: all but what single machines add.
RUN: list[str] = [*PROJECT["dependencies"], *EXTRAS.pop("workflow")]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))

# Names in conda's channels that differ from those on PyPI.
CONDA_NAMES = {
    "duckdb": "python-duckdb",
    "matplotlib": "matplotlib-base",
    "seaborn": "seaborn-base",
    "snakemake": "snakemake-minimal",
    "cupy-cuda12x": "cupy",
    "cupy-cuda13x": "cupy",
}
# Not in conda's channels.
BY_PIP = {"typst"}
# conda's cupy brings them, or takes CUDA's own package of the version that fits its compiler.
WITH_CUPY = {"cuda-bindings", "nvidia-cuda-nvdisasm"}
# Packages that an extra stands for.
CONDA_EXTRAS = {"pocl": {"pocl"}, "ctk": set()}


def bound(requirement: Requirement) -> str:
    return str(requirement.specifier)


def wanted(extras: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """What pyproject.toml with `extras` asks of conda and of pip: packages and bounds."""
    conda, pip = {"python": PROJECT["requires-python"], "pip": ""}, {}
    for line in [*RUN, *(line for extra in extras for line in EXTRAS[extra])]:
        r = Requirement(line)
        if r.name in WITH_CUPY:
            continue
        if r.name in BY_PIP:
            pip[r.name] = bound(r)
            continue
        conda[CONDA_NAMES.get(r.name, r.name)] = bound(r)
        for extra in r.extras:
            conda.update(dict.fromkeys(CONDA_EXTRAS[extra], ""))
    return conda, pip


def offered(file: str) -> tuple[dict[str, str], dict[str, str]]:
    """Packages and bounds in an environment of conda, conda's and pip's."""
    listed: list[Any] = yaml.safe_load((ROOT / file).read_text())["dependencies"]
    conda = [Requirement(d) for d in listed if isinstance(d, str)]
    pip = [Requirement(d) for part in listed if isinstance(part, dict) for d in part["pip"]]
    return {r.name: bound(r) for r in conda}, {r.name: bound(r) for r in pip}


def test_environments_and_project_ask_for_the_same_packages_and_bounds() -> None:
    assert offered("environment.yml") == wanted(())
    assert offered("environment-cuda.yml") == wanted(("cuda12", "cuda13"))


def locked(text: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package in a lock file."""
    found: dict[str, tuple[str, int]] = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        head, *rest = entry.split("\\\n")
        r = Requirement(head.strip())
        assert re.fullmatch(r"==[^=*]+", bound(r)), f"{head} names no exact version"
        assert all(re.fullmatch(r"\s*--hash=sha256:[0-9a-f]{64}\s*", line) for line in rest)
        found[canonicalize_name(r.name)] = (bound(r)[2:], len(rest))
    return found


def test_there_is_a_lock_for_the_run_and_for_every_extra() -> None:
    assert {p.stem for p in LOCKS} == {"run", "uv", "s3", *EXTRAS}


def test_the_lock_for_s3_is_that_of_the_run_but_for_one_package() -> None:
    run, s3 = (locked((ROOT / f"requirements/{n}.lock").read_text()) for n in ("run", "s3"))
    changed = [name for name, (version, _) in run.items() if s3[name][0] != version]
    assert changed == ["python-dateutil"]
    assert "snakemake-storage-plugin-s3" in s3


@pytest.mark.parametrize("path", LOCKS, ids=lambda p: p.stem)
def test_lock_holds_versions_and_hashes_and_no_address(path: Any) -> None:
    text = path.read_text()
    assert "http" not in text
    assert "://" not in text
    assert [name for name, (_, hashes) in locked(text).items() if not hashes] == []


@pytest.mark.parametrize("name", ["run", *EXTRAS])
def test_lock_meets_every_bound_of_the_project(name: str) -> None:
    versions = locked((ROOT / f"requirements/{name}.lock").read_text())
    for line in [*RUN, *EXTRAS.get(name, [])]:
        r = Requirement(line)
        version, _ = versions[canonicalize_name(r.name)]
        assert Version(version) in r.specifier, f"{r.name} {version} is outside of {r.specifier}"
    if name == "run":
        assert "pocl-binary-distribution" in versions


@pytest.mark.parametrize("name", EXTRAS)
def test_extra_leaves_the_versions_of_the_run_alone(name: str) -> None:
    run = locked((ROOT / "requirements/run.lock").read_text())
    extra = locked((ROOT / f"requirements/{name}.lock").read_text())
    assert {n: extra[n][0] for n in run} == {n: v for n, (v, _) in run.items()}


def test_the_image_is_built_from_files_that_are_there() -> None:
    text = (ROOT / "docker/Dockerfile").read_text()
    assert re.findall(r"^FROM (.+)", text, re.MULTILINE) == ["python:3.12-slim"]
    copied = re.findall(r"^COPY (\S+)", text, re.MULTILINE)
    named = [*copied, *re.findall(r"^RUN sh (\S+)", text, re.MULTILINE)]
    assert [name for name in named if not (ROOT / name).exists()] == []
    packages = re.search(r"^# (\w+), (\w+) or (\w+): the lock file", text, re.MULTILINE)
    assert {path.stem for path in LOCKS} >= set(packages.groups())
    assert "://" not in text


# Two bootstraps of one clone

FAKE_UV = """#!/bin/sh
echo "$1" >> calls
[ "$1" = pip ] && exit
mkdir -p .venv/bin site
printf '#!/bin/sh\\necho site\\n' > .venv/bin/python
chmod +x .venv/bin/python
"""


def test_a_bootstrap_waits_for_another_one(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    shutil.copy(ROOT / "requirements/bootstrap.sh", tmp_path / "requirements")
    for name in ("uv", "cc"):
        (tmp_path / name).write_text(FAKE_UV, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    uv = {"UV": str(tmp_path / "uv"), "PYTHON": sys.executable, "GPUSHMOO_NO_INTEL": "1"}
    with (tmp_path / ".bootstrap.lock").open("w") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        process = subprocess.Popen(
            ["sh", "requirements/bootstrap.sh", "run"],
            cwd=tmp_path,
            env={**os.environ, **uv, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert process.stderr is not None
        said = "bootstrap: another one is making .venv; waiting for it.\n"
        assert process.stderr.readline() == said
        assert not (tmp_path / "calls").exists()
    assert process.communicate(timeout=600)[1] == ""
    assert process.returncode == 0
    assert (tmp_path / "calls").read_text().split() == ["venv", "pip"]
    assert (tmp_path / ".venv/run.stamp").exists()
    # The environment's Python imports the library of this clone.
    lent = [f"{tmp_path}/workflow/scripts"]
    assert (tmp_path / "site/gpushmoo.pth").read_text().splitlines() == lent
