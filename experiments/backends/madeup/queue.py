"""Queues of the made-up device: what is queued runs when someone waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from gpushmoo.core.errors import DeviceLostError, LaunchFailedError
from gpushmoo.devices.streams import Mark
from gpushmoo.workloads.contract import Launch

# What is queued returns the seconds that it takes.
Command = Callable[[], float]
COPY_BYTES_PER_S = 50e9


@dataclass
class Clock:
    """The device's: `now` in seconds, and whether an illegal access has ended its context."""

    now: float = 0.0
    lost: bool = False


class MadeUpQueue:
    """Run commands in turn on a made-up clock, as a `base.Stream` does."""

    def __init__(
        self,
        clock: Clock,
        allocate: Callable[[int], Any],
        prepare: Callable[[Any, Launch, Mapping[str, Any]], Command],
    ) -> None:
        self._clock, self.allocate, self._prepare = clock, allocate, prepare
        self._commands: deque[Command] = deque()

    def __enter__(self) -> MadeUpQueue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.wait()

    def release(self) -> None:
        """Nothing: what was allocated goes when nobody holds it."""

    def queue(self, command: Command) -> None:
        """Have `command` run in its turn."""
        self._commands.append(command)

    def mark(self) -> Mark:
        """Queue a mark that notes the clock."""
        reached: list[float] = []

        def reach() -> float:
            reached.append(self._clock.now)
            return 0.0

        self.queue(reach)
        return Mark(reached, lambda start, stop: float(stop[0] - start[0]))

    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy of all that both have."""
        words = min(target.nbytes, source.nbytes) // 4

        def run() -> float:
            target.view("u4")[:words] = source.view("u4")[:words]
            return 1e-6 + 4 * words / COPY_BYTES_PER_S

        self.queue(run)

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy from the host."""
        self.copy(target, source)

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy to the host."""
        self.copy(target, source)

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch of the program."""
        self.queue(self._prepare(program, launch, buffers))

    def wait(self) -> None:
        """Run all that is queued. Raises LaunchFailedError, or DeviceLostError from then on."""
        while self._commands:
            if self._clock.lost:
                raise DeviceLostError("MADE_UP_CONTEXT_IS_GONE")
            command = self._commands.popleft()
            try:
                self._clock.now += command()
            except IndexError as err:
                self._clock.lost = True
                raise DeviceLostError(f"MADE_UP_ILLEGAL_ADDRESS: {err}") from err
            except Exception as err:
                self._commands.clear()
                raise LaunchFailedError(f"MADE_UP_TRAP: {err}") from err
