"""The measuring server: what stays from job to job, and what its end or a signal costs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from conftest import USER_CUDA, USER_OPENCL, environment
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring import client
from gpushmoo.measuring.client import ADDRESS
from gpushmoo.measuring.server import received
from gpushmoo.planning.snakemake_hooks import start_servers
from gpushmoo.storage.store import read_shard

# Notes which process asked for its inputs; waits there for the file "go" if there is a file "wait".
NOTING = """

from pathlib import Path
import os, time

class Noting(Mine):
    def inputs(self, problem, dtype, rng):
        here = Path(__file__).parent
        with (here / "pids").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        while (here / "wait").exists() and not (here / "go").exists():
            time.sleep(0.01)
        return super().inputs(problem, dtype, rng)

WORKLOAD = Noting()
"""
DEADLINE_S = 120.0


class Jobs:
    """Starts measuring jobs of one kernel as rule `measure` does."""

    def __init__(self, bench: Bench, folder: Path, cache: Path, root: Path) -> None:
        self._bench, self.folder, self._cache, self._root = bench, folder, cache, root
        self._number = 0
        self.server: subprocess.Popen[bytes]

    def start(self, *variants: str, repeat: int = 1) -> subprocess.Popen[str]:
        self._number += 1
        self.out = self._root / f"cells/mine/float/{self._number}.parquet"
        self.log = self._root / f"{self._number}.log"
        spec = self._bench.params(list(variants), [32, 64]) | {"repeat": repeat}
        request = {"spec": spec, "place": [1, 1], "again": [], "cache": str(self._cache)}
        request |= {"code": f"{self._number}", "plan": str(self._root / "plan.json")}
        job = subprocess.Popen(
            [sys.executable, "-I", "-S", client.__file__, self.out, self.log, "", ""],
            env=environment(),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert job.stdin is not None
        job.stdin.write(json.dumps(request))
        job.stdin.close()
        job.stdin = None
        return job

    def do(self, *variants: str, repeat: int = 1) -> dict[str, int]:
        """How the cells of a job ended, which succeeds."""
        job = self.start(*variants, repeat=repeat)
        self.said = job.communicate(timeout=DEADLINE_S)[1]
        assert job.returncode == 0, self.said + self.log.read_text()
        statuses: list[str] = read_shard(self.out)[0].column("status").to_pylist()
        return {status: statuses.count(status) for status in statuses}

    @property
    def pids(self) -> list[str]:
        """The measuring processes, in the order in which they made inputs."""
        noted = self.folder / "pids"
        return noted.read_text().split() if noted.exists() else []


@pytest.fixture
def jobs(
    make_kernel: Callable[..., Path],
    opencl_choice: DeviceChoice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Jobs]:
    """With one server."""
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv(ADDRESS, "")
    folder = make_kernel("mine", USER_CUDA, USER_OPENCL, ("good", "forgets"))
    workload = folder / "workload.py"
    workload.write_text(workload.read_text() + NOTING)
    made = Jobs(Bench(opencl_choice, folder, tmp_path), folder, opencl_choice.cache, tmp_path)
    [server] = start_servers(1)
    made.server = server
    yield made
    server.kill()
    server.wait()


def test_a_measuring_process_stays_for_the_jobs_of_a_repeat(jobs: Jobs) -> None:
    assert jobs.do("good") == jobs.do("good") == {"ok": 2}
    assert "2 ok" in jobs.said
    assert "measured" in jobs.log.read_text()
    assert jobs.do("good", repeat=2) == {"ok": 2}
    first, same, other = jobs.pids
    assert first == same != other
    # Each job's log has what was printed for it.
    assert [log.read_text().count("INFO measured") for log in jobs.log.parent.glob("*.log")] == [
        1
    ] * 3


def test_a_fault_costs_its_own_cells_and_the_next_job_a_fresh_process(jobs: Jobs) -> None:
    assert jobs.do("good", "forgets") == {"ok": 2, "wrong_result": 2}
    assert jobs.do("good") == {"ok": 2}
    assert len(set(jobs.pids)) == 2


def test_a_signal_ends_the_job_and_not_the_server(jobs: Jobs) -> None:
    (jobs.folder / "wait").touch()
    job = jobs.start("good")
    wait_until(lambda: jobs.pids)
    job.send_signal(signal.SIGINT)
    said = job.communicate(timeout=DEADLINE_S)[1]
    assert job.returncode == 1
    assert "ended by SIGINT before its file was written" in said
    assert not jobs.out.exists()
    (jobs.folder / "wait").unlink()
    assert jobs.do("good") == {"ok": 2}
    assert jobs.server.poll() is None


def test_a_client_that_is_killed_ends_its_job(jobs: Jobs) -> None:
    (jobs.folder / "wait").touch()
    job = jobs.start("good")
    wait_until(lambda: jobs.pids)
    out = jobs.out
    job.kill()
    job.wait()
    (jobs.folder / "wait").unlink()
    assert jobs.do("good") == {"ok": 2}
    assert not out.exists()
    first, second = jobs.pids
    assert first != second


def test_a_job_whose_server_is_killed_is_done_without_one(jobs: Jobs) -> None:
    (jobs.folder / "wait").touch()
    job = jobs.start("good")
    wait_until(lambda: jobs.pids)
    jobs.server.kill()
    (jobs.folder / "go").touch()
    said = job.communicate(timeout=DEADLINE_S)[1]
    assert job.returncode == 0, said
    assert read_shard(jobs.out)[0].num_rows == 2
    first, second = jobs.pids
    assert first != second


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_signal_right_behind_a_request_is_no_part_of_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"request" + bytes([signal.SIGINT]))
        assert received(theirs, len(b"request")) == b"request"
        assert theirs.recv(1) == bytes([signal.SIGINT])
        ours.close()
        assert received(theirs, 1) is None
