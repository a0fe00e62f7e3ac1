"""Follow each group's best, and the runtime's copy beside it, over runs in the order of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..analysis.fastest import params_texts
from ..core.display import mode_words, number_of, significant
from ..core.errors import CompareError
from ..core.schema import GROUP, PARAMS, Float64, Group, Int32, Meaning, String, Timestamp
from ..storage.store import read_metadata, read_table, write_parquet
from ..storage.wholefile import write_atomic
from .compare import MAX_ROWS, group_words, markdown_table, percent
from .runs import LOG_COPY, Place, RunCells, bests, read_run, refuse_unlike

CHANGE_HEADS = ["group", "runs", "best: first → last", "change", "change of memcpy"]
METHOD = (
    "First and last are the first and the last run that has the group. If memcpy, the runtime's "
    "own copy, changed as well, then the machine did."
)

# Folder below ``results/<run>/``.
HISTORY_FILE = "history.parquet"
# Columns of a history that the text shows.
BEST: str = "bandwidth_gbs"
COPY: str = "memcpy_gbs"
# Column used instead of a bandwidth if the kernel declares no bytes.
LAUNCHES: str = "launch_rate"
BESTS = {BEST: "GB/s", LAUNCHES: "launches/s"}


class HistoryRow(Group):
    """A group's best in a run that has the group."""

    number: Annotated[Int32, Meaning("number of the run in the history, by time, from 1")]
    run: Annotated[
        String,
        Meaning("name of the run, with the part of its path that distinguishes it from others"),
    ]
    measured_at: Timestamp
    device_uuid: String
    params: Annotated[String, Meaning("launch parameters, as one text")]
    bandwidth_gbs: Float64 | None
    bandwidth_low_gbs: Float64 | None
    bandwidth_high_gbs: Float64 | None
    launch_rate: Annotated[Float64, Meaning("1 over the median", "1/s")]
    launch_rate_low: Annotated[
        Float64, Meaning("lower end of its prediction interval for another run", "1/s")
    ]
    launch_rate_high: Annotated[
        Float64, Meaning("upper end of its prediction interval for another run", "1/s")
    ]
    memcpy_gbs: Float64 | None
    vs_memcpy: Float64 | None
    candidates: Int32


HISTORY_SCHEMA = HistoryRow.schema()


@dataclass(frozen=True)
class BestChange:
    """The best of a group (columns of `group`) in its first run and in its last one.

    `unit` belongs to `first` and `last`. `copy_change` is None if one of the two runs timed no
    copy.
    """

    group: Mapping[str, Any]
    runs: int
    unit: str
    first: float
    last: float
    copy_change: float | None

    @property
    def change(self) -> float:
        """Last over first, minus one."""
        return self.last / self.first - 1.0


