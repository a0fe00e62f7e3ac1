"""The workflow as a module of another one, and started from another folder."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, USER_OPENCL, WORKLOAD_TEMPLATE
from projects import Project, print_of
from workflow_fixtures import new_project

# As little as a configuration can say: all else is the default.
SMALL: dict[str, Any] = {
    "run": "x",
    "backend": "opencl",
    "only": ["mine"],
    "kernel_folders": ["own"],
    "kernels": {"mine": {}},
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 6},
}

# Its own rules have scripts and products too, which are none of ours.
IMPORTER = """
from pathlib import Path

rule all:
    input:
        "mine.json",

module gpushmoo:
    snakefile: {snakefile!r}
    config: {config}
    {prefix}

use rule * from gpushmoo {names}

rule mine:
    input:
        "{where}results/x/summary/verdict.txt",
    output:
        "mine.json",
    params:
        none=3,
    script:
        "mine.py"

onstart:
    gpushmoo.onstart()
    Path("started").touch()
"""


def importer(root: Path, prefix: str = "", names: str = "") -> Project:
    """A workflow in `root` that imports ours, and a kernel of its own."""
    kernel = root / "own" / "mine"
    kernel.mkdir(parents=True)
    (kernel / "kernel.cl").write_text(USER_OPENCL)
    (kernel / "workload.py").write_text(WORKLOAD_TEMPLATE.format(name="mine", variants=("good",)))
    text = IMPORTER.format(
        snakefile=str(ROOT / "Snakefile"),
        config=SMALL,
        prefix=prefix and f"prefix: {prefix!r}",
        where=prefix and f"{prefix}/",
        names=names,
    )
    (root / "Snakefile").write_text(text)
    (root / "mine.py").write_text("open(snakemake.output[0], 'w').write('no sum of ours')\n")
    return Project(root)


@pytest.mark.slow
def test_another_workflow_runs_ours_under_a_prefix_and_other_names(tmp_path: Path) -> None:
    project = importer(tmp_path, "sub/here", "as shmoo_*")
    outcome = project.snakemake(config=())
    assert outcome.status == 0, outcome.text
    assert outcome.jobs["shmoo_measure"] == outcome.jobs["mine"] == 1
    run = tmp_path / "sub/here/results/x"
    assert (run / "report.pdf").read_bytes().startswith(b"%PDF-")
    # What the start of a run leaves, beside the importer's own `onstart:`.
    assert (run / "plan.json").is_file()
    assert (tmp_path / "started").is_file()
    assert not (tmp_path / "results").exists()
    # What is damaged is made again, but the importer's files are its own business.
    (run / "report.json").write_text("{")
    again = project.snakemake("-n", config=())
    assert f"'{run.relative_to(tmp_path)}/report.json'" in again.text
    assert set(again.jobs) == {"shmoo_report", "shmoo_explorer", "shmoo_verdict", "mine", "all"}
    assert "mine.json'" not in again.text


def test_the_snakefile_is_started_from_elsewhere_or_without_a_prefix(tmp_path: Path) -> None:
    """Folders of kernels are relative to the file that names them, else to where one is."""
    config = tmp_path / "configs"
    project = importer(config, names="exclude all")
    jobs = project.plan(config=())
    assert jobs["measure"] == jobs["report"] == jobs["mine"] == 1
    (config / "small.yaml").write_text(yaml.safe_dump(SMALL))
    (tmp_path / "apart").mkdir()
    elsewhere = ("-s", str(ROOT / "Snakefile"), "--directory", "../apart")
    before = print_of(config)
    jobs = project.plan(*elsewhere, config=("small.yaml",))
    assert jobs["measure"] == jobs["report"] == 1
    outcome = project.snakemake("-n", *elsewhere, "--config", "kernel_folders=[own]", config=())
    assert outcome.status != 0
    own = tmp_path / "apart" / "own"
    assert f"gpushmoo: kernel_folders: '{own}' is not a folder." in outcome.text
    assert print_of(config) == before


def test_linting_asks_no_device(tmp_path: Path) -> None:
    asked = ("-s", str(ROOT / "Snakefile"), "--config", "backend=auto", "device=99")
    outcome = Project(tmp_path).snakemake("--lint", *asked, config=())
    assert outcome.status == 0, outcome.text
    assert not (tmp_path / "results").exists()
    # Asked for one that is not there, a dry run ends.
    assert Project(tmp_path).snakemake("-n", *asked, config=()).status != 0


def test_unlocking_asks_no_device_and_prints_nothing_of_the_run(tmp_path: Path) -> None:
    asked = ("-s", str(ROOT / "Snakefile"), "--config", "backend=auto", "device=99")
    outcome = Project(tmp_path).snakemake("--unlock", *asked, config=())
    assert outcome.status == 0, outcome.text
    assert "Unlocked working directory." in outcome.text
    assert "gpushmoo: " not in outcome.text


def test_snakemake_alone_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = 'raise ModuleNotFoundError("No module named \'pyarrow\'", name="pyarrow")\n'
    (tmp_path / "pyarrow.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = Project(tmp_path).snakemake("-n", "-s", str(ROOT / "Snakefile"), config=())
    assert outcome.status != 0
    assert "gpushmoo: the Python that runs Snakemake has no module 'pyarrow'" in outcome.text
    assert f"conda env create -f {ROOT}/environment.yml" in outcome.text


def test_a_fault_of_the_library_shows_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Snakemake does not import this module, but gpushmoo does.
    (tmp_path / "difflib.py").write_text('raise ValueError("broken")\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = Project(tmp_path).snakemake("-n", "-s", str(ROOT / "Snakefile"), config=())
    assert outcome.status != 0
    assert "gpushmoo: broken" not in outcome.text
    assert "ValueError in file" in outcome.text
    assert "common.smk" in outcome.text
    assert f'"{tmp_path / "difflib.py"}", line 1' in outcome.text
    assert "Traceback" not in outcome.text


def test_the_catalogs_snakefile_plans_what_the_root_plans(tmp_path: Path) -> None:
    bare = new_project(tmp_path / "project")
    planned = [bare.plan(), bare.plan("-s", "workflow/Snakefile")]
    assert planned[0] == planned[1]
    assert planned[0]["measure"] > 0
    assert (ROOT / ".snakemake-workflow-catalog.yml").exists()
