"""Processes that are stopped, struck or told to end: who is heard again, what is left."""

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
    BEAT_S,
    WorkerGoneError,
    WorkerKilledError,
    WorkerProcess,
    WorkerSilentError,
    end_of,
)
from gpushmoo.measuring.worker import StandstillWatch

# Real processes are waited for so long at most; what passes is never decided by it.
DEADLINE_S = 60.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it on Linux alone")


@pytest.mark.parametrize("name", ["python", "a ) T (b", ""])
@pytest.mark.parametrize(
    ("state", "stopped"), [("R", False), ("S", False), ("T", True), ("t", True)]
)
def test_linux_tells_that_a_process_is_stopped(
    name: str, state: str, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"7 ({name}) {state} 1 7 7 0 -1")
    assert process.is_stopped(7) == stopped


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# A measuring process that does what its job says.
WORKER = """
import os, signal, sys, time
from multiprocessing.connection import Connection
from gpushmoo.measuring.events import Finished

connection = Connection(int(sys.argv[1]))
job = connection.recv()
for name in job.params["signals"]:
    os.kill(os.getpid(), getattr(signal, name))
if job.params["hangs"]:
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
    monkeypatch.setattr(process, "worker", SimpleNamespace(__name__="obedient"))
    started: list[WorkerProcess] = []

    def open_one(*signals: str, hangs: bool = False) -> WorkerProcess:
        params = {"folder": "kernels/k", "signals": signals, "hangs": hangs}
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
        start(hangs=True).hear(2 * BEAT_S)


class Connections:
    """Says nothing for so many beats; `on_beat` sees each of them."""

    def __init__(self, silent: int, on_beat: Callable[[int], None] = lambda beat: None) -> None:
        self.beats, self._silent, self._on_beat = 0, silent, on_beat

    def poll(self, seconds: float) -> bool:
        assert seconds == BEAT_S
        self.beats += 1
        self._on_beat(self.beats)
        return self.beats > self._silent

    def recv(self) -> Finished:
        return Finished()

    def close(self) -> None:
        pass


def test_silence_is_counted_in_beats_however_long_they_last(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop of the caller, or a suspended machine, is one long beat: no clock is read."""
    worker = start()
    for silent, too_long in ((3, False), (4, True)):
        monkeypatch.setattr(worker, "_connection", Connections(silent))
        if too_long:
            with pytest.raises(WorkerSilentError, match=r"said nothing for 1 s$"):
                worker.hear(4 * BEAT_S)
        else:
            assert worker.hear(4 * BEAT_S) == Finished()


def test_a_measuring_process_that_is_stopped_is_waited_for(
    start: Callable[..., WorkerProcess],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = start()
    monkeypatch.setattr(process, "is_stopped", lambda pid: True)
    monkeypatch.setattr(worker, "_connection", Connections(1000))
    assert worker.hear(4 * BEAT_S) == Finished()
    assert caplog.text.count("is stopped: waiting") == 1


@linux
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


def test_a_process_that_was_stopped_and_continued_knows_it() -> None:
    before = signal.getsignal(signal.SIGCONT)
    try:
        watch = StandstillWatch()
        assert not watch()
        # To a process that runs it is the end of a stop as well.
        os.kill(os.getpid(), signal.SIGCONT)
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
