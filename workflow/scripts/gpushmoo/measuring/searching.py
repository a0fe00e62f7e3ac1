"""Groups of which not every cell is measured: what a planner asks for is admitted and sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.dtypes import DTYPES
from ..core.errors import TypedError
from ..core.schema import Status
from ..core.space import CellGroup
from ..search.guided import planner_for
from ..search.planner import Candidate
from ..search.race import Planner
from .events import CellRun, Searched
from .priors import RecordedLaunches
from .sampling.stopping import StoppingRule
from .steps import CellSteps

LEFT_OUT = "left out by the search"


@dataclass
class GroupSearch:
    """One group on its way: its cells by place, and the planner that searches them."""

    group: CellGroup
    runs: Sequence[CellRun]
    planner: Planner

    def told(self, place: int, samples_s: Sequence[float], rule: StoppingRule) -> None:
        """What a cell's new samples were; none of them if it failed."""
        run = self.runs[place]
        if run.status is not None:
            self.planner.fail(place)
            return
        self.planner.tell(place, samples_s)
        if rule.done(run.samples_s, run.spent_s):
            self.planner.enough(place)


@dataclass(frozen=True)
class Wanted:
    """So many more samples of cell `run`, for the `search` to which it belongs at this `place`."""

    search: GroupSearch
    place: int
    samples: int

    @property
    def run(self) -> CellRun:
        """The cell on its way."""
        return self.search.runs[self.place]


def open_searches(
    steps: CellSteps, runs: Sequence[CellRun], recorded: RecordedLaunches
) -> list[GroupSearch]:
    """A search of each group of these cells, none of which has ended.

    Of what is `recorded` elsewhere it tries the fastest first.
    """
    groups: dict[CellGroup, list[CellRun]] = {}
    for run in sorted(runs, key=lambda r: r.cell.params):
        groups.setdefault(run.cell.group, []).append(run)
    return [_search(steps, group, members, recorded) for group, members in sorted(groups.items())]


def _search(
    steps: CellSteps, group: CellGroup, runs: Sequence[CellRun], recorded: RecordedLaunches
) -> GroupSearch:
    settings = steps.settings
    rule = settings.rule
    planner = planner_for(
        [_candidate(steps, run) for run in runs],
        settings.search,
        (rule.min_samples, rule.max_samples),
        settings.seed,
        recorded.near(runs[0].cell.dtype, group),
        rule.relative_half_width,
    )
    return GroupSearch(group, runs, planner)


def _candidate(steps: CellSteps, run: CellRun) -> Candidate:
    cell, launch = run.cell, run.launch
    try:
        resident = steps.program(cell).resident_per_unit(
            launch.entry, launch.threads, launch.shared_bytes
        )
    except TypedError:  # which the cell itself will tell, once it is asked for
        resident = None
    return Candidate(
        cell.params,
        launch.block,
        launch.blocks,
        cell.problem.height,
        cell.problem.width,
        DTYPES[cell.dtype].itemsize,
        steps.device.info.units,
        resident,
    )


def run_searches(
    steps: CellSteps,
    searches: Sequence[GroupSearch],
    sample: Callable[[Sequence[Wanted]], None],
) -> None:
    """Have `sample` take what the searches ask for until none of them asks for more.

    Groups are searched side by side, so that their cells are sampled in the same rounds. What no
    search has asked for ends as ``unproposed``; what is measured is left open.
    """
    while wanted := [
        Wanted(search, ask.place, ask.samples)
        for search in searches
        for ask in search.planner.propose()
    ]:
        before = [len(w.run.samples_s) for w in wanted]
        sample(wanted)
        for w, begin in zip(wanted, before, strict=True):
            w.search.told(w.place, w.run.samples_s[begin:], steps.settings.rule)
    for search in searches:
        steps.emit(Searched(search.group, search.planner.verdict()))
        for run in search.runs:
            if run.status is None and not run.samples_s:
                steps.end(run, Status.UNPROPOSED, LEFT_OUT)
