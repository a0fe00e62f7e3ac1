"""What measuring is about, and what a measuring process and its caller say to each other.

Cells and pairs of cells on their way, what happens to them, what is left of a shard at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..core.display import MOST_SENTENCE, one_line
from ..core.errors import (
    BuildError,
    LaunchRefusedError,
    OutOfDeviceMemoryError,
    TypedError,
    WorkloadError,
)
from ..core.schema import Status
from ..core.space import Cell, CellGroup, Condition, Problem
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
    # Steps of its work that are done: its verification, and each sample, counted once.
    steps: int = 0

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


# What the two cells of a pair are called, in sentences.
NAMES = "A", "B"


@dataclass
class PairRun:
    """A cell of A and one of B on their way, sampled alternately; its key is that of A's cell.

    `a_s` and `b_s` hold, for each block, the seconds of two samples of A and of two of B.
    """

    a: CellRun
    b: CellRun
    status: Status | None = None
    message: str | None = None
    a_s: list[tuple[float, float]] = field(default_factory=list)
    b_s: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cell(self) -> Cell:
        """A's cell."""
        return self.a.cell

    @property
    def runs(self) -> tuple[CellRun, CellRun]:
        """Both cells, in the order of NAMES."""
        return self.a, self.b

    @property
    def launches(self) -> int | None:
        """How many make a sample, of A as of B."""
        return self.a.launches

    def end(self, status: Status, message: str | None = None) -> None:
        """Fix the status of the pair, and of those of its cells that have none."""
        for run in self.runs:
            if run.status is None:
                run.end(status, message)
        self.status, self.message = status, message
        if status is not Status.OK:
            self.a_s, self.b_s = [], []


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


def pair_of(a: Cell, b: Cell) -> PairRun:
    """A pair of cells as the calling process sees it: without launches."""
    return PairRun(CellRun(a, NoLaunch()), CellRun(b, NoLaunch()))


# What a caller says.


@dataclass(frozen=True)
class Against:
    """The version B of a kernel, which is measured alternately with the version A of a Job.

    `params` are as those of a Job, `options` what the compilers of A and of B are told besides, and
    `blocks` how many blocks of samples each pair of cells gets.
    """

    params: Mapping[str, Any]
    options: tuple[tuple[str, ...], tuple[str, ...]]
    blocks: int


@dataclass(frozen=True)
class Job:
    """A shard's parameters (run_plan.RunPlan), the runtimes' cache, when the shard began.

    `build` is the kernel's build file; None where there is none to load, or nothing to build. The
    measuring process prints into the file `log`, or where its caller prints.
    """

    params: Mapping[str, Any]
    cache: Path
    started: float
    build: Path | None = None
    against: Against | None = None
    log: Path | None = None

    @property
    def process_key(self) -> tuple[object, ...]:
        """Jobs of which this is the same may be done by one process: the device, and the repeat."""
        named = ("backend", "device", "opencl_runtime", "repeat")
        return (*(self.params[name] for name in named), self.cache)


@dataclass(frozen=True)
class Locked:
    """The device that is locked; the lock's file descriptor follows on the socket."""

    index: int


@dataclass(frozen=True)
class Measure:
    """What to measure: the cells with these keys, or all for None, `together` at most at a time.

    `launches` is how many make a sample of the groups that another process has begun with.
    """

    keys: frozenset[str] | None
    together: int
    launches: Mapping[CellGroup, int]


# What a measuring process says.


@dataclass(frozen=True)
class Candidates:
    """Devices that may measure the shard: index and UUID."""

    devices: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Opened:
    """The device is open and the kernel built; these are the shard's cells.

    `machine_code` is by variant what `EntryCode` tells, None where no machine code was looked at;
    `compiled_here` the variants that this process compiled, although there is a build file, and
    why; `codes` are digests of what the device runs, by version, "" where no machine code is told.
    """

    info: DeviceInfo
    options: dict[str, str]
    failures: dict[str, str]
    machine_code: dict[str, Any] | None
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
class Preparing:
    """Work on `problem` that belongs to no cell: its data are made, or the runtime copies them.

    Data are made for the cells of `variants`; a copy names none.
    """

    problem: Problem
    variants: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Began:
    """The cells with these keys are about to run on the device, in this order.

    Of pairs `who` says which of their cells: ``A``, ``B`` or ``A and B``.
    """

    keys: tuple[str, ...]
    who: str = ""


@dataclass(frozen=True)
class Ended:
    """A cell, or a pair, has its status, and with it all that is written about it."""

    run: CellRun | PairRun


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


@dataclass(frozen=True)
class Finished:
    """All cells that the process was to measure have ended."""


class WorkerCrashedError(RuntimeError):
    """An error in a program inside the measuring process, not in the device."""


Event = Preparing | Began | Ended | Grouped | Copied | Read | Timed | Searched | Worked
# An error is sent as itself: DeviceLostError, another DeviceError, or WorkerCrashedError.
Message = Event | Candidates | Opened | PairsOpened | Finished

# A cell, or a pair of cells, that is measured.
Run = TypeVar("Run", CellRun, PairRun)


@dataclass
class ShardResult(Generic[Run]):
    """All cells of a shard, or pairs, ended, and what was read beside them.

    `copies` are the runtime's own copies by problem and condition, each with the moment at which
    it began and its duration in seconds; `launches` is how many make a sample of each group.
    `searches` are those of the groups that were searched; where a process had to be replaced, of
    what it had left of them. `timed_s` are seconds of the first launch of cells, by key.
    """

    runs: dict[str, Run]
    copies: dict[tuple[Problem, Condition], list[tuple[float, float]]] = field(default_factory=dict)
    launches: dict[CellGroup, int] = field(default_factory=dict)
    readings: list[tuple[float, Reading]] = field(default_factory=list)
    searches: list[Searched] = field(default_factory=list)
    timed_s: dict[str, float] = field(default_factory=dict)
