"""What a measuring process and its caller say to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.schema import Status
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

    @property
    def kernel(self) -> str:
        """The kernel's folder as sentences name it."""
        return named_folder(self.params)

    @property
    def process_key(self) -> tuple[object, ...]:
        """Jobs of which this is the same may be done by one process: the device, and the repeat."""
        named = ("backend", "device", "opencl_runtime", "repeat")
        return (*(self.params[name] for name in named), self.cache)


def named_folder(params: Mapping[str, Any]) -> str:
    """The last two parts of a kernel's folder."""
    return "/".join(Path(params["folder"]).parts[-2:])


@dataclass(frozen=True)
class PairJob:
    """Two versions of a kernel that are measured alternately, A first.

    `sides` are their parameters as of a Job, `options` what their compilers are told besides, and
    `blocks` how many blocks of samples each pair of cells gets.
    """

    sides: tuple[Mapping[str, Any], Mapping[str, Any]]
    options: tuple[tuple[str, ...], tuple[str, ...]]
    blocks: int
    cache: Path

    @property
    def params(self) -> Mapping[str, Any]:
        """Those that say which device is meant, which both have in common."""
        return self.sides[0]

    @property
    def kernel(self) -> str:
        """Both folders as sentences name them."""
        return " or ".join(dict.fromkeys(map(named_folder, self.sides)))


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
class PairsOpened:
    """The device is open and both versions are built; these are their cells, pair by pair.

    `alone` counts the cells of A, and of B, that the other does not have; `codes` are those of
    `Opened`, of each.
    """

    info: DeviceInfo
    pairs: Sequence[tuple[Cell, Cell]]
    alone: tuple[int, int]
    codes: tuple[dict[str, str], dict[str, str]]


@dataclass(frozen=True)
class MeasurePairs:
    """Which pairs to measure, by their places, `together` samples at most at a time."""

    places: frozenset[int]
    together: int


@dataclass(frozen=True)
class PairBegan:
    """Cells with these keys are about to run on the device: of ``A``, ``B`` or ``A and B``."""

    who: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class PairEnded:
    """A pair has its status, and its samples: seconds of two of A and of two of B for each block.

    `message` says of a pair that did not end well which version did what.
    """

    place: int
    status: Status
    message: str | None
    launches: int | None = None
    a_s: Sequence[tuple[float, float]] = ()
    b_s: Sequence[tuple[float, float]] = ()


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


Message = (
    Event
    | Candidates
    | Opened
    | PairsOpened
    | PairBegan
    | PairEnded
    | Finished
    | Lost
    | Refused
    | Crashed
)
