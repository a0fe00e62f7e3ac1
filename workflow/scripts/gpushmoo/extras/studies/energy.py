"""Measure the joules per gigabyte of chosen cells, each of which runs for seconds in rounds.

A counter of energy may change only about ten times a second, however often it is read. Between two
of its steps that are seconds apart, the energy is known to the millijoule, and the time is known as
exactly as the steps were observed. So one thread watches the counter while another keeps the device
busy.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ...core.errors import DeviceError, DeviceLostError, EnergyUnavailableError, TypedError
from ...core.median import mean_interval
from ...core.paths import ROOT
from ...core.schema import ENERGY_SCHEMA
from ...core.space import USUAL, ChosenCell, from_plain
from ...core.study_job import JobDevice, StudyJob
from ...devices.base import Device
from ...devices.capabilities import Reading
from ...storage.joblog import raises_signals
from ...storage.wholefile import read_json
from ...studies.cells import (
    Folders,
    ReadyCell,
    cell_columns,
    cell_fault,
    data_of,
    locked_device,
    ready_cells,
    write_study,
)
from ...workloads.host_fed import HostFedWorkload
from ...workloads.loader import load_kernel

# Seconds between two reads of the counter.
_LOOK_EVERY_S = 0.001
# Seconds beyond a window's length after which a counter that does not step is given up.
PATIENCE_S = 5.0
# Approximate length of a sample in seconds: the start on an idle device then hardly matters, and
# the end of a window is noticed soon.
SAMPLE_S = 0.05
MAX_LAUNCHES = 1024
# Untimed launches before the first timed one.
_WARMING = 2
Say = Callable[[str], None]


# The counter


@dataclass(frozen=True)
class CounterStep:
    """Moment at which the counter was first seen to show `mj`, and the device's state after it."""

    at: float
    mj: int
    state: Reading | None = None


class CounterSteps:
    """The counter's steps so far. One thread appends, others read."""

    def __init__(self) -> None:
        self._steps: list[CounterStep] = []
        self._last_mj: int | None = None

    def look(
        self, at: float, mj: int | None, state: Callable[[], Reading | None] = lambda: None
    ) -> None:
        """Append a step if the energy counter has changed since the last call.

        The first value of the counter is kept only for comparison, because nobody saw when the
        counter reached it.

        Parameters
        ----------
        at
            Time at which the counter was read, in seconds of the caller's clock.
        mj
            Value of the counter in millijoules, or None if it could not be read.
        state
            Reads the device's state. It is called only if a step is appended.
        """
        if mj is None or mj == self._last_mj:
            return
        if self._last_mj is not None:
            self._steps.append(CounterStep(at, mj, state()))
        self._last_mj = mj

    def first_from(self, at: float) -> CounterStep | None:
        """Return the first step at `at` or later, or None before there is one."""
        return next((step for step in list(self._steps) if step.at >= at), None)

    def between(self, begin: float, end: float) -> list[CounterStep]:
        """Return all steps from `begin` to `end`, both included."""
        return [step for step in list(self._steps) if begin <= step.at <= end]


@contextmanager
def watched(
    read_mj: Callable[[], int | None],
    read_state: Callable[[], Reading | None],
    clock: Callable[[], float],
) -> Iterator[CounterSteps]:
    """Watch the counter in a thread during the block; yield its steps."""
    seen = CounterSteps()
    end = threading.Event()

    def watch() -> None:
        while not end.wait(_LOOK_EVERY_S):
            mj = read_mj()
            seen.look(clock(), mj, read_state)

    thread = threading.Thread(target=watch, name="energy", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()


# Windows


@dataclass(frozen=True)
class Window:
    """Energy and launches between two steps of the counter.

    `seconds_per_launch` is the mean over the `samples` samples inside the window. `sampled_s` is
    the time from the start of the first of them to the end of the last.
    """

    seconds: float
    joules: float
    seconds_per_launch: float
    samples: int
    sampled_s: float
    states: tuple[Reading, ...] = ()

    @property
    def watts(self) -> float:
        """Mean power of the window in watts."""
        return self.joules / self.seconds


# Cells


@dataclass(frozen=True)
class EnergyPlan:
    """Plan of the measurement: every cell once in each of the `rounds`, in an order by the `seed`.

    A cell runs for `warm_s` seconds and then over a window of at least `window_s`. The idle device
    rests for `settle_s` seconds, in which clocks fall, before its own window.
    """

    seed: int
    rounds: int = 3
    window_s: float = 2.0
    warm_s: float = 0.4
    settle_s: float = 4.0


@dataclass
class MeteredCell:
    """A cell and its windows; `message` is the reason if windows are missing."""

    chosen: ChosenCell
    message: str | None = None
    launches: int = 0
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True)
class Metered:
    """All cells in their order, and the windows of the idle device, before and after them."""

    cells: list[MeteredCell] = field(default_factory=list)
    idle: list[Window] = field(default_factory=list)


