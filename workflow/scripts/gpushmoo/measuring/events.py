"""Define the state of a cell while it is measured, and the messages of measuring processes."""

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
    """Return the status of a cell that `err` ended.

    A launch that exceeds a limit of the device has a status other than a launch that fails.
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
    """Time that a sample takes in addition to its launches, in seconds, and its standard error."""

    seconds: float
    error_s: float


@dataclass
class CellRun:
    """A cell while it is measured: its launch, its samples, and its status in the end.

    Attributes
    ----------
    cell, launch
        The cell and its launch.
    resident_blocks, registers
        Occupancy per multiprocessor and registers per thread, or None if not known.
    bound, proof
        The launch that is timed and the launch that is verified, while the cell is measured.
    status, message
        Status and message once the cell has ended.
    launch_s
        Time of the first launch, in seconds.
    launches
        Number of launches in a sample.
    overhead
        Overhead of the samples of its group, or None if it is not known.
    samples_s, sampled_at_s
        Time of a launch in each sample, and begin of each sample since the shard began, in seconds.
    processor_s
        On a CPU, the time that all threads computed for a launch in each sample, in seconds.
    spent_s
        Time of all launches in samples, in seconds.
    verified_words, wrong_words, worst_error
        Result of the verification.
    work_done
        Finished work: the verification and each sample count one.
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
        """Return the next sample, with `launches` launches or by default the chosen number."""
        assert self.bound is not None
        return Sample(self.bound, launches or self.launches or 1, self.cell.condition)

    def without_overhead(self, launch_s: float) -> float:
        """Return the time of a launch in a row, given the mean time of a launch in a sample."""
        if self.overhead is None or self.launches is None:
            return launch_s
        return launch_s - self.overhead.seconds / self.launches

    @property
    def sample_s(self) -> float:
        """Estimated time of a sample in seconds, once the number of its launches is chosen."""
        assert self.launch_s is not None
        assert self.launches is not None
        return self.launch_s * self.launches

    def end(self, status: Status, message: str | None = None) -> None:
        """Set the status of the cell, and its message, which is shortened to one line."""
        self.message = None if message is None else one_line(message, MAX_SENTENCE)
        self.status, self.bound, self.proof = status, None, None


# The names of the two cells of a pair, in sentences.
NAMES = "A", "B"


@dataclass
class PairRun:
    """A cell of A and a cell of B that are compared.

    Attributes
    ----------
    a, b
        The cells.
    status, message
        Status and message of the pair once it has ended.
    a_s, b_s
        For each block, the times of a launch in both samples of the version, in seconds.
    """

    a: CellRun
    b: CellRun
    status: Status | None = None
    message: str | None = None
    a_s: list[tuple[float, float]] = field(default_factory=list)
    b_s: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cell(self) -> Cell:
        """Cell of version A, which identifies the pair."""
        return self.a.cell

    @property
    def runs(self) -> tuple[CellRun, CellRun]:
        """Both cells, in the order of NAMES."""
        return self.a, self.b

    @property
    def launches(self) -> int | None:
        """Number of launches in a sample, which is the same for both versions."""
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
    """Return `cell` before it is measured.

    The cell has already ended if it is invalid or if its workload raises an error for it.
    """
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
    """Return a pair of cells without launches, as the job knows them before they are measured."""
    return PairRun(CellRun(a, NoLaunch()), CellRun(b, NoLaunch()))


# From the job to the measuring process.


@dataclass(frozen=True)
class Against:
    """Version B of a kernel, which is measured alternately with the version A of an `Assignment`.

    Attributes
    ----------
    job
        The cells of B.
    options
        Additional options of the compilers of A and of B.
    blocks
        Number of blocks of samples for each pair of cells.
    most
        Largest number of pairs. If there are more, this number of them is drawn.
    found
        Valid combinations of B, if they are known.
    """

    job: ShardJob
    options: tuple[tuple[str, ...], tuple[str, ...]]
    blocks: int
    most: int | None = None
    found: Combinations | None = None


@dataclass(frozen=True)
class Assignment:
    """A job that a measuring process receives.

    Attributes
    ----------
    job
        The cells to measure.
    cache
        Folder in which the device's runtime caches compiled code.
    started
        Time at which the job began, by the monotonic clock.
    build
        Build file of the kernel, or None if the process compiles it.
    against
        Version to compare with, for pairs.
    log
        File to which the process prints, or None for the output of its parent.
    compile_s
        Processor time in seconds after which the process stops compiling.
    found
        Valid combinations, if they are known.
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
        """Key of the processes that can do this job: those of the same device and repeat."""
        job = self.job
        return job.backend, job.device, job.opencl_runtime, self.cache, job.repeat


@dataclass(frozen=True)
class Prepare:
    """Request to import the modules that a backend needs. No device is opened."""

    backend: str


@dataclass(frozen=True)
class Open:
    """Request to open a device before an Assignment, and to compile `builds` at the same time.

    The process prints into `log`. It stops compiling when it has used `compile_s` seconds of
    processor time after the device is open.
    """

    choice: DeviceChoice
    builds: Sequence[BuildJob]
    log: Path
    compile_s: float

    @property
    def process_key(self) -> tuple[object, ...]:
        """Key of the processes that can do jobs of the first repeat on this device."""
        return (*astuple(self.choice), 1)


@dataclass(frozen=True)
class Locked:
    """Message that the device at this index is locked. The lock's descriptor follows it."""

    index: int


