"""The library as other programs install it: no clone around it, no Snakemake beside it."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import gpushmoo
import pytest
import yaml
from conftest import ROOT, python
from gpushmoo.core.paths import PACKAGE

ALONE = """
import sys
for name in ("snakemake", "typst", "jinja2", "numba", "threadpoolctl"):
    sys.modules[name] = None  # whoever imports it is refused
"""
PROGRAM = f"""{ALONE}
import gpushmoo
loaded = {{n for n in sys.modules if n.startswith("gpushmoo.")}}
print(gpushmoo.__file__, sorted(loaded))
print(*[name for name in gpushmoo.__all__ if getattr(gpushmoo, name) is not None])
"""
COMMANDS = f"""{ALONE}
import runpy
sys.argv = ["gpushmoo", *sys.argv[1:]]
runpy.run_module("gpushmoo", run_name="__main__")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    ZipFile(built).extractall(folder / "site")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"gpushmoo-{gpushmoo.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 1_000_000
    listed = subprocess.run(["git", "ls-files"], cwd=PACKAGE, capture_output=True, check=True)
    names = listed.stdout.decode().splitlines()
    tracked = {f"gpushmoo/{name}" for name in names if (PACKAGE / name).is_file()}
    assert {n for n in ZipFile(wheel).namelist() if ".dist-info/" not in n} == tracked
    assert "gpushmoo/py.typed" in tracked


def test_it_is_imported_from_any_folder_without_what_the_workflow_needs(wheel: Path) -> None:
    installed = wheel.parent / "site"
    done = python(PROGRAM, cwd=installed, PYTHONPATH=str(installed))
    assert done.stdout.splitlines() == [
        f"{installed}/gpushmoo/__init__.py []",
        " ".join(gpushmoo.__all__),
    ], done.stderr


def test_it_writes_a_kernel_and_sweeps_it(wheel: Path, tmp_path: Path) -> None:
    def said(*args: str) -> str:
        done = python(COMMANDS, *args, cwd=tmp_path, PYTHONPATH=str(wheel.parent / "site"))
        assert done.returncode == 0, done.stderr
        return done.stdout

    said("new", "mine")
    few = "--axes block_x=64 PER_THREAD=1,2 --dtypes float --sizes 256 --backend opencl"
    assert "Sweep of mine: 2 ok." in said("sweep", "kernels/mine", *few.split())
    done = python(COMMANDS, "run", cwd=tmp_path, PYTHONPATH=str(wheel.parent / "site"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "A run needs a clone of gpushmoo" in done.stderr


# One sentence says all of these.
PLAIN = {"ceil_div", "tile_elements"}
FUNCTIONS = sorted(
    {n for n in gpushmoo.__all__ if inspect.isfunction(getattr(gpushmoo, n))} - PLAIN
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_of_a_function_names_all_its_arguments(name: str) -> None:
    function = getattr(gpushmoo, name)
    text = inspect.getdoc(function)
    assert text is not None
    parts = re.split(r"^(Parameters|Returns|Raises)\n-+\n", text, flags=re.M)
    assert parts[1::2] == ["Parameters", "Returns", "Raises"]
    heads = re.findall(r"^(\S[^:\n]*)", parts[2], re.M)
    told = [word.strip(" *") for head in heads for word in head.split(",")]
    assert sorted(told) == sorted(inspect.signature(function).parameters)


def test_all_places_name_one_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == gpushmoo.__version__
    headings = re.findall(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())
    assert headings[:2] == ["Unreleased", f"{cited['version']} - {cited['date-released']}"]
