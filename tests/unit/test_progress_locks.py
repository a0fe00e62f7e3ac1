"""What a watching person reads, and that two measurements never share a device."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT
from fakes import FakeClock
from filelock import Timeout
from gpushmoo.locks import device_lock, lock_one
from gpushmoo.progress import Progress, duration


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
from gpushmoo.locks import device_lock, lock_one
with device_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(uuid: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the device until its input ends or it is killed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "workflow/scripts")}
    command = [sys.executable, "-c", HOLDER, uuid]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def lock_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks" / "deep"
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(folder))
    return folder


def test_device_is_held_by_one_process_at_a_time(lock_dir: Path) -> None:
    with held_elsewhere("GPU-1") as holder:
        with pytest.raises(Timeout):
            device_lock("GPU-1").acquire(timeout=0)
        with device_lock("GPU-2").acquire(timeout=0):
            pass
        holder.communicate()  # its input ends, it leaves by itself
        assert holder.returncode == 0
        with device_lock("GPU-1").acquire(timeout=0):
            pass


def test_killed_holder_frees_its_device(lock_dir: Path) -> None:
    with held_elsewhere("GPU-1") as holder:
        holder.send_signal(signal.SIGKILL)
        assert holder.wait() == -signal.SIGKILL
        with device_lock("GPU-1").acquire(timeout=0):
            pass


def test_locks_lie_in_the_folder_of_the_environment(lock_dir: Path) -> None:
    with device_lock("../GPU 1/x"):
        assert [p.name for p in lock_dir.iterdir()] == ["gpushmoo-.._GPU_1_x.lock"]


def test_locks_of_all_users_lie_in_the_systems_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUSHMOO_LOCK_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with device_lock("GPU-1"):
        (path,) = tmp_path.iterdir()
        # Another user must be able to open it.
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_first_free_device_is_locked_and_the_next_caller_gets_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path))
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
