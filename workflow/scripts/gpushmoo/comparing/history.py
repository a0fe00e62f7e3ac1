"""Many runs in the order of time: each group's best, the copy beside it, where they changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..analysis.history import HistoryTables
from ..core.history_schema import (
    BESIDE,
    BEST,
    CHANGE_POINTS_FILE,
    CHANGE_POINTS_SCHEMA,
    COPY,
    HISTORY_FILE,
    HISTORY_SCHEMA,
)
from ..core.paths import NoOtavaError, find_otava
from ..core.schema import GROUP, PARAMS
from ..storage.store import write_parquet
from ..storage.wholefile import write_summed
from .assembled import params_of
from .errors import CompareError
from .history_text import NEAR, Cause, history_summary
from .otava import SeriesChange, series_changes
from .runs import LOG_COPY, RunCells, bests, read_run
from .settings import differences, refuse_unlike

DELTA = 0.01
Place = str | os.PathLike[str]


class History(HistoryTables):
    """The tables of a history, which can be printed as Markdown and saved to a folder."""

    def markdown(self, pictures: Sequence[str] = ()) -> str:
        """A summary that shows the files `pictures`, named from its own place."""
        return history_summary(self, pictures)

    def save(self, folder: Place, pictures: Sequence[str] = ()) -> Path:
        """Write ``history.parquet``, ``change_points.parquet`` and ``summary.md``."""
        out = Path(folder).expanduser()
        told = {"delta": self.delta, "left_out": self.left_out, "why": self.why}
        for name, frame, schema in (
            (HISTORY_FILE, self.rows, HISTORY_SCHEMA),
            (CHANGE_POINTS_FILE, self.changes, CHANGE_POINTS_SCHEMA),
        ):
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            write_parquet(table, out / name, told)
        write_summed(out / "summary.md", self.markdown(pictures).encode())
        return out


def write_history(
    dataset: Path, spec: Mapping[str, Any], tables: Sequence[Path], say: Callable[[str], None]
) -> None:
    """Write the `tables` of the history that `spec` names, and `say` what is not in them."""
    found = run_history(dataset, spec["run"], spec["earlier"], spec["otava"], spec["delta"])
    for sentence in (*found.left_out, *filter(None, [found.why])):
        say(sentence)
    found.save(tables[0].parent)


def read_runs(places: Sequence[Place]) -> list[RunCells]:
    """Runs in the order in which they were measured. Raises CompareError."""
    named = zip(places, _told_apart(places), strict=True)
    return _in_time([replace(read_run(place), name=name) for place, name in named])


def _told_apart(places: Sequence[Place]) -> list[str]:
    """Names of the folders; with as much of what they lie in as tells them from each other."""
    parts = [Path(place).expanduser().resolve().parts for place in places]
    depths = range(1, max(map(len, parts), default=0) + 1)
    tails = (["/".join(part[-depth:]) for part in parts] for depth in depths)
    names = [part[-1] for part in parts]
    # One that is named twice is not told apart.
    return next((tail for tail in tails if len(set(tail)) == len(set(parts))), names)


def _in_time(runs: Sequence[RunCells]) -> list[RunCells]:
    return sorted(runs, key=lambda run: run.cells["measured_at"].min())


def run_history(
    dataset: Path, name: str, earlier: Sequence[Place], otava: str | None, delta: float
) -> History:
    """The history of the groups of the run `name`, whose cells are `dataset`, over `earlier` ones.

    An earlier run that cannot be read, or was measured by another protocol, is left out and named;
    where no history can be made of the others, the history says why. Raises BadParquetError or
    CompareError for `dataset`.
    """
    own = replace(read_run(dataset), name=name)
    runs, left_out = list[RunCells](), list[str]()
    for place, called in zip(earlier, _told_apart(earlier), strict=True):
        try:
            run = replace(read_run(place), name=called)
            refuse_unlike([[own, run]])
        except CompareError as err:
            left_out.append(f"{called} is left out: {err}")
        else:
            runs.append(run)
    common = (_of_groups(run, own) for run in _in_time([*runs, own]))
    try:
        found = history_of([run for run in common if len(run.ok)], otava, delta)
    except CompareError as err:
        none = (_empty(HISTORY_SCHEMA), _empty(CHANGE_POINTS_SCHEMA))
        return History(*none, delta, tuple(left_out), f"There is no history: {err}")
    return replace(found, left_out=tuple(left_out))


def _of_groups(run: RunCells, own: RunCells) -> RunCells:
    """The cells of `run` that are of a group of `own`."""
    names = list(GROUP)
    known = pd.MultiIndex.from_frame(own.cells[names])
    return replace(run, cells=run.cells[pd.MultiIndex.from_frame(run.cells[names]).isin(known)])


def _empty(schema: pa.Schema) -> pd.DataFrame:
    return schema.empty_table().to_pandas()


def history_of(runs: Sequence[RunCells], otava: str | None = None, delta: float = DELTA) -> History:
    """The history of `runs` in their order; `otava` is the program, by default that on the PATH.

    A change point of a best is the kernel's where the best beside the copy changes there too, and
    the machine's where the copy does and the best beside it does not. Raises CompareError.
    """
    if len(runs) < 2:
        raise CompareError(f"A history has two runs or more, not {len(runs)}.")
    if not 0.0 <= delta < 1.0:
        raise CompareError(f"delta is {delta}; it must be a share from 0 to less than 1.")
    refuse_unlike([runs])
    try:
        program = find_otava(otava)
    except NoOtavaError as err:
        raise CompareError(str(err)) from err
    rows = pd.concat(
        [_rows(number, run) for number, run in enumerate(runs, start=1)], ignore_index=True
    )
    if rows.empty:
        raise CompareError("The runs have no verified cell.")
    groups = [group for _, group in rows.groupby(list(GROUP), observed=True)]
    found = series_changes([_series(group) for group in groups], delta, program)
    changes = [
        row
        for group, of_group in zip(groups, found, strict=True)
        for row in _change_rows(group, of_group, runs)
    ]
    return History(
        pd.concat(groups, ignore_index=True)[HISTORY_SCHEMA.names],
        pd.DataFrame(changes, columns=CHANGE_POINTS_SCHEMA.names),
        delta,
    )


def _rows(number: int, run: RunCells) -> pd.DataFrame:
    """The best of each group of one run."""
    best = bests(run, run.cells.index)
    candidates = run.ok.groupby(list(GROUP), observed=True).size()
    copy = np.exp(best[LOG_COPY].to_numpy(np.float64))
    return best.assign(
        **{
            "number": number,
            "run": run.name,
            PARAMS: params_of(best),
            COPY: copy,
            BESIDE: best[BEST].to_numpy(np.float64) / copy,
            "candidates": candidates.reindex(best.index),
        }
    )


def _series(group: pd.DataFrame) -> dict[str, list[float]]:
    """What is looked at for change points; the copy only where all runs have it."""
    names = (BEST, COPY, BESIDE) if group[COPY].notna().all() else (BEST,)
    return {name: group[name].tolist() for name in names}


def _change_rows(
    group: pd.DataFrame, found: Mapping[str, Sequence[SeriesChange]], runs: Sequence[RunCells]
) -> list[dict[str, Any]]:
    """A row for each change point of one group, whose rows are in the order of runs."""
    records = group.to_dict("records")
    rows = []
    for quantity, points in found.items():
        for point in points:
            before, after = records[point.index - 1], records[point.index]
            row = {
                **{name: after[name] for name in (*GROUP, "number", "run")},
                "quantity": quantity,
                "before": point.before,
                "after": point.after,
                "change": point.after / point.before - 1.0,
                "cause": _cause(point, found).value if quantity == BEST else None,
                "differences": _differences(before, after, runs),
            }
            rows.append(row)
    return sorted(rows, key=lambda row: row["number"])


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], runs: Sequence[RunCells]
) -> list[str]:
    """What differs between the runs of two rows of one group, a line each."""
    sides = [[runs[row["number"] - 1]] for row in (before, after)]
    told = differences(sides[0], sides[1], {after["kernel"]})
    if before["candidates"] != after["candidates"]:
        # A best among more cells is faster by itself.
        told.append(f"verified cells: {before['candidates']} → {after['candidates']}")
    return told


def _cause(point: SeriesChange, found: Mapping[str, Sequence[SeriesChange]]) -> Cause:
    """Whether the kernel or the machine changed at a change point of the best."""
    copied, beside = (
        any(abs(other.index - point.index) <= NEAR for other in found.get(name, ()))
        for name in (COPY, BESIDE)
    )
    if beside:
        return Cause.BOTH if copied else Cause.KERNEL
    return Cause.MACHINE if copied else Cause.UNSURE
