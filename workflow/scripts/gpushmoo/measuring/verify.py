"""Measure cells on an open device in steps: bind, verify on poisoned output, time, end."""

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
    """One sample of each of several cells.

    Attributes
    ----------
    began_s
        Begin of the samples, in seconds since the shard began.
    seconds
        Time of a launch in each sample, in seconds, or an error.
    processor_s
        On a CPU, time that all threads computed for a launch, in seconds, otherwise None.
    """

    began_s: float
    seconds: Sequence[float | TypedError]
    processor_s: Sequence[float | None]


@dataclass
class CellSteps:
    """Steps of measuring cells of one kernel on one open device.

    Attributes
    ----------
    device
        The open device.
    folder
        The kernel.
    builds
        Its compiled versions.
    sampling
        How cells are sampled.
    emit
        Reports an event to the job.
    clock
        Returns the time in seconds.
    started
        Time on `clock` at which the shard began, by default now.
    together
        Largest number of cells that are launched without a wait between them.
    launches
        Number of launches in a sample, by group, as far as it is chosen.
    until
        Time on `clock` at which the budget ends, or None without a budget.
    joined
        Groups that are not searched.
    first
        Key of the cell that is launched before all others.
    unlaunched
        Keys of cells that are launched one at a time.
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
        """Return the time since the shard began, in seconds."""
        return self.clock() - self._started

    @property
    def is_late(self) -> bool:
        """Whether the budget is spent. Then no cell gets more than the fewest samples."""
        return self.until is not None and self.clock() >= self.until

    def version(self, cell: Cell) -> str:
        """Return the name of the version that is compiled for `cell`."""
        return self.folder.workload.version(cell).name

    def program(self, cell: Cell) -> Program:
        """Return the compiled program of `cell`."""
        return self.builds.programs[self.version(cell)]

    # How cells begin and end.

    def check_statically(self, run: CellRun) -> None:
        """End a cell that the device cannot launch."""
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
        """Start to count the work of these cells, for the progress."""
        self._work = self._each * len(runs)
        self._done = 0

    def count_work(self, run: CellRun) -> None:
        """Count the verification or a sample of a cell as progress, unless it is a repetition."""
        if run.status is None and len(run.samples_s) >= run.work_done:
            self._set_work(run, run.work_done + 1)

    def _set_work(self, run: CellRun, work_done: int) -> None:
        self._done += work_done - run.work_done
        run.work_done = work_done
        self.emit(Working(share=self._done / self._work))

    def end(self, run: CellRun, status: Status, message: str | None = None) -> None:
        """End a cell and report it. Work that it did not need counts as done.

        Parameters
        ----------
        run
            The cell.
        status, message
            Its status and message.
        """
        run.end(status, message)
        self.emit(result_of(run))
        self._set_work(run, self._each)

    def end_open(self, runs: Sequence[CellRun], status: Status, message: str | None) -> None:
        """End all cells that have no status.

        Parameters
        ----------
        runs
            The cells.
        status, message
            Status and message of those that end.
        """
        ended = [run for run in runs if run.status is None]
        for run in ended:
            run.end(status, message)
        if ended:
            # One message, since thousands of cells may end at once.
            self.emit(result_of(*ended))
        for run in ended:
            self._set_work(run, self._each)

    def end_by(self, run: CellRun, err: TypedError) -> None:
        """End a cell with the status and the text of an error."""
        self.end(run, status_of(err), str(err))

    def end_slow(self, run: CellRun, seconds: float) -> None:
        """End a cell as ``timeout``, because one of its launches took `seconds` seconds."""
        self.end(run, Status.TIMEOUT, f"one launch took {seconds:.3g} s")

    # How anything runs on the device.

    def guarded(self, run: CellRun, action: Callable[[], object]) -> None:
        """Run an `action` of an announced cell. An error in it ends only this cell."""
        try:
            action()
        except DeviceLostError:
            raise
        except TypedError as err:
            self.end_by(run, err)

    def announced(self, runs: Sequence[CellRun], take: Callable[[], T]) -> tuple[float, T]:
        """Report that cells run next, and run them.

        The job limits the time of a launch, so it must know when each launch starts.

        Parameters
        ----------
        runs
            The cells.
        take
            Launches them.

        Returns
        -------
        tuple
            Begin in seconds since the shard began, and the result of `take`.
        """
        if runs:
            self.emit(CellsStarted(tuple(r.cell.key for r in runs)))
        return self.now_s(), take()

    def unslowed(self, take: Callable[[], object]) -> bool:
        """Run `take`, and return whether the device did not throttle before and after it."""
        before = self._is_slowed()
        take()
        return not (self._is_slowed() or before)

    def _is_slowed(self) -> bool:
        """Read and report the state of the device, and return whether it throttles."""
        power = self.device.power
        reading = None if power is None else power.read()
        if reading is None:
            return False
        self.emit(ShardResult(readings=[(self.now_s(), reading)]))
        return reading.slowed

    def sampled(self, runs: Sequence[CellRun], launches: int | None = None) -> Sampled:
        """Take a sample of each cell.

        Parameters
        ----------
        runs
            The cells, which are bound.
        launches
            Number of launches in a sample, by default the chosen number of the cell.
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
        """Take samples one by one, and measure the time that this process's threads compute."""
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
        """Run a round of samples. On a CPU, report how long threads computed and waited for a core.

        Linux takes longer to return these times than a short sample lasts, so they are read once a
        round.
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
        """Take a sample of each cell.

        Parameters
        ----------
        runs
            The cells, which are bound.
        launches
            Number of launches in a sample, by default the chosen number of the cell.

        Returns
        -------
        tuple
            Begin in seconds since the shard began, and the time of a launch in each sample, or its
            error.
        """
        taken = self.sampled(runs, launches)
        return taken.began_s, taken.seconds

    def outcomes_at(self, runs: Sequence[CellRun], launches: int) -> Sequence[float | TypedError]:
        """Take a sample of `launches` launches of each cell.

        Returns
        -------
        list
            Time of a launch in each sample, in seconds, or its error.
        """
        return self.outcomes(runs, launches)[1]

    def seconds_of(self, run: CellRun, outcome: float | TypedError) -> float | None:
        """Return the time of a launch without the overhead of the sample.

        If the sample failed, the cell ends, and the result is None.

        Parameters
        ----------
        run
            The cell.
        outcome
            Time of a launch in the sample, in seconds, or the error.
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
        """Return whether one of these cells must be launched before all others."""
        return any(run.cell.key == self.first for run in runs)

    def admit(self, runs: Sequence[CellRun], space: Space) -> None:
        """Bind each cell, verify a launch on poisoned output, and time one launch.

        Parameters
        ----------
        runs
            The cells.
        space
            Memory of their problem.
        """
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
        """Verify a launch of each cell on poisoned output.

        Parameters
        ----------
        runs
            The cells, which are bound.
        space
            Memory of their problem.
        """
        for some in self._growing(runs):
            self._judge_all(some, space, True)

    def _growing(self, runs: Sequence[CellRun]) -> Iterator[Sequence[CellRun]]:
        """Yield the cells in parts that grow as long as the work on a part takes little time."""
        begin, n = 0, 1
        while begin < len(runs):
            before = self.clock()
            yield runs[begin : begin + n]
            begin += n
            quick = self.clock() - before < TOGETHER_S / 2
            n = min(self.together, 2 * n) if quick else max(1, n // 2)

    def bind(self, run: CellRun, space: Space) -> None:
        """Bind the launch of a cell that is timed, and the one that is verified, to memory."""
        program = self.program(run.cell)
        launch = run.launch
        run.bound = space.bind(program, run.cell)
        run.proof = space.bind_proof(program, run.cell) or run.bound
        run.launch = fitted(launch, program, self.device.info)
        run.registers = program.registers(launch.entry)
        run.resident_blocks = program.resident_blocks(launch)

    def _judge_all(self, runs: Sequence[CellRun], space: Space, compared: bool) -> None:
        """Verify cells that are launched without waits between them, faulty ones again alone."""
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
        """Record the verification of a cell among others. Repeat it alone if it failed."""
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
        """Verify a launch on poisoned output. If two launches take too long, it is a timeout."""
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
        """Return the time of a launch on poisoned output, in seconds, by the host's clock."""
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
        """Time one launch of each cell. For a long launch, the shorter of two counts."""
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
