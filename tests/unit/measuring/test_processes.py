"""Measuring processes: struck, stopped, hanging or at work on a faulty kernel; kept by a server."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from bench import BACKENDS, Bench, choice_of
from conftest import USER_CUDA, USER_OPENCL, environment, python
from gpushmoo.core.errors import (
    DeviceError,
    JobSignalledError,
    WorkerExitedError,
    WorkerKilledError,
    WorkerTimeoutError,
)
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring import client, locks, process, starting
from gpushmoo.measuring.client import ADDRESS
from gpushmoo.measuring.events import CellsStarted, Finished, Message, Prepare
from gpushmoo.measuring.process import POLL_INTERVAL_S, WorkerProcess, end_of
from gpushmoo.measuring.requests import received
from gpushmoo.planning.flow import MEASURING
from gpushmoo.planning.start import start_measuring_servers
from gpushmoo.storage.joblog import raises_signals
from gpushmoo.storage.store import read_shard
from jobs import assignment_of

# Real processes are waited for so long at most; what passes is never decided by it.
DEADLINE_S = 120.0


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("module", "late"),
    [
        ("measuring.worker", {"pandas", "pydantic", "pyarrow.compute", "scipy", "yaml"}),
        ("interactive.measure", {"gpushmoo.measuring.worker", "matplotlib", "pandas", "scipy"}),
        ("interactive.ab", {"gpushmoo.measuring.worker", "matplotlib", "scipy.stats"}),
    ],
)
def test_a_start_does_not_wait_for_what_it_needs_later_or_never(
    module: str, late: set[str]
) -> None:
    program = f"import sys, gpushmoo.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert late.isdisjoint(done.stdout.decode().split())


# A measuring process that does what its job says.
WORKER = """
import os, signal, sys, time
from multiprocessing.connection import Connection
from gpushmoo.measuring.events import Finished

connection = Connection(int(sys.argv[1]))
doing = connection.recv()
for name in doing["signals"]:
    os.kill(os.getpid(), getattr(signal, name))
if doing["hangs"]:
    time.sleep(1000)
