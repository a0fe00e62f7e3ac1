"""A device made of NumPy arrays, with a clock and faults under the test's control."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gpushmoo.core.dtypes import DTYPES, DType
from gpushmoo.core.errors import (
    BuildError,
    DeviceLostError,
    LaunchConfigError,
    LaunchFailedError,
    NoDeviceError,
    OutOfDeviceMemoryError,
    TypedError,
    WorkerExitedError,
    WorkerKilledError,
    WorkerTimeoutError,
)
from gpushmoo.core.space import USUAL, Cell, Condition, Problem, enumerate_cells
from gpushmoo.devices.base import (
    DeviceInfo,
    PreparedLaunch,
    Sample,
    TimedInterval,
    check_limits,
    each_or_error,
    prove_each,
)
from gpushmoo.devices.capabilities import Reading
from gpushmoo.devices.memory import (
    Deviation,
    OutOfBoundsWrites,
    Output,
    ProofBuffers,
    ProofResult,
    guard_word,
)
from gpushmoo.measuring.events import (
    CellRun,
    Event,
    Finished,
    MeasureCells,
    Message,
    ShardResult,
    Working,
)
from gpushmoo.measuring.programs import Builds
from gpushmoo.measuring.rounds import ShardRun
from gpushmoo.measuring.sampling import TOGETHER, Sampling, StoppingRule
from gpushmoo.measuring.supervise import FIRST_LAUNCH_S, MAX_FAULTS, FaultLimits, Supervisor
from gpushmoo.measuring.verify import CellSteps
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch
from gpushmoo.workloads.loader import KernelFolder
from jobs import sampling_of

# (variant, height, threads, blocks): what a launch tells about its cell.
Tag = tuple[str, int, int, int]

# Tiles of a launch by which a cell is verified, where it is not the one that is timed.
PROOF_TILES = 8

# Words of a guard zone.
ZONE = 16

INFO = DeviceInfo(
    backend="fake",
    name="Fake",
    uuid="fake-0",
    kind="gpu",
    driver="1",
    runtime="1",
    multiprocessors=4,
    max_threads_per_block=64,
    max_block=(64, 64, 64),
    max_grid=(1000, 1, 1),
    global_memory=2**30,
    max_allocation=2**30,
    cache=2**20,
    core_clock_mhz=1000,
)


# What ends the process of a real worker: a signal, or its supervisor's patience.
class ProcessDiedError(BaseException):
    """The fake process ended without a word."""


class ProcessStruckError(BaseException):
    """The fake process was ended by a signal from outside."""


class ProcessHangsError(BaseException):
    """The fake process waits for a kernel that does not return."""


ENDS: dict[str, type[BaseException]] = {"dead": ProcessDiedError, "hang": ProcessHangsError}

ERRORS: dict[str, type[Exception]] = {
    "refused": LaunchConfigError,
    "failed": LaunchFailedError,
    "memory": OutOfDeviceMemoryError,
    "lost": DeviceLostError,
}


class Tiny(CopyWorkload):
    """Copies rows of eight floats; the launch carries everything that names the cell."""

    name = "tiny"
    title = "Tiny copy"
    pattern = "a test's"
    dtypes = ("float", "double")
    variants = ("a", "b")
    axes: ClassVar = {"threads": [1, 2], "chunks": [1, 2]}

    def defines(self, dtype: str, variant: str) -> dict[str, str]:
        return {"VARIANT": variant}

    def launch(self, cell: Cell) -> Launch:
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(cell.problem.height))
        return Launch(cell.variant, (cell["chunks"], 1, 1), (cell["threads"], 1, 1), args, 7)


FOLDER = KernelFolder(Path("kernels/tiny"), Tiny())


@dataclass
class FakeClock:
    """Stands still unless it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Fault:
    """What goes wrong when `tag` comes to its `nth` (from 0) `operation`: bind, run or sample.

    A launch of so many PROOF_TILES is a workload's other launch for the proof: ``prove``.

    `kind` is a key of ERRORS or ENDS, ``lazy`` (writes nothing), ``wrong`` (writes one bad word),
    ``past`` or ``before`` (writes beside its output), ``input`` (writes into it), ``slow`` (takes
    100 s) or ``zero`` (the device's clock stands).
    """

    tag: Tag
    operation: str
    nth: int
    kind: str


def tag_of(launch: Launch) -> Tag:
    height = next(a for a in launch.args if isinstance(a, np.generic))
    return (launch.entry, int(height), launch.block[0], launch.grid[0])


def cell_tag(cell: Cell) -> Tag:
    return tag_of(Tiny().launch(cell))


