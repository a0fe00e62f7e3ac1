"""Cells while they are measured, and the messages between a measuring process and its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..core.build_job import BuildJob
from ..core.display import MAX_SENTENCE, one_line
from ..core.errors import (
    BuildError,
    LaunchConfigError,
    OutOfDeviceMemoryError,
    TypedError,
    WorkloadError,
)
from ..core.schema import Status
from ..core.shard_job import ShardJob
from ..core.space import Cell, CellGroup, Condition, Problem
from ..devices.base import DeviceInfo, PreparedLaunch, Sample
from ..devices.capabilities import Reading
from ..devices.select import DeviceChoice
from ..search.planner import SearchVerdict
from ..workloads.combinations import Combinations, refusal_of
from ..workloads.contract import Launch, Workload


def status_of(err: TypedError) -> Status:
    """Return the status of a cell that ended by `err`.

    A lack of resources does not count as a fault.
    """
    match err:
        case LaunchConfigError() | OutOfDeviceMemoryError():
            return Status.OUT_OF_RESOURCES
        case BuildError():
            return Status.BUILD_FAILED
        case WorkloadError():
            return Status.WORKLOAD_FAILED
        case _:
            return Status.LAUNCH_FAILED


@dataclass(frozen=True)
class Overhead:
    """Seconds that a sample takes besides its launches, and their standard error."""

    seconds: float
    error_s: float


@dataclass
class CellRun:
    """A cell while it is measured: its launch, its samples in seconds, its status in the end.

    `bound` is the launch that is timed, `proof` the one that is verified; both exist only while the
    cell is measured. `launch_s` is the time of its first launch. `work_done` is the finished work:
    verification and each sample count one. On a CPU, `processor_s` are the seconds that all threads
    computed for a launch of each sample. The `overhead` is that of its group; None if it is not
    known.
    """

    cell: Cell
    launch: Launch
    resident_blocks: int | None = None
    registers: int | None = None
    bound: PreparedLaunch | None = None
    proof: PreparedLaunch | None = None
    status: Status | None = None
    message: str | None = None
    launch_s: float | None = None
    launches: int | None = None
    overhead: Overhead | None = None
    samples_s: list[float] = field(default_factory=list)
    sampled_at_s: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    verified_words: int | None = None
    wrong_words: int | None = None
    worst_error: float | None = None
    work_done: int = 0

    def sample(self, launches: int | None = None) -> Sample:
        """Return the next sample, of this number of `launches`.

        By default the chosen number, or one.
        """
        assert self.bound is not None
        return Sample(self.bound, launches or self.launches or 1, self.cell.condition)

    def without_overhead(self, launch_s: float) -> float:
        """The seconds of a launch in a row, from those of a sample over its launches."""
        if self.overhead is None or self.launches is None:
            return launch_s
        return launch_s - self.overhead.seconds / self.launches

    @property
    def sample_s(self) -> float:
        """The estimated seconds of a sample, once the number of its launches is chosen."""
        assert self.launch_s is not None
        assert self.launches is not None
        return self.launch_s * self.launches

    def end(self, status: Status, message: str | None = None) -> None:
        """Fix the cell's status; the message is cut to one line."""
        self.message = None if message is None else one_line(message, MAX_SENTENCE)
        self.status, self.bound, self.proof = status, None, None


# The names of the two cells of a pair, in sentences.
NAMES = "A", "B"


@dataclass
class PairRun:
    """A cell of A and one of B, with two samples of each a block in `a_s` and `b_s`, in seconds."""

    a: CellRun
    b: CellRun
    status: Status | None = None
    message: str | None = None
    a_s: list[tuple[float, float]] = field(default_factory=list)
    b_s: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cell(self) -> Cell:
        """Return the cell of version A."""
        return self.a.cell

    @property
    def runs(self) -> tuple[CellRun, CellRun]:
        """Both cells, in the order of NAMES."""
        return self.a, self.b

    @property
    def launches(self) -> int | None:
        """The number of launches in a sample, of A as of B."""
        return self.a.launches

    def end(self, status: Status, message: str | None = None) -> None:
        """Set the status of the pair, and of its cells without a status."""
        for run in self.runs:
            if run.status is None:
                run.end(status, message)
        self.status, self.message = status, message
        if status is not Status.OK:
            self.a_s, self.b_s = [], []


