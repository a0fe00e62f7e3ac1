"""Kernels of two checkouts, wheels or revisions, measured alternately from the shell."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from conftest import ROOT, python
from gpushmoo import ConfigError, ab_checkouts
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.interactive.checkouts import differ
from gpushmoo.interactive.shell import build_parser, main
from test_ab import WORKLOAD

# Four units of work an element; SLOW takes forty.
KERNEL = """
__kernel void copy(__global float *dst, __global const float *src, const ulong n)
{
    const ulong i = get_global_id(0);
    float value = i < n ? src[i] : 0.0f;
    for (int k = 0; k < WORK; ++k) value = sqrt(value * value) * (src[i] < 0.0f ? -1.0f : 1.0f);
    if (i < n) dst[i] = src[i] + 0.0f * value;
}
"""
FAST, SLOW = "4", "200"


def write(place: Path, name: str, work: str = FAST, body: str = KERNEL) -> Path:
    folder = place / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cl").write_text(body.replace("WORK", work))
    text = WORKLOAD.replace('name = "copies"', f'name = "{name}"').replace('"FAULT": "0"', "")
    (folder / "workload.py").write_text(
        text.replace('variants = ("one", "two", "wrong")', 'variants = ("one",)')
    )
    return folder


@pytest.fixture(scope="module")
def words(opencl_choice: DeviceChoice, opencl_cache: Path) -> Iterator[list[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(opencl_cache))
        yield ["--backend", "opencl", "--opencl-runtime", opencl_choice.runtime, "--rounds", "4"]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """BASE and HEAD: one kernel the same, one slower, one new."""
    base, head = tmp_path / "base", tmp_path / "head"
    for place in (base, head):
        write(place, "same")
        write(place, "slow", SLOW if place == head else FAST)
    write(head, "fresh")
    return base, head


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_slower_kernel_is_a_regression_and_one_that_did_not_change_is_not_measured(
    sides: tuple[Path, Path], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary, asked = tmp_path / "summary.md", ["ab", *map(str, sides), *words]
    summary.write_text("Before.\n")
    assert main([*asked, "--fail-on-regression", "--markdown", str(summary)]) == 1
    said = capsys.readouterr().out
    assert summary.read_text() == f"Before.\n{said}"
    assert "**1 of 1 measured kernel significantly slower by more than 1 %: kernels/slow.**" in said
    assert "| kernels/slow, float, one, 64 × 64, warm | 2 | +" in said
    assert " | **slower** |" in said
    assert "* Unchanged: kernels/same\n" in said
    assert f"* Only in {sides[1]}: kernels/fresh\n" in said
    assert main([*asked, "--kernels", "kernels/same", "--fail-on-regression", "--json"]) == 0
    told = rows(capsys)
    assert (told["rows"], told["unchanged"], told["alone"]) == ([], ["kernels/same"], [[], []])


def test_the_same_thing_is_measured_where_that_is_asked_for(
    sides: tuple[Path, Path], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["ab", str(sides[0]), str(sides[0]), *words, "--unchanged", "--threshold", "0.9"]
    assert main([*asked, "--pairs", "1", "--fail-on-regression", "--json"]) == 0
    told = rows(capsys)
    assert [(row["kernel"], row["status"]) for row in told["rows"]] == [
        ("kernels/same", "ok"),
        ("kernels/slow", "ok"),
    ]
    assert (told["slower"], told["unchanged"], len(told["groups"])) == ([], [], 2)


def test_a_broken_kernel_costs_itself_and_the_status_says_that_it_was_not_measured(
    sides: tuple[Path, Path], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    base, head = sides
    write(head, "same", body="this does not compile")
    (write(head, "slow", "5") / "workload.py").write_text("WORKLOAD = 1")
    for place in sides:
        write(place, "third", SLOW if place == base else FAST)
    asked = ["ab", str(base), str(head), *words, "--fail-on-regression", "--json"]
    assert main(asked) == 3
    told = rows(capsys)
    assert told["failed"]["kernels/same"].startswith("build_failed: B: ")
    assert told["failed"]["kernels/slow"].startswith(
        "Kernel 'slow': workload.py defines WORKLOAD as 1"
    )
    assert {row["status"] for row in told["rows"] if row["kernel"] == "kernels/third"} == {"ok"}
    (base / "lib").mkdir()
    (base / "lib/__init__.py").touch()
    file = write(base, "slow") / "workload.py"
    file.write_text(f"import lib.launches\n{file.read_text()}")
    assert main([*asked, "--kernels", "slow"]) == 3
    sentence = "workload.py imports 'lib', which is not beside it."
    assert rows(capsys)["failed"] == {"kernels/slow": sentence}
    write(base, "slow")
    write(head, "slow", body=KERNEL.replace("src[i] + ", "1.0f + src[i] + "))
    assert main([*asked, "--kernels", "slow"]) == 1
    assert rows(capsys)["slower"] == []


def test_revisions_and_what_is_not_committed(
    sides: tuple[Path, Path],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, _ = sides
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
    for command in (["init", "-q", "-b", "trunk"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=place, check=True)
    monkeypatch.chdir(place / "kernels")
    assert main(["ab", "trunk", *words]) == 0
    assert "* Unchanged: kernels/same, kernels/slow\n" in capsys.readouterr().out
    write(place, "slow", SLOW)
    assert main(["ab", "trunk", *words, "--fail-on-regression"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("## trunk (")
    assert ") → the working tree, " in said.splitlines()[0]
    listed = subprocess.run(["git", "worktree", "list"], cwd=place, capture_output=True, check=True)
    assert len(listed.stdout.splitlines()) == 1


def test_wheels(sides: tuple[Path, Path], words: list[str], tmp_path: Path) -> None:
    wheels = []
    for place in sides:
        wheels.append(tmp_path / f"{place.name}-1-py3-none-any.whl")
        with ZipFile(wheels[-1], "w") as wheel:
            for file in place.rglob("*.*"):
                wheel.write(file, Path("lib") / file.relative_to(place))
    assert main(["ab", *map(str, wheels), *words, "--fail-on-regression"]) == 1


def test_what_cannot_be_is_told_in_one_sentence(
    sides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bad := tmp_path / "bad.whl").write_text("x")
    (empty := tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    for given, sentence in [
        ({"base": "trunk"}, "'trunk' is not a folder, a wheel or a revision of the git repository"),
        ({"base": bad}, "bad.whl' is not a wheel (File is not a zip file)."),
        ({"head": empty}, "have no kernel in common."),
        ({"kernels": ["other"]}, "kernels: neither side has 'other'."),
        ({"rounds": 2}, "Argument 'rounds' is 2; it must be at least 4"),
        ({"pairs": 0}, "Argument 'pairs' is 0; it must be at least 1"),
    ]:
        with pytest.raises(ConfigError) as told:
            ab_checkouts(**{"base": sides[0], "head": sides[1], "progress": False, **given})
        assert sentence in str(told.value)
    assert main(["ab", str(sides[0] / "kernels/same"), "--unchanged"]) == 2


# Loads two kernels of one name and says what each multiplies by.
LOADED = """
import sys
from pathlib import Path
from gpushmoo.interactive.ab import _load
a, b = _load(*map(Path, sys.argv[1:]))
print(a.workload.factor, b.workload.factor)
"""


def test_each_side_has_its_own_shared_code(sides: tuple[Path, Path]) -> None:
    for place, factor in zip(sides, "23", strict=True):
        (package := place / "kernels/tables").mkdir()
        (package / "__init__.py").write_text("from .values import FACTOR")
        (package / "values.py").write_text(f"FACTOR = {factor}")
        file = place / "kernels/same/workload.py"
        text = "from tables import FACTOR\n" + file.read_text()
        file.write_text(text.replace("    sizes = ", "    factor = FACTOR\n    sizes = "))
    folders = [place / "kernels/same" for place in sides]
    # Another kernel has nothing to do with that.
    assert differ(*folders)
    assert not differ(write(sides[0], "slow"), write(sides[1], "slow"))
    assert python(LOADED, *folders).stdout == "2 3\n"
    # That would import what B has, whoever calls it.
    late = "def late():\n    from .values import FACTOR\n"
    (sides[0] / "kernels/tables/late.py").write_text(late)
    said = python(LOADED, *folders).stderr
    assert "ConfigError: 'tables/late.py' imports within a function what A and B share" in said
    shutil.copytree(sides[0] / "kernels/tables", sides[1] / "kernels/tables", dirs_exist_ok=True)
    assert python(LOADED, *folders).stdout == "2 2\n"


def test_the_workflow_to_copy_says_commands_that_there_are() -> None:
    text = (ROOT / "examples/ci/gpu.yml").read_text(encoding="utf-8")
    [job] = yaml.safe_load(text)["jobs"].values()
    assert job["runs-on"] == ["self-hosted", "gpu"]
    ran = [shlex.split(step["run"]) for step in job["steps"] if "run" in step]
    # No index has it.
    assert ".[cuda12]" in ran[0]
    [ab] = [words[1:] for words in ran if words[0].endswith("/gpushmoo")]
    told = vars(build_parser().parse_args(ab))
    assert (told["a"], told["b"], told["fail_on_regression"]) == ("HEAD^1", "HEAD", True)
    assert ran[-1][1:] == ["-m", "shmoo"]
