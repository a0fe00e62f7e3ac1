"""Energy over windows that begin and end where the device's counter steps.

A counter of energy may show a new value only about ten times a second, however often it is read.
Between two of its steps that are seconds apart lies an energy that is known to the millijoule, and
a time that is known to the moment at which the steps were seen. So one thread watches the counter
while another keeps the device busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from ..devices.base import Reading

# Seconds between two looks at the counter.
_LOOK_EVERY_S = 0.001
# Seconds beyond a window's own after which a counter that does not step is given up.
PATIENCE_S = 5.0


class NoEnergyError(Exception):
    """No energy can be measured; one sentence that says why."""


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
class SeenSteps:
    """CounterSteps as a watcher finds them. One thread adds, others read."""

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
