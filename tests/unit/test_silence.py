"""Processes that are stopped, starved, struck or told to end: who is heard again, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench import Bench
from conftest import USER_OPENCL, environment
from gpushmoo.core.process import JobSignalledError, raises_signals
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring import process
from gpushmoo.measuring.events import Finished, Job
from gpushmoo.measuring.process import (
    SLICE_S,
    Silence,
    Standing,
    WorkerGoneError,
    WorkerKilledError,
    WorkerProcess,
    WorkerSilentError,
    end_of,
    standing,
)
from gpushmoo.measuring.worker import StandstillWatch

# Real processes are waited for so long at most; what passes is never decided by it.
DEADLINE_S = 60.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it on Linux alone")


def runs(ran_s: float = 0.0, waited_s: float = 0.0) -> Standing:
    return Standing(False, ran_s, waited_s)


STOPPED = Standing(True, 0.0, 0.0)


def counted(*slices: tuple[float, Standing | None]) -> float:
    """Seconds that count of slices with their length and how the process stood at their end."""
    silence = Silence(1e9)
    for elapsed_s, stands in slices:
        silence.add(elapsed_s, stands)
    return silence.counted_s


def test_silence_of_a_process_that_sleeps_or_computes_counts_in_full() -> None:
    slices = [(SLICE_S, runs(i * SLICE_S)) for i in range(1, 9)]
    assert counted(*slices) == pytest.approx(8 * SLICE_S)
    assert counted(*[(SLICE_S, runs())] * 8) == pytest.approx(8 * SLICE_S)
    # Where nothing tells how it stands.
    assert counted(*[(SLICE_S, None)] * 8) == pytest.approx(8 * SLICE_S)


def test_silence_of_a_stopped_process_does_not_count() -> None:
    assert counted(*[(SLICE_S, STOPPED)] * 1000) == 0.0
    assert counted((SLICE_S, STOPPED), (SLICE_S, runs()), (SLICE_S, STOPPED)) == SLICE_S


@pytest.mark.parametrize("pause_s", [1.0, 3600.0, 1e7, -50.0])
def test_a_slice_in_which_the_waiting_side_did_not_run_counts_as_one_at_most(
    pause_s: float,
) -> None:
    """Stopped, suspended, preempted, or a clock that jumps."""
    assert 0.0 <= counted((SLICE_S + pause_s, runs())) <= SLICE_S


def test_time_in_which_a_process_got_no_core_does_not_count() -> None:
    # A quarter of what it wanted, then nothing at all, then threads that share its two cores.
    assert counted((0.0, runs()), (0.2, runs(0.05, 0.15))) == pytest.approx(0.05)
    assert counted((0.0, runs()), (0.2, runs(0.0, 0.2))) == pytest.approx(0.0)
    assert counted((0.0, runs()), (0.2, runs(0.4, 2.8))) == pytest.approx(0.2)
    # A thread has ended and took its seconds along.
    assert counted((0.0, runs(5.0, 5.0)), (0.2, runs(1.0, 1.0))) == pytest.approx(0.2)


def test_silence_is_too_long_when_what_counts_reaches_the_limit() -> None:
    silence = Silence(4 * SLICE_S)
    for _ in range(3):
        silence.add(SLICE_S, runs())
        silence.add(1e6, STOPPED)
        assert not silence.too_long
    silence.add(SLICE_S, runs())
    assert silence.too_long


@pytest.mark.parametrize("name", ["python", "a ) T (b", ""])
@pytest.mark.parametrize(
    ("state", "stopped"), [("R", False), ("S", False), ("T", True), ("t", True)]
)
def test_linux_tells_how_a_process_stands(
    name: str, state: str, stopped: bool, tmp_path: Path
) -> None:
    assert standing(7, tmp_path) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(f"7 ({name}) {state} 1 7 7 0 -1")
    # A kernel that keeps no such statistics.
    assert standing(7, tmp_path) == Standing(stopped, 0.0, 0.0)
    for thread, text in (("7", "1500000000 250000000 9\n"), ("8", "500000000 0 1\n"), ("9", "")):
        (tmp_path / "7/task" / thread).mkdir(parents=True)
        (tmp_path / "7/task" / thread / "schedstat").write_text(text)
    assert standing(7, tmp_path) == Standing(stopped, 2.0, 0.25)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# A measuring process that does what its job says; the caller knows its number by the job's cache.
WORKER = """
import os, signal, sys, time
from multiprocessing.connection import Connection
from gpushmoo.measuring.events import Finished

connection = Connection(int(sys.argv[1]))
job = connection.recv()
(job.cache / "pid").write_text(str(os.getpid()))
(job.cache / "pid").rename(job.cache / "ready")
for name in job.params["signals"]:
    os.kill(os.getpid(), getattr(signal, name))
if job.params["hangs"]:
    time.sleep(1000)
while job.params["waits"] and not (job.cache / "go").exists():
    time.sleep(0.01)
