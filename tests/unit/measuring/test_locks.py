"""A device and its clocks, locked while a job measures (NVML is a fake)."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import Bench
from conftest import ROOT, environment
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring import job, locks, process
from gpushmoo.measuring.locks import (
    DeviceLock,
    HeldClocks,
    device_lock,
    lock_one,
)
from gpushmoo.storage.store import read_shard

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


def test_the_first_free_device_is_locked(lock_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_SAY_S", 0.0)
    assert device_lock("../GPU 1/x").acquire()
    assert [p.name for p in lock_dir.iterdir()] == ["gpushmoo-.._GPU_1_x.lock"]
    devices = ((0, "GPU-a"), (1, "GPU-b"))
    waited: list[int] = []
    first, lock_a = lock_one(devices, lambda: waited.append(1))
    # It does not wait for one of its own longer than for a message.
    second, lock_b = lock_one(devices, lambda: waited.append(1), own=True)
    assert waited.pop() == 1
    assert (first, second, waited) == (0, 1, [])
    # The third waits, says so once, and gets the device that is freed.
    third, lock_c = lock_one(devices, lambda: (waited.append(1), lock_b.release())[0])
    assert (third, waited) == (1, [1])
    for lock in (lock_a, lock_c):
        lock.release()


def test_locks_are_for_all_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSHMOO_LOCK_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert device_lock("GPU-1").acquire()
    (path,) = tmp_path.iterdir()
    # Another user must be able to open it.
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


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


def test_a_lock_lasts_as_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


UUID = "GPU-00112233445566778899aabbccddeeff"
HANDLE = "GPU-00112233-4455-6677-8899-aabbccddeeff"
FREED = [["free core", HANDLE], ["free memory", HANDLE]]
LOCKED = [["lock core", HANDLE, 1500, 1500], ["lock memory", HANDLE, 3201, 3201]]

Calls = Callable[[], list[list[object]]]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the fake NVML was told so far; locks are in a folder of the test's own."""
    file = tmp_path / "nvml"
    monkeypatch.setenv("FAKE_NVML", str(file))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/support/fake_nvml"))
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))
    file.touch()
    return lambda: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def locked(uuid: str = UUID) -> DeviceLock:
    lock = device_lock(uuid)
    assert lock.acquire()
    return lock


def test_clocks_are_held_until_they_are_freed(calls: Calls) -> None:
    lock = locked()
    clocks = HeldClocks("cuda", UUID, 1500, lock)
    assert calls() == LOCKED
    assert clocks.sentence is None
    provenance = {"asked": 1500, "locked": True, "core": 1500, "memory_mhz": 3201, "why": None}
    assert clocks.provenance() == provenance
    lock.release()
    # Nobody else measures as long as the clocks are held.
    assert not device_lock(UUID).acquire()
    clocks.free()
    clocks.free()
    assert calls() == LOCKED + FREED
    assert device_lock(UUID).acquire()


def test_a_uuid_that_is_not_whole_tells_the_place_on_the_bus(calls: Calls) -> None:
    uuid = "GPU-0011-0000:18:00.0"
    clocks = HeldClocks("cuda", uuid, "base", locked(uuid))
    # The base is the clock of the rated power.
    assert calls()[0] == ["lock core", "bus 0000:18:00.0", 0xFFFFFF01, 0xFFFFFF01]
    assert clocks.provenance()["core"] == "base"
    clocks.free()


