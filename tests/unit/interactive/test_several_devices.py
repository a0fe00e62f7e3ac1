"""Calls with ``device="all"``: what two devices measure, and what the loss of one costs."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import ROOT
from gpushmoo import Check, sweep, tune
from gpushmoo.core.errors import ConfigError, DeviceError, HostError
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.interactive import measure, several_devices
from gpushmoo.interactive.several_devices import (
    Lane,
    Part,
    SharedTerminal,
    indices_of,
    measure_parts,
    parts_of,
    refuse_mixture,
)
from gpushmoo.interactive.tune import Tuned
from gpushmoo.measuring.job import MeasuredShard
from gpushmoo.measuring.process import Workers
from made_up import add_made_up

KERNEL = """
def copy_good(ids, dst, src, n):
    for begin in range(0, n, len(ids)):
        i = begin + ids
        i = i[i < n]
        dst[i] = src[i]

def copy_forgets(ids, dst, src, n):
    copy_good(ids, dst, src, n)
    dst[77] = 0

def copy_traps(ids, dst, src, n):
    raise FloatingPointError("copied nothing")
"""
WORKLOAD = """
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch

class Stays(CopyWorkload):
    name = "stays"
    title = "A copy by blocks that stay"
    pattern = "each thread strides over the grid"
    dtypes = ("float",)
    variants = ("good", "forgets", "traps")
    sizes = (32, 48, 64, 96)
    axes = {"threads": [16, 32, 64], "grid": [1, 4]}

    def valid(self, cell):
        # Each trap costs a process.
        is_first = (cell.problem.height, cell["threads"], cell["grid"]) == (32, 16, 1)
        return "a trap" if cell.variant == "traps" and not is_first else None

    def launch(self, cell):
        n = cell.problem.height * cell.problem.width
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(n))
        grid, block = (cell["grid"], 1, 1), (cell["threads"], 1, 1)
        return Launch("copy_" + cell.variant, grid, block, args, n)

WORKLOAD = Stays()
"""
# After the first call device 1 does not open again.
SCRIPT = """
import json, os, sys
import gpushmoo

asked = {"backend": "madeup", "min_samples": 6, "max_samples": 6}
one = gpushmoo.sweep("kernels/stays", device=0, repeats=2, **asked)
both = gpushmoo.sweep("kernels/stays", device="all", repeats=2, **asked)
both.save("both")
os.environ["MADE_UP_LOST"] = "1"
left = gpushmoo.sweep("kernels/stays", device="all", variants="good", **asked)
found = {}
for name, result in {"one": one, "both": both, "left": left}.items():
    result.cells.to_parquet(f"{name}.parquet")
    winners = result.best.groupby(["variant", "height"]).first().reset_index()
    found[name] = {
        "devices": result.devices,
        "text": repr(result),
        "log": result.log,
        "winners": sorted(winners[["variant", "height", "threads", "grid"]].values.tolist()),
    }
print(json.dumps(found))
"""
# Ends the process that opens the lost device, before it has said anything.
LOST = """

_open = open_device


