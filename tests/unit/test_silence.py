"""Processes that are stopped, starved or struck: what counts as silence, and who is heard again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gpushmoo import process
from gpushmoo.messages import Finished, Job
from gpushmoo.process import (
    WorkerGoneError,
    WorkerKilledError,
    WorkerProcess,
    WorkerSilentError,
    end_of,
)
from gpushmoo.silence import SLICE_S, Silence, Standing, standing
from gpushmoo.standstill import StandstillWatch

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
from gpushmoo.messages import Finished

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


def test_a_process_that_is_struck_is_found_at_once(start: Callable[..., WorkerProcess]) -> None:
    with pytest.raises(WorkerKilledError, match=r"^the measuring process was ended by SIGTERM$"):
        start("SIGTERM").hear(DEADLINE_S)


def test_a_process_that_hangs_is_silent_for_too_long(start: Callable[..., WorkerProcess]) -> None:
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
from gpushmoo import process
from gpushmoo.messages import Job

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
def test_a_pause_of_both_does_not_count(tmp_path: Path) -> None:
    """Ctrl-Z and fg: all processes of the group are stopped and continued."""
    (tmp_path / "obedient.py").write_text(WORKER)
    paths = os.pathsep.join([str(ROOT / "workflow/scripts"), str(tmp_path)])
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
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
