"""Sample cells in rounds: their order, their number at a time, and their buffers.

In a group that is searched, only the cells that a planner proposes are sampled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from ..core.dtypes import DTYPES
from ..core.errors import DeviceLostError, TypedError
from ..core.schema import Status
from ..core.space import CONDITIONS, Cell, CellGroup, Condition, Problem
from ..devices.base import completed
from ..search.guided import planner_for
from ..search.planner import Candidate, SampleRequest, SearchMode
from ..workloads.contract import ReducingWorkload
from ..workloads.host_fed import HostFedWorkload
from .baseline import Baseline
from .cell_memory import Space, open_space
from .events import (
    CellRun,
    CopySample,
    GroupSearch,
    Overhead,
    Preparing,
    ShardResult,
    planned,
    result_of,
    status_of,
)
from .host_data import HostData
from .overhead import group_overhead, set_overheads
from .sample_length import choose_launches, chunked, set_launches
from .sampling import TOGETHER_S
from .verify import CellSteps

LEFT_OUT = "left out by the search"
# Working sets, in sizes of the last cache level, whose times depend on the addresses of buffers,
# and the number of places in which each repeat measures them.
SENSITIVE = 0.3, 1.0
PLACES = 4


def search_groups(
    steps: CellSteps,
    runs: Sequence[CellRun],
    sample: Callable[[Sequence[tuple[CellRun, int]]], None],
) -> None:
    """Search each group for its fastest cell, and measure only cells that the search proposes.

    All groups are searched at the same time, so that their cells are sampled in the same rounds.
    Cells that were never proposed end as ``not_searched``. Measured ones stay open.

    Parameters
    ----------
    steps
        The open device and the settings of sampling.
    runs
        Cells of one measurement condition that have no status yet.
    sample
        Called with the proposed cells and the number of samples that each is to have, until no cell
        is proposed.
    """
    sampling = steps.sampling
    rule = sampling.rule
    groups: dict[CellGroup, list[CellRun]] = {}
    for run in sorted(runs, key=lambda r: r.cell.params):
        groups.setdefault(run.cell.group, []).append(run)
    planners = {
        group: planner_for(
            [_candidate(steps, run) for run in members],
            sampling.search,
            (rule.min_samples, rule.max_samples),
            sampling.job.seed,
            rule.relative_half_width,
        )
        for group, members in sorted(groups.items())
    }

    def is_due(group: CellGroup, ask: SampleRequest) -> bool:
        """Return whether the budget allows these samples. A started cell gets the fewest."""
        if not steps.is_late:
            return True
        if taken := len(groups[group][ask.place].samples_s):
            return taken < rule.min_samples
        # A race has times of every cell, a guided search of some.
        return planners[group].mode == SearchMode.RACE or not len(planners[group].measured)

    while asked := [
        (group, ask)
        for group, planner in planners.items()
        for ask in planner.propose()
        if is_due(group, ask)
    ]:
        proposed = [groups[group][ask.place] for group, ask in asked]
        before = [len(run.samples_s) for run in proposed]
        sample([(run, ask.samples) for run, (_, ask) in zip(proposed, asked, strict=True)])
        for (group, ask), run, begin in zip(asked, proposed, before, strict=True):
            planner = planners[group]
            if run.status is not None:
                planner.fail(ask.place)
                continue
            planner.tell(ask.place, run.samples_s[begin:])
            if rule.done(run.samples_s, run.spent_s):
                planner.enough(ask.place)
    for group, planner in planners.items():
        steps.emit(ShardResult(searches=[GroupSearch(group, planner.verdict())]))
        left_out = [run for run in groups[group] if not run.samples_s]
        steps.end_open(left_out, Status.NOT_SEARCHED, LEFT_OUT)


def _candidate(steps: CellSteps, run: CellRun) -> Candidate:
    cell, launch = run.cell, run.launch
    try:
        program = steps.program(cell)
        launch = completed(launch, program)
        resident = program.resident_blocks(launch)
    except TypedError:  # which ends the cell once it is proposed
        resident = None
    return Candidate(
        cell.params,
        launch.block,
        launch.blocks,
        cell.problem.height,
        cell.problem.width,
        DTYPES[cell.dtype].itemsize,
        steps.device.info.multiprocessors,
        resident,
    )


log = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds of rest before cells of which the host computes a part: a library's threads still spin for
# a moment (see `measuring`), and would share the cores.
SETTLE_S = 0.005

# After this number of throttled rounds, the cells of a problem are given up.
SLOWED_ROUNDS = 5
SLOWED = "the device kept slowing itself down"


def shuffled(items: Sequence[T], rng: np.random.Generator) -> Iterator[T]:
    """Yield the items in a new random order, so that a drift of the machine affects all alike."""
    for i in rng.permutation(len(items)):
        yield items[i]


def take_rounds(
    active: Callable[[], Sequence[T]],
    take: Callable[[Sequence[T]], bool],
    give_up: Callable[[Sequence[T], Status, str], None],
) -> None:
    """Take rounds of samples until no item is active.

    A round in which the device throttled is repeated. After SLOWED_ROUNDS such rounds, the active
    items end as ``throttled``.

    Parameters
    ----------
    active
        Returns the items that need more samples.
    take
        Takes a round. Returns False if the device throttled.
    give_up
        Ends items with a status and a message.
    """
    slowed_rounds = 0
    while runs := active():
        slowed_rounds += not take(runs)
        if slowed_rounds == SLOWED_ROUNDS:
            give_up(runs, Status.THROTTLED, SLOWED)


class ShardRun:
    """Measures the cells of one shard.

    Parameters
    ----------
    steps
        Steps on the open device.
    data
        Data on the host, of which some may have been made ahead. Made when needed by default.
    """

    def __init__(self, steps: CellSteps, data: HostData | None = None) -> None:
        """Prepare random numbers that depend on the seed and the repeat."""
        self._steps, self._data = steps, data
        self._kept: tuple[Problem, Space] | None = None
        self._overheads: dict[CellGroup, Overhead | None] = {}
        # State of the problem that is being measured.
        self._baselines: dict[Condition, Baseline] = {}
        self._rng = np.random.default_rng([steps.sampling.job.seed, steps.sampling.job.repeat])

    def measure(self, cells: Sequence[Cell]) -> list[CellRun]:
        """Measure cells, and report those that end.

        Parameters
        ----------
        cells
            The cells.

        Returns
        -------
        list
            The cells with their samples and statuses.

        Raises
        ------
        DeviceLostError
            If the device is lost. Cells without a result then have no status.
        """
        steps = self._steps
        workload = self._steps.folder.workload
        runs = [planned(workload, cell) for cell in cells]
        for run in runs:
            if run.status is None:
                steps.check_statically(run)
        if ended := [run for run in runs if run.status is not None]:
            steps.emit(result_of(*ended))
        open_runs = [r for r in runs if r.status is None]
        steps.begin(open_runs)
        groups: dict[tuple[Problem, str], list[CellRun]] = {}
        for run in open_runs:
            result = workload.result_of(run.cell.variant)
            groups.setdefault((run.cell.problem, result), []).append(run)
        by_turn = sorted(groups.items(), key=lambda item: (not steps.is_first(item[1]), item[0]))
        for (problem, _), group in by_turn:
            try:
                self._measure_group(problem, group)
            except DeviceLostError:
                raise
            except TypedError as err:
                # If buffers did not fit, the next problem may be smaller.
                steps.end_open(group, status_of(err), str(err))
        self._kept = None
        return runs

    def _measure_group(self, problem: Problem, runs: list[CellRun]) -> None:
        """Measure and end all cells of one problem and result."""
        steps = self._steps
        steps.emit(Preparing(problem, frozenset(r.cell.variant for r in runs)))
        # They hold buffers.
        self._baselines.clear()
        space = self._space(problem, runs[0].cell)
        log.info("buffers of %s are ready", problem.label)
        if isinstance(steps.folder.workload, HostFedWorkload):
            time.sleep(SETTLE_S)
        if steps.sampling.searches:
            self._search_all([run for run in runs if run.cell.group not in steps.joined], space)
            runs = [run for run in runs if run.cell.group in steps.joined]
        steps.admit(list(shuffled(runs, self._rng)), space)
        log.info("%d of %d cells admitted", sum(r.status is None for r in runs), len(runs))
        # One condition after the other: a warm cell must not find a flushed cache.
        for met in CONDITIONS:
            alike = [r for r in runs if r.cell.condition == met and r.status is None]
            self._prepare(alike)
            self._sample(alike, met, space)

    def _space(self, problem: Problem, cell: Cell) -> Space:
        """Return the memory of the cells. If the result is one number, all variants share it."""
        if self._kept is not None and self._kept[0] == problem:
            return self._kept[1]
        # Frees its memory first.
        self._kept = None
        space = self._opened(problem, cell)
        if isinstance(self._steps.folder.workload, ReducingWorkload):
            self._kept = problem, space
        return space

    def _opened(self, problem: Problem, cell: Cell, place: int = 0) -> Space:
        """Return new memory. Repeat and `place` determine at which addresses buffers begin."""
        steps = self._steps
        size = problem.height, problem.width
        drawn = [steps.sampling.job.seed, steps.sampling.job.repeat, place, *size]
        steps.device.placement = np.random.default_rng(drawn)
        return open_space(
            steps.device,
            steps.folder.workload,
            problem,
            cell.dtype,
            cell.variant,
            steps.sampling.job.seed,
            self._data,
        )

    def _search_all(self, runs: list[CellRun], space: Space) -> None:
        """Measure the cells that the search of each group proposes."""
        self._steps.admit([run for run in runs if self._steps.is_first([run])], space)
        for met in CONDITIONS:
            alike = [r for r in runs if r.cell.condition == met and r.status is None]
            if not alike:
                continue
            sample = partial(self._sample_asked, met, space)
            search_groups(self._steps, alike, sample)
            measured = [r for r in alike if r.status is None]
            log.info("%d of %d cells measured", len(measured), len(alike))
            self._end_verified(measured, space)

    def _sample_asked(
        self, met: Condition, space: Space, asked: Sequence[tuple[CellRun, int]]
    ) -> None:
        """Take the requested samples in rounds."""
        new = [run for run, _ in asked if run.bound is None]
        self._steps.admit(list(shuffled(new, self._rng)), space)
        # A suspect was admitted before the search began.
        ready = [run for run, _ in asked if run.status is None and run.launches is None]
        self._prepare(ready)
        due = [(run, len(run.samples_s) + samples) for run, samples in asked]
        take_rounds(
            lambda: [r for r, n in due if r.status is None and len(r.samples_s) < n],
            partial(self._round, met, space),
            self._steps.end_open,
        )

    def _prepare(self, runs: Sequence[CellRun]) -> None:
        """Choose the number of launches in a sample of these verified cells, and warm the cells up.

        The verification has launched each cell once. That is enough on a CPU, for a sample of one
        launch, and for a slow cell, which was launched again to choose its number.
        """
        cold: list[CellRun] = []
        groups: dict[CellGroup, list[CellRun]] = {}
        for run in runs:
            groups.setdefault(run.cell.group, []).append(run)
        for group, members in groups.items():
            launches = choose_launches(self._steps, group, members)
            self._steps.emit(ShardResult(launches={group: launches}))
            set_launches(self._steps, members, launches)
            cold += [run for run in members if run.launches == launches]
            if group not in self._overheads:
                found = group_overhead(self._steps, members, launches, self._rng)
                self._overheads[group] = found
            set_overheads(members, self._overheads[group])
        is_cpu = self._steps.device.info.kind == "cpu"
        warmup = self._steps.sampling.job.measure.warmup
        for done in range(0 if is_cpu else warmup):
            self._warm_up([run for run in cold if done or run.launches != 1])

    def _warm_up(self, runs: Sequence[CellRun]) -> None:
        """Take a sample of each open cell, and discard it."""
        for some in self._chunks([r for r in runs if r.status is None]):
            _, outcomes = self._steps.outcomes(some)
            for run, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, TypedError):
                    self._steps.end_by(run, outcome)

    def _chunks(self, runs: Sequence[CellRun]) -> Iterator[list[CellRun]]:
        """Yield the cells in random order, in chunks to be sampled without a wait."""
        timed = ((run, run.sample_s) for run in shuffled(runs, self._rng))
        return chunked(timed, self._steps.together, TOGETHER_S)

    def _sample(self, runs: list[CellRun], met: Condition, space: Space) -> None:
        """Take rounds of the open cells until each has enough samples and is verified.

        If the addresses of buffers matter, the cells continue in other memory after a part of the
        rounds.
        """
        rule = self._steps.sampling.rule
        place = 0
        places = self._places(runs)

        def take(active: Sequence[CellRun]) -> bool:
            nonlocal space, place
            due = places * max(len(run.samples_s) for run in active) // rule.max_samples
            if due > place:
                place = due
                space = self._moved(active, place)
                active = [run for run in active if run.status is None]
                if not active:
                    return True
            kept = self._round(met, space, active)
            least = rule.min_samples if self._steps.is_late else rule.max_samples
            done = [
                r
                for r in active
                if r.status is None
                and (
                    len(r.samples_s) >= least
                    or (place == places - 1 and rule.done(r.samples_s, r.spent_s))
                )
            ]
            self._end_verified(done, space)
            return kept

        take_rounds(lambda: [r for r in runs if r.status is None], take, self._steps.end_open)

    def _places(self, runs: Sequence[CellRun]) -> int:
        """Return in how many places of memory these cells of one problem are measured.

        In a GPU's last cache level, the address decides which slices of the cache the data of a
        launch share. If the data almost fills the cache, times differ by some percent from place to
        place.
        """
        info, workload = self._steps.device.info, self._steps.folder.workload
        if info.kind != "gpu" or not info.cache or isinstance(workload, HostFedWorkload):
            return 1
        moved = max((sum(workload.bytes_moved(run.cell)) for run in runs), default=0)
        least, most = SENSITIVE
        return PLACES if least <= moved / info.cache <= most else 1

    def _moved(self, runs: Sequence[CellRun], place: int) -> Space:
        """Return other memory for these cells, after binding them to it."""
        cell = runs[0].cell
        steps = self._steps
        steps.emit(Preparing(cell.problem, frozenset(r.cell.variant for r in runs)))
        space = self._opened(cell.problem, cell, place)
        for run in runs:
            steps.guarded(run, partial(steps.bind, run, space))
        self._warm_up(runs)
        return space

    def _end_verified(self, runs: Sequence[CellRun], space: Space) -> None:
        """End cells with all samples, after a last verification unless another repeat does it."""
        if self._steps.sampling.verifies_after:
            least = self._steps.sampling.rule.min_samples
            self._steps.verify([run for run in runs if len(run.samples_s) >= least], space)
        self._steps.end_open(runs, Status.OK, None)

    def _round(self, met: Condition, space: Space, active: Sequence[CellRun]) -> bool:
        """Take a sample of each cell, and time the runtime's copy.

        If the device throttled, the samples are discarded, and the result is False.
        """
        steps = self._steps
        baseline = self._baselines.setdefault(
            met, Baseline(steps, space.copy, active[0].cell.problem, met)
        )
        if baseline.copy is not space.copy:
            baseline.move(space.copy)
        copies: list[CopySample] = []

        def sample() -> None:
            for some in self._chunks(active):
                self._sample_together(some)

        def take() -> None:
            steps.shared(sample)
            # Not before them: a copy that finds an idle device takes up to twice as long.
            copies.append(baseline.time())

        if not steps.unslowed(take):
            self._discard_round(active)
            return False
        steps.emit(ShardResult(copies={(baseline.problem, baseline.met): copies[:1]}))
        return True

    @staticmethod
    def _discard_round(runs: Sequence[CellRun]) -> None:
        """Remove the samples of the last round, and their time from the budgets of the cells."""
        for run in runs:
            if run.status is None:
                assert run.launches is not None
                run.spent_s -= run.samples_s.pop() * run.launches
                run.sampled_at_s.pop()
                del run.processor_s[len(run.samples_s) :]

    def _sample_together(self, runs: list[CellRun]) -> None:
        slowest_s = self._steps.sampling.job.measure.cell_timeout_s
        taken = self._steps.sampled(runs)
        for run, outcome, used_s in zip(runs, taken.seconds, taken.processor_s, strict=True):
            at_s = taken.began_s
            if not isinstance(outcome, TypedError) and outcome > slowest_s:
                # Once more: a pause of the process or the machine may be in it.
                again = self._steps.sampled([run])
                at_s, [outcome], [used_s] = again.began_s, again.seconds, again.processor_s
            seconds = self._steps.seconds_of(run, outcome)
            if seconds is not None:
                assert run.launches is not None
                run.samples_s.append(seconds)
                run.sampled_at_s.append(at_s)
                run.processor_s += [] if used_s is None else [used_s]
                run.spent_s += seconds * run.launches
                if seconds > slowest_s:
                    self._steps.end_slow(run, seconds)
            self._steps.count_work(run)