@dataclass(frozen=True)
class MeasureCells:
    """Request to measure cells of the assignment.

    Attributes
    ----------
    keys
        Keys of the cells, or None for all.
    together
        Largest number of cells that are launched without a wait between them.
    launches
        Number of launches in a sample, for groups that another process has begun.
    until
        Time by the monotonic clock after which no cell gets more than the smallest number of
        samples.
    joined
        Groups of which earlier jobs have measured some cells. They are not searched.
    ended
        Cells that other processes have measured. They also take part in the trial on new inputs.
    tried
        Keys of cells whose trial is done.
    first
        Key of the cell that is launched before all others, together with its problem.
    unlaunched
        Keys of cells that were never launched. Each is launched alone, before the others.
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
    """Message with the index and UUID of each device that may measure the shard."""

    devices: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Ready:
    """Message that the device of an `Open` is open."""

    info: DeviceInfo


@dataclass(frozen=True)
class Opened:
    """Message that the device is open and the kernel is compiled, with the shard's cells.

    Attributes
    ----------
    info
        Properties of the device.
    options, failures
        By version: options of the compiler, and errors of versions that failed to compile.
    machine_code
        Properties of the machine code, or None.
    compiled_here
        By version: why the process compiled it although there is a build file.
    cells
        Cells that get a row.
    codes
        By version: digest of the machine code, empty if unknown.
    found
        Valid combinations, if too many are invalid to get rows.
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
    """Message that the device is open and both versions are compiled, with their pairs of cells.

    `alone` counts the cells of A, and of B, without a partner. For `codes`, see `Opened`.
    """

    info: DeviceInfo
    pairs: Sequence[tuple[Cell, Cell]]
    alone: tuple[int, int]
    codes: tuple[dict[str, str], dict[str, str]]


@dataclass(frozen=True)
class Working:
    """Message on the progress: a clause if no cell is measured yet, else a share from 0 to 1."""

    clause: str | None = None
    share: float | None = None


@dataclass(frozen=True)
class Preparing:
    """Message that no cell runs, because the process makes data for `variants`, or copies."""

    problem: Problem
    variants: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CellsStarted:
    """Message that the cells with these keys run next.

    Attributes
    ----------
    keys
        Keys of the cells, or of pairs.
    who
        For pairs, the version that runs: ``A``, ``B`` or ``A and B``.
    launches
        False if only the host works on the cells, so that the time limit of a launch does not
        apply.
    """

    keys: tuple[str, ...]
    who: str = ""
    launches: bool = True


@dataclass(frozen=True)
class Finished:
    """Message that all requested cells have ended."""


@dataclass(frozen=True)
class CopySample:
    """A sample of the runtime's copy.

    Attributes
    ----------
    seconds
        Time of one copy without the overhead, if that is known.
    at_s
        Begin of the sample, in seconds since the shard began.
    launches
        Number of copies in the sample.
    overhead
        Overhead of the sample, or None if it is not known.
    """

    seconds: float
    at_s: float
    launches: int = 1
    overhead: Overhead | None = None


@dataclass(frozen=True)
class GroupSearch:
    """A group of cells, and the verdict of its search."""

    group: CellGroup
    verdict: SearchVerdict


# A cell, or a pair of cells.
Run = TypeVar("Run", CellRun, PairRun)


@dataclass
class ShardResult(Generic[Run]):
    """Results of a shard's cells or pairs of cells, and of its device.

    A measuring process sends the results since its last message, and the job adds them up.

    Attributes
    ----------
    runs
        Cells or pairs by key, with a status once they have ended.
    copies
        Samples of the runtime's copy by problem and condition.
    launches
        Number of launches in a sample, by group.
    readings
        State of the device, each with the seconds since the shard began.
    searches
        Groups whose search has ended. They are complete only if no process was replaced.
    timed_s
        Time of the first launch by key, in seconds.
    tried
        Keys of the cells that were tried on new inputs.
    computed_s, waited_s
        Time that threads computed during samples on a CPU, and that they waited for a core, in
        seconds.
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
        """Add the results of a message to these results."""
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
        """Share, from 0 to 1, of the threads' time in which they waited for a core."""
        whole_s = self.computed_s + self.waited_s
        return self.waited_s / whole_s if whole_s else 0.0


def result_of(*runs: Run) -> ShardResult[Run]:
    """Return a message with the results of cells or pairs."""
    return ShardResult({run.cell.key: run for run in runs})


# What a process reports while it measures.
Event = Preparing | CellsStarted | Working | ShardResult[Any]
# An error is sent as itself: DeviceLostError, another DeviceError, or WorkerCrashedError.
Message = Event | Candidates | Ready | Opened | PairsOpened | Finished