HOLDS = """
import signal, sys
from gpushmoo.measuring.locks import HeldClocks
from gpushmoo.measuring.locks import device_lock

# As from a terminal, also where the tests run under nohup.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
lock = device_lock(sys.argv[1])
lock.acquire()
clocks = HeldClocks("cuda", sys.argv[1], 1500, lock)
print("held", flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [(signal.SIGKILL, False), (signal.SIGTERM, False), (signal.SIGINT, True)],
)
def test_a_kill_frees_the_clocks(number: signal.Signals, whole_group: bool, calls: Calls) -> None:
    paths = [str(ROOT / "workflow/scripts"), os.environ["PYTHONPATH"]]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, UUID],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert calls() == LOCKED
    (os.killpg if whole_group else os.kill)(process.pid, number)
    process.wait()
    process.stdout.close()
    # The lock is free once the guardian has ended.
    _, lock = lock_one([(0, UUID)], lambda: None)
    lock.release()
    assert calls() == LOCKED + FREED


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("NVMLError_NoPermission", "the driver lets only the administrator set clocks"),
        ("NVMLError_NotSupported", "this GPU has no clocks that can be locked"),
        ("NVMLError", "NVML says: lock core refused"),
    ],
)
def test_where_it_is_not_permitted_one_sentence_says_so_and_nothing_is_freed(
    error: str, why: str, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_REFUSED", f"lock core:{error}")
    clocks = HeldClocks("cuda", UUID, 1500, locked())
    assert clocks.sentence == (
        f"The clocks were not locked (measure.lock_clocks: 1500): {why}; the device chooses them "
        "itself."
    )
    assert clocks.provenance()["locked"] is False
    clocks.free()
    assert calls() == []


def test_memory_whose_clock_has_no_lock_is_no_failure(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(
        "FAKE_REFUSED", "lock memory:NVMLError_NotSupported;free memory:NVMLError_NotSupported"
    )
    clocks = HeldClocks("cuda", UUID, 1500, locked())
    assert (clocks.told.core, clocks.told.memory_mhz) == (1500, None)
    clocks.free()
    assert calls() == [LOCKED[0], FREED[0]]
    assert "may still be locked" not in caplog.text


def test_clocks_that_cannot_be_freed_are_named(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FAKE_REFUSED", "free core:NVMLError")
    HeldClocks("cuda", UUID, 1500, locked()).free()
    assert calls() == [*LOCKED, FREED[1]]
    assert "may still be locked: 'nvidia-smi -rgc -rmc'" in caplog.text


def test_without_nvml_nothing_is_locked(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    other = HeldClocks("opencl", UUID, "base", locked())
    assert other.told.why == "backend 'opencl' has no way to lock clocks"
    other.free()
    monkeypatch.delenv("PYTHONPATH")
    missing = HeldClocks("cuda", UUID, "base", locked("GPU-other"))
    shown = ("nvidia-ml-py is not installed", "NVML says: NVML Shared Library Not Found")
    assert missing.told.why in shown
    missing.free()
    assert calls() == []


def measured(bench: Bench, tmp_path: Path) -> dict[str, object]:
    """The metadata of a shard whose job was asked to lock clocks."""
    params = bench.params(["element"], {"from": 8, "to": 8, "step": 1})
    params["measure"]["lock_clocks"] = 1500
    axes = {"block_x": 8, "block_y": 8}
    bench.measure(["element"], measure=params["measure"], axes=axes)
    _, metadata = read_shard(tmp_path / "shard.parquet")
    return metadata


@pytest.fixture
def copies(opencl_choice: DeviceChoice, tmp_path: Path) -> Bench:
    return Bench(opencl_choice, ROOT / "kernels/copy2d_coalesced", tmp_path)


def test_a_job_says_where_clocks_could_not_be_locked(copies: Bench, tmp_path: Path) -> None:
    told = measured(copies, tmp_path)["clocks"]
    assert (told["locked"], told["why"]) == (False, "backend 'opencl' has no way to lock clocks")
    assert copies.terminal.getvalue().count("The clocks were not locked") == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_frees_the_clocks_that_it_locked_whether_it_ends_well_or_not(
    fails: bool, copies: Bench, calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        process, "HeldClocks", lambda _, uuid, asked, lock: HeldClocks("cuda", UUID, asked, lock)
    )
    if fails:

        def fail(*_: object) -> None:
            assert calls() == LOCKED
            raise OSError("no space")

        monkeypatch.setattr(job, "LiveFile", fail)
        with pytest.raises(OSError, match="no space"):
            measured(copies, tmp_path)
    else:
        assert measured(copies, tmp_path)["clocks"]["locked"] is True
    assert calls() == LOCKED + FREED
