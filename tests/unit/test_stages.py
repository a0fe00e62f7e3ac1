"""Stages by the run's server, each in a fork; by the job if the server or the fork is lost."""

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
from gpushmoo.planning.snakemake_hooks import STAGES, start_servers
from gpushmoo.stages import ONE_THREAD, STAGE_ADDRESS, Stage

# What is waited for, at most; what passes is never decided by it.
DEADLINE_S = 120

# A module of stages, which name the process that does them.
MODULE = """
import os, signal, sys, time
from pathlib import Path
from gpushmoo.core.errors import UserError

IMPORTED_BY = os.getpid()
PREPARED = []


def prepare_forks(client):
    PREPARED.append(os.getpid())


def prepared(out):
    out.write_text(repr(PREPARED))


def note(out, numbers, data, terminal, say):
    out.write_text(f"{os.getpid()} {IMPORTED_BY} {sum(numbers)} {data.name}")
    print("printed")
    say("done")


def refuse():
    raise UserError("This is refused.")


def crash(out, client):
    if os.getppid() != client:
        os.kill(os.getpid(), signal.SIGSEGV)
    out.write_text(f"{os.getpid()}")


def wait(out):
    out.write_text(f"{os.getpid()}")
    while True:
        time.sleep(0.01)
"""


class Jobs:
    """Starts jobs of one server."""

    def __init__(self, folder: Path, server: subprocess.Popen[bytes]) -> None:
        self.server, self._folder, self.log = server, folder, folder / "job.log"
        self.out = folder / "out"

    def start(self, function: str, **params: Any) -> subprocess.Popen[str]:
        """A job that does a stage of MODULE."""
        self.out.unlink(missing_ok=True)
        given = {"client": os.getpid(), **params}
        request = Stage(
            rule="mine",
            call=f"own_stages:{function}",
            params=given,
            inputs={"data": "some/data"},
            outputs={},
            first=str(self.out),
            log=str(self.log),
            threads=1,
        ).request()
        assert request is not None
        command = [sys.executable, "-I", "-S", client.__file__, STAGES, STAGE_ADDRESS]
        with tempfile.TemporaryFile() as file:
            file.write(request)
            file.seek(0)
            how: dict[str, Any] = {"stdin": file, "stderr": subprocess.PIPE, "text": True}
            return subprocess.Popen(command, env=environment(), **how)

    def do(self, function: str, **params: Any) -> tuple[int, str]:
        """Exit status of a job, and what it said."""
        job = self.start(function, **params)
        said = job.communicate(timeout=DEADLINE_S)[1]
        return job.returncode, said


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """With one server, which finds MODULE."""
    (tmp_path / "own_stages.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(STAGE_ADDRESS, "")
    [server] = start_servers(1, STAGES, STAGE_ADDRESS, environment=ONE_THREAD)
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


def test_a_stage_has_a_fork_with_the_servers_imports(jobs: Jobs) -> None:
    done_by = set()
    for numbers in ([1, 2], [3]):
        status, said = jobs.do("note", numbers=numbers)
        assert (status, said) == (0, "gpushmoo: mine: done\n")
        assert jobs.log.read_text() == "printed\n"
        pid, importer, total, name = jobs.out.read_text().split()
        assert (int(importer), int(total), name) == (jobs.server.pid, sum(numbers), "data")
        done_by.add(int(pid))
    assert len(done_by - {jobs.server.pid}) == 2


def test_the_server_prepares_once_for_all_forks(jobs: Jobs) -> None:
    for _ in range(2):
        assert jobs.do("prepared") == (0, "")
        assert jobs.out.read_text() == f"[{jobs.server.pid}]"


def test_a_failure_is_the_jobs_own(jobs: Jobs) -> None:
    assert jobs.do("refuse") == (1, "gpushmoo: This is refused.\n")
    status, said = jobs.do("note", numbers=None)
    assert status == 1
    assert "TypeError" in said
    assert "Traceback" in jobs.log.read_text()
    assert jobs.do("note", numbers=[1])[0] == 0
    assert jobs.server.poll() is None


def test_a_stage_whose_process_or_server_is_lost_is_done_by_the_job(jobs: Jobs) -> None:
    assert jobs.do("crash") == (0, "")
    jobs.server.kill()
    jobs.server.wait()
    assert jobs.do("note", numbers=[1])[0] == 0
    pid, importer, *_ = jobs.out.read_text().split()
    assert pid == importer


def test_parameters_that_are_no_literals_stay_with_the_job() -> None:
    def request(**params: object) -> bytes | None:
        return Stage("mine", "own_stages:note", params, {}, {}, "", "", 1).request()

    assert request(path=Path("some")) is None
    assert request(number=float("nan")) is None
    assert request(of={"all": (1, 2.5, None, [True])}) is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stage_ends_with_its_job(jobs: Jobs, number: signal.Signals) -> None:
    job = jobs.start("wait")
    wait_until(lambda: jobs.out.exists() and jobs.out.read_text())
    pid = int(jobs.out.read_text())
    job.send_signal(number)
    job.communicate(timeout=DEADLINE_S)
    assert job.returncode != 0
    # The server looks after those that have ended when the next one comes.
    assert jobs.do("note", numbers=[1])[0] == 0
    wait_until(lambda: jobs.do("note", numbers=[1])[0] == 0 and not is_there(pid))