connection.send(Finished())
"""


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts a real process that sends itself `signals`, or hangs."""
    (tmp_path / "obedient.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started: list[WorkerProcess] = []

    def open_one(*signals: str, hangs: bool = False) -> WorkerProcess:
        started.append(WorkerProcess(starting.start("obedient", None)))
        started[-1].say({"signals": signals, "hangs": hangs})
        return started[-1]

    yield open_one
    for worker in started:
        worker.stop()


OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGXCPU", "SIGPIPE")
FAULTS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")


def test_signals_from_outside_are_told_from_faults() -> None:
    for name in OUTSIDE + FAULTS:
        error = end_of(-getattr(signal, name))
        assert str(error) == f"the measuring process was ended by {name}"
        assert isinstance(error, WorkerKilledError) == (name in OUTSIDE)
    assert str(end_of(-40)) == "the measuring process was ended by signal 40"
    assert isinstance(end_of(-40), WorkerKilledError)
    assert type(end_of(3)) is WorkerExitedError


def test_a_process_that_is_struck_or_hangs_is_found(start: Callable[..., WorkerProcess]) -> None:
    with pytest.raises(WorkerKilledError, match=r"^the measuring process was ended by SIGTERM$"):
        start("SIGTERM").hear(DEADLINE_S)
    with pytest.raises(WorkerTimeoutError):
        start(hangs=True).hear(2 * POLL_INTERVAL_S)


# A measuring process that prints how many objects are hidden from the collector as it measures.
HIDING = """
import gc, sys
from pathlib import Path
from types import SimpleNamespace
from gpushmoo.measuring import worker
from fakes import FakeDevice
from gpushmoo.measuring.events import Assignment
from jobs import job_of

worker._measure_shard = lambda *_: print(gc.get_freeze_count(), len(gc.get_objects()))
job = job_of(folder="kernels/copy2d_coalesced", variants=["element"])
device = SimpleNamespace(info=FakeDevice().info, close=lambda: None)
caller = SimpleNamespace(lock_one=lambda devices: 0)
worker._serve(Assignment(job, Path(sys.argv[1]), 0.0), caller, device)
"""


def test_all_modules_are_hidden_from_the_collector_while_a_device_is_used(tmp_path: Path) -> None:
    """A collection precedes the memory of each problem, and the device waits for it."""
    done = python(HIDING, tmp_path)
    assert done.returncode == 0, done.stderr
    hidden, others = map(int, done.stdout.split())
    assert others < hidden / 10


# Stays until it is asked twice, and not longer than what has started it.
LASTING = """
import sys
from multiprocessing.connection import Connection
from gpushmoo.storage.joblog import end_with_parent

end_with_parent()
connection = Connection(int(sys.argv[1]))
for _ in range(2):
    connection.send(connection.recv())
"""


def test_a_process_outlives_the_thread_that_has_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lasting.py").write_text(LASTING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found: list[WorkerProcess] = []

    def ask() -> None:
        found.append(WorkerProcess(starting.start("lasting", None)))
        found[0].say(Finished())
        assert found[0].hear(DEADLINE_S) == Finished()

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    # The thread itself may end a moment later than that.
    wait_until(lambda: not Path(f"/proc/self/task/{asking.native_id}").exists())
    found[0].say(Finished())
    assert found[0].hear(DEADLINE_S) == Finished()
    found[0].stop()


class SilentConnection:
    """Says nothing for so many beats."""

    def __init__(self, silent: int) -> None:
        self._left = silent

    def poll(self, seconds: float) -> bool:
        assert seconds == POLL_INTERVAL_S
        self._left -= 1
        return self._left < 0

    def recv(self) -> Finished:
        return Finished()

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("beats", "stopped", "waited", "heard"),
    [
        (4, False, 0.0, True),
        (5, False, 0.0, False),
        (1000, True, 0.0, True),
        (8, False, 0.5, True),
        (9, False, 0.5, False),
        (20, False, 1.0, True),
        (21, False, 1.0, False),
    ],
)
def test_silence_counts_while_the_process_is_neither_stopped_nor_waits_for_a_core(
    beats: int,
    stopped: bool,
    waited: float,
    heard: bool,
    start: Callable[..., WorkerProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop of the caller, or a suspended machine, is one long beat: no clock is read."""
    worker = start()
    waits_s = ({"1": i * waited * POLL_INTERVAL_S, str(i + 2): 0.0} for i in count())
    monkeypatch.setattr(process, "core_waits_s", lambda pid: next(waits_s))
    monkeypatch.setattr(process, "is_stopped", lambda pid: stopped)
    monkeypatch.setattr(worker, "_connection", SilentConnection(beats))
    if heard:
        assert worker.hear(4 * POLL_INTERVAL_S) == Finished()
    else:
        with pytest.raises(WorkerTimeoutError, match=r"said nothing for 0\.2 s$"):
            worker.hear(4 * POLL_INTERVAL_S)


def test_a_message_that_comes_at_once_costs_no_look_at_the_threads(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process sends several for each cell, and would wait until it is heard."""
    worker = start()
    monkeypatch.setattr(process, "core_waits_s", lambda pid: pytest.fail("threads looked at"))
    monkeypatch.setattr(process, "is_stopped", lambda pid: pytest.fail("process looked at"))
    monkeypatch.setattr(worker, "_connection", SilentConnection(0))
    assert worker.hear(DEADLINE_S) == Finished()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it on Linux alone")
def test_a_real_stop_is_seen_and_does_not_count(
    start: Callable[..., WorkerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    really = process.is_stopped

    def look(pid: int) -> bool:
        seen.append(really(pid))
        if sum(seen) == 4:
            os.kill(pid, signal.SIGCONT)
        return seen[-1]

    monkeypatch.setattr(process, "is_stopped", look)
    assert start("SIGSTOP").hear(DEADLINE_S) == Finished()
    assert sum(seen) >= 4


@pytest.mark.skipif(sys.platform != "linux", reason="/proc reports it on Linux alone")
def test_a_thread_that_waits_for_a_core_is_seen() -> None:
    """Two busy processes on one core: each waits about half of the time."""
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(1, flush=True)"
    )
    busy = [
        subprocess.Popen(
            [sys.executable, "-c", f"{code}\nwhile True: pass"], stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for one in busy:
            assert one.stdout is not None
            one.stdout.readline()
        before_s = process.core_waits_s(busy[0].pid)
        deadline = time.monotonic() + DEADLINE_S
        while process.longest_wait_s(before_s, process.core_waits_s(busy[0].pid)) < 0.05:
            assert time.monotonic() < deadline
        # No thread waits longer than it lives.
        assert max(process.core_waits_s(busy[0].pid).values()) < 2 * DEADLINE_S
    finally:
        for one in busy:
            one.kill()
            one.communicate()
    assert process.core_waits_s(busy[0].pid) == {}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_the_first_signal_is_raised_and_what_was_before_is_again(name: str) -> None:
    number = getattr(signal, name)
    # Under nohup it is ignored, and would stay so.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(JobSignalledError, match=f"ended by {name} before"), raises_signals():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raises_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


BODY = """
KERNEL void copy_good(GLOBAL float *dst, GLOBAL const float *src, const ULONG n)
{
    if (ID < n) dst[ID] = src[ID];
}
// Writes a terabyte beyond its buffer.
KERNEL void copy_illegal(GLOBAL float *dst, GLOBAL const float *src, const ULONG n)
{
    if (ID < n) dst[ID + ((ULONG)1 << 38)] = src[ID];
}
KERNEL void copy_endless(GLOBAL float *dst, GLOBAL const float *src, const ULONG n)
{
    // One thread: all cores of a CPU would keep other work from its end.
    volatile GLOBAL float *never = dst;
    while (ID == 0 && never[0] != 12345.0f)
        ;
    if (ID < n) dst[ID] = src[ID];
}
"""
CUDA = (
    '#define KERNEL extern "C" __global__\n#define GLOBAL\n#define ULONG unsigned long long\n'
    "#define ID ((ULONG)blockIdx.x * blockDim.x + threadIdx.x)\n"
) + BODY
OPENCL = (
    "#define KERNEL __kernel\n#define GLOBAL __global\n#define ULONG ulong\n"
    "#define ID get_global_id(0)\n"
) + BODY
PAUSE_S = 0.5


@pytest.fixture(params=BACKENDS)
def bench(
    request: pytest.FixtureRequest,
    make_kernel: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))
    folder = make_kernel("faulty", CUDA, OPENCL, ("good", "illegal", "endless"))
    return Bench(choice_of(request, tmp_path), folder, tmp_path)


def expect_good(rows: pd.DataFrame, cells: int) -> None:
    good = rows[rows["variant"] == "good"]
    assert len(good) == cells
    assert set(good["status"]) == {"ok"}
    assert (good["wrong_words"] == 0).all()
    assert (good["samples_s"].map(len) == 6).all()


@pytest.mark.parametrize(
    ("variant", "threads", "status", "words"),
    [
        (
            "illegal",
            [32, 64],
            "launch_failed",
            "(?i)illegal|SIGABRT|(?:SEGV|BUS), as by a kernel that",
        ),
        # One such cell, which is waited for twice: among the others, and alone.
        ("endless", [32], "timeout", "did not end within 2 s"),
    ],
)
def test_a_faulty_launch_costs_its_own_cell(
    bench: Bench, variant: str, threads: list[int], status: str, words: str
) -> None:
    told = bench.params([])["measure"] | {"cell_timeout_s": 2.0}
    rows = bench.measure(["good", variant], threads=threads, measure=told)
    expect_good(rows, len(threads))
    bad = rows[rows["variant"] == variant]
    assert list(bad["status"]) == [status] * len(threads)
    assert bad["message"].str.contains(words).all()


def test_strikes_and_pauses_cost_no_cell(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each signal ends a process at its first launch; then one is stopped among its launches."""
    strikes = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL]
    struck: set[int] = set()
    launches: Counter[int] = Counter()
    hear = WorkerProcess.hear

    def hear_and_strike(worker: WorkerProcess, limit_s: float) -> Message:
        message, pid = hear(worker, limit_s), worker._process.pid
        if isinstance(message, CellsStarted) and pid not in struck:
            launches[pid] += 1
            if strikes:
                struck.add(pid)
                os.kill(pid, strikes.pop(0))
            # How many cells are sampled together depends on how fast the machine is.
            elif launches[pid] == 12 and len(struck) == 4:
                struck.add(pid)
                os.kill(pid, signal.SIGSTOP)
                threading.Timer(PAUSE_S, os.kill, (pid, signal.SIGCONT)).start()
        return message

    monkeypatch.setattr(WorkerProcess, "hear", hear_and_strike)
    rows = bench.measure(["good"])
    expect_good(rows, 8)
    assert len(struck) == 5
    for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"):
        assert f"ended by {name}; cells that had not ended" in caplog.text


def test_a_process_that_never_starts_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DeviceError, match=r"ended with status 1\.$"):
        bench.measure(["good"])


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
        request = {"job": spec, "place": [2, 3], "remeasure": [], "cache": str(self._cache)}
        request |= {"code": f"{self._number}", "plan": str(self._root / "plan.json")}
        request["seconds"] = None
        job = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                client.__file__,
                MEASURING,
                ADDRESS,
                f"out={self.out}",
                f"log={self.log}",
                "first=",
                "build=",
            ],
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
    """Start jobs that share one server."""
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv(ADDRESS, "")
    folder = make_kernel("mine", USER_CUDA, USER_OPENCL, ("good", "forgets"))
    workload = folder / "workload.py"
    workload.write_text(workload.read_text() + NOTING)
    made = Jobs(Bench(opencl_choice, folder, tmp_path), folder, opencl_choice.cache, tmp_path)
    [made.server] = start_measuring_servers(1, {1: ["never"], 2: ["never"]})
    yield made
    made.server.kill()
    made.server.wait()


def test_a_server_has_one_folder_with_its_socket_and_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(ADDRESS, "")
    [server] = start_measuring_servers(1, {1: ["never"]})
    server.kill()
    server.wait()
    [folder] = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {"server", "jobs.json"}


def test_a_measuring_process_stays_for_the_jobs_of_a_repeat(jobs: Jobs) -> None:
    assert jobs.do("good") == jobs.do("good") == {"ok": 2}
    assert "2 ok" in jobs.said
    assert "shard 2/3" in jobs.said
    assert "measured" in jobs.log.read_text()
    assert jobs.do("good", repeat=2) == {"ok": 2}
    # Both jobs of the first repeat make inputs again for their trial, on a busy machine twice.
    *of_first, other = jobs.pids
    assert len(of_first) >= 4
    assert len(set(of_first)) == 1
    assert other not in of_first
    # Each job's log has what was printed for it.
    assert [log.read_text().count("INFO measured") for log in jobs.log.parent.glob("*.log")] == [
        1
    ] * 3


def test_a_measuring_process_ends_behind_the_last_job_of_its_repeat(
    jobs: Jobs, tmp_path: Path
) -> None:
    jobs.server.kill()
    jobs.server.wait()
    folder = tmp_path / "cells/mine/float"
    outs = [str(folder / f"{number}.parquet") for number in range(1, 5)]
    # Two are there from an earlier run and will be made again.
    folder.mkdir(parents=True)
    for old in (outs[1], outs[3]):
        Path(old).touch()
        os.utime(old, (1e9, 1e9))
    [jobs.server] = start_measuring_servers(1, {1: outs[:2], 2: outs[2:]})

    def alive() -> list[bool]:
        return [Path("/proc", pid).exists() for pid in dict.fromkeys(jobs.pids)]

    assert jobs.do("good") == {"ok": 2}
    assert alive() == [True]
    assert jobs.do("good") == {"ok": 2}
    wait_until(lambda: alive() == [False])
    assert jobs.do("good", repeat=2) == {"ok": 2}
    assert alive() == [False, True]
    assert jobs.server.poll() is None


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


def test_a_server_ends_with_a_run_that_ends_while_it_starts() -> None:
    start = "gpushmoo.planning.start"
    run = f"import os, {start}; {start}.start_measuring_servers(1, {{}}); os._exit(0)"
    # The server has the pipe, too.
    how: dict[str, Any] = {"capture_output": True, "env": environment(), "check": True}
    subprocess.run([sys.executable, "-c", run], timeout=DEADLINE_S, **how)


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
    # A process that ends may begin its second cell.
    first, *_, last = jobs.pids
    assert first != last


def test_a_job_whose_server_is_killed_is_done_without_one(jobs: Jobs) -> None:
    (jobs.folder / "wait").touch()
    job = jobs.start("good")
    wait_until(lambda: jobs.pids)
    jobs.server.kill()
    (jobs.folder / "go").touch()
    said = job.communicate(timeout=DEADLINE_S)[1]
    assert job.returncode == 0, said
    assert read_shard(jobs.out)[0].num_rows == 2
    # A process that ends may begin its second cell.
    first, *_, last = jobs.pids
    assert first != last


def test_a_signal_right_behind_a_request_is_no_part_of_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"request" + bytes([signal.SIGINT]))
        assert received(theirs, len(b"request")) == b"request"
        assert theirs.recv(1) == bytes([signal.SIGINT])
        ours.close()
        assert received(theirs, 1) is None


def test_a_replaced_process_gets_the_locked_device_whatever_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock: Any = object()
    monkeypatch.setattr(process.Session, "_lock_clocks", lambda *_: None)
    monkeypatch.setattr(process, "lock_one", lambda devices, *_: (devices[0][0], lock))
    session = process.Session(assignment_of(tmp_path), "", io.StringIO(), process.Workers())
    # A process that has kept its device calls it number 0.
    assert session._locked([(0, "b")]) == (0, lock)
    assert session._locked([(0, "a"), (1, "b")]) == (1, lock)
    with pytest.raises(DeviceError, match="b is gone"):
        session._locked([(0, "a")])


@pytest.mark.parametrize(("turn", "order"), [(0, [0, 1]), (1, [1, 0]), (2, [0, 1])])
def test_servers_of_a_run_begin_with_devices_of_their_own(
    turn: int, order: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept process keeps its device, so two that begin with one leave the other idle."""
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path))
    devices = [(0, "GPU-a"), (1, "GPU-b")]
    workers = process.Workers(keep=True, turn=turn)
    job = assignment_of(tmp_path)
    monkeypatch.setattr(locks, "_SAY_S", 0.0)
    one, other = (process.Session(job, "", io.StringIO(), workers) for _ in range(2))
    with one, other:
        assert [session._locked(devices)[0] for session in (one, other)] == order


class NotedProcess:
    """Stands for a measuring process; notes what it is asked."""

    def __init__(self, program: Any) -> None:
        self.environment = process.child_environment()
        self.heard: list[Any] = []
        self.has_ended = False
        self.keep: Callable[[], None] | None = None

    def say(self, message: object) -> None:
        self.heard.append(message)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[NotedProcess]:
    """All processes, in the order of their starts."""
    noted: list[NotedProcess] = []

    def start(program: Any) -> NotedProcess:
        noted.append(NotedProcess(program))
        return noted[-1]

    monkeypatch.setattr(process, "WorkerProcess", start)
    monkeypatch.setattr(process, "start", lambda *_: None)
    monkeypatch.setattr(process, "early", lambda *_: None)
    return noted


def test_the_process_of_the_next_repeat_imports_while_a_gpu_measures(
    started: list[NotedProcess],
) -> None:
    workers, jobs = (
        process.Workers(keep=True),
        [assignment_of(Path(), 3, repeat=repeat) for repeat in (1, 2, 3)],
    )
    for job in jobs:
        # The second job of the repeat finds the process, and the one that was prepared.
        for _ in range(2):
            taken: Any = workers.take(job)
            assert taken is started[jobs.index(job)]
            workers.prepare_next(job)
            assert len(started) == min(jobs.index(job) + 2, 3)
            taken.keep()
    assert [one.heard for one in started] == [
        [jobs[0]] * 2,
        [Prepare("cuda"), *[jobs[1]] * 2],
        [Prepare("cuda"), *[jobs[2]] * 2],
    ]


def test_no_process_imports_beside_a_measured_host_or_for_a_job_alone(
    started: list[NotedProcess],
) -> None:
    for workers, job in (
        (process.Workers(keep=True), assignment_of(Path(), 3, backend="opencl")),
        (process.Workers(keep=False), assignment_of(Path(), 3)),
    ):
        before = len(started)
        workers.take(job)
        workers.prepare_next(job)
        assert len(started) == before + 1


def test_a_server_of_gpus_has_a_process_import_before_the_first_job(
    started: list[NotedProcess],
) -> None:
    workers = process.Workers(keep=True)
    workers.prepare("cuda")
    [first] = started
    assert first.heard == [Prepare("cuda")]
    taken: Any = workers.take(assignment_of(Path(), 3))
    assert taken is first


def test_stopped_processes_are_not_replaced(started: list[NotedProcess]) -> None:
    workers = process.Workers(keep=True)
    taken: Any = workers.take(assignment_of(Path(), 3))
    killed = []
    taken.kill = lambda: killed.append(taken)
    workers.stop()
    assert killed == [taken]
    with pytest.raises(KeyboardInterrupt):
        workers.take(assignment_of(Path(), 3))
    workers.restart()
    assert workers.take(assignment_of(Path(), 3)) is started[-1]
    assert len(started) == 2
