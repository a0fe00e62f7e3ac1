"""What a measuring process and its caller say to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.space import Cell, CellGroup
from ...devices.base import DeviceInfo
from ..events import Event


@dataclass(frozen=True)
class Job:
    """A shard's parameters (run_plan.RunPlan), the runtimes' cache, when the shard began.

    `build` is the kernel's build file; None where there is none to load, or nothing to build.
    """

    params: Mapping[str, Any]
    cache: Path
    started: float
    build: Path | None = None


@dataclass(frozen=True)
class Candidates:
    """Devices that may measure the shard: index and UUID."""

    devices: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Locked:
    """The device that is locked; the lock's file descriptor follows on the socket."""

    index: int


@dataclass(frozen=True)
class Opened:
    """The device is open and the kernel built; these are the shard's cells.

    `codes` are digests of what the device runs, by version; "" where no machine code is told.
    """

    info: DeviceInfo
    options: dict[str, str]
    failures: dict[str, str]
    # By variant what `EntryCode` tells; None where no machine code was looked at.
    machine_code: dict[str, Any] | None
    # Variants that this process compiled, although there is a build file, and why.
    compiled_here: dict[str, str]
    cells: Sequence[Cell]
    codes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """What to measure: the cells with these keys, or all for None, `together` at most at a time.

    `launches` is how many make a sample of the groups that another process has begun with.
    """

    keys: frozenset[str] | None
    together: int
    launches: Mapping[CellGroup, int]


@dataclass(frozen=True)
class Finished:
    """All cells that the process was to measure have ended."""


@dataclass(frozen=True)
class Lost:
    """The device's context is gone; this process is of no further use."""

    message: str


@dataclass(frozen=True)
class Refused:
    """Nothing can be measured: a DeviceError's sentence for the user."""

    message: str


@dataclass(frozen=True)
class Crashed:
    """An error in a program, most likely in the user's workload.py."""

    message: str


Message = Event | Candidates | Opened | Finished | Lost | Refused | Crashed
