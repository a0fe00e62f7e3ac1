"""Groups of which not every cell is measured: what a planner asks for is admitted and sampled.

What recorded shards let expect of a kernel's launches elsewhere says where it begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from ..core.dtypes import DTYPES
from ..core.errors import TypedError
from ..core.schema import Status
from ..core.space import CellGroup, Problem
from ..search.guided import planner_for
from ..search.planner import Candidate, Planner, Prior
from ..storage.packed import unpacked
from ..storage.store import open_shard
from .events import CellRun, Searched
from .settings import StoppingRule
from .verify import CellSteps

Params = tuple[tuple[str, int], ...]
LEFT_OUT = "left out by the search"
_GROUP = ("dtype", "height", "width", "cache_state", "variant", "launch_kind")
# The verified cells of one kernel in a folder of shards, by element type and group.
RecordedLaunches = Mapping[tuple[str, CellGroup], Sequence[Prior]]


def nearest_launches(recorded: RecordedLaunches, dtype: str, group: CellGroup) -> Sequence[Prior]:
    """The cells of the most similar group; none where the variant was not recorded.

    Of groups in the same state of the cache, launched alike, of the same type, of the nearest size,
    in this order.
    """

    def unlike(key: tuple[str, CellGroup]) -> tuple[bool, bool, bool, float]:
        other = key[1]
        size = math.log(_elements(other.problem) / _elements(group.problem))
        return (
            other.cache_state != group.cache_state,
            other.launch_kind != group.launch_kind,
            key[0] != dtype,
            abs(size),
        )

    same = [key for key in recorded if key[1].variant == group.variant]
    return recorded[min(same, key=unlike)] if same else ()


def _elements(problem: Problem) -> int:
    return problem.height * problem.width


def recorded_launches(folder: Path, kernel: str) -> RecordedLaunches:
    """Those of `kernel` in all shards under `folder`. Raises BadParquetError."""
    found: dict[tuple[str, CellGroup], list[tuple[Params, float]]] = {}
    for path in sorted(unpacked(folder).rglob("*.parquet")):
        shard = open_shard(path)
        if Path(shard.metadata["params"]["folder"]).name != kernel:
            continue
        axes, table = shard.metadata["axes"], shard.table()
        ok = table.filter(pc.equal(table.column("status"), Status.OK))
        columns = [ok.column(name).to_pylist() for name in (*_GROUP, "median_s", *axes)]
        for dtype, height, width, state, variant, kind, median_s, *values in zip(
            *columns, strict=True
        ):
            group = CellGroup(Problem(height, width), state, variant, kind)
            params = tuple(sorted(zip(axes, values, strict=True)))
            found.setdefault((dtype, group), []).append((params, median_s))
    recorded = {}
    for key, cells in found.items():
        fastest_s = min(seconds for _, seconds in cells)
        recorded[key] = [Prior(params, seconds / fastest_s) for params, seconds in cells]
    return recorded


@dataclass
class GroupSearch:
    """One group on its way: its cells by place, and the planner that searches them."""

    group: CellGroup
    runs: Sequence[CellRun]
    planner: Planner

    def tell(self, place: int, samples_s: Sequence[float], rule: StoppingRule) -> None:
        """What a cell's new samples were; none of them if it failed."""
        run = self.runs[place]
        if run.status is not None:
            self.planner.fail(place)
            return
        self.planner.tell(place, samples_s)
        if rule.done(run.samples_s, run.spent_s):
            self.planner.enough(place)


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
        nearest_launches(recorded, runs[0].cell.dtype, group),
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
    sample: Callable[[Sequence[tuple[CellRun, int]]], None],
) -> None:
    """Let `sample` take what the searches ask for until none asks for more.

    It is given cells with the number of samples that each is to get. Groups are searched side by
    side, so that their cells are sampled in the same rounds. What no search has asked for ends as
    ``unproposed``; what is measured is left open.
    """
    while asked := [(search, ask) for search in searches for ask in search.planner.propose()]:
        runs = [search.runs[ask.place] for search, ask in asked]
        before = [len(run.samples_s) for run in runs]
        sample([(run, ask.samples) for run, (_, ask) in zip(runs, asked, strict=True)])
        for (search, ask), run, begin in zip(asked, runs, before, strict=True):
            search.tell(ask.place, run.samples_s[begin:], steps.settings.rule)
    for search in searches:
        steps.emit(Searched(search.group, search.planner.verdict()))
        for run in search.runs:
            if run.status is None and not run.samples_s:
                steps.end(run, Status.UNPROPOSED, LEFT_OUT)
