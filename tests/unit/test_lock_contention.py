"""Twenty processes want two devices and are killed at random: none is shared or left locked."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from filelock import Timeout
from gpushmoo.locks import device_lock

DEVICES = ("GPU-a", "GPU-b")
PROCESSES = 20
DEADLINE_S = 60.0

# Measures ten times, each time with its process id as a mark in the device's folder: two marks of
# living processes are two measurements on one device.
CONTENDER = """
import os, random, sys, time
from pathlib import Path
from gpushmoo.locks import lock_one

devices, place = list(enumerate(sys.argv[2:])), Path(sys.argv[1])
rng = random.Random(os.getpid())

def alive(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:
        return False
    # A killed process gives back its files, and so its lock, shortly before it is a zombie: it runs
    # no more when it has the kernel's flag PF_EXITING.
    return fields[0] not in "ZX" and not int(fields[6]) & 4

for _ in range(10):
    index, lock = lock_one(devices, lambda: None)
    marks = place / devices[index][1]
    # One who was killed has left its mark; one who lives must have taken it away.
    for other in marks.iterdir():
        if alive(int(other.name)):
            (place / "shared").write_text(f"{other.name} and {os.getpid()} on {devices[index]}")
        other.unlink(missing_ok=True)
    mine = marks / str(os.getpid())
    mine.touch()
    time.sleep(rng.uniform(0.0, 0.01))
    if [p.name for p in marks.iterdir()] != [mine.name]:
        (place / "shared").write_text(f"{os.getpid()} was joined on {devices[index]}")
    mine.unlink(missing_ok=True)
    with (place / "log").open("a") as log:
        log.write(f"{index}\\n")
    lock.release()
"""


def start(place: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "workflow/scripts")}
    command = [sys.executable, "-c", CONTENDER, str(place), *DEVICES]
    return subprocess.Popen(command, env=env)


def test_killed_at_random_no_two_measure_on_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))
    for uuid in DEVICES:
        (tmp_path / uuid).mkdir()
    rng = random.Random(20091017)
    log = tmp_path / "log"
    log.touch()
    running = [start(tmp_path) for _ in range(PROCESSES)]
    deadline = time.monotonic() + DEADLINE_S
    try:
        # Until half of them are killed, one of those at work after every fourth measurement.
        killed = 0
        while killed < PROCESSES // 2:
            assert time.monotonic() < deadline
            if log.read_text().count("\n") < 4 * (killed + 1):
                time.sleep(0.001)
                continue
            pids = {int(p.name) for uuid in DEVICES for p in (tmp_path / uuid).iterdir()}
            alive = [p for p in running if p.poll() is None]
            assert alive, "all have ended before enough were killed"
            victim = rng.choice([p for p in alive if p.pid in pids] or alive)
            victim.send_signal(signal.SIGKILL)
            # One that had just ended by itself does not count.
            killed += victim.wait() == -signal.SIGKILL
        survivors = [p for p in running if p.wait(timeout=DEADLINE_S) == 0]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert not (tmp_path / "shared").exists(), (tmp_path / "shared").read_text()
    assert len(survivors) == PROCESSES - killed
    # They have all had their ten turns, on both devices.
    turns = [int(x) for x in log.read_text().split()]
    assert len(turns) >= 10 * len(survivors)
    assert set(turns) == {0, 1}
    for uuid in DEVICES:
        with device_lock(uuid).acquire(timeout=0):
            pass


# A job that locks a device, lends the lock to its measuring process, and waits.
LENDER = """
import socket, subprocess, sys
from multiprocessing.connection import Connection
from filelock import Timeout
from gpushmoo.locks import device_lock
from gpushmoo.process import lend
mine, its = socket.socketpair()
borrower = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1], str(its.fileno())], pass_fds=[its.fileno()]
)
its.close()
connection = Connection(mine.detach())
with device_lock("GPU-a") as lock:
    lend(connection, 7, lock, borrower.pid)
    connection.recv()
    print(borrower.pid, flush=True)
    sys.stdin.read()
"""
# Such a process, but one that outlives its job.
BORROWER = """
import sys, time
from multiprocessing.connection import Connection
from gpushmoo.worker import receiver
connection = Connection(int(sys.argv[1]))
assert receiver(connection)().index == 7
connection.send("held")
time.sleep(600)
"""


def test_a_device_is_locked_as_long_as_the_process_that_measures_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "workflow/scripts")}
    command = [sys.executable, "-c", LENDER, BORROWER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as job:
        assert job.stdout is not None
        measuring = int(job.stdout.readline())
        try:
            job.kill()
            job.wait()
            with pytest.raises(Timeout):
                device_lock("GPU-a").acquire(timeout=0)
        finally:
            os.kill(measuring, signal.SIGKILL)
    with device_lock("GPU-a").acquire(timeout=DEADLINE_S):
        pass
