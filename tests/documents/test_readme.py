"""The blocks of README and how-to as a newcomer runs them, and the commands that those print."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import warm
from conftest import ROOT
from projects import Project

pytest_plugins = ("workflow_fixtures",)

PAGES = "".join((ROOT / page).read_text("utf-8") for page in ("README.md", "docs/howto.md"))
BLOCKS = re.findall(r"(?s)^```(\w+)\n(.*?)^```$", PAGES, re.M)
# Not run: lines of the shell, and blocks by how they begin.
EXEMPT = {
    "make report": "measures for minutes; the rules are those of every other run here",
    "make test": "runs this",
    ".venv/bin/snakemake --cores all": "is `make report`",
    "/* copy2d_coalesced (element)": "is what a header holds, and no command",
}
PLACE = "/path/to/gpushmoo"


@pytest.fixture(scope="module")
def newcomer(
    copy_finished: Callable[[Path], Project],
    tmp_path_factory: pytest.TempPathFactory,
    opencl_cache: Path,
) -> Project:
    """A fresh copy of the project with its commands; a finished run stands for ``local``."""
    project = copy_finished(tmp_path_factory.mktemp("newcomer") / "gpushmoo")
    warm.programs(project.root / ".venv/bin")
    (project.root / "results/local").symlink_to("tiny")
    return project


def shell(project: Project, text: str, cache: Path) -> str:
    """What the commands print; fails where one of them does."""
    env = {**project.environment, "XDG_CACHE_HOME": str(cache)}
    env["PYTHONPATH"] = str(project.root / "workflow/scripts")
    env["PATH"] = os.pathsep.join([str(project.root / ".venv/bin"), env["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", text], cwd=project.root, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_block_runs(
    newcomer: Project, opencl_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one test: each needs what those before it have made."""
    root, left, printed = newcomer.root, set(EXEMPT), ""
    own = root / "kernels/reverse_rows"
    own.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(opencl_cache))
    monkeypatch.setattr("gpushmoo.interactive.measure.KERNELS", root / "kernels")
    for language, text in BLOCKS:
        if named := {start for start in left if text.startswith(start) and language != "sh"}:
            left -= named
        elif language == "c":
            (own / "kernel.cl").write_text(text)
        elif "class ReverseRows" in text:
            (own / "workload.py").write_text(text)
        elif "module gpushmoo:" in text:
            imports(newcomer, text)
        elif language == "python":
            exec(compile(text, "a page", "exec"), {})
        else:
            assert language == "sh"
            lines = {line: line.partition("#")[0].strip() for line in text.splitlines()}
            left -= set(lines.values())
            kept = "\n".join(line for line, command in lines.items() if command not in EXEMPT)
            # Runs of one kernel are planned: that of the tutorial is measured and rendered.
            planned = re.sub("(gpushmoo run .*)", r"\1 -- -n", kept)
            printed += shell(newcomer, planned.replace(PLACE, str(root)), opencl_cache)
    assert not left
    # What `new` has printed, and what the blocks say of `kept`.
    [command] = re.findall(r"^  \S*gpushmoo run (.*)", printed, re.M)
    for told in (command, "kept/report.yaml"):
        jobs = newcomer.plan("--configfile", *shlex.split(told), config=())
        assert jobs["report"] == 1
        assert ("measure" in jobs) == (told == command)


def imports(project: Project, text: str) -> None:
    """Have a workflow of its own take `project` as a module, as the block says."""
    elsewhere = project.root.parent / "elsewhere"
    (elsewhere / "my-kernels").mkdir(parents=True)
    # A kernel may not be there twice.
    shutil.move(project.root / "kernels/reverse_rows", elsewhere / "my-kernels")
    (elsewhere / "Snakefile").write_text(text.replace(PLACE, str(project.root)))
    assert Project(elsewhere).plan(config=())["gpushmoo_report"] == 1
