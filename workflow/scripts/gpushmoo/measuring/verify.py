"""The steps of measuring cells on an open device: bind, verify on poisoned output, time, end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ..core.dtypes import DTYPES
from ..core.errors import DeviceLostError, TypedError
from ..core.schema import Status
from ..core.space import Cell, CellGroup
from ..devices.base import (
    Device,
    PreparedLaunch,
    Program,
    Sample,
    each_or_error,
    fitted,
    image_refusal,
)
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder
from .cell_memory import Space, Verdict
from .core_waits import all_waits_s, core_waits_s
from .events import CellRun, CellsStarted, Event, ShardResult, Working, result_of, status_of
from .programs import Builds
from .sampling import TOGETHER, TOGETHER_S, Sampling

T = TypeVar("T")

# A verified launch finds a cold cache. If it takes this long, a sample is one launch anyway, and no
# other launch is needed to measure the time.
COLD_LAUNCH_S = 200e-6
# After a first launch of more seconds a second one follows, and the shorter time counts: it decides
# the number of launches in a sample, and one of both may hold a pause of the process or machine.
LONG_LAUNCH_S = 0.1


@dataclass(frozen=True)
class Sampled:
    """A sample of each of some cells: their begin, seconds of a launch or an error.

    On a CPU `processor_s` are the seconds of a launch that all threads of the process computed.
    """

    began_s: float
    seconds: Sequence[float | TypedError]
    processor_s: Sequence[float | None]


@dataclass
class CellSteps:
    """One open device and the kernel that it runs; each step is reported by `emit`.

    `started` is the shard's beginning on `clock`, by default now. At most `together` cells are
    launched without a wait between them. `launches` has the launches in a sample of the groups for
    which the number is chosen, maybe by another process. `until` is the end of the budget on
    `clock`; None for none. `joined` are groups that are not searched. Cells of `unlaunched`, by
    key, are launched one at a time, `first` before all others.
    """

    device: Device
    folder: KernelFolder
    builds: Builds
    sampling: Sampling
    emit: Callable[[Event], None]
    clock: Callable[[], float] = time.monotonic
    started: float | None = None
    together: int = TOGETHER
    launches: dict[CellGroup, int] = field(default_factory=dict)
    until: float | None = None
    joined: frozenset[CellGroup] = frozenset()
    first: str | None = None
    unlaunched: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._started = self.clock() if self.started is None else self.started
        # Work of all running cells: a verification and each sample count one.
        self._work, self._done = 1, 0
        self._each = 1 + self.sampling.rule.max_samples

    def now_s(self) -> float:
        """Seconds since the shard began."""
        return self.clock() - self._started

    @property
    def is_late(self) -> bool:
        """Whether `until` has passed: then no cell gets more than the fewest samples."""
        return self.until is not None and self.clock() >= self.until

    def version(self, cell: Cell) -> str:
        """The name of the version that is compiled for `cell`."""
        return self.folder.workload.version(cell).name

    def program(self, cell: Cell) -> Program:
        """The program of `cell`, which was built."""
        return self.builds.programs[self.version(cell)]

    # How cells begin and end.

    def check_statically(self, run: CellRun) -> None:
        """End a cell that cannot be launched."""
        limit = self.device.info.max_threads_per_block
        if self.sampling.job.thread_limit is not None:
            limit = min(limit, self.sampling.job.thread_limit)
        if run.launch.threads > limit:
            run.end(Status.TOO_MANY_THREADS, f"{run.launch.threads} threads a block; limit {limit}")
        elif self.folder.workload.images_of(run.cell.variant) and (
            refusal := image_refusal(self.device, run.cell.problem, DTYPES[run.cell.dtype])
        ):
            run.end(Status.OUT_OF_RESOURCES, refusal)
        elif (name := self.version(run.cell)) in self.builds.failures:
            failure = self.builds.failures[name]
            run.end(status_of(failure), str(failure))

    def begin(self, runs: Sequence[CellRun]) -> None:
        """Begin to count the work of these cells, which will run."""
        self._work = self._each * len(runs)
        self._done = 0

    def count_work(self, run: CellRun) -> None:
        """Count a cell's verification or sample; a repeated one does not count as progress."""
        if run.status is None and len(run.samples_s) >= run.work_done:
            self._set_work(run, run.work_done + 1)

    def _set_work(self, run: CellRun, work_done: int) -> None:
        self._done += work_done - run.work_done
        run.work_done = work_done
        self.emit(Working(share=self._done / self._work))

    def end(self, run: CellRun, status: Status, message: str | None = None) -> None:
        """End the cell and report it; work that it did not need counts as done."""
        run.end(status, message)
        self.emit(result_of(run))
        self._set_work(run, self._each)

    def end_open(self, runs: Sequence[CellRun], status: Status, message: str | None) -> None:
        """End all that are open."""
        for run in runs:
            if run.status is None:
                self.end(run, status, message)

    def end_by(self, run: CellRun, err: TypedError) -> None:
        """End the cell with the status of an error."""
        self.end(run, status_of(err), str(err))

    def end_slow(self, run: CellRun, seconds: float) -> None:
        """End a cell whose launch took too long."""
        self.end(run, Status.TIMEOUT, f"one launch took {seconds:.3g} s")

    # How anything runs on the device.

    def guarded(self, run: CellRun, action: Callable[[], object]) -> None:
        """Do an `action` of an announced cell; an error in it ends this cell, not the shard."""
        try:
            action()
        except DeviceLostError:
            raise
        except TypedError as err:
            self.end_by(run, err)

    def announced(self, runs: Sequence[CellRun], take: Callable[[], T]) -> tuple[float, T]:
        """Report which cells run; the begin and the result of `take`.

        Each launch is announced, since the job's time limit is that of one launch.
        """
        if runs:
            self.emit(CellsStarted(tuple(r.cell.key for r in runs)))
        return self.now_s(), take()

    def unslowed(self, take: Callable[[], object]) -> bool:
        """Do `take`; whether the device did not slow itself down before and after it."""
        before = self._is_slowed()
        take()
        return not (self._is_slowed() or before)

    def _is_slowed(self) -> bool:
        """Read and report the device's state; whether it slows itself down."""
        power = self.device.power
        reading = None if power is None else power.read()
        if reading is None:
            return False
        self.emit(ShardResult(readings=[(self.now_s(), reading)]))
        return reading.slowed

    def sampled(self, runs: Sequence[CellRun], launches: int | None = None) -> Sampled:
        """Take a sample of each cell, of this number of `launches`.

        By default the cell's number.
        """
        samples: list[Sample] = [run.sample(launches) for run in runs]
        if self.device.info.kind == "cpu":
            return self._with_processor(runs, samples)
        # What the host times is not queued.
        fed = isinstance(self.folder.workload, HostFedWorkload)
        take = partial(each_or_error, Sample.take) if fed else self.device.sample_all
        began_s, seconds = self.announced(runs, partial(take, samples))
        return Sampled(began_s, seconds, [None] * len(runs))

    def _with_processor(self, runs: Sequence[CellRun], samples: Sequence[Sample]) -> Sampled:
        """Take samples one by one, with the seconds that this process's threads compute."""
        used: list[float | None] = []

        def take(sample: Sample) -> float:
            before = time.process_time()
            try:
                return sample.take()
            finally:
                # A row follows a launch that is not timed.
                launches = sample.launches + (sample.launches > 1)
                used.append((time.process_time() - before) / launches)

        began_s, seconds = self.announced(runs, partial(each_or_error, take, samples))
        return Sampled(began_s, seconds, used)

    def shared(self, take: Callable[[], object]) -> None:
        """Do `take`, a round; on a CPU report how long threads computed and waited meanwhile.

        Linux takes longer to say so than a short sample lasts.
        """
        if self.device.info.kind != "cpu":
            take()
            return
        waits_s = core_waits_s(os.getpid())
        computed_s = time.process_time()
        take()
        computed_s = time.process_time() - computed_s
        waited_s = all_waits_s(waits_s, core_waits_s(os.getpid()))
        self.emit(ShardResult(computed_s=computed_s, waited_s=waited_s))

    def outcomes(
        self, runs: Sequence[CellRun], launches: int | None = None
    ) -> tuple[float, Sequence[float | TypedError]]:
        """The begin of the samples, and of each the seconds of a launch, or its error."""
        taken = self.sampled(runs, launches)
        return taken.began_s, taken.seconds

    def outcomes_at(self, runs: Sequence[CellRun], launches: int) -> Sequence[float | TypedError]:
        """Take a sample of `launches` launches of each.

        Return seconds of a launch, or the error.
        """
        return self.outcomes(runs, launches)[1]

    def seconds_of(self, run: CellRun, outcome: float | TypedError) -> float | None:
        """The seconds of a launch without the sample's overhead.

        None if the sample failed; the cell has then ended.
        """
        if isinstance(outcome, TypedError):
            self.end_by(run, outcome)
            return None
        if not run.without_overhead(outcome) > 0.0:
            # A launch that took no time does not count.
            text = f"the device's clock gave {outcome} s for a launch"
            self.end(run, Status.LAUNCH_FAILED, text)
            return None
        return run.without_overhead(outcome)

    # How cells are verified.

    def is_first(self, runs: Iterable[CellRun]) -> bool:
        """Whether one of these runs is to be launched before all others."""
        return any(run.cell.key == self.first for run in runs)

    def admit(self, runs: Sequence[CellRun], space: Space) -> None:
        """Bind each, verify a launch on poisoned output, time one launch."""
        alone = [run for run in runs if run.cell.key in self.unlaunched]
        for run in sorted(alone, key=lambda run: not self.is_first([run])):
            self._admit([run], space)
        self._admit([run for run in runs if run.cell.key not in self.unlaunched], space)

    def _admit(self, runs: Sequence[CellRun], space: Space) -> None:
        for begin in range(0, len(runs), self.together):
            some = runs[begin : begin + self.together]
            # A bind may compile on the host, which has no time limit of a launch.
            self.emit(CellsStarted(tuple(run.cell.key for run in some), launches=False))
            for run in some:
                self.guarded(run, partial(self.bind, run, space))
        for some in self._growing([run for run in runs if run.status is None]):
            if self.sampling.verifies_before:
                self._judge_all(some, space, True)
            # Timed launches that are not the verified ones may write outside of the output.
            apart = [run for run in some if run.status is None and run.proof is not run.bound]
            self._judge_all(apart, space, False)
            self._time([run for run in some if run.status is None and run.launch_s is None])
            for run in some:
                self.count_work(run)

    def verify(self, runs: Sequence[CellRun], space: Space) -> None:
        """Verify a launch of each on poisoned output."""
        for some in self._growing(runs):
            self._judge_all(some, space, True)

    def _growing(self, runs: Sequence[CellRun]) -> Iterator[Sequence[CellRun]]:
        """The runs in growing parts, as long as the work on a part takes little time."""
        begin, n = 0, 1
        while begin < len(runs):
            before = self.clock()
            yield runs[begin : begin + n]
            begin += n
            quick = self.clock() - before < TOGETHER_S / 2
            n = min(self.together, 2 * n) if quick else max(1, n // 2)

    def bind(self, run: CellRun, space: Space) -> None:
        """Bind the cell's launch, and the one that is verified, to this memory."""
        program = self.program(run.cell)
        launch = run.launch
        run.bound = space.bind(program, run.cell)
        run.proof = space.bind_proof(program, run.cell) or run.bound
        run.launch = fitted(launch, program, self.device.info)
        run.registers = program.registers(launch.entry)
        run.resident_blocks = program.resident_blocks(launch)

    def _judge_all(self, runs: Sequence[CellRun], space: Space, compared: bool) -> None:
        """Judge runs that are launched without a wait between them; faulty ones again alone."""
        bound_of = _proof if compared else _timed
        alone = partial(self._verify_alone if compared else self._watch_alone, space)
        while len(runs) > 1:
            together = partial(space.prove_together, [bound_of(run) for run in runs], compared)
            _, outcomes = self.announced(runs, together)
            if outcomes is None:
                break
            for run, outcome in zip(runs, outcomes, strict=False):
                if isinstance(outcome, TypedError):
                    self.end_by(run, outcome)
                else:
                    run.verified_words = space.words
                    self._judge(run, *outcome, partial(alone, run))
                    is_timed = run.proof is run.bound and run.status is None
                    if is_timed and COLD_LAUNCH_S <= outcome[0] <= LONG_LAUNCH_S:
                        run.launch_s = outcome[0]
                        self.emit(ShardResult(timed_s={run.cell.key: outcome[0]}))
            runs = runs[len(outcomes) :]
        for run in runs:
            self.emit(CellsStarted((run.cell.key,)))
            self.guarded(run, partial(alone, run))

    def _judge(
        self, run: CellRun, seconds: float, verdict: Verdict, alone: Callable[[], None]
    ) -> None:
        """Judge a run by its launch among others, none of which harmed it."""
        run.wrong_words, run.worst_error = verdict.wrong_words, verdict.worst
        if verdict.message is not None or seconds > self.sampling.job.measure.cell_timeout_s:
            # Alone, to find the place, or a pause.
            self.emit(CellsStarted((run.cell.key,)))
            self.guarded(run, alone)
        if verdict.message is not None and run.status is None:
            # One wrong result is enough.
            run.wrong_words = verdict.wrong_words
            self.end(run, Status.WRONG_RESULT, verdict.message)

    def _verify_alone(self, space: Space, run: CellRun) -> None:
        """Verify a launch on poisoned output. A second one that takes too long is a timeout."""
        proof = _proof(run)
        slowest_s = self.sampling.job.measure.cell_timeout_s
        launch = partial(self._poisoned_launch, proof, space)
        _, took = self.announced([run], launch)
        if took > slowest_s:
            _, took = self.announced([run], launch)
        self.emit(CellsStarted((run.cell.key,), launches=False))
        verdict = space.verdict(run.cell, proof)
        run.verified_words, run.wrong_words = space.words, verdict.wrong_words
        run.worst_error = verdict.worst
        if verdict.message is not None:
            self.end(run, Status.WRONG_RESULT, verdict.message)
        elif took > slowest_s:
            self.end_slow(run, took)

    def _poisoned_launch(self, proof: PreparedLaunch, space: Space) -> float:
        """The seconds of a launch by the host's clock."""
        space.poison()
        before = self.clock()
        proof.run()
        return self.clock() - before

    def _watch_alone(self, space: Space, run: CellRun) -> None:
        """Check the timed launch alone for writes outside of the output."""
        self.announced([run], _timed(run).run)
        self.emit(CellsStarted((run.cell.key,), launches=False))
        verdict = space.damage()
        if verdict.message is not None:
            run.wrong_words = verdict.wrong_words
            self.end(run, Status.WRONG_RESULT, verdict.message)

    def _time(self, runs: Sequence[CellRun]) -> None:
        """Time one launch of each; of a long one the shorter of two."""
        _, outcomes = self.outcomes(runs) if runs else (0.0, [])
        for run, outcome in zip(runs, outcomes, strict=True):
            if not isinstance(outcome, TypedError) and outcome > LONG_LAUNCH_S:
                _, [again] = self.outcomes([run])
                outcome = outcome if isinstance(again, TypedError) else min(outcome, again)
            seconds = self.seconds_of(run, outcome)
            if seconds is not None:
                run.launch_s = seconds
                self.emit(ShardResult(timed_s={run.cell.key: seconds}))


def _proof(run: CellRun) -> PreparedLaunch:
    assert run.proof is not None
    return run.proof


def _timed(run: CellRun) -> PreparedLaunch:
    assert run.bound is not None
    return run.bound