@dataclass(frozen=True)
class EnergyTask:
    """The cells to measure, their kernels' `folders`, the device, and the plan."""

    chosen: Sequence[ChosenCell]
    folders: Folders
    device: JobDevice
    cache: Path
    plan: EnergyPlan


_Ready = tuple[MeteredCell, ReadyCell]


@dataclass(frozen=True)
class EnergyMeter:
    """Measures a task's cells on `device`, while a thread watches the `steps` of its counter."""

    device: Device
    task: EnergyTask
    steps: CounterSteps
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def measure(self, say: Say) -> Iterator[Metered]:
        """Yield all windows so far after each round and at the end; cells run in batches that fit.

        After the last round all outputs are verified once more. Raises EnergyUnavailableError.
        """
        plan = self.task.plan
        order = random.Random(plan.seed)
        found = Metered([MeteredCell(one) for one in self.task.chosen], [self._idle()])
        try:
            for ready in self._batches([cell for cell in found.cells if self._may_run(cell)]):
                for number in range(1, plan.rounds + 1):
                    say(f"energy of {len(ready)} cells, round {number} of {plan.rounds}")
                    left = [(cell, verified) for cell, verified in ready if cell.message is None]
                    order.shuffle(left)
                    for cell, verified in left:
                        self._measure_cell(cell, verified)
                    yield found
                for cell, verified in ready:
                    cell.message = cell.message or verified.fault()
                # The next batch needs their memory.
                ready.clear()
            found.idle.append(self._idle())
        except DeviceLostError as err:
            for cell in found.cells:
                cell.message = cell.message or str(err)
        yield found

    def window(self, work: Callable[[], float], warm_s: float) -> Window:
        """Repeat `work` for `warm_s` seconds and then over a window of the plan's length or more.

        `work` keeps the device busy for a while and returns the seconds of one launch. The window
        begins at the first step after the warming and ends at the first step that is late enough,
        and work goes on until that is seen. Raises EnergyUnavailableError when the counter does not
        step.
        """
        begin = self.clock()
        window_s = self.task.plan.window_s
        done: list[tuple[float, float, float]] = []
        while True:
            started = self.clock()
            launch_s = work()
            done.append((started, self.clock(), launch_s))
            first = self.steps.first_from(begin + warm_s)
            last = self.steps.first_from(first.at + window_s) if first is not None else None
            if first is not None and last is not None:
                break
            if self.clock() - begin > warm_s + window_s + PATIENCE_S:
                raise EnergyUnavailableError(
                    f"the device's counter of energy did not step within {PATIENCE_S:g} s."
                )
        within = [d for d in done if first.at <= d[0] and d[1] <= last.at] or [done[-1]]
        states = (step.state for step in self.steps.between(first.at, last.at))
        return Window(
            last.at - first.at,
            (last.mj - first.mj) / 1e3,
            sum(launch_s for _, _, launch_s in within) / len(within),
            len(within),
            within[-1][1] - within[0][0],
            tuple(state for state in states if state is not None),
        )

    def _idle(self) -> Window:
        """Measure a window of the idle device."""

        def rest() -> float:
            self.sleep(SAMPLE_S)
            return 0.0

        return self.window(rest, self.task.plan.settle_s)

    def _measure_cell(self, cell: MeteredCell, found: ReadyCell) -> None:
        """Measure one window of a cell; raise DeviceLostError if the device is lost."""
        try:
            window = self.window(lambda: found.bound.sample(cell.launches), self.task.plan.warm_s)
            cell.windows.append(window)
        except TypedError as err:
            cell.message = cell_fault(err)

    def _may_run(self, cell: MeteredCell) -> bool:
        workload = self.task.folders[cell.chosen.cell.kernel].workload
        if cell.chosen.cell.condition != USUAL:
            cell.message = "energy can be measured for warm, batched launches only"
        elif sum(workload.bytes_moved(cell.chosen.cell)) == 0:
            cell.message = "it moves no bytes, so it has no energy per byte"
        elif isinstance(workload, HostFedWorkload):
            cell.message = (
                "its data come from the host, whose energy the device's counter does not include"
            )
        return cell.message is None

    def _batches(self, cells: Sequence[MeteredCell]) -> Iterator[list[_Ready]]:
        """Yield cells that are ready, in batches whose data fit on the device together."""

        def data(cell: MeteredCell) -> tuple[object, ...]:
            return data_of(cell.chosen, self.task.folders)

        ready: list[_Ready] = []
        needed = 0
        for _, members in groupby(sorted(cells, key=lambda cell: repr(data(cell))), data):
            some = list(members)
            first = some[0].chosen.cell
            needs = self.task.folders[first.kernel].workload.footprint(first.problem, first.dtype)
            if ready and needed + needs >= 0.9 * self.device.info.global_memory:
                yield ready
                ready = []
                needed = 0
            needed += needs
            ready += self._ready(some)
        if ready:
            yield ready

    def _ready(self, cells: Sequence[MeteredCell]) -> Iterator[_Ready]:
        """Yield the cells with correct results, with the number of launches of a sample."""
        chosen = [cell.chosen for cell in cells]
        verified = ready_cells(self.device, self.task.folders, chosen, self.task.plan.seed)
        for cell, (_, found) in zip(cells, verified, strict=True):
            if isinstance(found, str):
                cell.message = found
                continue
            try:
                for _ in range(_WARMING):
                    found.bound.run()
                launch_s = found.bound.sample(1)
            except TypedError as err:
                cell.message = cell_fault(err)
                continue
            cell.launches = max(1, min(MAX_LAUNCHES, round(SAMPLE_S / max(launch_s, 1e-9))))
            yield cell, found


