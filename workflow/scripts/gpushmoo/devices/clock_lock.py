"""A device held at one clock: what a backend gives for it, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# Instead of a clock: the one that a device holds at its rated power.
BASE = "base"


class ClocksNotLockedError(Exception):
    """The clocks stay free; one clause that says why."""


@dataclass(frozen=True)
class LockedClocks:
    """How a device is held: ``base`` or MHz of the core, MHz of the memory, None where it is free.

    `why` the clocks were not locked, where they were not.
    """

    core: int | str | None
    memory_mhz: int | None = None
    why: str | None = None


class ClockLock(Protocol):
    """The clocks of one device, which are held."""

    told: LockedClocks

    def free(self) -> None:
        """Let the device choose its clocks again. Raises ClocksNotLockedError where it cannot."""
