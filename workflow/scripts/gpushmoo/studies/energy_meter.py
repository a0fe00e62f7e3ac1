"""Cells that run for seconds each while the device counts what they use, in rounds.

A counter of energy may show a new value only about ten times a second, however often it is read.
Between two of its steps that are seconds apart lies an energy that is known to the millijoule, and
a time that is known to the moment at which the steps were seen. So one thread watches the counter
while another keeps the device busy.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from ..core.errors import DeviceLostError, TypedError
from ..core.space import CACHE_STATES, ChosenCell
from ..devices.base import Device, Reading
from ..workloads.host_fed import HostFedWorkload
from .cells import Folders, ReadyCell, data_of, ready_cells

# Seconds between two looks at the counter.
_LOOK_EVERY_S = 0.001
# Seconds beyond a window's own after which a counter that does not step is given up.
PATIENCE_S = 5.0
# A sample lasts about so long: its start on an idle device then weighs little, and the end of a
# window is soon noticed.
SAMPLE_S = 0.05
MOST_LAUNCHES = 1024
# Untimed launches before the first that is timed.
_WARMING = 2


class NoEnergyError(Exception):
    """No energy can be measured; one sentence that says why."""


# The counter


@dataclass(frozen=True)
class CounterStep:
    """When the counter was first seen to show `mj`, and the device's state just after."""

    at: float
    mj: int
    state: Reading | None = None


class CounterSteps(Protocol):
    """The counter's steps so far."""

    def first_from(self, at: float) -> CounterStep | None:
        """The first step at `at` or later; None while there is none."""

    def between(self, begin: float, end: float) -> Sequence[CounterStep]:
        """All steps from `begin` to `end`, both included."""


@dataclass
class SeenSteps(CounterSteps):
    """The steps that a watcher finds. One thread adds, others read."""

    _steps: list[CounterStep] = field(default_factory=list)
    _last_mj: int | None = None

    def look(
        self, at: float, mj: int | None, state: Callable[[], Reading | None] = lambda: None
    ) -> None:
        """Take note of what the counter showed at `at`. The first look is no step."""
        if mj is None or mj == self._last_mj:
            return
        if self._last_mj is not None:
            self._steps.append(CounterStep(at, mj, state()))
        self._last_mj = mj

    def first_from(self, at: float) -> CounterStep | None:
        """The first step at `at` or later; None while there is none."""
        return next((step for step in list(self._steps) if step.at >= at), None)

    def between(self, begin: float, end: float) -> list[CounterStep]:
        """All steps from `begin` to `end`, both included."""
        return [step for step in list(self._steps) if begin <= step.at <= end]


@contextmanager
def watched(
    read_mj: Callable[[], int | None],
    read_state: Callable[[], Reading | None],
    clock: Callable[[], float],
) -> Iterator[SeenSteps]:
    """The counter's steps, watched by a thread until the block is left."""
    seen, end = SeenSteps(), threading.Event()

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
    """What the device did between two steps of the counter.

    `seconds_per_launch` is the mean over the samples that lie within, `samples` how many they are,
    `sampled_s` the time from the begin of the first of them to the end of the last.
    """

    seconds: float
    joules: float
    seconds_per_launch: float
    samples: int
    sampled_s: float
    states: tuple[Reading, ...] = ()

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds


def measure_window(
    work: Callable[[], float],
    steps: CounterSteps,
    clock: Callable[[], float],
    warm_s: float,
    window_s: float,
) -> Window:
    """`work` again and again, for `warm_s` seconds and then over a window of `window_s` or more.

    `work` keeps the device busy for a while and tells the seconds of one launch. The window begins
    at the first step after the warming and ends at the first step that is late enough, and work
    goes on until that is seen. Raises NoEnergyError when the counter does not step.
    """
    begin = clock()
    done: list[tuple[float, float, float]] = []
    while True:
        started = clock()
        launch_s = work()
        done.append((started, clock(), launch_s))
        first = steps.first_from(begin + warm_s)
        last = steps.first_from(first.at + window_s) if first is not None else None
        if first is not None and last is not None:
            break
        if clock() - begin > warm_s + window_s + PATIENCE_S:
            raise NoEnergyError(
                f"the device's counter of energy did not step within {PATIENCE_S:g} s."
            )
    within = [d for d in done if first.at <= d[0] and d[1] <= last.at] or [done[-1]]
    return Window(
        last.at - first.at,
        (last.mj - first.mj) / 1e3,
        sum(launch_s for _, _, launch_s in within) / len(within),
        len(within),
        within[-1][1] - within[0][0],
        tuple(s.state for s in steps.between(first.at, last.at) if s.state is not None),
    )


# Cells


@dataclass(frozen=True)
class EnergyPlan:
    """How energy is measured: every cell once in each of the `rounds`, in an order by the `seed`.

    A cell runs for `warm_s` seconds and then over a window of `window_s` at least. The idle device
    is left alone for `settle_s` seconds, in which clocks fall, before its own window.
    """

    seed: int
    rounds: int = 3
    window_s: float = 2.0
    warm_s: float = 0.4
    settle_s: float = 4.0


