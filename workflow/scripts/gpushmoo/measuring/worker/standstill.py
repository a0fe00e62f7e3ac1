"""Tells a measuring process that it, or its machine, stood still for a while."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType

# Seconds of suspension under which the two clocks were merely not read at the same moment.
_NOISE_S = 0.05


def suspended_s() -> float:
    """Seconds that this machine was suspended since it started (Linux; 0 elsewhere).

    By them the clock that goes on during suspension is ahead of the one that times samples.
    """
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class StandstillWatch:
    """Whether the process was stopped and continued, or the machine suspended, since last asked.

    It costs nothing while nothing happens: the system itself tells a process that it is continued.
    Must be made in the main thread, where samples are taken.
    """

    def __init__(self, suspended: Callable[[], float] = suspended_s) -> None:
        """`suspended` tells the seconds of suspension so far."""
        self._suspended, self._before_s = suspended, suspended()
        self._continued = False
        signal.signal(signal.SIGCONT, self._on_continue)
        # What a runtime waits for in the system goes on.
        signal.siginterrupt(signal.SIGCONT, False)

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        self._continued = True

    def __call__(self) -> bool:
        """Whether anything stood still since the last call, or since this was made."""
        continued, self._continued = self._continued, False
        before_s, self._before_s = self._before_s, self._suspended()
        return continued or self._before_s - before_s > _NOISE_S