@dataclass
class FakeDevice:
    """Keeps the device protocol; `log` lists what was asked of it, in order."""

    clock: FakeClock = field(default_factory=FakeClock)
    faults: list[Fault] = field(default_factory=list)
    launch_s: float = 1e-3
    # Cells every other sample of which takes half as long again.
    uneven: frozenset[Tag] = frozenset()
    broken_variants: frozenset[str] = frozenset()
    # Uploads of problems so high run out of memory.
    oversized: frozenset[int] = frozenset()
    # The launch or sample (from 0, of any cell) at which the context is lost.
    lost_at: int | None = None
    # Launches or samples (from 0, of any cell, of all processes) in which the process is killed.
    struck_at: frozenset[int] = frozenset()
    # Cells in which it always is: they take all memory.
    hogs: frozenset[Tag] = frozenset()
    copy_error: str | None = None
    # Resident blocks per unit by variant, 3 where it is silent; 0: the program cannot tell.
    resident: Mapping[str, int] = field(default_factory=dict)
    info: DeviceInfo = INFO
    # What the sensor tells, reading by reading; the last one stays. Empty: there is no sensor.
    states: list[Reading] = field(default_factory=list)
    # Power of all the time that the clock has shown; None: there is no meter.
    watts: float | None = None
    log: list[tuple[Any, ...]] = field(default_factory=list)
    lost: bool = False
    launches: int = 0
    # Processes that may open the device after each other; None: any number.
    openings: int | None = None
    opened: int = 0
    # Draws where buffers begin.
    placement: np.random.Generator | None = None

    def seconds(self, tag: Tag, nth_sample: int, launches: int) -> float:
        """Of one launch in the cell's sample number `nth_sample`, from 0, of so many launches."""
        return self.launch_s

    def open(self) -> None:
        """Open a fresh context on the device."""
        if self.opened == self.openings:
            raise NoDeviceError("The device has left the bus.")
        self.opened += 1
        self.lost = False

    def build(self, folder: Path, dtype: DType, defines: Mapping[str, str]) -> FakeProgram:
        if defines["VARIANT"] in self.broken_variants:
            raise BuildError(f"variant {defines['VARIANT']} does not compile.", "line 1: error")
        return FakeProgram(self.resident.get(defines["VARIANT"], 3))

    def upload(self, array: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        self.alive()
        if array.shape[0] in self.oversized:
            raise OutOfDeviceMemoryError("The buffer does not fit.")
        buffer = self.allocate(array.nbytes)
        buffer[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
        return buffer

    def allocate(self, nbytes: int) -> npt.NDArray[np.uint32]:
        self.alive()
        buffer = np.zeros(2 * ZONE + nbytes // 4, dtype=np.uint32)[ZONE:-ZONE]
        self.guard(buffer)
        return buffer

    def guard(self, buffer: npt.NDArray[np.uint32]) -> None:
        word = guard_word(buffer.base.ctypes.data)
        buffer.base[:ZONE] = word
        buffer.base[-ZONE:] = word

    def strays(self, buffers: Sequence[npt.NDArray[np.uint32]]) -> list[OutOfBoundsWrites]:
        self.alive()
        wrong = [b.base != guard_word(b.base.ctypes.data) for b in buffers]
        return [OutOfBoundsWrites(int(w[:ZONE].sum()), int(w[-ZONE:].sum())) for w in wrong]

    def checksums(self, buffers: Sequence[npt.NDArray[np.uint32]]) -> list[int]:
        self.alive()
        return [zlib.crc32(b.tobytes()) for b in buffers]

    def words(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        self.alive()
        return buffer[begin : begin + count].copy()

    def prepare(self, output: Output, poison: int = 0xFF) -> None:
        self.log.append(("poison",))
        self.alive()
        output.buffer.fill(0x01010101 * poison)

    def compare(self, output: Output) -> Deviation:
        self.log.append(("compare",))
        self.alive()
        return Deviation(int((output.buffer != output.expected).sum()))

    def bind(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> FakeLaunch:
        self.alive()
        check_limits(launch, self.info)
        bound = FakeLaunch(
            self, tag_of(launch), buffers["src"], buffers["dst"], launch.tiles == PROOF_TILES
        )
        bound.fault("bind")
        return bound

    def timed_interval(self, met: Condition) -> TimedInterval:
        return TimedInterval.LAUNCH

    def sample_all(self, samples: Sequence[Sample]) -> list[float | TypedError]:
        return each_or_error(Sample.take, samples)

    def prove_all(
        self, proofs: Sequence[PreparedLaunch], proof_buffers: ProofBuffers
    ) -> list[ProofResult | TypedError]:
        return prove_each(self, proofs, proof_buffers, self.clock)

    def bind_copy(self, source: Any, target: Any) -> FakeCopy:
        return FakeCopy(self, source, target)

    def alive(self) -> None:
        if self.lost:
            raise DeviceLostError("The device is gone.")

    @property
    def power(self) -> FakePower:
        return FakePower(self)

    def close(self) -> None:
        pass


@dataclass
class FakePower:
    device: FakeDevice

    def read(self) -> Reading | None:
        states = self.device.states
        if not states:
            return None
        return states.pop(0) if len(states) > 1 else states[0]

    def energy_mj(self) -> int | None:
        watts, now = self.device.watts, self.device.clock.now
        return None if watts is None else int(1e3 * watts * now)


@dataclass
class FakeProgram:
    resident: int
    options: str = "-O"
    log: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def resident_blocks(self, launch: Launch) -> int:
        if self.resident == 0:
            raise BuildError(f"no kernel '{launch.entry}'.", "")
        return self.resident

    def registers(self, entry: str) -> int | None:
        return 16


@dataclass
class FakeCopy:
    device: FakeDevice
    source: npt.NDArray[np.uint32]
    target: npt.NDArray[np.uint32]

    def run(self) -> None:
        self.sample(1)
        self.target[:] = self.source

    def interval(self, met: Condition) -> TimedInterval:
        return self.device.timed_interval(met)

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        self.device.log.append(("copy",))
        self.device.alive()
        if self.device.copy_error is not None:
            raise ERRORS[self.device.copy_error]("The copy broke.")
        return 1e-3


@dataclass
class FakeLaunch:
    device: FakeDevice
    tag: Tag
    src: npt.NDArray[np.uint32]
    dst: npt.NDArray[np.uint32]
    # Whether it is by the proof of a workload that has another launch for it.
    proves: bool = False
    calls: dict[str, int] = field(default_factory=dict)

    def fault(self, operation: str) -> str | None:
        """The kind of fault that is due now; raises those that are errors."""
        device = self.device
        device.alive()
        nth = self.calls.get(operation, 0)
        self.calls[operation] = nth + 1
        if operation != "bind":
            device.lost = device.lost or device.launches == device.lost_at
            device.launches += 1
            device.alive()
            if device.launches - 1 in device.struck_at or self.tag in device.hogs:
                raise ProcessStruckError
        due = Fault(self.tag, operation, nth, "")
        for f in device.faults:
            if (f.tag, f.operation, f.nth) == (due.tag, due.operation, due.nth):
                device.lost = device.lost or f.kind == "lost"
                if f.kind in ENDS:
                    raise ENDS[f.kind]
                if f.kind in ERRORS:
                    raise ERRORS[f.kind](f"{f.kind} in {operation} {nth}")
                return f.kind
        return None

    def run(self) -> None:
        operation = "prove" if self.proves else "run"
        self.device.log.append((operation, self.tag))
        kind = self.fault(operation)
        self.device.clock.now += 100.0 if kind == "slow" else self.device.launch_s
        if kind != "lazy":
            self.dst[:] = self.src
        self.misbehave(kind)

    def misbehave(self, kind: str | None) -> None:
        if kind == "wrong":
            self.dst[3] ^= 1
        if kind == "past":
            self.dst.base[-ZONE : -ZONE + 3] = 7
        if kind == "before":
            self.dst.base[ZONE - 1] = 7
        if kind == "input":
            self.src[5] ^= 1

    def interval(self, met: Condition) -> TimedInterval:
        return self.device.timed_interval(met)

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        if met.flushed:
            self.device.log.append(("flush", self.tag))
        if met.timing_mode != USUAL.timing_mode:
            self.device.log.append((met.timing_mode, self.tag))
        self.device.log.append(("sample", self.tag))
        kind = self.fault("sample")
        self.misbehave(kind)
        odd = self.tag in self.device.uneven and self.calls["sample"] % 2 == 1
        alone = self.device.seconds(self.tag, self.calls["sample"] - 1, launches)
        usual = alone * (1.5 if odd else 1.0)
        seconds = {"slow": 100.0, "zero": 0.0}.get(str(kind), usual)
        self.device.clock.now += seconds * launches
        return seconds


def make_cells(
    heights: tuple[int, ...] = (4,),
    threads: tuple[int, ...] = (1, 2),
    chunks: tuple[int, ...] = (1, 2),
    variants: tuple[str, ...] = ("a", "b"),
    cache_states: tuple[str, ...] = ("warm",),
    timing_modes: tuple[str, ...] = ("batched",),
) -> list[Cell]:
    """The grid of the tiny kernel."""
    problems = [Problem(h, 8) for h in heights]
    axes = {"threads": list(threads), "chunks": list(chunks)}
    return enumerate_cells("tiny", "float", variants, problems, axes, cache_states, timing_modes)


@dataclass
class FakeWorker:
    """A process that did all its work when it was made; `hear` gives what it told."""

    told: list[Message]
    end: BaseException | None = None
    # Moved by the wait for a process that hangs.
    clock: FakeClock | None = None

    def hear(self, limit_s: float) -> Message:
        assert limit_s >= FIRST_LAUNCH_S
        if self.told:
            return self.told.pop(0)
        if self.clock is not None:
            self.clock.now += limit_s
        raise self.end or AssertionError("asked after the end")

    def stop(self) -> None:
        pass

    def done(self) -> None:
        pass


@dataclass
class Outcome:
    """What a measured shard left behind."""

    result: ShardResult
    device: FakeDevice
    progress: list[tuple[int, float]]
    events: list[Event]

    @property
    def runs(self) -> list[CellRun]:
        return list(self.result.runs.values())

    def __getitem__(self, cell: Cell) -> CellRun:
        return self.result.runs[cell.key]


def measure_cells(
    device: FakeDevice,
    cells: list[Cell],
    rule: StoppingRule | None = None,
    seed: int = 1,
    thread_limit: int | None = None,
    warmup: int = 1,
) -> Outcome:
    """Measure `cells` on `device` by the library, each with all its samples."""
    # Samples of equal length have an interval of no width: the default rule stops at `min`.
    rule = rule or StoppingRule(6, 9, 0.01, 1e9)
    return measure_by(
        device, cells, sampling_of(rule, seed=seed, thread_limit=thread_limit, warmup=warmup)
    )


def measure_by(
    device: FakeDevice,
    cells: list[Cell],
    sampling: Sampling,
    max_faults: int | None = MAX_FAULTS,
) -> Outcome:
    """Measure `cells` on `device` by this sampling, under a supervisor.

    The device's clock moves by each wait for a process that hangs.
    """
    seen: list[tuple[int, float]] = []
    events: list[Event] = []
    limits = FaultLimits(sampling.job.measure.cell_timeout_s, max_faults)

    def start(do: MeasureCells) -> FakeWorker:
        device.open()
        mine = [c for c in cells if do.keys is None or c.key in do.keys]
        return work(device, mine, sampling, events.append, do)

    runs = [CellRun(c, FOLDER.workload.launch(c)) for c in cells]
    supervisor = Supervisor(runs, start, limits, lambda n, share: seen.append((n, share)))
    result = supervisor.measure(start(MeasureCells(None, TOGETHER, {})))
    return Outcome(result, device, seen, events)


def supervised(
    first: FakeWorker, start: Callable[[MeasureCells], FakeWorker], cells: Sequence[Cell]
) -> list[CellRun]:
    """What becomes of `cells` by a first process and those that `start` gives after it."""
    runs = [CellRun(c, FOLDER.workload.launch(c)) for c in cells]
    result = Supervisor(runs, start, FaultLimits(1.0), lambda done, share: None).measure(first)
    return list(result.runs.values())


def built(device: FakeDevice) -> Builds:
    """The programs of both variants."""
    builds = Builds()
    for name in ("a", "b"):
        try:
            builds.programs[name] = device.build(
                FOLDER.path, DTYPES["float"], FOLDER.workload.defines("float", name)
            )
        except BuildError as err:
            builds.failures[name] = err
    return builds


def work(
    device: FakeDevice,
    cells: list[Cell],
    sampling: Sampling,
    keep: Callable[[Event], None],
    do: MeasureCells,
) -> FakeWorker:
    """What the real worker does with an open device."""
    told: list[Message] = []

    def emit(event: Event) -> None:
        told.append(event)
        keep(event)

    builds = built(device)
    steps = CellSteps(
        device,
        FOLDER,
        builds,
        sampling,
        emit,
        device.clock,
        together=do.together,
        launches=dict(do.launches),
        first=do.first,
        unlaunched=do.unlaunched,
    )
    try:
        ShardRun(steps).measure(cells)
    except DeviceLostError as err:
        return FakeWorker(told, err)
    except ProcessDiedError:
        return FakeWorker(told, WorkerExitedError("the measuring process was ended by SIGSEGV"))
    except ProcessStruckError:
        return FakeWorker(told, WorkerKilledError("the measuring process was ended by SIGKILL"))
    except ProcessHangsError:
        return FakeWorker(told, WorkerTimeoutError(), device.clock)
    return FakeWorker([*told, Finished()])


def shares(outcome: Outcome) -> list[float]:
    """How far the work was, as the process told."""
    return [e.share for e in outcome.events if isinstance(e, Working)]
