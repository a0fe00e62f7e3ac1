"""Searches groups: only the cells that a planner proposes are verified and sampled.

Recorded shards of the same kernel say where a search begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow.compute as pc

from ..core.dtypes import DTYPES
from ..core.errors import TypedError
from ..core.schema import Status
from ..core.space import CellGroup, Problem
from ..devices.launches import completed
from ..search.guided import planner_for
from ..search.planner import Ask, Candidate, Prior, SearchMode
from ..storage.packed import unpacked
from ..storage.store import open_shard
from .events import CellRun, Searched
from .verify import CellSteps

Params = tuple[tuple[str, int], ...]
LEFT_OUT = "left out by the search"
_GROUP = ("dtype", "height", "width", "cache_state", "variant", "timing_mode")
# The verified cells of one kernel in a folder of shards, by element type and group.
RecordedLaunches = Mapping[tuple[str, CellGroup], Sequence[Prior]]


def nearest_launches(recorded: RecordedLaunches, dtype: str, group: CellGroup) -> Sequence[Prior]:
    """The cells of the most similar recorded group of the same variant; none without one.

    Similar is, in this order: the state of the cache, the timing mode, the type, the size.
    """

    def unlike(key: tuple[str, CellGroup]) -> tuple[bool, bool, bool, float]:
        other = key[1]
        size = math.log(_elements(other.problem) / _elements(group.problem))
        return (
            other.cache_state != group.cache_state,
            other.timing_mode != group.timing_mode,
            key[0] != dtype,
            abs(size),
        )

    same = [key for key in recorded if key[1].variant == group.variant]
    return recorded[min(same, key=unlike)] if same else ()


def _elements(problem: Problem) -> int:
    return problem.height * problem.width


def recorded_launches(folder: Path, kernel: str) -> RecordedLaunches:
    """The launches of `kernel` in all shards under `folder`. Raises BadParquetError."""
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


def search_groups(
    steps: CellSteps,
    runs: Sequence[CellRun],
    recorded: RecordedLaunches,
    sample: Callable[[Sequence[tuple[CellRun, int]]], None],
) -> None:
    """Search each group of these open cells; recorded fast launches are tried first.

    `sample` is called with the proposed cells and their numbers of samples until none is proposed.
    All groups are searched at the same time, so that their cells are sampled in the same rounds.
    Cells that were never proposed end as ``unproposed``; measured ones stay open.
    """
    settings = steps.settings
    rule = settings.rule
    groups: dict[CellGroup, list[CellRun]] = {}
    for run in sorted(runs, key=lambda r: r.cell.params):
        groups.setdefault(run.cell.group, []).append(run)
    planners = {
        group: planner_for(
            [_candidate(steps, run) for run in members],
            settings.search,
            (rule.min_samples, rule.max_samples),
            settings.seed,
            nearest_launches(recorded, members[0].cell.dtype, group),
            rule.relative_half_width,
        )
        for group, members in sorted(groups.items())
    }

    def is_due(group: CellGroup, ask: Ask) -> bool:
        """Whether a spent budget allows these samples: a begun cell gets its fewest."""
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
        steps.emit(Searched(group, planner.verdict()))
        for run in groups[group]:
            if run.status is None and not run.samples_s:
                steps.end(run, Status.UNPROPOSED, LEFT_OUT)


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
