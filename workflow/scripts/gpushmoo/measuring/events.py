"""What measuring tells: cells on their way, events about them, and what is left at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import (
    BuildError,
    LaunchRefusedError,
    OutOfDeviceMemoryError,
    TypedError,
    WorkloadError,
)
from ..core.schema import Status
from ..core.space import Cell, CellGroup, Condition, Problem
from ..core.text import MOST_SENTENCE, one_line
from ..devices.base import Bound, DeviceInfo, Reading, Sample
from ..search.planner import SearchVerdict
from ..workloads.contract import Launch, Workload


def status_of(err: TypedError) -> Status:
    """The status of a cell that ended by `err`: what the device cannot give is no fault."""
    match err:
        case LaunchRefusedError() | OutOfDeviceMemoryError():
            return Status.RESOURCES
        case BuildError():
            return Status.BUILD_FAILED
        case WorkloadError():
            return Status.WORKLOAD_FAILED
        case _:
            return Status.LAUNCH_FAILED


@dataclass
class CellRun:
    """A cell on its way: its launch, its samples in seconds, how it ended.

    `bound` and `proof` (the launch that is timed, and the one by which it is verified) exist only
    while the cell is being measured. `launch_s` is what its first sample said.
    """

    cell: Cell
    launch: Launch
    resident_per_unit: int | None = None
    registers: int | None = None
    bound: Bound | None = None
    proof: Bound | None = None
    status: Status | None = None
    message: str | None = None
    launch_s: float | None = None
    launches: int | None = None
    samples_s: list[float] = field(default_factory=list)
    sampled_at_s: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    verified_words: int | None = None
    wrong_words: int | None = None

    def sample(self) -> Sample:
        """What is timed next: so many launches, or one while their number is not chosen."""
        assert self.bound is not None
        return Sample(self.bound, self.launches or 1, self.cell.condition)

    @property
    def sample_s(self) -> float:
        """Seconds that a sample takes, about, once the number of its launches is chosen."""
        assert self.launch_s is not None
        assert self.launches is not None
        return self.launch_s * self.launches

    def end(self, status: Status, message: str | None = None) -> None:
        """Fix the cell's status. Of a text of any length (a workload's) a bounded line is kept."""
        self.message = None if message is None else one_line(message, MOST_SENTENCE)
        self.status, self.bound, self.proof = status, None, None


class NoLaunch(Launch):
    """Stands where a workload fails to say its launch, or has none: no block of no thread."""

    def __init__(self) -> None:
        super().__init__("", (0, 0, 0), (0, 0, 0), (), 0)

    def __post_init__(self) -> None:
        """Nothing is checked."""


def planned(workload: Workload, cell: Cell) -> CellRun:
    """`cell` before it is measured; ended at once where it cannot be, or is not described."""
    try:
        workload.bytes_moved(cell)
        workload.result_of(cell.variant)
        reason = workload.valid(cell)
        if reason is not None:
            message = one_line(reason, MOST_SENTENCE)
            return CellRun(cell, NoLaunch(), status=Status.INVALID, message=message)
        return CellRun(cell, workload.launch(cell))
    except (LaunchRefusedError, WorkloadError) as err:
        return CellRun(cell, NoLaunch(), status=status_of(err), message=str(err))


@dataclass(frozen=True)
class Preparing:
    """Work on `problem` that belongs to no cell: making its buffers, the runtime's own copy.

    Buffers are made for the cells of `variants`.
    """

    problem: Problem
    variants: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Began:
    """The cells with these keys are about to run on the device, in this order."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """A cell has its status, and with it all that is written about it."""

    run: CellRun


@dataclass(frozen=True)
class Grouped:
    """Each sample of a cell of `group` holds so many launches."""

    group: CellGroup
    launches: int


@dataclass(frozen=True)
class Copied:
    """The runtime's own copy of the problem's output buffer took so long.

    It began `at_s` seconds after the shard did.
    """

    problem: Problem
    met: Condition
    seconds: float
    at_s: float


@dataclass(frozen=True)
class Read:
    """The device's state, `at_s` seconds after the shard began."""

    at_s: float
    reading: Reading


@dataclass(frozen=True)
class Timed:
    """One launch of a cell took so many seconds, the first time: a hint of what it will reach."""

    key: str
    seconds: float


@dataclass(frozen=True)
class Searched:
    """The search of a group has ended, and how."""

    group: CellGroup
    verdict: SearchVerdict


@dataclass(frozen=True)
class Worked:
    """Share (0..1) of the work that was asked for."""

    fraction: float


Event = Preparing | Began | Ended | Grouped | Copied | Read | Timed | Searched | Worked


@dataclass
class ShardResult:
    """All cells of a shard, ended, and what was read beside them.

    `copies` are the runtime's own copies by problem and condition, each with the moment at which
    it began and its duration in seconds; `launches` is how many make a sample of each group.
    `searches` are those of the groups that were searched; where a process had to be replaced, of
    what it had left of them.
    """

    runs: dict[str, CellRun]
    copies: dict[tuple[Problem, Condition], list[tuple[float, float]]] = field(default_factory=dict)
    launches: dict[CellGroup, int] = field(default_factory=dict)
    readings: list[tuple[float, Reading]] = field(default_factory=list)
    searches: list[Searched] = field(default_factory=list)


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
