"""The blocks of README and guides as a newcomer runs them, and the commands that those print."""

import contextlib
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
from gpushmoo.core.errors import NoDeviceError
from gpushmoo.devices.machine_code.cubins import Unit, compile_cubin
from projects import Project

pytest_plugins = ("workflow_fixtures",)

GUIDES = (
    "README.md",
    "docs/quickstart-cuda.md",
    "docs/install.md",
    "docs/kernel-folder.md",
    "docs/tune.md",
    "docs/snakemake.md",
    "docs/compare.md",
    "docs/results.md",
    "docs/kernel-tuner.md",
)
PAGES = "".join((ROOT / page).read_text("utf-8") for page in GUIDES)
# Configurations and printed lines have tests beside those of the tutorial.
BLOCKS = [
    (language, text)
    for language, text in re.findall(r"(?s)^```(\w+)\n(.*?)^```$", PAGES, re.M)
    if language not in ("console", "text", "yaml")
]
# Not run: lines of the shell, and blocks by how they begin.
EXEMPT = {
    "make report": "measures for minutes; the rules are those of every other run here",
    "make test": "runs this",
    ".venv/bin/snakemake --cores all": "is `make report`",
    "make cuda13": "needs a GPU",
    ".venv/bin/gpushmoo export kept --formats header": "is what the quickstart keeps on a GPU",
    "python -m gpushmoo.extras.compat.kernel_tuner script.py": "has no script here",
    "/* copy2d_coalesced (element)": "is what a header holds, and no command",
}
# The launches of a kernel's call, for a source in CUDA C++.
CONSTANTS = ("-DEACH=2", "-DTILE=32", "-DPAD=1", "-DROWS=8")
PLACE = "/path/to/gpushmoo"


@pytest.fixture(scope="module")
def newcomer(
    copy_finished: Callable[[Path], Project],
    tmp_path_factory: pytest.TempPathFactory,
    opencl_cache: Path,
) -> Project:
    """A fresh copy of the project with its commands, and a finished run as ``local``."""
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
    call = ""
    names: dict[str, object] = {}
    own = root / "kernels/reverse_rows"
    own.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(opencl_cache))
    monkeypatch.setattr("gpushmoo.interactive.measure.KERNELS", root / "kernels")
    for language, text in BLOCKS:
        if named := {start for start in left if text.startswith(start) and language != "sh"}:
            left -= named
        elif "__kernel void scale" in text and language == "c":
            exec(compile(with_source(call, text), "a page", "exec"), names)
        elif language == "c":
            (own / "kernel.cl").write_text(text)
        elif "class ReverseRows" in text:
            (own / "workload.py").write_text(text)
        elif "module gpushmoo:" in text:
            imports(newcomer, text)
        elif "__global__" in text:
            call = text
            refused_without_gpu(text)
        elif language == "python":
            exec(compile(text, "a page", "exec"), names)
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
    commands = re.findall(r"^  \S*gpushmoo run (.*)", printed, re.M)
    assert len(commands) == 2
    for told in (*commands, "kept/report.yaml"):
        jobs = newcomer.plan("--configfile", *shlex.split(told), config=())
        assert jobs["report"] == 1
        assert ("measure" in jobs) == (told in commands)


def with_source(call: str, source: str) -> str:
    """`call` with another text as the kernel's source."""
    return re.sub(r'(?s)source = """.*?"""', lambda _: f'source = """{source}"""', call, count=1)


def refused_without_gpu(call: str) -> None:
    """The arguments of a call in CUDA are right, and its source compiles if a compiler is there."""
    with contextlib.suppress(NoDeviceError):
        exec(compile(call, "a page", "exec"), {})
    [source] = re.findall(r'(?s)source = """(.*?)"""', call)
    with contextlib.suppress(NoDeviceError):
        compile_cubin(Unit(source, "a page", CONSTANTS), "sm_90")


def imports(project: Project, text: str) -> None:
    """Import `project` into another workflow as a module, as the block shows."""
    elsewhere = project.root.parent / "elsewhere"
    (elsewhere / "my-kernels").mkdir(parents=True)
    # A kernel may not be there twice.
    shutil.move(project.root / "kernels/reverse_rows", elsewhere / "my-kernels")
    (elsewhere / "Snakefile").write_text(text.replace(PLACE, str(project.root)))
    assert Project(elsewhere).plan(config=())["gpushmoo_report"] == 1
