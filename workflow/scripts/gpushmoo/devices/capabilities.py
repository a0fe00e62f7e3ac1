"""What a device may have beside `base.Device`: an object for each, or None.

A capability that a device lacks costs its backend no line. The caller asks for the object, and does
without it if there is none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Reading:
    """Clocks in MHz, temperature, power in W, and by NVML's names why the clock is held down."""

    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: float
    reasons: tuple[str, ...]

    @property
    def slowed(self) -> bool:
        """Whether the device slows down to protect itself."""
        return not SLOWED_BY.isdisjoint(self.reasons)


# An idle clock, a locked clock and the board's usual power limit are normal; these are not.
SLOWED_BY = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
)


class Power(Protocol):
    """Sensors of a device: `Device.power`."""

    def read(self) -> Reading | None:
        """Read clocks, temperature, power and throttle reasons; None without an answer."""

    def energy_mj(self) -> int | None:
        """Return the energy in mJ used since the driver was loaded; None without a meter."""


class Counters(Protocol):
    """Hardware counters that a profiler reads: `Device.counters`."""

    def recorded(self) -> AbstractContextManager[None]:
        """Within it a waiting profiler reads the counters of each launch."""


# In the place of a clock: the device's clock at its rated power.
BASE = "base"


class ClocksNotLockedError(Exception):
    """The clocks were not locked or not freed; one clause with the reason."""


@dataclass(frozen=True)
class LockedClocks:
    """The core's clock in MHz or ``base``, the memory's; None is free, and `why` it is."""

    core: int | str | None
    memory_mhz: int | None = None
    why: str | None = None


class Clocks(Protocol):
    """Clocks that can be locked: `BackendModule.clocks`, since no device is open meanwhile."""

    def lock(self, asked: int | str) -> LockedClocks:
        """Hold the device at a core clock in MHz, or at ``base``, and its memory at its highest.

        Raises ClocksNotLockedError, and then nothing is changed.
        """

    def free(self) -> None:
        """Let the device choose its clocks again. Raises ClocksNotLockedError if it cannot."""
