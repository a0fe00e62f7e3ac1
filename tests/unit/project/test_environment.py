"""pyproject.toml, conda's environments and the lock files tell one story."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import gpushmoo
import pytest
import yaml
from conftest import ROOT, environment
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
    "matplotlib": "matplotlib-base",
    "ml-dtypes": "ml_dtypes",
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


def wanted(extras: tuple[str, ...], of: list[str] = RUN) -> tuple[dict[str, str], dict[str, str]]:
    """What pyproject.toml with `extras` asks of conda and of pip: packages and bounds."""
    conda, pip = {"python": PROJECT["requires-python"], "pip": ""}, {}
    for line in [*of, *(line for extra in extras for line in EXTRAS[extra])]:
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


def test_environments_and_locks_ask_for_what_the_project_does() -> None:
    assert offered("environment.yml") == wanted(())
    assert offered("environment-cuda.yml") == wanted(("cuda12", "cuda13"))
    recipe = yaml.safe_load((ROOT / "requirements/recipe.yaml").read_text())
    assert recipe["context"]["version"] == gpushmoo.__version__
    needs = {r.name: bound(r) for r in map(Requirement, recipe["requirements"]["run"])}
    assert needs | {"pip": ""} == wanted((), PROJECT["dependencies"])[0]
    run, s3 = (locked((ROOT / f"requirements/{n}.lock").read_text()) for n in ("run", "s3"))
    changed = [name for name, (version, _) in run.items() if s3[name][0] != version]
    assert changed == ["python-dateutil"]
    assert "snakemake-storage-plugin-s3" in s3


def test_the_command_stands_beside_its_interpreter(tmp_path: Path) -> None:
    text = (ROOT / "requirements/bootstrap.sh").read_text()
    [script] = re.findall(r"^cat >\.venv/bin/gpushmoo <<'END'\n(.*?)^END$", text, re.M | re.S)
    place = tmp_path / "a b" / "bin"
    place.mkdir(parents=True)
    (place / "python").symlink_to(sys.executable)
    (place / "gpushmoo").write_text(script)
    (place / "gpushmoo").chmod(0o755)
    (tmp_path / "link").symlink_to(place / "gpushmoo")
    done = subprocess.run([tmp_path / "link", "--version"], env=environment(), capture_output=True)
    assert done.stdout.decode().strip() == gpushmoo.__version__, done.stderr


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


def test_the_command_that_the_notebook_names_brings_a_kernel_and_all_that_it_imports() -> None:
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    assert "after `make notebook`" in text
    [needs] = re.findall(r"^notebook: \.venv/(\w+)\.stamp$", (ROOT / "Makefile").read_text(), re.M)
    locked = (ROOT / f"requirements/{needs}.lock").read_text()
    used = {"ipykernel", *re.findall(r"^(?:import|from) (\w+)", text, re.M)} - {"gpushmoo"}
    assert len(used) > 2
    assert not {name for name in used if f"\n{name}==" not in locked}


def test_the_notebooks_first_command_reads_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is typed, in the folder that the text names."""
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    monkeypatch.chdir(ROOT / "docs")
    names: dict[str, Any] = {}
    exec("".join(first["source"]), names)
    assert set(names["cells"]["status"]) == {"ok", "invalid", "too_many_threads"}
