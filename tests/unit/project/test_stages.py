"""Scripts in forks of the run's server; in the job if the server or the fork is lost."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from gpushmoo.measuring import client
from gpushmoo.planning.start import start_servers
from gpushmoo.stages import ONE_THREAD, STAGE_ADDRESS, STAGES

# What is waited for, at most; what passes is never decided by it.
DEADLINE_S = 120

# What the scripts of this module import.
MODULE = """
import os
from gpushmoo.core.errors import UserError

IMPORTED_BY = os.getpid()
"""
# Scripts as Snakemake writes them, below the lines that define `snakemake`: they name the process
# that runs them.
SCRIPTS = {
    "note": """
with job_log(snakemake.log) as terminal:
    total = sum(snakemake.numbers)
    snakemake.out.write_text(f"{os.getpid()} {own_module.IMPORTED_BY} {total}")
    print("printed")
    speaker(terminal, "mine")("done")
""",
    "refuse": """
with job_log(snakemake.log):
    raise own_module.UserError("This is refused.")
""",
    "crash": """
if os.getppid() != snakemake.client:
    os.kill(os.getpid(), signal.SIGSEGV)
snakemake.out.write_text(f"{os.getpid()}")
""",
    "wait": """
snakemake.out.write_text(f"{os.getpid()}")
while True:
    time.sleep(0.01)
""",
    "import_absent": """
import own_absent_module
""",
    "leave": """
sys.exit(snakemake.numbers)
""",
}
HEAD = """
import os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
import own_module
from gpushmoo.storage.joblog import job_log, speaker
"""


class Jobs:
    """Starts jobs of one server."""

    def __init__(self, folder: Path, server: subprocess.Popen[bytes]) -> None:
        self.server, self._folder, self.log = server, folder, folder / "job.log"
        self.out = folder / "out"

    def start(self, name: str, numbers: object = None) -> subprocess.Popen[str]:
        """A job that runs one of SCRIPTS."""
        self.out.unlink(missing_ok=True)
        script = self._folder / f"{name} it.py"
        values = f"out=Path({str(self.out)!r}), log={str(self.log)!r}, client={os.getpid()}"
        described = f"snakemake = SimpleNamespace({values}, numbers={numbers!r})\n"
        script.write_text(HEAD + described + SCRIPTS[name])
        command = [sys.executable, "-I", "-S", client.__file__, STAGES, STAGE_ADDRESS]
        with tempfile.TemporaryFile() as file:
            file.write(os.fsencode(f"{script}\n"))
            file.seek(0)
            how: dict[str, Any] = {"stdin": file, "stderr": subprocess.PIPE, "text": True}
            return subprocess.Popen(command, env=environment(), **how)

    def do(self, name: str, numbers: object = None) -> tuple[int, str]:
        """Exit status of a job, and what it said."""
        job = self.start(name, numbers)
        said = job.communicate(timeout=DEADLINE_S)[1]
        return job.returncode, said


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """With one server, which finds MODULE."""
    (tmp_path / "own_module.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(STAGE_ADDRESS, "")
    [server] = start_servers(1, STAGES, STAGE_ADDRESS, {"compiler": None}, ONE_THREAD)
    yield Jobs(tmp_path, server)
    server.kill()
    server.wait()


def wait_until(done: Callable[[], object]) -> None:
    """Wait for something that comes about."""
    end = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_there(pid: int) -> bool:
    """Return whether a process still runs."""
    return Path(f"/proc/{pid}").exists()


def test_a_script_runs_in_a_fork_with_the_servers_imports(jobs: Jobs) -> None:
    done_by = set()
    for numbers in ([1, 2], [3]):
        status, said = jobs.do("note", numbers)
        assert (status, said) == (0, "gpushmoo: mine: done\n")
        assert jobs.log.read_text() == "printed\n"
        pid, importer, total = map(int, jobs.out.read_text().split())
        assert (importer, total) == (jobs.server.pid, sum(numbers))
        done_by.add(pid)
    assert len(done_by - {jobs.server.pid}) == 2


def test_a_failure_is_the_jobs_own(jobs: Jobs) -> None:
    assert jobs.do("refuse") == (1, "gpushmoo: This is refused.\n")
    status, said = jobs.do("note", None)
    assert status == 1
    assert "TypeError" in said
    assert "Traceback" in jobs.log.read_text()
    status, said = jobs.do("import_absent")
    assert status == 1
    assert "own_absent_module" in said
    assert jobs.do("note", [1])[0] == 0
    assert jobs.server.poll() is None


@pytest.mark.parametrize(("value", "status"), [(None, 0), (3, 3), ("It ends.", 1)])
def test_a_script_ends_as_a_python_of_its_own_would(jobs: Jobs, value: object, status: int) -> None:
    assert jobs.do("leave", value) == (status, "It ends.\n" if status == 1 else "")


def test_a_script_whose_process_or_server_is_lost_is_run_by_the_job(jobs: Jobs) -> None:
    assert jobs.do("crash") == (0, "")
    jobs.server.kill()
    jobs.server.wait()
    assert jobs.do("note", [1])[0] == 0
    pid, importer, _ = jobs.out.read_text().split()
    assert pid == importer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_script_ends_with_its_job(jobs: Jobs, number: signal.Signals) -> None:
    job = jobs.start("wait")
    wait_until(lambda: jobs.out.exists() and jobs.out.read_text())
    pid = int(jobs.out.read_text())
    job.send_signal(number)
    job.communicate(timeout=DEADLINE_S)
    assert job.returncode != 0
    wait_until(lambda: not is_there(pid))
    assert jobs.do("note", [1])[0] == 0
