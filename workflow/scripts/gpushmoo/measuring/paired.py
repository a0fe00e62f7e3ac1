"""Sample two versions of a kernel alternately on one open device."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core.errors import DeviceError, DeviceLostError, TypedError
from ..core.schema import Status
from ..core.space import CONDITIONS, Cell, CellGroup, Problem
from ..workloads.contract import Array, ReducingWorkload, Workload
from ..workloads.host_fed import HostFedWorkload
from .cell_memory import Space, Workspace, open_space
from .events import (
    NAMES,
    CellsStarted,
    Event,
    PairRun,
    Preparing,
    ShardResult,
    Working,
    planned,
    result_of,
    status_of,
)
from .host_data import HostData
from .overhead import group_overhead, set_overheads
from .rounds import shuffled, take_rounds
from .sample_length import choose_launches, chunked, first_s, launches_of_cell
from .sampling import TOGETHER_S
from .verify import CellSteps

log = logging.getLogger(__name__)

# A block, by places in NAMES. Every second one is mirrored: drifts that are not linear in time, and
# the cost of the first place, cancel over two blocks.
BLOCK = (0, 1, 1, 0)


def matched(
    cells: tuple[Sequence[Cell], Sequence[Cell]], variants: Sequence[tuple[str, str]]
) -> list[tuple[Cell, Cell]]:
    """Return the pairs of cells of A and B to compare.

    The cells of a pair have the same problem, condition and values of common parameters.

    Parameters
    ----------
    cells
        Cells of A, and cells of B.
    variants
        Variants of A and B that are compared.

    Raises
    ------
    DeviceError
        If a cell has several partners, or if there is no pair.
    """
    shared = set.intersection(*({name for c in some for name, _ in c.params} for some in cells))
    found: list[dict[Any, Cell]] = []
    for who, some in enumerate(cells):
        places = {pair[who]: i for i, pair in enumerate(variants)}
        keyed = {}
        for cell in some:
            params = tuple(item for item in cell.params if item[0] in shared)
            keyed[places[cell.variant], cell.problem, cell.condition, params] = cell
        if len(keyed) < len(some):
            raise DeviceError(
                f"Cells of {NAMES[who]} differ in parameters alone that the other does not have; "
                "give each of these one value."
            )
        found.append(keyed)
    a, b = found
    pairs = [(cell, b[key]) for key, cell in a.items() if key in b]
    if not pairs:
        raise DeviceError("A and B have no cell in common; sweep values that both have.")
    return pairs


class PairedRun:
    """Measures cells of two versions alternately, in pairs.

    Parameters
    ----------
    sides
        Steps of A and of B, which differ only in the kernel.
    blocks
        Number of blocks for each pair. A block has two samples of each version.
    """

    def __init__(self, sides: tuple[CellSteps, CellSteps], blocks: int) -> None:
        """Prepare to report events of both versions as events of their pairs."""
        # What the host times, of either, is not queued.
        fed = [s for s in sides if isinstance(s.folder.workload, HostFedWorkload)]
        who = *NAMES, " and ".join(NAMES)
        self._a, self._b, self._both = (
            replace(steps, emit=partial(self._pass_on, name))
            for name, steps in zip(who, (*sides, (fed or sides)[0]), strict=True)
        )
        self._steps = (self._a, self._b)
        self._emit = sides[0].emit
        self._blocks = blocks
        self._job = sides[0].sampling.job
        self._rng = np.random.default_rng(self._job.seed)
        # The key of a pair by those of its cells.
        self._key: dict[str, str] = {}
        self._total = 0
        self._done = 0

    def _pass_on(self, who: str, event: Event) -> None:
        """Report the start of cells, and the first launch of both versions, as events of pairs."""
        if isinstance(event, CellsStarted):
            keys = dict.fromkeys(self._key[key] for key in event.keys)
            self._emit(replace(event, keys=tuple(keys), who=who))
        elif isinstance(event, ShardResult) and event.timed_s and who == NAMES[1]:
            # A's cell was launched before it.
            timed_s = {self._key[key]: seconds for key, seconds in event.timed_s.items()}
            self._emit(ShardResult(timed_s=timed_s))

    def measure(self, pairs: Sequence[tuple[Cell, Cell]]) -> None:
        """Measure all pairs, and report the result of each.

        Raises
        ------
        DeviceLostError
            If the device is lost. Pairs without a reported result have no status then.
        """
        a, b = (steps.folder.workload for steps in self._steps)
        runs = [PairRun(planned(a, one), planned(b, other)) for one, other in pairs]
        self._key = {run.cell.key: pair.cell.key for pair in runs for run in pair.runs}
        for who, steps in enumerate(self._steps):
            own = [run for pair in runs if (run := pair.runs[who]).status is None]
            for run in own:
                steps.check_statically(run)
            steps.begin([run for run in own if run.status is None])
        self._total = len(runs) * self._blocks
        groups: dict[tuple[Problem, str, str], list[PairRun]] = {}
        for pair in self._alive(runs):
            results = a.result_of(pair.a.cell.variant), b.result_of(pair.b.cell.variant)
            groups.setdefault((pair.cell.problem, *results), []).append(pair)
        by_turn = sorted(
            groups.items(),
            key=lambda item: (not self._a.is_first(pair.a for pair in item[1]), item[0]),
        )
        for (problem, *_), group in by_turn:
            try:
                self._measure_group(problem, group)
            except DeviceLostError:
                raise
            except TypedError as err:
                self._end_open(group, status_of(err), str(err))

    def _alive(self, pairs: Sequence[PairRun]) -> list[PairRun]:
        """Return the pairs whose cells are both open, and end the others."""
        for pair in pairs:
            for name, run in zip(NAMES, pair.runs, strict=True):
                if run.status is not None and pair.status is None:
                    self._end(pair, run.status, f"{name}: {run.message or run.status}")
        return [pair for pair in pairs if pair.status is None]

    def _end(self, pair: PairRun, status: Status, message: str | None = None) -> None:
        pair.end(status, message)
        self._emit(result_of(pair))

    def _end_open(self, pairs: Sequence[PairRun], status: Status, message: str | None) -> None:
        for pair in pairs:
            if pair.status is None:
                self._end(pair, status, message)

    def _measure_group(self, problem: Problem, pairs: list[PairRun]) -> None:
        self._emit(Preparing(problem, frozenset(pair.cell.variant for pair in pairs)))
        spaces, shared = self._open_spaces(problem, pairs[0])
        for some in self._in_turn(pairs):
            for who, (steps, space) in enumerate(zip(self._steps, spaces, strict=True)):
                steps.admit([pair.runs[who] for pair in some], space)
        pairs = self._alive(pairs)
        log.info("%d pairs of %s admitted", len(pairs), problem.label)
        for met in CONDITIONS:
            alike = [pair for pair in pairs if pair.cell.condition == met]
            self._prepare(alike)
            for _ in range(self._job.measure.warmup):
                self._take(alike, (0, 1))
            self._sample(alike, shared)
        pairs = self._alive(pairs)
        for who, (steps, space) in enumerate(zip(self._steps, spaces, strict=True)):
            steps.verify([pair.runs[who] for pair in pairs], space)
        self._end_open(self._alive(pairs), Status.OK, None)

    def _prepare(self, pairs: Sequence[PairRun]) -> None:
        """Choose the number of launches in a sample, equal for both versions. Measure overheads."""
        groups: dict[CellGroup, list[PairRun]] = {}
        for pair in pairs:
            groups.setdefault(pair.cell.group, []).append(pair)
        for group, some in groups.items():
            both = [run for pair in some for run in pair.runs]
            launches = choose_launches(self._both, group, both)
            self._emit(ShardResult(launches={group: launches}))
            for pair in some:
                own = launches_of_cell(launches, max(map(first_s, pair.runs)))
                pair.a.launches = own
                pair.b.launches = own
            for who, steps in enumerate(self._steps):
                runs = [pair.runs[who] for pair in some]
                set_overheads(runs, group_overhead(steps, runs, launches, self._rng))

    def _in_turn(self, pairs: Sequence[PairRun]) -> list[list[PairRun]]:
        """Return the pairs to launch together. Each pair that was never launched is alone."""
        alone = [pair for pair in pairs if pair.cell.key in self._a.unlaunched]
        alone.sort(key=lambda pair: not self._a.is_first([pair.a]))
        others = [pair for pair in pairs if pair.cell.key not in self._a.unlaunched]
        return [*([pair] for pair in alone), others]

    def _open_spaces(self, problem: Problem, pair: PairRun) -> tuple[tuple[Space, Space], bool]:
        """Return the memory of A and of B, and whether both share it.

        They share it if their data is the same, so that addresses cause no difference between them.
        """
        dtype, seed = pair.cell.dtype, self._job.seed
        sides = [
            (steps.folder.workload, run.cell.variant)
            for steps, run in zip(self._steps, pair.runs, strict=True)
        ]
        (a, variant_a), (b, variant_b) = sides
        first = open_space(self._a.device, a, problem, dtype, variant_a, seed)
        if isinstance(first, Workspace) and _same_data(sides, problem, dtype, seed):
            return (first, first.leased(b, variant_b)), True
        return (first, open_space(self._a.device, b, problem, dtype, variant_b, seed)), False

    def _sample(self, pairs: Sequence[PairRun], shared: bool) -> None:
        """Take all blocks, in rounds with one block of each pair in random order."""
        block = 0

        def active() -> list[PairRun]:
            return self._alive(pairs) if block < self._blocks else []

        def take(some: Sequence[PairRun]) -> bool:
            nonlocal block
            if not self._block(some, block % 2 == 1, shared):
                return False
            block += 1
            self._done += len(some)
            self._emit(Working(share=self._done / self._total))
            return True

        take_rounds(active, take, self._end_open)

    def _block(self, active: Sequence[PairRun], mirrored: bool, shared: bool) -> bool:
        """Take a block of each pair. Discard it and return False if the device throttled."""
        order = tuple(1 - who for who in BLOCK) if mirrored else BLOCK
        # A sample depends on the one before it. With shared buffers, one discarded sample makes
        # each version follow itself once and the other once. With separate ones, each sample
        # follows a discarded one of the same version, which leaves its data in the caches.
        taken = [order[0], *order] if shared else [who for who in order for _ in range(2)]
        kept = range(1, 5) if shared else range(1, 8, 2)
        good: list[tuple[PairRun, list[float]]] = []
        if not self._both.unslowed(lambda: good.extend(self._take(active, taken))):
            return False
        for pair, seconds in good:
            a1, a2 = (seconds[i] for i in kept if taken[i] == 0)
            b1, b2 = (seconds[i] for i in kept if taken[i] == 1)
            pair.a_s.append((a1, a2))
            pair.b_s.append((b1, b2))
        return True

    def _take(
        self, pairs: Sequence[PairRun], order: Sequence[int]
    ) -> list[tuple[PairRun, list[float]]]:
        """Return the seconds of a launch in samples of each pair, taken in this order."""
        took_s = {p.cell.key: len(order) * max(r.sample_s for r in p.runs) for p in pairs}
        timed = ((pair, took_s[pair.cell.key]) for pair in shuffled(pairs, self._rng))
        good = []
        for chunk in chunked(timed, max(1, self._a.together // len(order)), TOGETHER_S):
            runs = [pair.runs[who] for pair in chunk for who in order]
            _, outcomes = self._both.outcomes(runs)
            for i, pair in enumerate(chunk):
                own = outcomes[i * len(order) : (i + 1) * len(order)]
                taken: list[float] = []
                for who, outcome in zip(order, own, strict=True):
                    run, steps = pair.runs[who], self._steps[who]
                    seconds = steps.seconds_of(run, outcome) if run.status is None else None
                    if seconds is not None and seconds > self._job.measure.cell_timeout_s:
                        steps.end_slow(run, seconds)
                    taken += [] if seconds is None else [seconds]
                if self._alive([pair]):
                    good.append((pair, taken))
        return good


def _same_data(
    sides: Sequence[tuple[Workload, str]], problem: Problem, dtype: str, seed: int
) -> bool:
    """Return whether both versions have the same inputs and outputs, with the same names."""
    (a, variant_a), (b, variant_b) = sides
    if a is b:
        return a.result_of(variant_a) == a.result_of(variant_b)
    if any(isinstance(w, ReducingWorkload | HostFedWorkload) for w in (a, b)):
        return False
    shared = ("images", "unwatched", "reads_poison")
    if any(getattr(a, name) != getattr(b, name) for name in shared):
        return False
    if a.images_of(variant_a) != b.images_of(variant_b):
        return False
    data = []
    for workload, variant in sides:
        inputs = HostData(workload, dtype, seed).inputs(problem)
        data.append((inputs, workload.outputs(inputs, variant)))
    (in_a, out_a), (in_b, out_b) = data
    if in_a.keys() != in_b.keys() or out_a.keys() != out_b.keys():
        return False
    if not all(a.limit_of(name).equals(b.limit_of(name)) for name in out_a):
        return False
    return all(
        _same_bits(own[name], other[name])
        for own, other in ((in_a, in_b), (out_a, out_b))
        for name in own
    )


def _same_bits(x: Array, y: Array) -> bool:
    """Return whether two arrays have the same bits, shape and type."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    a, b = (np.ascontiguousarray(one).view(np.uint8) for one in (x, y))
    return np.array_equal(a, b)
