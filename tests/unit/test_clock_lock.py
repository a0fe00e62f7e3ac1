"""Clocks are locked while a job measures, and freed whatever becomes of the job; NVML is a fake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import Bench
from conftest import ROOT
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring import job, process
from gpushmoo.measuring.locks import DeviceLock, HeldClocks, device_lock, lock_one
from gpushmoo.storage.store import read_shard

UUID = "GPU-00112233445566778899aabbccddeeff"
HANDLE = "GPU-00112233-4455-6677-8899-aabbccddeeff"
FREED = [["free core", HANDLE], ["free memory", HANDLE]]
LOCKED = [["lock core", HANDLE, 1500, 1500], ["lock memory", HANDLE, 3201, 3201]]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[object]]]:
    """What the fake NVML was told so far; locks lie in a folder of the test's own."""
    file = tmp_path / "nvml"
    monkeypatch.setenv("FAKE_NVML", str(file))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/unit/fake_nvml"))
    monkeypatch.setenv("GPUSHMOO_LOCK_DIR", str(tmp_path / "locks"))
    file.touch()
    return lambda: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def locked(uuid: str = UUID) -> DeviceLock:
    lock = device_lock(uuid)
    assert lock.acquire()
    return lock


def test_clocks_are_held_until_they_are_freed(calls: Callable[[], list[list[object]]]) -> None:
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


def test_a_uuid_that_is_not_whole_tells_the_place_on_the_bus(
    calls: Callable[[], list[list[object]]],
) -> None:
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
    [
        (signal.SIGKILL, False),
        (signal.SIGINT, True),
        (signal.SIGHUP, True),
    ],
)
def test_a_process_that_is_killed_leaves_free_clocks_behind(
    number: signal.Signals, whole_group: bool, calls: Callable[[], list[list[object]]]
) -> None:
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
    error: str,
    why: str,
    calls: Callable[[], list[list[object]]],
    monkeypatch: pytest.MonkeyPatch,
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
    calls: Callable[[], list[list[object]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(
        "FAKE_REFUSED", "lock memory:NVMLError_NotSupported;free memory:NVMLError_NotSupported"
    )
    clocks = HeldClocks("cuda", UUID, 1500, locked())
    assert (clocks.told.core, clocks.told.memory_mhz) == (1500, None)
    clocks.free()
    assert calls() == [LOCKED[0], FREED[0]]
    assert caplog.text == ""


def test_clocks_that_cannot_be_freed_are_named(
    calls: Callable[[], list[list[object]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FAKE_REFUSED", "free core:NVMLError")
    HeldClocks("cuda", UUID, 1500, locked()).free()
    assert calls() == [*LOCKED, FREED[1]]
    assert "may still be locked: 'nvidia-smi -rgc -rmc'" in caplog.text


def test_without_nvml_or_another_backend_nothing_is_locked(
    calls: Callable[[], list[list[object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_job_says_where_clocks_could_not_be_locked(
    copies: Bench, calls: Callable[[], list[list[object]]], tmp_path: Path
) -> None:
    clocks = measured(copies, tmp_path)["clocks"]
    assert clocks == {
        "asked": 1500,
        "locked": False,
        "core": None,
        "memory_mhz": None,
        "why": "backend 'opencl' has no way to lock clocks",
    }
    assert copies.terminal.getvalue().count("The clocks were not locked") == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_frees_the_clocks_that_it_locked_whether_it_ends_well_or_not(
    fails: bool,
    copies: Bench,
    calls: Callable[[], list[list[object]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
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