connection.send(Finished())
"""


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts a real process that sends itself `signals`, waits for the file ``go``, or hangs."""
    (tmp_path / "obedient.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(process, "worker", SimpleNamespace(__name__="obedient"))
    started: list[WorkerProcess] = []

    def open_one(*signals: str, waits: bool = False, hangs: bool = False) -> WorkerProcess:
        params = {"folder": "kernels/k", "signals": signals, "waits": waits, "hangs": hangs}
        started.append(WorkerProcess(Job(params, tmp_path, 0.0)))
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
    assert type(end_of(3)) is WorkerGoneError


def test_a_process_that_is_struck_or_hangs_is_found(start: Callable[..., WorkerProcess]) -> None:
    with pytest.raises(WorkerKilledError, match=r"^the measuring process was ended by SIGTERM$"):
        start("SIGTERM").hear(DEADLINE_S)
    with pytest.raises(WorkerSilentError):
        start(hangs=True).hear(2 * SLICE_S)


@linux
def test_a_measuring_process_that_is_stopped_is_waited_for(
    start: Callable[..., WorkerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopped: list[float] = []

    class Watched(Silence):
        def add(self, elapsed_s: float, now: Standing | None) -> None:
            before = self.counted_s
            super().add(elapsed_s, now)
            if now is not None and now.stopped:
                stopped.append(self.counted_s - before)
            if len(stopped) == 4:
                os.kill(int((tmp_path / "ready").read_text()), signal.SIGCONT)

    monkeypatch.setattr(process, "Silence", Watched)
    assert start("SIGSTOP").hear(DEADLINE_S) == Finished()
    assert stopped[:4] == [0.0] * 4
    assert caplog.text.count("is stopped: waiting") == 1


# The caller's side: waits for the word of a process and tells how much of the silence counted.
CALLER = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from gpushmoo.measuring import process
from gpushmoo.measuring.events import Job

process.worker = SimpleNamespace(__name__="obedient")
silences = []
class Kept(process.Silence):
    def __init__(self, limit_s):
        super().__init__(limit_s)
        silences.append(self)
process.Silence = Kept
params = {"folder": "kernels/k", "signals": [], "waits": True, "hangs": False}
worker = process.WorkerProcess(Job(params, Path(sys.argv[1]), 0.0))
began = time.monotonic()
worker.hear(60.0)
print(time.monotonic() - began, silences[0].counted_s)
worker.join()
"""


@linux
def test_a_pause_of_both_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-Z and fg: all processes of the group are stopped and continued."""
    (tmp_path / "obedient.py").write_text(WORKER)
    monkeypatch.syspath_prepend(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as caller:
        try:
            wait_until((tmp_path / "ready").exists)
            measuring = int((tmp_path / "ready").read_text())
            os.killpg(caller.pid, signal.SIGSTOP)
            for pid in (caller.pid, measuring):
                wait_until(lambda pid=pid: (now := standing(pid)) is not None and now.stopped)
            pause_s = 4 * SLICE_S
            time.sleep(pause_s)
            (tmp_path / "go").touch()
            os.killpg(caller.pid, signal.SIGCONT)
            told, _ = caller.communicate(timeout=DEADLINE_S)
        finally:
            caller.kill()
    elapsed_s, counted_s = map(float, told.split())
    assert elapsed_s - counted_s > pause_s - 2 * SLICE_S


def test_a_process_that_was_stopped_and_continued_knows_it() -> None:
    before = signal.getsignal(signal.SIGCONT)
    suspended = [0.0]
    try:
        watch = StandstillWatch(lambda: suspended[0])
        assert not watch()
        # To a process that runs it is the end of a stop as well.
        os.kill(os.getpid(), signal.SIGCONT)
        assert watch()
        assert not watch()
        suspended[0] = 0.001
        assert not watch()
        suspended[0] = 30.0
        assert watch()
        assert not watch()
    finally:
        signal.signal(signal.SIGCONT, before)


# Its measuring process leaves its number and comes to no end.
HELD = """

def held(self, problem, dtype, rng):
    import os, time
    from pathlib import Path
    Path(__file__).with_name("pid").write_text(str(os.getpid()))
    Path(__file__).with_name("pid").rename(Path(__file__).with_name("held"))
    time.sleep(1000)

type(WORKLOAD).inputs = held
"""
# As the measuring server does it.
JOB = """
import json, sys
from pathlib import Path
from gpushmoo.storage.joblog import job_log
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.core.process import JobSignalledError, raises_signals
params, folder, cache = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
with job_log(folder / "log", (JobSignalledError,)) as terminal, raises_signals():
    task = ShardTask(params, (1, 1), cache)
    run_shard(task, folder / "out" / "shard.parquet", terminal, Path("plan.json"))
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells whether a process lives")
@pytest.mark.parametrize(
    ("number", "whom"),
    [
        pytest.param(signal.SIGTERM, os.kill, id="an administrator ends the job"),
        pytest.param(signal.SIGINT, os.killpg, id="Ctrl-C"),
    ],
)
def test_a_job_that_is_told_to_end_says_so_and_leaves_nothing_behind(
    number: signal.Signals,
    whom: Callable[[int, int], None],
    opencl_choice: DeviceChoice,
    make_kernel: Callable[..., Path],
    tmp_path: Path,
) -> None:
    folder = make_kernel("held", "", USER_OPENCL)
    with (folder / "workload.py").open("a") as workload:
        workload.write(HELD)
    params = Bench(opencl_choice, folder, tmp_path).params(["good"])
    with subprocess.Popen(
        [sys.executable, "-c", JOB, json.dumps(params), tmp_path, opencl_choice.cache],
        env=environment(GPUSHMOO_LOCK_DIR=str(tmp_path / "locks")),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        try:
            wait_until(lambda: (folder / "held").exists() or job.poll() is not None)
            measuring = int((folder / "held").read_text())
            assert alive(measuring)
            whom(job.pid, number)
            _, said = job.communicate(timeout=DEADLINE_S)
        finally:
            job.kill()
    assert job.returncode == 1
    *_, last = said.splitlines()
    assert last == (
        f"gpushmoo: This job was ended by {number.name} before its file was written; start the run "
        "again: finished shards are kept, only this one is measured again."
    )
    assert "Traceback" not in said + (tmp_path / "log").read_text()
    wait_until(lambda: not alive(measuring))
    assert not (tmp_path / "out").exists()


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
