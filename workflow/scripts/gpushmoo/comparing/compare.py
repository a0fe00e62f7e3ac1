"""Two sides, one or more runs each, held against each other: the function of that name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ..storage.store import write_parquet
from ..storage.wholefile import write_summed
from .assembled import cell_table, drift_table, group_table, missing_cells
from .errors import CompareError
from .known import known_spreads
from .levels import (
    BEST,
    CELL,
    COPY,
    WHOLE,
    Pairs,
    changes_of,
    levels_of,
    sample_shift,
    swept_by_all,
    usual_spreads,
    verified_by_all,
)
from .markdown import Told, summary
from .runs import RunCells, bests, copies, read_run, wholes
from .settings import differences, refuse_unlike
from .spreads import Spreads
from .tables import CHANGED_CELLS_SCHEMA, CHANGED_GROUPS_SCHEMA, DRIFT_SCHEMA

Place = str | os.PathLike[str]
DELTA = 0.01


@dataclass(frozen=True)
class Comparison:
    """What became of B, held against A.

    `cells` and `groups` have the columns of `tables`, `drift` is what the runtime's own copy took
    more in B; changes are shares of the time in A. `notes` are sentences on what else differs and
    on what the intervals rest on.
    """

    cells: pd.DataFrame
    groups: pd.DataFrame
    drift: pd.DataFrame
    told: Told

    @property
    def slower(self) -> pd.DataFrame:
        """The groups whose best got slower by more than delta: what a guard stops at."""
        return self.groups[self.groups["alarm"]]

    def markdown(self) -> str:
        """A summary for a pull request."""
        return summary(self.cells, self.groups, self.drift, self.told)

    def save(self, folder: Place) -> Path:
        """Write ``cells.parquet``, ``groups.parquet``, ``drift.parquet`` and ``summary.md``."""
        out = Path(folder).expanduser()
        for name, frame, schema in (
            ("cells", self.cells, CHANGED_CELLS_SCHEMA),
            ("groups", self.groups, CHANGED_GROUPS_SCHEMA),
            ("drift", self.drift, DRIFT_SCHEMA),
        ):
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            write_parquet(table, out / f"{name}.parquet", {})
        write_summed(out / "summary.md", self.markdown().encode())
        return out


def compare(
    a: Place | Sequence[Place],
    b: Place | Sequence[Place],
    *,
    same: Sequence[Place] = (),
    delta: float = DELTA,
) -> Comparison:
    """Hold `b` against `a`: run's folders, data sets, folders of shards, one or several of each.

    Several of both are pairs in their order, best measured in turns (A B B A). `same` are two or
    more runs of one and the same thing, by which it is known how far runs lie apart; without them
    it is known from the pairs, from runs of this device that come with the library, or from the
    repeats within the runs. `delta` is the change that does not matter, a share of the time.
    Raises CompareError, a ValueError, with one sentence.
    """
    if not 0.0 < delta < 1.0:
        raise CompareError(f"delta is {delta}; it must be a share between 0 and 1.")
    first, second = ([read_run(place) for place in _several(side)] for side in (a, b))
    return compare_runs(first, second, [read_run(place) for place in _several(same)], delta)


def _several(side: Place | Sequence[Place]) -> list[Place]:
    return [side] if isinstance(side, str | os.PathLike) else list(side)


def compare_runs(
    first: Sequence[RunCells],
    second: Sequence[RunCells],
    same: Sequence[RunCells] = (),
    delta: float = DELTA,
    usual: dict[str, Spreads] | None = None,
) -> Comparison:
    """As `compare`, of runs that were read; `usual` takes the place of `same`, once for many."""
    if len(first) != len(second) or not first:
        raise CompareError(
            f"A has {len(first)} runs and B {len(second)}; they are compared in pairs, so give "
            "equally many."
        )
    if len(same) == 1:
        raise CompareError("One run does not tell how far runs lie apart; name two or more.")
    refuse_unlike([first, second, *([same] if same else [])])
    rests, usual, by_repeats = _basis(first, second, same, usual)
    runs = [*first, *second]
    swept = swept_by_all(runs)
    cells = _changes(CELL, first, second, lambda r: r.ok, usual, by_repeats, sample_shift)
    groups = _changes(BEST, first, second, lambda r: bests(r, swept), usual, by_repeats)
    verified = verified_by_all(runs)
    whole = _changes(WHOLE, first, second, lambda r: wholes(r, verified), usual, by_repeats)
    copied = _changes(COPY, first, second, copies, usual, False)
    if not len(cells.index):
        raise CompareError("A and B have no verified cell in common.")
    changed = cell_table(cells, delta)
    missing = missing_cells(first, second)
    told = Told(
        [run.name for run in first],
        [run.name for run in second],
        max(shard["written_at"][:10] for run in runs for shard in run.provenance),
        delta,
        rests,
        differences(first, second, set(changed["kernel"])),
        missing,
    )
    return Comparison(
        changed,
        group_table(groups, whole, changed, missing, (first, second), swept, delta),
        drift_table(copied),
        told,
    )


def _basis(
    first: Sequence[RunCells],
    second: Sequence[RunCells],
    same: Sequence[RunCells],
    usual: dict[str, Spreads] | None,
) -> tuple[str, dict[str, Spreads] | None, bool]:
    """What the intervals rest on in words, the usual spreads, and whether repeats tell them."""
    n = len(first)
    pairs = f"{n} pairs of runs" if n > 1 else ""
    if usual is not None:
        return "Intervals rest on runs of one and the same thing.", usual, False
    if same:
        text = f"{len(same)} runs of one and the same thing"
        both = f"{text}, and on {pairs}" if pairs else text
        devices = len({device for run in same for device in run.devices})
        return (
            f"Intervals rest on {both}.{_elsewhere(first, second, devices)}",
            usual_spreads(levels_of(same)),
            False,
        )
    known = known_spreads(first[0])
    if known is not None:
        both = f"{known.words}, and on {pairs}" if pairs else known.words
        beyond = _elsewhere(first, second, known.devices)
        return f"Intervals rest on {both}.{beyond}", known.spreads, False
    if pairs:
        return f"Intervals rest on {pairs} alone.", None, False
    if min(run.repeats for run in (*first, *second)) > 1:
        text = (
            "Nobody knows how far runs of this device lie apart: intervals rest on the repeats "
            "within both runs, which may lie closer together than runs; name runs of one and the "
            "same thing (--same)."
        )
        return text, None, True
    text = (
        "Nothing tells how far two runs lie apart, for each has one repeat: all is undecided; name "
        "runs of one and the same thing (--same), or measure several pairs."
    )
    return text, None, False


def _elsewhere(first: Sequence[RunCells], second: Sequence[RunCells], devices: int) -> str:
    """A sentence where A and B are of different devices, and the spread is known of one alone."""
    sides = [{device for run in side for device in run.devices} for side in (first, second)]
    if sides[0] == sides[1] or devices > 1:
        return ""
    return " A and B are of different devices and these of one: intervals are too narrow."


def _changes(
    name: str,
    first: Sequence[RunCells],
    second: Sequence[RunCells],
    table: Callable[[RunCells], pd.DataFrame],
    usual: dict[str, Spreads] | None,
    by_repeats: bool,
    shift: Any = None,
) -> Pairs:
    tables = [(table(a), table(b)) for a, b in zip(first, second, strict=True)]
    return changes_of(name, tables, usual, by_repeats, shift)
