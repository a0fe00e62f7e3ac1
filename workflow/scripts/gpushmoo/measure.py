"""Cells in, results out. Knows the device protocol and the workload protocol, nothing else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .devices.base import (
    Bound,
    BuildError,
    Device,
    DeviceError,
    DeviceLostError,
    LaunchFailedError,
    LaunchRefusedError,
    OutOfDeviceMemoryError,
    Program,
    Reading,
)
from .dtypes import DTYPES
from .kernels import KernelFolder
from .schema import Status
from .space import Cell, Problem, Residency, enumerate_cells, expand_axis, shard_of
from .timing.batching import launches_per_sample
from .timing.order import shuffled
from .timing.stopping import StoppingRule
from .workload import Launch

log = logging.getLogger(__name__)

# What the device cannot give is the cell's limit (status ``resources``), not a fault.
_REFUSALS = (LaunchRefusedError, OutOfDeviceMemoryError)


# Rounds of one problem that may be lost to throttling before its cells are given up.
SLOWED_ROUNDS = 5


@dataclass(frozen=True)
class MeasureSettings:
    """How cells are measured; see config/config.yaml for each value's meaning."""

    seed: int
    thread_limit: int | None
    warmup: int
    cell_timeout_s: float
    rule: StoppingRule


@dataclass
class CellRun:
    """A cell on its way: its launch, its samples in seconds, how it ended."""

    cell: Cell
    launch: Launch
    resident_per_unit: int | None = None
    registers: int | None = None
    bound: Bound | None = None
    status: Status | None = None
    message: str | None = None
    launches: int | None = None
    samples_s: list[float] = field(default_factory=list)
    sampled_at_s: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    verified_words: int | None = None
    wrong_words: int | None = None
    copy_s: float | None = None

    def end(self, status: Status, message: str | None = None) -> None:
        """Fix the cell's status; a later fault may still replace ``ok``."""
        self.status, self.message, self.bound = status, message, None


@dataclass(frozen=True)
class Builds:
    """Programs by variant; a variant that did not compile maps to the reason."""

    programs: dict[str, Program]
    failures: dict[str, str]


def build_variants(
    device: Device, folder: KernelFolder, dtype: str, names: Sequence[str]
) -> Builds:
    """Compile each variant once; a compiler's message goes to the log, whole."""
    builds = Builds({}, {})
    for variant in names:
        defines = folder.workload.defines(dtype, variant)
        try:
            builds.programs[variant] = device.build(folder.path, DTYPES[dtype], defines)
        except BuildError as err:
            log.error("%s, %s, variant %s: %s\n%s", folder.name, dtype, variant, err, err.log)
            builds.failures[variant] = str(err)
    return builds


def plan_cells(
    device: Device,
    folder: KernelFolder,
    builds: Builds,
    dtype: str,
    variants: Sequence[str],
    problems: Sequence[Problem],
    axes: dict[str, Any],
    shard: tuple[int, int],
) -> list[Cell]:
    """The cells of shard (index, count), with axes resolved by this device's occupancy."""
    lone = Residency(device.info.units, 1)
    first = {name: expand_axis(spec, lone)[0] for name, spec in axes.items()}
    per_unit = 1
    for variant, program in builds.programs.items():
        cell = Cell(folder.name, dtype, variant, problems[0], tuple(sorted(first.items())))
        launch = folder.workload.launch(cell)
        try:
            per_unit = program.resident_per_unit(launch.entry, launch.threads)
        except BuildError:
            continue
        break
    residency = Residency(device.info.units, per_unit)
    values = {name: expand_axis(spec, residency) for name, spec in axes.items()}
    cells = enumerate_cells(folder.name, dtype, variants, problems, values)
    return [c for c in cells if shard_of(c, shard[1]) == shard[0]]


