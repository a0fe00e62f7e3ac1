"""What a watching person reads, and that two measurements never share a device."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import environment
from fakes import FakeClock
from gpushmoo.measuring.locks import device_lock, lock_one
from gpushmoo.measuring.progress import Progress, duration


def lines_of(progress: Progress) -> list[str]:
    assert isinstance(progress.stream, io.StringIO)
    return progress.stream.getvalue().splitlines()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def progress(clock: FakeClock) -> Progress:
    return Progress("shard 2/7 tiny float", 40, io.StringIO(), every_s=2.0, clock=clock)


def test_lines_tell_the_shard_the_cells_and_the_time_left(
    progress: Progress, clock: FakeClock
) -> None:
    progress.announce()
    clock.now += 40.0
    progress.update(4, 0.8)
    clock.now += 50.0
    progress.finish("39 ok, 1 timeout")
    assert lines_of(progress) == [
        "shard 2/7 tiny float: 40 cells to measure",
        "shard 2/7 tiny float: 4/40 cells done, 80 % of the work, about 10 s left",
        "shard 2/7 tiny float: 39 ok, 1 timeout in 1 min 30 s",
    ]


def test_lines_come_no_faster_than_the_period(progress: Progress, clock: FakeClock) -> None:
    for i in range(100):
        clock.now += 0.5
        progress.update(i, i / 100)
    # 50 s in steps of half a second: a line every two seconds.
    assert len(lines_of(progress)) == 25


def test_every_line_is_flushed_so_that_it_is_seen_at_once(clock: FakeClock, tmp_path: Path) -> None:
    path = tmp_path / "terminal"
    with path.open("w") as stream:
        Progress("shard 1/1", 3, stream, clock=clock).announce()
        assert path.read_text() == "shard 1/1: 3 cells to measure\n"


@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_no_time_left_is_guessed_at_the_ends(
    progress: Progress, clock: FakeClock, fraction: float
) -> None:
    clock.now += 5.0
    progress.update(0, fraction)
    assert "left" not in lines_of(progress)[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (185, "3 min 5 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (7440, "2 h 4 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# Locks

HOLDER = """
import sys
from gpushmoo.measuring.locks import lock_one
if lock_one([(0, sys.argv[1])], lambda: None):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks" / "deep"
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(folder))
    return folder


@pytest.mark.parametrize("killed", [False, True])
def test_device_is_held_by_one_process_at_a_time(killed: bool, lock_dir: Path) -> None:
    command = [sys.executable, "-c", HOLDER, "GPU-1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not device_lock("GPU-1").acquire()
        assert device_lock("GPU-2").acquire()
        if killed:
            holder.kill()
        holder.communicate(timeout=600)  # its input ends, it leaves by itself
        assert device_lock("GPU-1").acquire()


def test_locks_lie_in_the_folder_of_the_environment(lock_dir: Path) -> None:
    assert device_lock("../GPU 1/x").acquire()
    assert [p.name for p in lock_dir.iterdir()] == ["gpushmoo-.._GPU_1_x.lock"]


def test_locks_of_all_users_lie_in_the_systems_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUSHMOO_LOCK_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert device_lock("GPU-1").acquire()
    (path,) = tmp_path.iterdir()
    # Another user must be able to open it.
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_first_free_device_is_locked_and_the_next_caller_gets_the_other(lock_dir: Path) -> None:
    devices = ((0, "GPU-a"), (1, "GPU-b"))
    waited: list[int] = []
    first, lock_a = lock_one(devices, lambda: waited.append(1))
    second, lock_b = lock_one(devices, lambda: waited.append(1))
    assert (first, second, waited) == (0, 1, [])
    # The third waits, says so once, and gets the device that is freed.
    third, lock_c = lock_one(devices, lambda: (waited.append(1), lock_b.release())[0])
    assert (third, waited) == (1, [1])
    for lock in (lock_a, lock_c):
        lock.release()


# A job that locks a device, lends the lock to its measuring process, and waits.
LENDER = """
import socket, subprocess, sys
from multiprocessing.connection import Connection
from gpushmoo.measuring.locks import lock_one
from multiprocessing.reduction import send_handle
from gpushmoo.measuring.events import Locked
mine, its = socket.socketpair()
borrower = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1], str(its.fileno())], pass_fds=[its.fileno()]
)
its.close()
connection = Connection(mine.detach())
index, lock = lock_one([(7, "GPU-a")], lambda: None)
connection.send(Locked(index))
send_handle(connection, lock.descriptor, borrower.pid)
connection.recv()
print(borrower.pid, flush=True)
sys.stdin.read()
"""
# Such a process, but one that outlives its job.
BORROWER = """
import sys, time
from multiprocessing.connection import Connection
from gpushmoo.measuring.worker import Caller
connection = Connection(int(sys.argv[1]))
caller = Caller(connection)
assert caller.receive().index == 7
connection.send("held")
time.sleep(600)
"""


def test_a_device_is_locked_as_long_as_the_process_that_measures_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path))
    command = [sys.executable, "-c", LENDER, BORROWER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True) as job:
        assert job.stdout is not None
        measuring = int(job.stdout.readline())
        try:
            job.kill()
            job.wait()
            assert not device_lock("GPU-a").acquire()
        finally:
            os.kill(measuring, signal.SIGKILL)
    assert lock_one([(0, "GPU-a")], lambda: None)
