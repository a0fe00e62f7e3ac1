"""Cells in, results out. Knows the device protocol and the workload protocol, nothing else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from ..core.dtypes import DTYPES
from ..core.errors import DeviceLostError, TypedError
from ..core.schema import Status
from ..core.space import CACHE_STATES, Cell, CellGroup, Problem
from ..devices.base import Bound, Device, Sample, take_each
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder
from .buffers import Space, open_space
from .builds import Builds
from .events import (
    Began,
    CellRun,
    Copied,
    Ended,
    Event,
    Grouped,
    Preparing,
    Read,
    Timed,
    Worked,
    planned,
)
from .outcome import status_of
from .progress import Work
from .sampling.batching import (
    MAX_FLUSHED,
    MAX_LAUNCHES,
    chunked,
    launches_of_cell,
    launches_of_group,
    shuffled,
)
from .settings import MeasureSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

# Cells that are sampled without waiting between them, and the seconds that they may take together:
# a hanging cell is looked for when nothing is heard for longer than one launch may take.
TOGETHER = 32
TOGETHER_S = 0.1

# Seconds before cells of which the host computes a part. Threads of a library that cells before
# them used may go on spinning (OpenBLAS's for 2^26 cycles), and would share the cores.
SETTLE_S = 0.1

# Rounds of one problem that may be lost to throttling before its cells are given up.
SLOWED_ROUNDS = 5

# Times that samples are taken again because the process or the machine stood still meanwhile.
RETAKES = 10
# A cell whose first launch takes longer is launched twice, and the shorter one believed: it decides
# how many launches make a sample, and a pause that nothing tells of (a virtual machine's) may be in
# one of them.
LONG_LAUNCH_S = 0.1


class ShardRun:
    """Measures the cells of one shard on one open device and tells every step to `emit`."""

    def __init__(
        self,
        device: Device,
        folder: KernelFolder,
        builds: Builds,
        settings: MeasureSettings,
        emit: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
        together: int = TOGETHER,
        launches: Mapping[CellGroup, int] | None = None,
        stood_still: Callable[[], bool] = lambda: False,
    ) -> None:
        """`started` is the shard's beginning on `clock`, when that was before now.

        At most `together` cells are sampled without waiting between them. `launches` is how many
        make a sample of the groups that another process has begun with. `stood_still` tells
        whether this process or its machine did since it was last asked.
        """
        self._device, self._folder, self._builds = device, folder, builds
        self._settings, self._emit, self._clock = settings, emit, clock
        self._together, self._stood_still = together, stood_still
        self._launches = dict(launches or {})
        self._rng = np.random.default_rng([settings.seed, settings.repeat])
        self._started = clock() if started is None else started
        self._work = Work([], 0)

    def measure(self, cells: Sequence[Cell]) -> None:
        """One Ended event for each cell. Raises DeviceLostError, after which nothing works.

        The cell that was running then has not ended: what it is called is for the caller to say.
        """
        runs = [planned(self._folder.workload, cell) for cell in cells]
        for run in runs:
            if run.status is None:
                self._check_statically(run)
            if run.status is not None:
                self._emit(Ended(run))
        open_runs = [r for r in runs if r.status is None]
        self._work = Work([r.cell.key for r in open_runs], self._settings.rule.max_samples)
        groups: dict[tuple[Problem, str], list[CellRun]] = {}
        for run in open_runs:
            result = self._folder.workload.result_of(run.cell.variant)
            groups.setdefault((run.cell.problem, result), []).append(run)
        for (problem, _), group in sorted(groups.items(), key=lambda item: item[0]):
            self._measure_group(problem, group)

    def _measure_group(self, problem: Problem, runs: list[CellRun]) -> None:
        """Measure cells of one problem and result; every one of them has a status afterwards."""
        try:
            self._measure_open(problem, runs)
        except DeviceLostError:
            raise
        except TypedError as err:
            # If buffers did not fit, the next problem may be smaller.
            self._end_open(runs, status_of(err), str(err))

    def _end_open(self, runs: list[CellRun], status: Status, message: str | None) -> None:
        for run in runs:
            if run.status is None:
                self._end(run, status, message)

    def _end(self, run: CellRun, status: Status, message: str | None = None) -> None:
        """The cell's status, told at once."""
        run.end(status, message)
        self._work.end(run.cell.key)
        self._emit(Ended(run))
        self._emit(Worked(self._work.fraction))

    def _check_statically(self, run: CellRun) -> None:
        limit = self._device.info.max_threads_per_block
        if self._settings.thread_limit is not None:
            limit = min(limit, self._settings.thread_limit)
        if run.launch.threads > limit:
            run.end(Status.TOO_MANY_THREADS, f"{run.launch.threads} threads a block; limit {limit}")
        elif (refusal := self._image_refusal(run.cell)) is not None:
            run.end(Status.RESOURCES, refusal)
        elif (name := self._version(run.cell)) in self._builds.failures:
            failure = self._builds.failures[name]
            run.end(status_of(failure), str(failure))

    def _version(self, cell: Cell) -> str:
        return self._folder.workload.version(cell).name

    def _image_refusal(self, cell: Cell) -> str | None:
        if not self._folder.workload.images:
            return None
        return self._device.image_refusal(cell.problem, DTYPES[cell.dtype])

    def _measure_open(self, problem: Problem, runs: list[CellRun]) -> None:
        self._emit(Preparing(problem, frozenset(r.cell.variant for r in runs)))
        space = open_space(
            self._device,
            self._folder.workload,
            problem,
            runs[0].cell.dtype,
            runs[0].cell.variant,
            self._settings.seed,
        )
        log.info("buffers of %s are ready", problem.label)
        if isinstance(self._folder.workload, HostFedWorkload):
            time.sleep(SETTLE_S)
        for run in shuffled(runs, self._rng):
            self._admit(run, space)
        log.info("%d of %d cells admitted", sum(r.status is None for r in runs), len(runs))
        # One state after the other: a flushed cache must not be what a warm cell finds.
        for state in CACHE_STATES:
            alike = [r for r in runs if r.cell.cache_state == state and r.status is None]
            self._choose_launches(alike)
            for run in shuffled(alike, self._rng):
                self._warm_up(run)
            self._sample(alike, state, space)

    def _guarded(self, run: CellRun, step: Callable[[], object]) -> None:
        """Run `step`; an error in it ends this cell with its typed status, not the shard."""
        self._emit(Began((run.cell.key,)))
        try:
            step()
        except DeviceLostError:
            raise
        except TypedError as err:
            self._end_by(run, err)

    def _end_by(self, run: CellRun, err: TypedError) -> None:
        self._end(run, status_of(err), str(err))

    def _end_by_clock(self, run: CellRun, seconds: float) -> None:
        text = f"the device's clock gave {seconds} s for a launch"
        self._end(run, Status.LAUNCH_FAILED, text)

    def _admit(self, run: CellRun, space: Space) -> None:
        """Bind, launch once on poisoned output and verify that, time one launch."""

        def step() -> None:
            program = self._builds.programs[self._version(run.cell)]
            run.bound = space.bind(program, run.cell)
            run.proof = space.bind_proof(program, run.cell) or run.bound
            run.registers = program.registers(run.launch.entry)
            run.resident_per_unit = program.resident_per_unit(
                run.launch.entry, run.launch.threads, run.launch.shared_bytes
            )
            if self._settings.verifies_before:
                self._verify(run, space)
            if run.bound is not None:
                run.launch_s = self._first_launch_s(run)
                if not run.launch_s > 0.0:
                    self._end_by_clock(run, run.launch_s)
                else:
                    self._emit(Timed(run.cell.key, run.launch_s))
                    self._look_around(run, space)

        self._guarded(run, step)
        self._step(run)

    def _first_launch_s(self, run: CellRun) -> float:
        _, seconds = self._undisturbed([run], run.sample().take)
        if seconds > LONG_LAUNCH_S:
            _, again_s = self._undisturbed([run], run.sample().take)
            seconds = min(seconds, again_s)
        return seconds

    def _verify(self, run: CellRun, space: Space) -> None:
        """Launch on poisoned output and compare with the expected one, both on the device.

        A launch that takes too long is launched once more before it is a timeout.
        """
        assert run.proof is not None
        launch = partial(self._poisoned_launch, run.proof, space)
        _, took = self._undisturbed([run], launch)
        if took > self._settings.cell_timeout_s:
            _, took = self._undisturbed([run], launch)
        verdict = space.verdict(run.cell, run.proof)
        run.verified_words, run.wrong_words = space.words, verdict.wrong_words
        if verdict.message is not None:
            self._end(run, Status.WRONG_RESULT, verdict.message)
        elif took > self._settings.cell_timeout_s:
            self._end(run, Status.TIMEOUT, f"one launch took {took:.3g} s")

    def _poisoned_launch(self, proof: Bound, space: Space) -> float:
        """Seconds of the host's clock that a launch takes."""
        space.poison()
        before = self._clock()
        proof.run()
        return self._clock() - before

    def _look_around(self, run: CellRun, space: Space) -> None:
        """What is timed may write where the launch that was verified did not."""
        if run.proof is not run.bound:
            verdict = space.damage()
            if verdict.message is not None:
                run.wrong_words = verdict.wrong_words
                self._end(run, Status.WRONG_RESULT, verdict.message)

    def _choose_launches(self, runs: list[CellRun]) -> None:
        """One number of launches a sample for each group, so that its cells are measured alike."""
        groups: dict[CellGroup, list[float]] = {}
        for run in runs:
            assert run.launch_s is not None
            groups.setdefault(run.cell.group, []).append(run.launch_s)
        for group, launches_s in groups.items():
            if group not in self._launches:
                most = MAX_FLUSHED if group.cache_state == "flushed" else MAX_LAUNCHES
                self._launches[group] = launches_of_group(launches_s, most)
            self._emit(Grouped(group, self._launches[group]))
        for run in runs:
            assert run.launch_s is not None
            run.launches = launches_of_cell(self._launches[run.cell.group], run.launch_s)

    def _warm_up(self, run: CellRun) -> None:
        for _ in range(self._settings.warmup):
            if run.status is None:
                self._guarded(run, run.sample().take)

    def _sample(self, runs: list[CellRun], state: str, space: Space) -> None:
        """Rounds over the open cells in random order until every cell is done and verified.

        A round during which the device slowed itself down is taken again; after SLOWED_ROUNDS of
        them the unfinished cells end as ``throttled``.
        """
        rule = self._settings.rule
        slowed_rounds = 0
        while active := [r for r in runs if r.status is None]:
            self._emit(Preparing(active[0].cell.problem))
            slowed_before = self._slowed()
            copy = Sample(space.copy, 1, state == "flushed")
            copied_at_s, seconds = self._undisturbed([], copy.take)
            timed = ((run, run.sample_s) for run in shuffled(active, self._rng))
            for runs_together in chunked(timed, self._together, TOGETHER_S):
                self._sample_together(runs_together)
            if self._slowed() or slowed_before:
                slowed_rounds += 1
                self._discard_round(active)
                if slowed_rounds == SLOWED_ROUNDS:
                    self._end_open(active, Status.THROTTLED, "the device kept slowing itself down")
            else:
                self._emit(Copied(active[0].cell.problem, state, seconds, copied_at_s))
            for run in active:
                if run.status is None and rule.done(run.samples_s, run.spent_s):
                    if self._settings.verifies_after:
                        self._guarded(run, partial(self._verify, run, space))
                    if run.status is None:
                        self._end(run, Status.OK)

    def _slowed(self) -> bool:
        """Read the device's state and tell it; whether it slows itself down."""
        reading = self._device.reading()
        if reading is None:
            return False
        self._emit(Read(self._now_s(), reading))
        return reading.slowed

    def _now_s(self) -> float:
        return self._clock() - self._started

    @staticmethod
    def _discard_round(runs: list[CellRun]) -> None:
        for run in runs:
            if run.status is None:
                run.samples_s.pop()
                run.sampled_at_s.pop()

    def _sample_together(self, runs: list[CellRun]) -> None:
        began_s, outcomes = self._outcomes(runs)
        for run, outcome in zip(runs, outcomes, strict=True):
            at_s = began_s
            if not isinstance(outcome, TypedError) and outcome > self._settings.cell_timeout_s:
                # Once more: a pause that nothing tells of may be in it.
                at_s, [outcome] = self._outcomes([run])
            if isinstance(outcome, TypedError):
                self._end_by(run, outcome)
            elif not outcome > 0.0:
                self._end_by_clock(run, outcome)
            else:
                self._take(run, outcome, at_s)
            self._step(run)

    def _outcomes(self, runs: list[CellRun]) -> tuple[float, Sequence[float | TypedError]]:
        """When the samples began, and the seconds of a launch of each, or what went wrong."""
        fed = isinstance(self._folder.workload, HostFedWorkload)
        # What the host times is not queued.
        take = take_each if fed else self._device.sample_all
        return self._undisturbed(runs, partial(take, [run.sample() for run in runs]))

    def _undisturbed(self, runs: Sequence[CellRun], take: Callable[[], T]) -> tuple[float, T]:
        """When it began and what `take` gives; taken again where something stood still meanwhile.

        Each launch is announced: one of them may take as long as a launch may, not all.
        """
        for _ in range(1 + RETAKES):
            if runs:
                self._emit(Began(tuple(r.cell.key for r in runs)))
            self._stood_still()
            began_s = self._now_s()
            taken = take()
            if not self._stood_still():
                break
            log.warning("the process or the machine stood still: %d samples are void", len(runs))
        return began_s, taken

    def _take(self, run: CellRun, seconds: float, began_s: float) -> None:
        assert run.launches is not None
        run.samples_s.append(seconds)
        run.sampled_at_s.append(began_s)
        run.spent_s += seconds * run.launches
        if seconds > self._settings.cell_timeout_s:
            self._end(run, Status.TIMEOUT, f"one launch took {seconds:.3g} s")

    def _step(self, run: CellRun) -> None:
        """Count its verification, or a sample of it; one that is taken again is no progress."""
        if self._work.step(run.cell.key, len(run.samples_s)):
            self._emit(Worked(self._work.fraction))
