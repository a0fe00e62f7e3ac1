"""Energy of cells, by a device whose clock and whose counter are the test's own."""

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from fakes import FOLDER, FakeClock, FakeDevice, Fault, built, cell_tag
from gpushmoo.core.errors import EnergyUnavailableError
from gpushmoo.core.median import mean_interval
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.schema import ENERGY_SCHEMA
from gpushmoo.core.space import Cell, ChosenCell, Problem
from gpushmoo.core.study_job import JobDevice
from gpushmoo.devices.base import Device
from gpushmoo.devices.capabilities import Reading
from gpushmoo.devices.cuda.runtime import open_sensor
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.extras.studies import energy
from gpushmoo.extras.studies.energy import (
    CounterStep,
    CounterSteps,
    EnergyMeter,
    EnergyPlan,
    Metered,
    watched,
)
from gpushmoo.storage.store import read_metadata, read_table
from gpushmoo.studies import cells
from gpushmoo.workloads.loader import load_kernel
from scipy.special import stdtrit

PERIOD_S = 0.09
PLAN = EnergyPlan(seed=1, rounds=3, window_s=1.0, warm_s=0.3, settle_s=2.0)


@dataclass
class ClockedSteps(CounterSteps):
    """Steps every PERIOD_S of a clock that others move, of a device that uses `mj_at`."""

    clock: FakeClock
    mj_at: Callable[[float], int]
    state: Reading | None = None

    def _step(self, number: int) -> CounterStep:
        return CounterStep(number * PERIOD_S, self.mj_at(number * PERIOD_S), self.state)

    def first_from(self, at: float) -> CounterStep | None:
        step = self._step(math.ceil(at / PERIOD_S))
        return step if step.at <= self.clock.now else None

    def between(self, begin: float, end: float) -> list[CounterStep]:
        return [self._step(n) for n in range(math.ceil(begin / PERIOD_S), int(end / PERIOD_S) + 1)]


def chosen(*threads: int, **changes: Any) -> list[ChosenCell]:
    params = [(("chunks", 1), ("threads", n)) for n in threads]
    cells = [Cell("tiny", "float", "a", Problem(64, 8), p) for p in params]
    return [ChosenCell(replace(cell, **changes), f"{cell['threads']} threads") for cell in cells]


