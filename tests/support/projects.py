"""Projects in temporary folders, in which the workflow tests really run Snakemake."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm
import yaml
from gpushmoo.core.backends import BACKENDS
from gpushmoo.devices.select import DeviceChoice, resolve

# Far beyond what any run here needs, on a busy machine too: a hung one fails, it does not stop the
# suite.
DEADLINE_S = 900

TINY: dict[str, Any] = {
    "run": "tiny",
    "backend": "opencl",
    "only": ["copy2d_coalesced", "block_eq_partition"],
    "kernels": {
        "copy2d_coalesced": {
            "dtypes": ["float", "float3"],
            "sizes": [[48, 70]],
            "axes": {"block_x": [8, 16, 64], "block_y": [4, 8, 32]},
        },
        "block_eq_partition": {"sizes": [128], "axes": {"num_partition": {"from": 1, "to": 12}}},
    },
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 7},
    "chapters": {
        "tesla_c1060": {
            "simulate": {"tesla-c1060": {"sizes": [256], "num_partition": [1, 2, 16, 30, 32]}},
            "tables": {"sizes": [256, 512], "num_partition": [1, 8, 30]},
            "search": None,
            "tiles": {
                "size": 256,
                "row_bytes": [128, 256],
                "pad_bytes": [0, 64],
                "num_partition": [8],
            },
        }
    },
}

# In the order in which the terminal counts them.
TINY_SHARDS = [
    "block_eq_partition/float/0000-of-0001",
    "block_eq_partition/double/0000-of-0001",
    "copy2d_coalesced/float/0000-of-0001",
    "copy2d_coalesced/float3/0000-of-0001",
]


def answering_opencl(cache: Path) -> DeviceChoice:
    """The OpenCL runtime that GPUSHMOO_TEST_RUNTIME names, else the first that answers.

    Raises NoDeviceError where it does not work: without a device the suite is worth nothing.
    """
    names = (*BACKENDS["opencl"].runtimes, "auto")
    name = os.environ.get("GPUSHMOO_TEST_RUNTIME", "auto")
    assert name in names, f"GPUSHMOO_TEST_RUNTIME is '{name}'; allowed: {', '.join(names)}"
    return resolve(DeviceChoice("opencl", 0, name, cache))[0]


@functools.cache
def answering_runtime() -> str:
    """The name of that runtime, asked for once: with ``auto``, every job asks for itself."""
    with tempfile.TemporaryDirectory() as folder:
        return answering_opencl(Path(folder)).runtime


@dataclass(frozen=True)
class Outcome:
    """The exit status of a `snakemake` call, and the text on its terminal.

    A slow machine has lines that work goes on: they are left out.
    """

    status: int
    text: str

    def __post_init__(self) -> None:
        kept = re.sub(r"^gpushmoo: still .* s so far\)\n", "", self.text, flags=re.MULTILINE)
        object.__setattr__(self, "text", kept)

    @property
    def jobs(self) -> dict[str, int]:
        """The table of job numbers by rule, without its total; empty when there was none."""
        table = re.search(r"^Job stats:\njob +count\n[- ]+\n((?:.+\n)+)", self.text, re.MULTILINE)
        if table is None:
            return {}
        rows = (line.split() for line in table.group(1).splitlines())
        return {rule: int(count) for rule, count in rows if rule != "total"}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
    """Poll `condition`; fails, saying `what` did not happen, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"in {seconds:g} s this did not happen: {what}"
        time.sleep(0.02)


@dataclass
class Run:
    """A `snakemake` call in the background, in a process group of its own that ends with it."""

    process: subprocess.Popen[bytes]
    screen: Path

    @property
    def text(self) -> str:
        """What is on the terminal."""
        return self.screen.read_text(encoding="utf-8", errors="replace")

    @property
    def ended(self) -> bool:
        """Whether it has come to its end."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to Snakemake alone; its jobs live on."""
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float = DEADLINE_S) -> int:
        """Wait for the end; its status. Raises subprocess.TimeoutExpired."""
        return self.process.wait(timeout=seconds)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Project:
    """A copy of the project with ``tiny.yaml`` in it."""

    root: Path

    @property
    def results(self) -> Path:
        """Folder of the run ``tiny``."""
        return self.root / "results" / "tiny"

    @property
    def shards(self) -> list[Path]:
        """The files that the measuring jobs of ``tiny.yaml`` make."""
        return [self.results / "cells" / f"{name}.parquet" for name in TINY_SHARDS]

    def write_config(self, name: str, values: Mapping[str, Any]) -> str:
        """Write a configuration file into the project; returns `name`.

        One for OpenCL names the runtime.
        """
        on_opencl = values.get("backend") == "opencl"
        named = {"opencl_runtime": answering_runtime()} if on_opencl else {}
        (self.root / name).write_text(yaml.safe_dump({**named, **values}))
        return name

    def command(
        self, *args: str, config: tuple[str, ...] = ("tiny.yaml",), cores: str | None = "all"
    ) -> list[str]:
        """The `snakemake` command line; `config` files are merged in this order.

        A cluster's profile has jobs instead of `cores`: None.
        """
        snakemake = [sys.executable, "-m", "snakemake", *args]
        limit = [] if cores is None else ["--cores", cores]
        return [*snakemake, *limit, *(["--configfile", *config] if config else [])]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a call: without what would change it, with device locks of its own."""
        return {**warm.inherited(), "GPUSHMOO_LOCK_DIR": str(self.root / ".locks")}

    def snakemake(self, *args: str, **how: Any) -> Outcome:
        """Run `snakemake`, as `command` says, in the project and wait for it."""
        command = self.command(*args, **how)
        with tempfile.NamedTemporaryFile() as screen:
            out = Path(screen.name)
            status = warm.call(command[1:], self.root, self.environment, out, DEADLINE_S)
            if status is not None:
                return Outcome(status, out.read_text(encoding="utf-8"))
        return self.snakemake_afresh(*args, **how)

    def snakemake_afresh(self, *args: str, **how: Any) -> Outcome:
        """Run `snakemake` in a new process."""
        with (
            tempfile.NamedTemporaryFile() as screen,
            self.start(*args, screen=Path(screen.name), **how) as run,
        ):
            return Outcome(run.end(), run.text)

    def start(
        self,
        *args: str,
        config: tuple[str, ...] = ("tiny.yaml",),
        cores: str | None = "all",
        screen: Path | None = None,
        **environment: str,
    ) -> Run:
        """Start `snakemake` in the background; its terminal is the file `screen`."""
        screen = screen or self.root / f"screen-{uuid.uuid4().hex}"
        with screen.open("wb") as out:
            process = subprocess.Popen(
                self.command(*args, config=config, cores=cores),
                cwd=self.root,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Run(process, screen)

    def plan(self, *args: str, config: tuple[str, ...] = ("tiny.yaml",)) -> dict[str, int]:
        """Jobs by rule that a dry run announces."""
        outcome = self.snakemake("-n", *args, config=config)
        assert outcome.status == 0, outcome.text
        return outcome.jobs


def print_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Modification time (ns) and bytes of every file below `folder`, by relative path.

    Without what is kept of the shards for later jobs, which are links to them.
    """
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".kept" not in path.parts
    }


@dataclass(frozen=True)
class FinishedProject(Project):
    """A project whose run ``tiny`` is complete."""

    outcome: Outcome