class NoLaunch(Launch):
    """Launch of a cell that cannot have one, or whose workload fails to describe it."""

    def __init__(self) -> None:
        super().__init__("", (0, 0, 0), (0, 0, 0), (), 0)

    def __post_init__(self) -> None:
        """Skip the checks that a real launch must pass."""


def planned(workload: Workload, cell: Cell) -> CellRun:
    """`cell` before it is measured. It ends at once if it is invalid or its workload fails."""
    try:
        workload.bytes_moved(cell)
        workload.result_of(cell.variant)
        reason = refusal_of(workload, cell)
        if reason is not None:
            message = one_line(reason, MAX_SENTENCE)
            return CellRun(cell, NoLaunch(), status=Status.INVALID, message=message)
        workload.work(cell)
        return CellRun(cell, workload.launch(cell))
    except (LaunchConfigError, WorkloadError) as err:
        return CellRun(cell, NoLaunch(), status=status_of(err), message=str(err))


def pair_of(a: Cell, b: Cell) -> PairRun:
    """A pair of cells without launches, as the job sees it."""
    return PairRun(CellRun(a, NoLaunch()), CellRun(b, NoLaunch()))


# From the job to the measuring process.


@dataclass(frozen=True)
class Against:
    """Version B of a kernel, measured alternately with version A, which an Assignment describes.

    `job` has the cells of B. `options` are additional options for the compilers of A and of B. Each
    pair of cells gets `blocks` blocks of samples. If there are more than `most` pairs, this number
    of them is drawn. `found` are the combinations of B, as those of an Assignment.
    """

    job: ShardJob
    options: tuple[tuple[str, ...], tuple[str, ...]]
    blocks: int
    most: int | None = None
    found: Combinations | None = None


@dataclass(frozen=True)
class Assignment:
    """A job for a measuring process, with the runtimes' cache and the moment of the beginning.

    `build` is the kernel's build file, if there is one. The measuring process prints into `log`, or
    where its parent prints. It gives up compiling after `compile_s` seconds of a processor. `found`
    are the combinations, if these were looked through before.
    """

    job: ShardJob
    cache: Path
    started: float
    build: Path | None = None
    against: Against | None = None
    log: Path | None = None
    compile_s: float | None = None
    found: Combinations | None = None

    @property
    def process_key(self) -> tuple[object, ...]:
        """Equal for jobs that one process may do: those of one device and repeat."""
        job = self.job
        return job.backend, job.device, job.opencl_runtime, self.cache, job.repeat


@dataclass(frozen=True)
class Prepare:
    """A request to import what a backend needs before any other request. No device is opened."""

    backend: str


@dataclass(frozen=True)
class Open:
    """A request to open a device before an Assignment, and to compile `builds` meanwhile.

    The process prints into `log`. It gives up compiling `compile_s` seconds of a processor after
    the device is open.
    """

    choice: DeviceChoice
    builds: Sequence[BuildJob]
    log: Path
    compile_s: float

    @property
    def process_key(self) -> tuple[object, ...]:
        """That of jobs of the first repeat on this device."""
        return (*astuple(self.choice), 1)


@dataclass(frozen=True)
class Locked:
    """The index of the locked device; the lock's file descriptor follows on the socket."""

    index: int


@dataclass(frozen=True)
class MeasureCells:
    """A request for cells: those with these keys (None: all), at most `together` at a time.

    The cell with the key `first` is launched before all others of its problem, and its problem
    comes first. Each cell of `unlaunched` is launched by itself before those that another process
    has launched. `launches` has the launches in a sample of the groups that another process has
    begun. From `until` on, by the monotonic clock, no cell gets more than the fewest samples. Cells
    of a `joined` group are in no race, because other cells of it are reused from an earlier job.
    Cells that have `ended` in another process are tried with these, but for the keys of `tried`.
    """

    keys: frozenset[str] | None
    together: int
    launches: Mapping[CellGroup, int]
    until: float | None = None
    joined: frozenset[CellGroup] = frozenset()
    ended: Sequence[CellRun] = ()
    tried: frozenset[str] = frozenset()
    first: str | None = None
    unlaunched: frozenset[str] = frozenset()


# From the measuring process to the job.


@dataclass(frozen=True)
class Candidates:
    """The devices that may measure the shard: index and UUID."""

    devices: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Ready:
    """The device that an Open asked for is open."""

    info: DeviceInfo


