"""Two versions of a kernel, sampled alternately on one open device."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import DeviceError, DeviceLostError, TypedError
from ..core.schema import Status
from ..core.space import CONDITIONS, Cell, CellGroup, Condition, Problem
from ..devices.base import Device
from ..workloads.contract import ReducingWorkload, Workload
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder
from .buffers import Space, Workspace, open_space
from .builds import Builds
from .events import (
    Began,
    CellRun,
    Event,
    Message,
    PairBegan,
    PairEnded,
    Preparing,
    Worked,
    planned,
    status_of,
)
from .rounds import SLOWED, SLOWED_ROUNDS, chunked, launches_of_cell, launches_of_group, shuffled
from .settings import TOGETHER, TOGETHER_S, MeasureSettings
from .verify import Admission, CellSteps

log = logging.getLogger(__name__)

# What the two are called, in messages and in sentences.
NAMES = "A", "B"
BOTH = " and ".join(NAMES)
# A block, by places in NAMES; every second one is its mirror image, so that what is not linear in
# time, and what the first place costs, cancels over two blocks.
BLOCK = (0, 1, 1, 0)

SharedAxes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Contender:
    """One of the two versions: its kernel and what that was built into."""

    folder: KernelFolder
    builds: Builds


@dataclass
class PairRun:
    """A pair of cells on its way; `blocks` has the seconds of both samples of A and both of B."""

    place: int
    a: CellRun
    b: CellRun
    launches: int = 1
    blocks: list[tuple[tuple[float, float], tuple[float, float]]] = field(default_factory=list)
    status: Status | None = None

    @property
    def runs(self) -> tuple[CellRun, CellRun]:
        """Both cells, in the order of NAMES."""
        return self.a, self.b


def matched(
    cells: tuple[Sequence[Cell], Sequence[Cell]], variants: Sequence[tuple[str, str]]
) -> list[tuple[Cell, Cell]]:
    """The cells of A and B that are alike in problem, condition and all parameters of both.

    `variants` says which variant of A stands beside which of B. Raises DeviceError where a cell
    would have two to stand beside, and where none has one.
    """
    shared = set.intersection(*({name for c in some for name, _ in c.params} for some in cells))
    found: list[dict[Any, Cell]] = []
    for who, some in enumerate(cells):
        places = {pair[who]: i for i, pair in enumerate(variants)}
        keyed = {_likeness(cell, places[cell.variant], shared): cell for cell in some}
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


def _likeness(
    cell: Cell, variant: int, shared: set[str]
) -> tuple[int, Problem, Condition, SharedAxes]:
    params = tuple(sorted((name, value) for name, value in cell.params if name in shared))
    return variant, cell.problem, cell.condition, params


class PairedRun:
    """Measures pairs of cells, and tells each step to `tell`."""

    def __init__(
        self,
        device: Device,
        contenders: tuple[Contender, Contender],
        settings: MeasureSettings,
        blocks: int,
        tell: Callable[[Message], None],
        clock: Callable[[], float] = time.monotonic,
        together: int = TOGETHER,
        stood_still: Callable[[], bool] = lambda: False,
    ) -> None:
        """Each pair gets so many `blocks`; at most `together` samples are taken without waiting."""
        self._device, self._contenders, self._settings = device, contenders, settings
        self._blocks, self._tell, self._together = blocks, tell, together

        def steps(who: str, contender: Contender) -> CellSteps:
            return CellSteps(
                device,
                contender.folder,
                contender.builds,
                settings,
                lambda event: self._pass_on(who, event),
                clock,
                clock(),
                together,
                stood_still,
            )

        self._steps = tuple(map(steps, NAMES, contenders))
        # What the host times, of either, is not queued.
        fed = [c for c in contenders if isinstance(c.folder.workload, HostFedWorkload)]
        self._both = steps(BOTH, (fed or contenders)[0])
        self._rng = np.random.default_rng(settings.seed)
        self._total = self._done = 0

    def _pass_on(self, who: str, event: Event) -> None:
        """Of what is told about cells, the part that a pair's caller needs."""
        if isinstance(event, Began):
            self._tell(PairBegan(who, event.keys))

    def measure(self, pairs: Mapping[int, tuple[Cell, Cell]]) -> None:
        """One PairEnded for each pair, by its place. Raises DeviceLostError."""
        runs = [self._planned(place, cells) for place, cells in pairs.items()]
        for steps, some in zip(self._steps, zip(*(r.runs for r in runs), strict=True), strict=True):
            for run in some:
                if run.status is None:
                    steps.check_statically(run)
            steps.begin([run for run in some if run.status is None])
        self._total = len(runs) * self._blocks
        groups: dict[tuple[Problem, str, str], list[PairRun]] = {}
        for run in self._alive(runs):
            result_a, result_b = (
                c.folder.workload.result_of(r.cell.variant)
                for c, r in zip(self._contenders, run.runs, strict=True)
            )
            groups.setdefault((run.a.cell.problem, result_a, result_b), []).append(run)
        for (problem, *_), group in sorted(groups.items(), key=lambda item: item[0]):
            self._tell(Preparing(problem))
            try:
                self._measure_group(problem, group)
            except DeviceLostError:
                raise
            except TypedError as err:
                for run in group:
                    self._end(run, status_of(err), str(err))

    def _planned(self, place: int, cells: tuple[Cell, Cell]) -> PairRun:
        a, b = (
            planned(c.folder.workload, cell)
            for c, cell in zip(self._contenders, cells, strict=True)
        )
        return PairRun(place, a, b)

    def _alive(self, pairs: Sequence[PairRun]) -> list[PairRun]:
        """Those of which both cells still run; the others end."""
        for pair in pairs:
            for name, run in zip(NAMES, pair.runs, strict=True):
                if run.status is not None and pair.status is None:
                    self._end(pair, run.status, f"{name}: {run.message or run.status}")
        return [pair for pair in pairs if pair.status is None]

    def _end(self, pair: PairRun, status: Status, message: str | None = None) -> None:
        if pair.status is not None:
            return
        pair.status = status
        samples = zip(*pair.blocks, strict=True) if status is Status.OK else ((), ())
        self._tell(PairEnded(pair.place, status, message, pair.launches, *map(list, samples)))

    def _measure_group(self, problem: Problem, pairs: list[PairRun]) -> None:
        spaces, shared = self._open_spaces(problem, pairs[0])
        self._each(pairs, spaces, Admission.admit)
        pairs = self._alive(pairs)
        log.info("%d pairs of %s admitted", len(pairs), problem.label)
        for met in CONDITIONS:
            alike = [pair for pair in pairs if pair.a.cell.condition == met]
            self._choose_launches(alike)
            for _ in range(self._settings.warmup):
                self._take(alike, (0, 1))
            self._sample(alike, shared)
        self._each(self._alive(pairs), spaces, Admission.verify)
        for pair in self._alive(pairs):
            self._end(pair, Status.OK)

    def _each(
        self,
        pairs: Sequence[PairRun],
        spaces: Sequence[Space],
        work: Callable[[Admission, Sequence[CellRun], Space], None],
    ) -> None:
        """Have A's cells, then B's, admitted or verified in their spaces."""
        for who, (steps, space) in enumerate(zip(self._steps, spaces, strict=True)):
            work(Admission(steps), [pair.runs[who] for pair in pairs], space)

    def _open_spaces(self, problem: Problem, pair: PairRun) -> tuple[tuple[Space, Space], bool]:
        """Where A and where B is measured, and whether both are on the same buffers.

        They are where their data are the same, so that no difference of addresses is measured.
        """
        dtype, seed = pair.a.cell.dtype, self._settings.seed
        sides = [
            (c.folder.workload, run.cell.variant)
            for c, run in zip(self._contenders, pair.runs, strict=True)
        ]
        (a, variant_a), (b, variant_b) = sides
        first = open_space(self._device, a, problem, dtype, variant_a, seed)
        if isinstance(first, Workspace) and _same_data(sides, problem, dtype, seed):
            return (first, first.lent(b)), True
        return (first, open_space(self._device, b, problem, dtype, variant_b, seed)), False

    def _choose_launches(self, pairs: Sequence[PairRun]) -> None:
        """As many launches a sample for A as for B, and for all pairs of a group."""
        groups: dict[tuple[CellGroup, CellGroup], list[PairRun]] = {}
        for pair in pairs:
            groups.setdefault((pair.a.cell.group, pair.b.cell.group), []).append(pair)
        for (group, _), members in groups.items():
            fastest_s = [min(_launches_s(pair)) for pair in members]
            of_group = launches_of_group(fastest_s, group.condition)
            for pair in members:
                pair.launches = launches_of_cell(of_group, max(_launches_s(pair)))
                for run in pair.runs:
                    run.launches = pair.launches

    def _sample(self, pairs: Sequence[PairRun], shared: bool) -> None:
        """All blocks of the pairs, one of each in random order, and so on."""
        block = slowed = 0
        while block < self._blocks and (active := self._alive(pairs)):
            order = BLOCK if block % 2 == 0 else tuple(1 - who for who in BLOCK)
            if not self._block(active, order, shared):
                slowed += 1
                if slowed == SLOWED_ROUNDS:
                    for pair in active:
                        self._end(pair, Status.THROTTLED, SLOWED)
                continue
            block += 1
            self._done += len(active)
            self._tell(Worked(self._done / self._total))

    def _block(self, active: Sequence[PairRun], order: Sequence[int], shared: bool) -> bool:
        """A block of each; False, and none is kept, where the device slowed itself down."""
        slowed_before = self._slowed()
        # What comes before a sample may be felt in it. Where buffers are shared, one sample that is
        # thrown away has each version follow itself once and the other once; where they are not,
        # each sample follows one of its own version, whose data are then in the caches.
        taken = [order[0], *order] if shared else [who for who in order for _ in range(2)]
        kept = range(1, 5) if shared else range(1, 8, 2)
        for pair, seconds in self._take(active, taken):
            sides: tuple[list[float], list[float]] = [], []
            for i in kept:
                sides[taken[i]].append(seconds[i])
            (a1, a2), (b1, b2) = sides
            pair.blocks.append(((a1, a2), (b1, b2)))
        if not (self._slowed() or slowed_before):
            return True
        for pair in active:
            if pair.status is None:
                pair.blocks.pop()
        return False

    def _slowed(self) -> bool:
        reading = self._device.reading()
        return reading is not None and reading.slowed

    def _take(
        self, pairs: Sequence[PairRun], order: Sequence[int]
    ) -> list[tuple[PairRun, list[float]]]:
        """Seconds of a launch, of samples of each pair in this order; those that failed end."""
        took_s = {pair.place: len(order) * max(r.sample_s for r in pair.runs) for pair in pairs}
        timed = ((pair, took_s[pair.place]) for pair in shuffled(pairs, self._rng))
        good = []
        for chunk in chunked(timed, max(1, self._together // len(order)), TOGETHER_S):
            runs = [pair.runs[who] for pair in chunk for who in order]
            _, outcomes = self._both.outcomes(runs)
            for i, pair in enumerate(chunk):
                own = outcomes[i * len(order) : (i + 1) * len(order)]
                seconds = [s for s in own if not isinstance(s, TypedError)]
                for who, outcome in zip(order, own, strict=True):
                    self._look_at(pair.runs[who], self._steps[who], outcome)
                if self._alive([pair]):
                    good.append((pair, seconds))
        return good

    def _look_at(self, run: CellRun, steps: CellSteps, outcome: float | TypedError) -> None:
        """End the cell where a sample of it was none."""
        if run.status is not None:
            return
        if isinstance(outcome, TypedError):
            steps.end_by(run, outcome)
        elif not outcome > 0.0:
            steps.end_by_clock(run, outcome)
        elif outcome > self._settings.cell_timeout_s:
            steps.end(run, Status.TIMEOUT, f"one launch took {outcome:.3g} s")


def _launches_s(pair: PairRun) -> Iterator[float]:
    for run in pair.runs:
        assert run.launch_s is not None
        yield run.launch_s


def _same_data(
    sides: Sequence[tuple[Workload, str]], problem: Problem, dtype: str, seed: int
) -> bool:
    """Whether both have the same inputs, and the same result, under the same names."""
    (a, variant_a), (b, variant_b) = sides
    if a is b:
        return a.result_of(variant_a) == a.result_of(variant_b)
    if any(isinstance(w, ReducingWorkload | HostFedWorkload) for w in (a, b)):
        return False
    if (a.output, a.images) != (b.output, b.images):
        return False
    data = []
    for workload, variant in sides:
        rng = np.random.default_rng([seed, problem.height, problem.width])
        inputs = workload.inputs(problem, dtype, rng)
        data.append((inputs, workload.expected(inputs, variant)))
    (in_a, out_a), (in_b, out_b) = data
    pairs = [(in_a[name], in_b[name]) for name in in_a if name in in_b]
    return in_a.keys() == in_b.keys() and all(_same(x, y) for x, y in [*pairs, (out_a, out_b)])


def _same(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    return x.dtype == y.dtype and np.array_equal(x, y)