@pytest.fixture(autouse=True)
def _made_up_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that no backend has is asked for its programs itself."""
    real = cells.programs_for
    monkeypatch.setattr(
        cells,
        "programs_for",
        lambda device, *rest: (
            built(device) if isinstance(device, FakeDevice) else real(device, *rest)
        ),
    )


class PoweredDevice(FakeDevice):
    """Uses 100 W while it is idle, and with each cell what `busy_w` says of its threads."""

    def __init__(self, busy_w: dict[int, float], **options: Any) -> None:
        super().__init__(**options)
        self.busy_w, self.joules, self.samples = busy_w, 0.0, list[int]()
        self.history = [(0.0, 0.0)]

    def seconds(self, tag: Any, nth_sample: int, launches: int) -> float:
        self.samples.append(tag[2])
        self.use(self.busy_w[tag[2]], launches * self.launch_s)
        return self.launch_s

    def use(self, watts: float, seconds: float) -> None:
        self.joules += watts * seconds
        self.history.append((self.history[-1][0] + seconds, self.joules))

    def mj_at(self, at: float) -> int:
        pairs = list(itertools.pairwise(self.history))
        begin, end = next((pair for pair in pairs if pair[1][0] >= at), pairs[-1])
        share = (at - begin[0]) / (end[0] - begin[0])
        return round(1e3 * (begin[1] + share * (end[1] - begin[1])))


def task_of_tiny(cells: Sequence[ChosenCell], cache: Path = Path()) -> energy.EnergyTask:
    device = JobDevice(backend="opencl", device=0, opencl_runtime="auto", seed=1)
    return energy.EnergyTask(cells, {"tiny": FOLDER}, device, cache, PLAN)


def measured(
    device: PoweredDevice,
    cells: Sequence[ChosenCell],
    state: Reading | None = None,
    keep: Callable[[Metered], None] = lambda _: None,
) -> Metered:
    """The clock moves by samples and rests alone, so that power follows from `history`."""

    def sleep(seconds: float) -> None:
        device.use(100.0, seconds)

    clock = FakeClock()

    def now() -> float:
        clock.now = device.history[-1][0]
        return clock.now

    steps = ClockedSteps(clock, device.mj_at, state)
    for found in EnergyMeter(device, task_of_tiny(cells), steps, now, sleep).measure(
        lambda _: None
    ):
        keep(found)
    return found


def test_energy_is_that_of_the_windows_and_idle_power_that_of_the_rest() -> None:
    device = PoweredDevice({1: 200.0, 2: 300.0})
    kept: list[tuple[int, int]] = []

    def keep(found: Metered) -> None:
        kept.append((len(found.idle), sum(len(cell.windows) for cell in found.cells)))

    others = {"cache_state": "flushed"}, {"timing_mode": "isolated"}, {"timing_mode": "graph"}
    cells = [*chosen(1, 2), *(cell for other in others for cell in chosen(1, **other))]
    found = measured(device, cells, keep=keep)
    # Kept after each round, and at last.
    assert kept == [(1, 2), (1, 4), (1, 6), (2, 6)]
    assert [w.watts for w in found.idle] == pytest.approx([100.0, 100.0], rel=1e-3)
    assert ["warm, batched" in str(found.cells.pop().message) for _ in others] == [True] * 3
    for cell, watts in zip(found.cells, (200.0, 300.0), strict=True):
        assert cell.message is None
        assert [w.watts for w in cell.windows] == pytest.approx([watts] * 3, rel=1e-3)
        assert all(w.seconds_per_launch == pytest.approx(1e-3) for w in cell.windows)
        assert all(PLAN.window_s <= w.seconds < PLAN.window_s + 2 * PERIOD_S for w in cell.windows)
        # Windows begin and end with steps of the counter.
        periods = [w.seconds / PERIOD_S for w in cell.windows]
        assert periods == pytest.approx([round(p) for p in periods])


def test_rounds_differ_in_order_and_a_lost_device_keeps_nothing() -> None:
    device = PoweredDevice(dict.fromkeys(range(1, 6), 200.0))
    measured(device, chosen(1, 2, 3, 4, 5))
    # Five samples are those by which the length of a sample is chosen.
    order = [threads for threads, _ in itertools.groupby(device.samples[5:])]
    rounds = [order[begin : begin + 5] for begin in range(0, len(order), 5)]
    assert [sorted(one) for one in rounds] == [[1, 2, 3, 4, 5]] * 3
    assert len({tuple(one) for one in rounds}) > 1
    device = PoweredDevice({1: 200.0, 2: 300.0}, lost_at=60)
    found = measured(device, chosen(1, 2))
    assert all(cell.message is not None for cell in found.cells)
    assert len(found.idle) == 1


@pytest.mark.parametrize(
    ("kind", "operation", "nth", "says"),
    [
        ("wrong", "run", 0, "The result is wrong: 1 of 512 words differ"),
        # Two launches to warm it up, and one to verify it before them.
        ("wrong", "run", 3, "The result is wrong"),
        ("failed", "sample", 3, "failed in sample 3"),
        ("refused", "bind", 0, "refused in bind 0"),
    ],
)
def test_a_failed_cell_costs_itself(kind: str, operation: str, nth: int, says: str) -> None:
    cells = chosen(1, 2)
    device = PoweredDevice({1: 200.0, 2: 300.0})
    device.faults.append(Fault(cell_tag(cells[0].cell), operation, nth, kind))
    bad, good = measured(device, cells).cells
    assert bad.message is not None
    assert says in bad.message
    assert good.message is None
    assert len(good.windows) == 3


def test_a_counter_counts_by_its_steps_and_one_that_stands_still_is_given_up() -> None:
    seen = CounterSteps()
    for at, mj in [(0.0, 5), (0.1, 5), (0.2, 7), (0.3, None), (0.4, 7), (0.5, 9)]:
        seen.look(at, mj)
    assert [(s.at, s.mj) for s in seen.between(0.0, 1.0)] == [(0.2, 7), (0.5, 9)]
    assert seen.first_from(0.3) == CounterStep(0.5, 9)
    assert seen.first_from(0.6) is None
    clock = FakeClock()

    def work() -> float:
        clock.now += 0.1
        return 1e-3

    meter = EnergyMeter(PoweredDevice({}), task_of_tiny([]), CounterSteps(), clock)
    with pytest.raises(EnergyUnavailableError, match="did not step"):
        meter.window(work, 0.1)


def test_a_thread_sees_every_step_and_the_state_just_after_it() -> None:
    values = iter([1, 1, 2, 2, 3])
    through = threading.Event()
    state = Reading(1980, 3201, 40, 500.0, ())

    def read() -> int:
        value = next(values, None)
        if value is None:
            through.set()
            return 3
        return value

    ticks = itertools.count()
    with watched(read, lambda: state, lambda: float(next(ticks))) as seen:
        assert through.wait(60)
    assert [(s.mj, s.state) for s in seen.between(0, math.inf)] == [(2, state), (3, state)]


@pytest.mark.parametrize("n", [2, 3, 7, 30])
def test_an_interval_of_a_mean_is_that_of_students_t(n: int) -> None:
    values = [float(v % 5) + 0.1 * v for v in range(n)]
    assert mean_interval(values[:1]).low is None
    found = mean_interval(values)
    mean = sum(values) / n
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    half = stdtrit(n - 1, 0.975) * deviation / math.sqrt(n)
    assert (found.mean, found.low, found.high) == pytest.approx(
        (mean, mean - half, mean + half), rel=1e-4
    )


def written(folder: Path, device: PoweredDevice, cells: Sequence[ChosenCell]) -> dict[str, Any]:
    """The first row of the table, by the way that the program takes with an open device."""
    task = task_of_tiny(cells, folder)
    state = Reading(1980, 3201, 60, 500.0, ("hw_thermal_slowdown",))
    found = measured(device, cells, state)
    energy.write_energy(folder / "e.parquet", task, asdict(device.info), found)
    return read_table(folder / "e.parquet", ENERGY_SCHEMA).to_pylist()[0]


def test_joules_per_gigabyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(FOLDER), "digest", lambda *_: "0")
    row = written(tmp_path, PoweredDevice({1: 300.0}), chosen(1))
    gbs = 2 * 64 * 8 * 4 / 1e-3 / 1e9
    assert row["gbs"] == pytest.approx(gbs)
    assert row["joules_per_gb"] == pytest.approx(300.0 / gbs, rel=1e-3)
    assert row["net_joules_per_gb"] == pytest.approx(200.0 / gbs, rel=1e-3)
    assert row["joules_per_gb_low"] <= row["joules_per_gb"] <= row["joules_per_gb_high"]
    assert row["idle_w"] == pytest.approx(100.0, rel=1e-3)
    assert (row["power_w"], row["busy_share"]) == pytest.approx((300.0, 1.0), rel=1e-3)
    assert (row["throttled"], row["temperature_c"], row["sm_clock_mhz_low"]) == (True, 60, 1980)
    assert len(row["window_s"]) == len(row["window_gbs"]) == row["rounds"] == 3


COPY = "copy2d_coalesced"


def task_of(choice: DeviceChoice, plan: EnergyPlan) -> energy.EnergyTask:
    """Two cells of a kernel, on a device."""
    params = [(("block_x", x), ("block_y", 4)) for x in (8, 16)]
    cells = [Cell(COPY, "float", "element", Problem(64, 64), p) for p in params]
    device = JobDevice(backend="opencl", device=0, opencl_runtime=choice.runtime, seed=1)
    folders = {COPY: load_kernel(KERNELS / COPY)}
    return energy.EnergyTask(
        [ChosenCell(cell, "named") for cell in cells], folders, device, choice.cache, plan
    )


def test_without_a_meter_there_is_a_sentence(opencl_choice: DeviceChoice, tmp_path: Path) -> None:
    out, said = tmp_path / "e.parquet", list[str]()
    energy.measure_energy(task_of(opencl_choice, PLAN), out, said.append)
    assert read_table(out, ENERGY_SCHEMA).num_rows == 0
    why = read_metadata(out)["why"]
    assert why.startswith("Energy was not measured: nothing counts that of ")
    assert said == [why]


def test_nvml_tells_millijoules_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests/support/fake_nvml"))
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "nvml"))
    sensor = open_sensor("0000:18:00.0")
    assert sensor is not None
    assert sensor.energy_mj() == 123_456
    monkeypatch.setenv("FAKE_REFUSED", "energy:NVMLError_NotSupported")
    assert sensor.energy_mj() is None


def test_by_the_real_threads_a_device_with_a_counter_is_measured_and_verified(
    opencl_choice: DeviceChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter steps with every look at it, so that windows end as soon as they may."""
    looks = itertools.count(1000)
    power = SimpleNamespace(energy_mj=lambda: next(looks), read=lambda: None)
    monkeypatch.setattr(Device, "power", power)
    out, plan = tmp_path / "e.parquet", EnergyPlan(1, 2, 0.01, 0.0, 0.0)
    energy.measure_energy(task_of(opencl_choice, plan), out, lambda _: None)
    rows = read_table(out, ENERGY_SCHEMA).to_pylist()
    assert [(row["params"], row["message"], row["rounds"]) for row in rows] == [
        ("block_x=8 block_y=4", None, 2),
        ("block_x=16 block_y=4", None, 2),
    ]
    assert all(seconds >= 0.01 for row in rows for seconds in row["window_s"])
