"""Many runs in the order of time: each group's best, the copy beside it, where they changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..core.schema import GROUP, PARAMS
from ..storage.store import write_parquet
from ..storage.wholefile import write_summed
from .assembled import params_of
from .errors import CompareError
from .history_text import BESIDE, BEST, COPY, NEAR, Cause, history_summary
from .otava import SeriesChange, find_otava, series_changes
from .runs import LOG_COPY, RunCells, bests, read_run
from .settings import differences, refuse_unlike
from .tables import CHANGE_POINTS_SCHEMA, HISTORY_SCHEMA

DELTA = 0.01


@dataclass(frozen=True)
class History:
    """Each group's best in each run, and where its mean changed.

    `rows` has the columns HISTORY_SCHEMA, `changes` those of CHANGE_POINTS_SCHEMA; `delta` is the
    change that is not told, a share of the bandwidth.
    """

    rows: pd.DataFrame
    changes: pd.DataFrame
    delta: float

    def markdown(self, pictures: Sequence[str] = ()) -> str:
        """A summary that shows the files `pictures`, named from its own place."""
        return history_summary(self.rows, self.changes, self.delta, pictures)

    def save(self, folder: str | os.PathLike[str], pictures: Sequence[str] = ()) -> Path:
        """Write ``history.parquet``, ``change_points.parquet`` and ``summary.md``."""
        out = Path(folder).expanduser()
        for name, frame, schema in (
            ("history", self.rows, HISTORY_SCHEMA),
            ("change_points", self.changes, CHANGE_POINTS_SCHEMA),
        ):
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            write_parquet(table, out / f"{name}.parquet", {})
        write_summed(out / "summary.md", self.markdown(pictures).encode())
        return out


def read_runs(places: Sequence[str | os.PathLike[str]]) -> list[RunCells]:
    """Runs in the order in which they were measured. Raises CompareError."""
    runs = [read_run(place) for place in places]
    return sorted(runs, key=lambda run: run.cells["measured_at"].min())


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
    program = find_otava(otava)
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