# The job and its table


@raises_signals()
def energy_of_run(job: StudyJob, cells: Path, out: Path, say: Say, cache: str) -> None:
    """Call `measure_energy` for the chosen cells in the file `cells`."""
    chosen = from_plain(read_json(cells))
    names = {one.cell.kernel for one in chosen}
    folders = {n: load_kernel(ROOT / f) for n, f in job.folders.items() if n in names}
    plan = EnergyPlan(job.device.seed)
    measure_energy(EnergyTask(chosen, folders, job.device, Path(cache), plan), out, say)


def measure_energy(task: EnergyTask, out: Path, say: Say) -> None:
    """Measure the energy of a task and write ENERGY_SCHEMA to `out` after each round.

    If nothing counts the device's energy, the table has no rows, its metadata have the reason as
    ``why``, and `say` receives the reason.
    """
    facts: dict[str, Any] = {}
    try:
        with locked_device(task.device, task.cache, say) as device:
            facts = asdict(device.info)
            power = device.power
            if power is None or power.energy_mj() is None:
                name, backend = device.info.name, device.info.backend
                raise EnergyUnavailableError(f"nothing counts that of {name} (backend {backend}).")
            with watched(power.energy_mj, power.read, time.monotonic) as steps:
                for found in EnergyMeter(device, task, steps).measure(say):
                    write_energy(out, task, facts, found)
    except (DeviceError, EnergyUnavailableError) as err:
        why = f"Energy was not measured: {err}"
        say(why)
        write_energy(out, task, facts, Metered(), why)


def write_energy(
    out: Path, task: EnergyTask, device: Mapping[str, Any], metered: Metered, why: str | None = None
) -> None:
    """Write the table of the cells so far; `device` describes the device, `why` is an error."""
    idle_w = [window.watts for window in metered.idle]
    write_study(
        "energy",
        [_row(cell, task, idle_w, device) for cell in metered.cells],
        ENERGY_SCHEMA,
        out,
        task.folders,
        task.device.backend,
        why=why,
        device=device,
        plan=asdict(task.plan),
        idle=[{"seconds": w.seconds, "joules": w.joules} for w in metered.idle],
    )


def _row(
    metered: MeteredCell, task: EnergyTask, idle_w: Sequence[float], device: Mapping[str, Any]
) -> dict[str, Any]:
    head = cell_columns(metered.chosen.cell, task.folders)
    moved = head["bytes_read"] + head["bytes_written"]
    windows = metered.windows if metered.message is None else []
    gbs = [moved / w.seconds_per_launch / 1e9 for w in windows]
    states = [state for window in metered.windows for state in window.states]
    clocks = [state.sm_clock_mhz for state in states]
    return {
        **head,
        "role": metered.chosen.role,
        "message": metered.message,
        "rounds": len(windows),
        "launches_per_sample": metered.launches or None,
        "window_s": [w.seconds for w in windows],
        "window_j": [w.joules for w in windows],
        "window_gbs": gbs,
        **(_figures(metered, gbs, sum(idle_w) / len(idle_w)) if windows else {}),
        "sm_clock_mhz_low": min(clocks, default=None),
        "sm_clock_mhz_high": max(clocks, default=None),
        "temperature_c": max((state.temperature_c for state in states), default=None),
        "throttled": any(state.slowed for state in states),
        "device_uuid": device["uuid"],
        "device_name": device["name"],
    }


def _figures(metered: MeteredCell, gbs: Sequence[float], idle_w: float) -> dict[str, Any]:
    """Return the columns that follow from the windows: W, GB/s, J/GB with and without idle W."""
    windows = metered.windows
    busy_s = sum(w.samples * metered.launches * w.seconds_per_launch for w in windows)
    figures: dict[str, Any] = {
        "power_w": sum(w.watts for w in windows) / len(windows),
        "idle_w": idle_w,
        "gbs": sum(gbs) / len(gbs),
        "busy_share": busy_s / sum(w.sampled_s for w in windows),
    }
    for column, subtracted_w in (("joules_per_gb", 0.0), ("net_joules_per_gb", idle_w)):
        joules = [(w.watts - subtracted_w) / g for w, g in zip(windows, gbs, strict=True)]
        found = mean_interval(joules)
        ends = {f"{column}_low": found.low, f"{column}_high": found.high}
        figures |= {column: found.mean} | ends
    return figures