@dataclass
class MeteredCell:
    """A cell, and what was found of it; `message` says why there is nothing, or no more."""

    chosen: ChosenCell
    message: str | None = None
    launches: int = 0
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True)
class Metered:
    """All cells in their order, and the windows of the idle device, before and after them."""

    cells: Sequence[MeteredCell] = ()
    idle: Sequence[Window] = ()


_Ready = tuple[MeteredCell, ReadyCell]


class EnergyMeter:
    """Measures cells on one device, whose counter's steps are watched beside it."""

    def __init__(
        self,
        device: Device,
        folders: Folders,
        plan: EnergyPlan,
        steps: CounterSteps,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """`steps` are those of the counter of `device`, at times of `clock`."""
        self._device, self._folders, self._plan = device, folders, plan
        self._steps, self._clock, self._sleep = steps, clock, sleep
        self._random = random.Random(plan.seed)

    def measure(
        self,
        chosen: Sequence[ChosenCell],
        say: Callable[[str], None],
        keep: Callable[[Metered], None],
    ) -> Metered:
        """All cells, as many at a time as have room on the device.

        After each round what was found so far is given to `keep`, with cells whose result will be
        verified once more. Raises NoEnergyError.
        """
        cells = [MeteredCell(one) for one in chosen]
        idle = [self._idle()]
        try:
            for ready in self._batches([cell for cell in cells if self._may_run(cell)]):
                self._measure_rounds(ready, say, lambda: keep(Metered(cells, idle)))
                # What comes next needs their memory.
                ready.clear()
            idle.append(self._idle())
        except DeviceLostError as err:
            for cell in cells:
                cell.message = cell.message or str(err)
        return Metered(cells, idle)

    def _idle(self) -> Window:
        """The device with nothing to do."""

        def rest() -> float:
            self._sleep(SAMPLE_S)
            return 0.0

        plan = self._plan
        return measure_window(rest, self._steps, self._clock, plan.settle_s, plan.window_s)

    def _may_run(self, cell: MeteredCell) -> bool:
        workload = self._folders[cell.chosen.cell.kernel].workload
        if cell.chosen.cell.cache_state != CACHE_STATES[0]:
            cell.message = "energy is measured of launches that follow each other, of warm cells"
        elif sum(workload.bytes_moved(cell.chosen.cell)) == 0:
            cell.message = "it moves no bytes by which energy could be divided"
        elif isinstance(workload, HostFedWorkload):
            cell.message = "its data come from the host, whose energy the device does not count"
        return cell.message is None

    def _batches(self, cells: Sequence[MeteredCell]) -> Iterator[list[_Ready]]:
        """Cells that are ready, those of as much data together as the device has room for."""

        def data(cell: MeteredCell) -> tuple[object, ...]:
            return data_of(cell.chosen, self._folders)

        ready: list[_Ready] = []
        needed = 0
        for _, members in groupby(sorted(cells, key=lambda cell: repr(data(cell))), data):
            some = list(members)
            first = some[0].chosen.cell
            needs = self._folders[first.kernel].workload.footprint(first.problem, first.dtype)
            if ready and needed + needs >= 0.9 * self._device.info.global_memory:
                yield ready
                ready, needed = [], 0
            needed += needs
            ready += self._ready(some)
        if ready:
            yield ready

    def _ready(self, cells: Sequence[MeteredCell]) -> list[_Ready]:
        """Those of the cells that are right; it is known how many launches make a sample."""
        ready: list[_Ready] = []
        chosen = [cell.chosen for cell in cells]
        verified = ready_cells(self._device, self._folders, chosen, self._plan.seed)
        for cell, (_, found) in zip(cells, verified, strict=True):
            if isinstance(found, str):
                cell.message = found
                continue
            try:
                for _ in range(_WARMING):
                    found.bound.run()
                launch_s = found.bound.sample(1)
            except DeviceLostError:
                raise
            except TypedError as err:
                cell.message = str(err)
                continue
            cell.launches = max(1, min(MOST_LAUNCHES, round(SAMPLE_S / max(launch_s, 1e-9))))
            ready.append((cell, found))
        return ready

    def _measure_rounds(
        self, ready: Sequence[_Ready], say: Callable[[str], None], keep: Callable[[], None]
    ) -> None:
        """Windows of all in rounds, then their outputs once more. Raises DeviceLostError."""
        plan = self._plan
        for number in range(1, plan.rounds + 1):
            say(f"energy of {len(ready)} cells, round {number} of {plan.rounds}")
            order = [(cell, found) for cell, found in ready if cell.message is None]
            self._random.shuffle(order)
            for cell, found in order:
                try:
                    cell.windows.append(self._window(found, cell.launches))
                except DeviceLostError:
                    raise
                except (TypedError, NoEnergyError) as err:
                    cell.message = str(err)
            keep()
        for cell, found in ready:
            cell.message = cell.message or found.fault()

    def _window(self, found: ReadyCell, launches: int) -> Window:
        plan = self._plan
        return measure_window(
            lambda: found.bound.sample(launches),
            self._steps,
            self._clock,
            plan.warm_s,
            plan.window_s,
        )