class ShardRun:
    """Measures the cells of one shard on one open device."""

    def __init__(
        self,
        device: Device,
        folder: KernelFolder,
        builds: Builds,
        settings: MeasureSettings,
        on_progress: Callable[[int, float], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._device, self._folder, self._builds = device, folder, builds
        self._settings, self._on_progress, self._clock = settings, on_progress, clock
        self._rng = np.random.default_rng(settings.seed)
        self._started = clock()
        # For the progress: a cell's steps are its verification and all its possible samples;
        # those that each running cell still has, by its key.
        self._steps = 1 + settings.rule.max_samples
        self._left: dict[str, int] = {}
        self._cells = self._work = self._total_work = 0
        self._lost: str | None = None
        # Seconds since the shard began, and what the device told about itself.
        self.readings: list[tuple[float, Reading]] = []

    def measure(self, cells: Sequence[Cell]) -> list[CellRun]:
        """One finished CellRun for each cell, whatever happens to the device."""
        runs = [CellRun(c, self._folder.workload.launch(c)) for c in cells]
        for run in runs:
            self._check_statically(run)
        open_runs = [r for r in runs if r.status is None]
        self._left = {r.cell.key: self._steps for r in open_runs}
        self._cells, self._total_work = len(runs), len(open_runs) * self._steps
        for problem in sorted({r.cell.problem for r in open_runs}):
            self._measure_group(problem, [r for r in open_runs if r.cell.problem == problem])
        return runs

    def _measure_group(self, problem: Problem, runs: list[CellRun]) -> None:
        """Measure the cells of one problem; every one of them has a status afterwards."""
        try:
            if self._lost is None:
                self._measure_open(problem, runs)
        except DeviceLostError as err:
            self._lost = str(err)
            log.error("device lost: %s", err)
        except _REFUSALS as err:
            # Buffers did not fit: these cells end, the next problem may be smaller.
            self._end_open(runs, Status.RESOURCES, str(err))
        except DeviceError as err:
            self._end_open(runs, Status.LAUNCH_FAILED, str(err))
        self._end_open(runs, Status.LOST_DEVICE, self._lost)
        for run in runs:
            self._close(run)

    @staticmethod
    def _end_open(runs: list[CellRun], status: Status, message: str | None) -> None:
        for run in runs:
            if run.status is None:
                run.end(status, message)

    def _check_statically(self, run: CellRun) -> None:
        limit = self._device.info.max_threads_per_block
        if self._settings.thread_limit is not None:
            limit = min(limit, self._settings.thread_limit)
        if run.launch.threads > limit:
            run.end(Status.TOO_MANY_THREADS, f"{run.launch.threads} threads a block; limit {limit}")
        elif run.cell.variant in self._builds.failures:
            run.end(Status.LAUNCH_FAILED, self._builds.failures[run.cell.variant])

    def _measure_open(self, problem: Problem, runs: list[CellRun]) -> None:
        workload = self._folder.workload
        # Inputs depend on the problem alone, so that every shard of it copies the same data.
        rng = np.random.default_rng([self._settings.seed, problem.height, problem.width])
        inputs = workload.inputs(problem, runs[0].cell.dtype, rng)
        reference = workload.reference(inputs)
        buffers = {name: self._device.upload(array) for name, array in inputs.items()}
        buffers[workload.output] = output = self._device.upload(reference)
        expected = self._device.upload(reference)
        same_size = [n for n, a in inputs.items() if a.nbytes == reference.nbytes]
        source = buffers[same_size[0]] if same_size else expected
        copy = self._device.bind_copy(source, output)
        words = reference.nbytes // 4
        verifier = _Verifier(self._device, output, expected, words, self._clock)
        for run in shuffled(runs, self._rng):
            self._admit(run, buffers, verifier)
        self._sample([r for r in runs if r.status is None], copy)
        for run in runs:
            if run.status is None:
                self._guarded(run, partial(verifier.verify, run))
            if run.status is None:
                run.end(Status.OK)

    def _guarded(self, run: CellRun, step: Callable[[], object]) -> None:
        """Run `step`; a device error ends this cell with its typed status, not the shard."""
        try:
            step()
        except DeviceLostError as err:
            run.end(Status.LOST_DEVICE, str(err))
            raise
        except _REFUSALS as err:
            run.end(Status.RESOURCES, str(err))
        except DeviceError as err:
            run.end(Status.LAUNCH_FAILED, str(err))

    def _admit(self, run: CellRun, buffers: dict[str, Any], verifier: _Verifier) -> None:
        """Bind, launch once on poisoned output, verify, warm up, choose the batch."""

        def step() -> None:
            program = self._builds.programs[run.cell.variant]
            run.bound = self._device.bind(program, run.launch, buffers)
            run.registers = program.registers(run.launch.entry)
            run.resident_per_unit = program.resident_per_unit(run.launch.entry, run.launch.threads)
            took = verifier.verify(run)
            if run.status is None and took > self._settings.cell_timeout_s:
                run.end(Status.TIMEOUT, f"one launch took {took:.3g} s")
            if run.bound is not None:
                run.launches = launches_per_sample(run.bound.sample(1))
                for _ in range(self._settings.warmup):
                    run.bound.sample(run.launches)

        self._guarded(run, step)
        self._step(run)
        if run.status is not None:
            self._close(run)

    def _sample(self, active: list[CellRun], copy: Bound) -> None:
        """Rounds over the active cells in random order until every cell is done.

        A round during which the device slowed itself down is taken again; after SLOWED_ROUNDS of
        them the unfinished cells end as ``throttled``.
        """
        copies: list[float] = []
        everyone = list(active)
        rule = self._settings.rule
        slowed_rounds = 0
        while active:
            slowed_before = self._slowed()
            copies.append(copy.sample(1))
            for run in shuffled(active, self._rng):
                self._guarded(run, partial(self._sample_once, run))
                self._step(run)
            if self._slowed() or slowed_before:
                slowed_rounds += 1
                self._discard_round(active)
                if slowed_rounds == SLOWED_ROUNDS:
                    self._end_open(active, Status.THROTTLED, "the device kept slowing itself down")
            still = []
            for run in active:
                if run.status is None and not rule.done(run.samples_s, run.spent_s):
                    still.append(run)
                else:
                    self._close(run)
            active = still
        for run in everyone:
            run.copy_s = float(np.median(copies))

    def _slowed(self) -> bool:
        """Read the device's state and keep the reading; whether it slows itself down."""
        reading = self._device.reading()
        if reading is None:
            return False
        self.readings.append((self._clock() - self._started, reading))
        return reading.slowed

    @staticmethod
    def _discard_round(runs: list[CellRun]) -> None:
        for run in runs:
            if run.status is None:
                run.samples_s.pop()
                run.sampled_at_s.pop()

    def _sample_once(self, run: CellRun) -> None:
        assert run.bound is not None
        assert run.launches is not None
        before = self._clock()
        seconds = run.bound.sample(run.launches)
        after = self._clock()
        if not seconds > 0.0:
            raise LaunchFailedError(f"the device's clock gave {seconds} s for a launch")
        run.samples_s.append(seconds)
        run.sampled_at_s.append(before - self._started)
        run.spent_s += after - before
        if seconds > self._settings.cell_timeout_s:
            run.end(Status.TIMEOUT, f"one launch took {seconds:.3g} s")

    def _step(self, run: CellRun) -> None:
        """Count a step; only cells that run count, or the estimate would run ahead.

        The verification and each sample are a step, once: a round taken again is no progress.
        """
        taken = self._steps - self._left[run.cell.key]
        if taken <= len(run.samples_s):
            self._left[run.cell.key] -= 1
            self._work += 1
        self._report()

    def _close(self, run: CellRun) -> None:
        """Count the cell as done, and with it the steps that it did not need."""
        if run.cell.key in self._left:
            self._work += self._left.pop(run.cell.key)
            self._report()

    def _report(self) -> None:
        self._on_progress(self._cells - len(self._left), self._work / self._total_work)


@dataclass(frozen=True)
class _Verifier:
    """Launches on poisoned output and compares with the reference, both on the device."""

    device: Device
    output: Any
    expected: Any
    words: int
    clock: Callable[[], float]

    def verify(self, run: CellRun) -> float:
        """Seconds that the launch took; ends the run with ``wrong_result`` when words differ."""
        assert run.bound is not None
        self.device.poison(self.output)
        before = self.clock()
        run.bound.run()
        took = self.clock() - before
        run.verified_words = self.words
        run.wrong_words = self.device.mismatches(self.output, self.expected)
        if run.wrong_words:
            run.end(Status.WRONG_RESULT, f"{run.wrong_words} of {self.words} words differ")
        return took