@dataclass(frozen=True)
class History:
    """Each group's best in each run.

    `rows` has the columns HISTORY_SCHEMA. `left_out` has a sentence for each run that could not be
    read or compared. `why` is the reason if there is no history, otherwise None.
    """

    rows: pd.DataFrame
    left_out: tuple[str, ...] = ()
    why: str | None = None

    @property
    def title(self) -> str:
        """Number of runs, the first and the last of them, and their dates."""
        runs = self.rows.drop_duplicates("number").sort_values("number")["run"].tolist()
        days = [f"{self.rows['measured_at'].agg(end):%Y-%m-%d}" for end in ("min", "max")]
        when = " to ".join(dict.fromkeys(days))
        return f"History of {len(runs)} runs: {runs[0]} to {runs[-1]}, {when}"

    def changes(self) -> list[BestChange]:
        """Return the change of each group from its first to its last run, the largest first."""
        groups = (
            rows.sort_values("number") for _, rows in self.rows.groupby(list(GROUP), observed=True)
        )
        return sorted(map(_change, groups), key=lambda one: -abs(one.change))

    def change_rows(self) -> list[list[str]]:
        """Return the `changes` in words, with the columns CHANGE_HEADS."""
        several = self.rows["timing_mode"].nunique() > 1
        return [
            [
                group_words(one.group)
                + (f", {mode_words(one.group['timing_mode'])}" if several else ""),
                str(one.runs),
                f"{significant(one.first, 4)} → {significant(one.last, 4)} {one.unit}",
                percent(one.change),
                "—" if one.copy_change is None else percent(one.copy_change),
            ]
            for one in self.changes()
        ]

    def markdown(self, pictures: Sequence[str] = ()) -> str:
        """Return a summary that shows the files `pictures`, with paths relative to it."""
        if self.why is not None:
            parts = [f"**{self.why}**", _listed(self.left_out)]
        else:
            rows = self.change_rows()
            left = len(rows) - MAX_ROWS
            more = f"\n\n{number_of(left, 'more group')}." if left > 0 else ""
            parts = [
                f"## {self.title}",
                _listed(self.left_out),
                markdown_table(CHANGE_HEADS, rows[:MAX_ROWS]) + more,
                METHOD,
                "\n".join(f"![{name.rpartition('.')[0]}]({name})" for name in pictures),
            ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def save(self, folder: Place, pictures: Sequence[str] = ()) -> Path:
        """Write ``history.parquet`` and ``summary.md`` into a folder."""
        out = Path(folder).expanduser()
        found = pa.Table.from_pandas(self.rows, schema=HISTORY_SCHEMA, preserve_index=False)
        write_parquet(found, out / HISTORY_FILE, {"left_out": self.left_out, "why": self.why})
        write_atomic(out / "summary.md", self.markdown(pictures).encode())
        return out


def _change(rows: pd.DataFrame) -> BestChange:
    """Return the change of a group, whose `rows` are in the order of runs."""
    quantity, (best, *_) = bests_of(rows)
    first, last = rows.iloc[0], rows.iloc[-1]
    copied = float(last[COPY]) / float(first[COPY]) - 1.0
    return BestChange(
        first[list(GROUP)].to_dict(),
        len(rows),
        BESTS[quantity],
        float(first[best]),
        float(last[best]),
        None if np.isnan(copied) else copied,
    )


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def bests_of(group: pd.DataFrame) -> tuple[str, Sequence[str]]:
    """Return the quantity that measures a group's bests, its column, and those of its interval."""
    if group[BEST].notna().all():
        return BEST, (BEST, "bandwidth_low_gbs", "bandwidth_high_gbs")
    return LAUNCHES, (LAUNCHES, "launch_rate_low", "launch_rate_high")


def read_history(folder: Path) -> History:
    """Read the table in `folder` that `History.save` wrote; raise BadParquetError if damaged."""
    file = folder / HISTORY_FILE
    told = read_metadata(file)
    rows = read_table(file, HISTORY_SCHEMA).to_pandas()
    return History(rows, tuple(told["left_out"]), told["why"])


def write_history(
    dataset: Path, spec: Mapping[str, Any], tables: Sequence[Path], say: Callable[[str], None]
) -> None:
    """Write the `tables` of the history that `spec` names, and report the runs that are left out.

    Parameters
    ----------
    dataset
        Data set of the newest run.
    spec
        Name of the run, and the earlier runs.
    tables
        Files to write, all in one folder.
    say
        Function that prints a sentence.
    """
    found = run_history(dataset, spec["run"], spec["earlier"])
    for sentence in (*found.left_out, *filter(None, [found.why])):
        say(sentence)
    found.save(tables[0].parent)


def read_runs(places: Sequence[Place]) -> list[RunCells]:
    """Read runs, sorted by the time of their measurement; raise CompareError if one is unusable."""
    named = zip(places, _short_names(places), strict=True)
    return _in_time([replace(read_run(place), name=name) for place, name in named])


def _short_names(places: Sequence[Place]) -> list[str]:
    """Return the names of the folders, with enough parents to make them unique."""
    parts = [Path(place).expanduser().resolve().parts for place in places]
    depths = range(1, max(map(len, parts), default=0) + 1)
    tails = (["/".join(part[-depth:]) for part in parts] for depth in depths)
    names = [part[-1] for part in parts]
    # A folder that is listed twice keeps its short name.
    return next((tail for tail in tails if len(set(tail)) == len(set(parts))), names)


def _in_time(runs: Sequence[RunCells]) -> list[RunCells]:
    return sorted(runs, key=lambda run: run.cells["measured_at"].min())


def run_history(dataset: Path, name: str, earlier: Sequence[Place]) -> History:
    """Return the history of the groups of the run `name` over `earlier` runs.

    A run that cannot be read, or that was measured by another protocol, is left out and named. If
    the others do not make a history, its `why` is the reason.

    Parameters
    ----------
    dataset
        Cells of the run.
    name
        Name of the run.
    earlier
        Folders of earlier runs.

    Raises
    ------
    BadParquetError, CompareError
        If `dataset` itself cannot be used.
    """
    own = replace(read_run(dataset), name=name)
    runs, left_out = list[RunCells](), list[str]()
    for place, called in zip(earlier, _short_names(earlier), strict=True):
        try:
            run = replace(read_run(place), name=called)
            refuse_unlike([[own, run]])
        except CompareError as err:
            left_out.append(f"{called} is left out: {err}")
        else:
            runs.append(run)
    groups = pd.MultiIndex.from_frame(own.cells[list(GROUP)])
    common = [
        replace(run, cells=run.cells[pd.MultiIndex.from_frame(run.cells[list(GROUP)]).isin(groups)])
        for run in _in_time([*runs, own])
    ]
    try:
        found = history_of([run for run in common if len(run.ok)])
    except CompareError as err:
        rows = HISTORY_SCHEMA.empty_table().to_pandas()
        return History(rows, tuple(left_out), f"There is no history: {err}")
    return replace(found, left_out=tuple(left_out))


def history_of(runs: Sequence[RunCells]) -> History:
    """Return the history of `runs` in their order; raise CompareError with fewer than two."""
    if len(runs) < 2:
        raise CompareError(f"A history has two runs or more, not {len(runs)}.")
    refuse_unlike([runs])
    rows = pd.concat(
        [_rows(number, run) for number, run in enumerate(runs, start=1)], ignore_index=True
    )
    if rows.empty:
        raise CompareError("The runs have no verified cell.")
    groups = [group for _, group in rows.groupby(list(GROUP), observed=True)]
    return History(pd.concat(groups, ignore_index=True)[HISTORY_SCHEMA.names])


def _rows(number: int, run: RunCells) -> pd.DataFrame:
    """Return the best of each group of one run."""
    best = bests(run, run.cells.index)
    candidates = run.ok.groupby(list(GROUP), observed=True).size()
    copy = np.exp(best[LOG_COPY].to_numpy(np.float64))
    return best.assign(
        **{
            "number": number,
            "run": run.name,
            PARAMS: params_texts(best),
            LAUNCHES: 1 / best["median_s"],
            "launch_rate_low": 1 / best["median_high_s"],
            "launch_rate_high": 1 / best["median_low_s"],
            COPY: copy,
            "vs_memcpy": best[BEST].to_numpy(np.float64) / copy,
            "candidates": candidates.reindex(best.index),
        }
    )