@dataclass(frozen=True)
class Opened:
    """Report that the device is open and the kernel built, with the shard's cells.

    By variant or version: the compiler's `options`, `failures` to build, `machine_code`
    (`EntryCode`, or None), `compiled_here` (why a version was compiled in spite of a build file)
    and `codes` (digests of the machine code, "" if unknown). `found` are the combinations, if very
    many are invalid and these are not among the `cells`.
    """

    info: DeviceInfo
    options: dict[str, str]
    failures: dict[str, str]
    machine_code: dict[str, Any] | None
    compiled_here: dict[str, str]
    cells: Sequence[Cell]
    codes: dict[str, str] = field(default_factory=dict)
    found: Combinations | None = None


@dataclass(frozen=True)
class PairsOpened:
    """The device is open and both versions are built; these are their pairs of cells.

    `alone` counts the cells of A, and of B, without a partner. `codes` are those of `Opened`.
    """

    info: DeviceInfo
    pairs: Sequence[tuple[Cell, Cell]]
    alone: tuple[int, int]
    codes: tuple[dict[str, str], dict[str, str]]


@dataclass(frozen=True)
class Working:
    """How far the process is: a clause on its work, if it has no cells yet, else a share (0..1)."""

    clause: str | None = None
    share: float | None = None


@dataclass(frozen=True)
class Preparing:
    """Work on `problem` that belongs to no cell: making the data of `variants`, or a copy."""

    problem: Problem
    variants: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CellsStarted:
    """The cells with these keys run next; `who` names those of a pair: ``A``, ``A and B``.

    If not `launches`, only the host works on their results, for which no limit of a launch counts.
    """

    keys: tuple[str, ...]
    who: str = ""
    launches: bool = True


@dataclass(frozen=True)
class Finished:
    """All requested cells have ended."""


@dataclass(frozen=True)
class CopySample:
    """A sample of the runtime's copy: its seconds, and its begin in seconds since the shard's.

    The seconds are those of one copy of `launches` in a row, without the `overhead`, if it is
    known.
    """

    seconds: float
    at_s: float
    launches: int = 1
    overhead: Overhead | None = None


@dataclass(frozen=True)
class GroupSearch:
    """A group and the verdict of its search."""

    group: CellGroup
    verdict: SearchVerdict


# A cell, or a pair of cells.
Run = TypeVar("Run", CellRun, PairRun)


@dataclass
class ShardResult(Generic[Run]):
    """The results of a shard's cells, or of pairs of cells, and of its device.

    A measuring process sends the results since its last message, and the job adds them up.

    Parameters
    ----------
    runs
        Cells or pairs by key, with a status once they have ended.
    copies
        Samples of the runtime's copy by problem and condition.
    launches
        The launches in each sample of a group.
    readings
        The device's state, and seconds since the shard began.
    searches
        Groups whose search has ended. They are complete only if no process was replaced.
    timed_s
        Seconds of the first launch by key.
    tried
        Keys of the cells that were on trial.
    computed_s, waited_s
        Seconds that threads computed samples on a CPU, and that they waited for a core meanwhile.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    copies: dict[tuple[Problem, Condition], list[CopySample]] = field(default_factory=dict)
    launches: dict[CellGroup, int] = field(default_factory=dict)
    readings: list[tuple[float, Reading]] = field(default_factory=list)
    searches: list[GroupSearch] = field(default_factory=list)
    timed_s: dict[str, float] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    computed_s: float = 0.0
    waited_s: float = 0.0

    def add(self, found: ShardResult[Run]) -> None:
        """Add the results of a message."""
        self.runs.update(found.runs)
        for key, samples in found.copies.items():
            self.copies.setdefault(key, []).extend(samples)
        self.launches.update(found.launches)
        self.readings.extend(found.readings)
        self.searches.extend(found.searches)
        self.timed_s.update(found.timed_s)
        self.tried |= found.tried
        self.computed_s += found.computed_s
        self.waited_s += found.waited_s

    @property
    def waited_share(self) -> float:
        """The share (0 to 1) of the threads' time in which they waited for a core."""
        whole_s = self.computed_s + self.waited_s
        return self.waited_s / whole_s if whole_s else 0.0


def result_of(run: Run) -> ShardResult[Run]:
    """The result of one cell or pair."""
    return ShardResult({run.cell.key: run})


# What a process reports while it measures.
Event = Preparing | CellsStarted | Working | ShardResult[Any]
# An error is sent as itself: DeviceLostError, another DeviceError, or WorkerCrashedError.
Message = Event | Candidates | Ready | Opened | PairsOpened | Finished