def open_device(index: int, runtime: str, cache: Path) -> Device:
    import os

    if os.environ.get("MADE_UP_LOST") == str(index):
        os._exit(7)
    return _open(index, runtime, cache)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the library, which knows two made-up devices, and a kernel."""
    place = tmp_path_factory.mktemp("two")
    library = place / "workflow/scripts/gpushmoo"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "workflow/scripts/gpushmoo", library, ignore=ignored)
    add_made_up(library)
    with (library / "devices/madeup/backend.py").open("a") as file:
        file.write(LOST)
    kernel = place / "kernels/stays"
    kernel.mkdir(parents=True)
    (kernel / "kernel.np").write_text(KERNEL)
    (kernel / "workload.py").write_text(WORKLOAD)
    return place


def environment(place: Path) -> dict[str, str]:
    """In which Python imports the copy of the library and locks devices of this test alone."""
    return {
        **os.environ,
        "PYTHONPATH": str(place / "workflow/scripts"),
        "GPUSHMOO_LOCK_DIR": str(place / "locks"),
        "XDG_CACHE_HOME": str(place / "cache"),
    }


@pytest.fixture(scope="module")
def swept(place: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "err": done.stderr, "place": place}


def test_both_devices_measure_and_what_is_compared_is_measured_by_one(
    swept: Mapping[str, Any],
) -> None:
    assert swept["one"]["devices"].keys() == {"MADE-UP-0"}
    assert swept["both"]["devices"].keys() == {"MADE-UP-0", "MADE-UP-1"}
    assert set(swept["both"]["devices"].values()) == {"Made-up device"}
    assert "2 devices" in swept["both"]["text"]
    assert "2 devices" not in swept["one"]["text"]
    assert "2 devices (Made-up device), 4 shards" in swept["err"]
    # Processes outlive the threads that have opened their devices.
    assert "another one is started" not in swept["both"]["log"]
    # Each repeat of each shard is a file.
    files = sorted((swept["place"] / "both/cells").rglob("*.parquet"))
    assert len(files) == 2 * 4
    tables = [pd.read_parquet(file).assign(repeat=file.stem[12:]) for file in files]
    cells = pd.concat(tables)
    groups = cells.groupby(["repeat", "height", "variant"])["device_uuid"]
    assert len(groups) >= 4 * 3
    assert (groups.nunique() == 1).all()
    for _, of_repeat in cells.groupby("repeat"):
        assert of_repeat.groupby("height")["device_uuid"].nunique().eq(1).all()


def test_two_devices_find_what_one_finds(swept: Mapping[str, Any]) -> None:
    assert swept["both"]["winners"] == swept["one"]["winners"]
    one, both = (
        pd.read_parquet(swept["place"] / f"{name}.parquet").set_index("cell_key").sort_index()
        for name in ("one", "both")
    )
    assert set(one["status"]) == {"ok", "wrong_result", "launch_failed", "invalid"}
    assert both["status"].equals(one["status"])
    assert both["repeat_medians_s"].str.len().equals(one["repeat_medians_s"].str.len())


def test_a_lost_device_leaves_its_shards_to_the_other(swept: Mapping[str, Any]) -> None:
    assert "device 1 (MADE-UP-1) failed" in swept["err"]
    assert swept["left"]["devices"].keys() == {"MADE-UP-0"}
    left = pd.read_parquet(swept["place"] / "left.parquet")
    assert len(left) == 4 * 6
    assert set(left["status"]) == {"ok"}


def test_an_interrupt_ends_the_processes_of_all_devices(place: Path) -> None:
    """It goes to the program alone: at a terminal the measuring processes would get it, too."""
    script = (
        "import gpushmoo; gpushmoo.sweep('kernels/stays', backend='madeup', device='all', "
        "sizes=list(range(32, 96)), repeats=9)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=place,
        env=environment(place),
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stderr is not None
        # A shard with faults has a line.
        for line in program.stderr:
            if line.startswith("shard "):
                break
        program.send_signal(signal.SIGINT)
        rest = program.stderr.read()
    assert "KeyboardInterrupt" in rest
    assert program.returncode == -signal.SIGINT
    for index in (0, 1):
        # Each measuring process holds the lock of its device as long as it lives.
        with (place / f"locks/gpushmoo-MADE-UP-{index}.lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lane(index: int, name: str = "G") -> Lane:
    """Return a device without processes."""
    info: Any = SimpleNamespace(name=name, uuid=f"GPU-{index}")
    return Lane(DeviceChoice("cuda", index, "auto", Path()), info, Workers(keep=True))


def shard_of(device: Lane, status: str = "ok") -> MeasuredShard:
    said = "it fell off the bus." if status != "ok" else None
    columns = {"status": [status], "message": pa.array([said], pa.string())}
    return MeasuredShard(pa.table(columns), {"device": device.choice.index})


class Gate:
    """Has each of two devices begin a part before one of them ends."""

    def __init__(self) -> None:
        self._both = threading.Barrier(2)
        self._met = set[int]()

    def __call__(self, device: Lane) -> None:
        if device.choice.index not in self._met:
            self._met.add(device.choice.index)
            self._both.wait(timeout=60)


Measuring = Callable[[Lane, Part], MeasuredShard]


def measured(measure: Measuring, parts: list[Part]) -> dict[Part, MeasuredShard]:
    return measure_parts(parts, [lane(0), lane(1)], measure, SharedTerminal(io.StringIO()))


def test_later_repeats_wait_for_the_first_one_of_their_shard_alone() -> None:
    """Device 1 measures a later repeat of one shard while device 0 is busy with another shard."""
    long, short = Part("float", 0, 2, 1), Part("float", 1, 2, 1)
    repeated, order = threading.Event(), list[Part]()

    def measure(device: Lane, part: Part) -> MeasuredShard:
        if part == long:
            assert repeated.wait(timeout=60)
        order.append(part)
        if part == replace(short, repeat=2):
            repeated.set()
        return shard_of(device)

    parts = parts_of(["float"], 2, 2, 2)
    assert set(parts[:2]) == {long, short}
    assert measured(measure, parts).keys() == set(parts)
    assert order == [short, replace(short, repeat=2), long, replace(long, repeat=2)]


@pytest.mark.parametrize("raises", [True, False])
def test_a_part_of_a_lost_device_is_measured_by_the_other(raises: bool) -> None:
    gate = Gate()

    def measure(device: Lane, part: Part) -> MeasuredShard:
        gate(device)
        if device.choice.index == 0:
            return shard_of(device)
        if raises:
            raise DeviceError("It fell off the bus.")
        return shard_of(device, "device_lost")

    parts = parts_of(["float", "double"], 3, 3, 2)
    done = measured(measure, parts)
    assert done.keys() == set(parts)
    assert {shard.metadata["device"] for shard in done.values()} == {0}


def test_a_part_that_no_device_measures_is_an_error_or_a_status() -> None:
    def refuse(device: Lane, part: Part) -> MeasuredShard:
        raise DeviceError("It does not fit.")

    def lose(device: Lane, part: Part) -> MeasuredShard:
        return shard_of(device, "device_lost")

    parts = parts_of(["float"], 4, 1, 2)
    with pytest.raises(DeviceError, match="does not fit"):
        measured(refuse, parts)
    done = measured(lose, parts)
    assert done.keys() == set(parts)


@pytest.mark.parametrize("error", [HostError("The disk is full."), ZeroDivisionError("a bug")])
def test_an_error_that_no_device_causes_ends_the_others(error: Exception) -> None:
    stopped, gate = list[int](), Gate()

    class Stopped(Workers):
        def __init__(self, index: int) -> None:
            super().__init__(keep=True)
            self.index = index

        def stop(self) -> None:
            super().stop()
            stopped.append(self.index)

    def measure(device: Lane, part: Part) -> MeasuredShard:
        gate(device)
        if device.choice.index == 0:
            raise error
        while not stopped:
            device.workers.prepare()
        raise KeyboardInterrupt

    lanes = [replace(lane(i), workers=Stopped(i)) for i in (0, 1)]
    with pytest.raises(type(error), match=str(error)):
        measure_parts(parts_of(["float"], 9, 1, 2), lanes, measure, SharedTerminal(io.StringIO()))
    assert set(stopped) == {0, 1}


@pytest.mark.parametrize(("whole", "kept"), [(1, 1), (2, 2), (0, None)])
def test_an_interrupt_leaves_the_repeats_that_are_whole(
    whole: int, kept: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of one device; the call itself decides whether they suffice."""
    interrupted = threading.Event()

    def in_threads(workers: Any, tasks: list[Callable[[], None]]) -> None:
        threads = [threading.Thread(target=task, daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        assert interrupted.wait(timeout=60)
        raise KeyboardInterrupt

    def measure(device: Lane, part: Part) -> MeasuredShard:
        if part.repeat > whole:
            interrupted.set()
            threading.Event().wait(timeout=60)
        return shard_of(device)

    monkeypatch.setattr(several_devices, "in_threads", in_threads)
    parts = parts_of(["float"], 1, 3, 2)
    if kept is None:
        with pytest.raises(KeyboardInterrupt):
            measured(measure, parts)
    else:
        done = measure_parts(parts, [lane(0)], measure, SharedTerminal(io.StringIO()))
        assert {part.repeat for part in done} == set(range(1, kept + 1))


def test_devices_of_different_names_are_refused() -> None:
    refuse_mixture([lane(0), lane(1)])
    with pytest.raises(ConfigError, match=r"0 is 'A', 2 is 'B'.*device=0"):
        refuse_mixture([lane(0, "A"), lane(1, "A"), lane(2, "B")])


@pytest.mark.parametrize(
    ("dtypes", "groups", "devices", "parts"), [(1, 1, 8, 1), (2, 4, 2, 4), (2, 100, 4, 16)]
)
def test_large_parts_of_all_types_come_first(
    dtypes: int, groups: int, devices: int, parts: int
) -> None:
    """The first index has the largest size of its type, so that the last shards are short."""
    names = [f"t{i}" for i in range(dtypes)]
    found = parts_of(names, groups, 2, devices)
    assert len(found) == 2 * dtypes * parts
    assert [part.repeat for part in found] == sorted(part.repeat for part in found)
    assert [part.index for part in found[: dtypes * parts]] == sorted([*range(parts)] * dtypes)


def test_all_devices_of_opencl_are_the_first() -> None:
    """OpenCL may show one processor under several names."""
    assert indices_of(DeviceChoice("opencl", 0, "auto", Path())) == [0]


@pytest.mark.parametrize(
    ("kernel", "more", "device"),
    [
        ("copy2d_coalesced", {}, "all"),
        ("copy2d_coalesced", {"budget": 9.0}, 0),
        ("dot_streamed", {}, 0),
    ],
)
def test_a_budget_and_what_the_host_feeds_take_the_first_device(
    kernel: str, more: dict[str, Any], device: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def note(values: Mapping[str, Any], *_: Any) -> None:
        asked.append(values["device"])
        raise DeviceError("asked")

    monkeypatch.setattr(measure, "devices_of", note)
    with pytest.raises(DeviceError, match="asked"):
        sweep(ROOT / "kernels" / kernel, device="all", progress=False, **more)
    assert asked == [device]


@pytest.fixture
def pocl(opencl_choice: DeviceChoice, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has calls on all devices open two of PoCL's, by the names of its drivers."""
    if opencl_choice.runtime != "pocl":
        pytest.skip("only PoCL shows a processor as several devices")

    def show(drivers: str) -> None:
        monkeypatch.setenv("POCL_DEVICES", drivers)
        monkeypatch.setattr(measure, "indices_of", lambda choice: [0, 1])
        monkeypatch.setattr(measure, "_ANSWERED", {})
        monkeypatch.setattr(measure, "_OTHERS", {})
        monkeypatch.setattr(measure, "WORKERS", Workers(keep=True))

    return show


def tuned() -> Tuned:
    source = "kernel void twice(global float *c, global const float *a) { %s }"
    a = np.arange(1024, dtype=np.float32)
    return tune(
        source % "int i = get_global_id(0); c[i] = 2 * a[i];",
        "twice",
        {"c": np.zeros_like(a), "a": a},
        1024,
        {"block_x": [32, 64]},
        check=Check({"c": 2 * a}),
        backend="opencl",
        opencl_runtime="pocl",
        device="all",
        repeats=3,
        min_samples=6,
        max_samples=6,
    )


def test_repeats_of_a_tuned_kernel_are_spread(pocl: Callable[[str], None]) -> None:
    pocl("pthread pthread")
    found = tuned()
    assert found.statuses == {"ok": 2}
    assert found.winner["block_x"] in (32, 64)
    jobs = sorted((p["params"]["repeat"], p["params"]["device"]) for p in found.provenance)
    assert [repeat for repeat, _ in jobs] == [1, 2, 3]
    assert {device for _, device in jobs} == {0, 1}


def test_a_device_that_does_not_open_is_left_out(
    pocl: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    pocl("pthread")
    found = tuned()
    assert found.statuses == {"ok": 2}
    assert {p["params"]["device"] for p in found.provenance} == {0}
    assert "device 1 is left out" in capsys.readouterr().err


def test_a_call_on_devices_of_different_names_is_refused(pocl: Callable[[str], None]) -> None:
    pocl("basic pthread")
    with pytest.raises(ConfigError, match=r"'all' needs devices of one name.*device=0"):
        tuned()
