"""Many runs in the order of time: each group's best, the runtime's copy, their change points.

Change points are found by the program ``otava`` in an environment of its own. Apache Otava 0.8
(E-divisive means with a t test instead of permutations; Fleming et al., ICPE 2023, doi
10.1145/3578244.3583719) asks for other versions of NumPy and SciPy than this library has.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..analysis.fastest import params_texts
from ..core.display import kind_words, number_of, significant
from ..core.paths import NoOtavaError, find_otava
from ..core.schema import GROUP, PARAMS, Group, Number, Small, Text, Time
from ..storage.store import read_metadata, read_table, write_parquet
from ..storage.wholefile import write_summed
from . import CompareError
from .compare import MOST_ROWS, group_words, markdown_table, percent
from .runs import LOG_COPY, Place, RunCells, bests, differences, read_run, refuse_unlike

DELTA = 0.01
# Change points of two series that lie as near as this, in runs, are one and the same.
NEAR = 1
# In fewer runs otava finds no change of a few percent.
FEWEST_RUNS = 4
_MOST_NAMED = 3
CHANGE_HEADS = ["group", "from run on", "best: before → after", "change", "cause", "what differs"]
_METHOD = (
    "Change points are Apache Otava's (p < 0.001), of the mean over runs; changes under {delta} "
    "are not told. {kernel}: the best beside the memcpy baseline changed there too. {machine}: "
    "the copy did, and the best beside it did not. A change point at the last run rests on one run."
)
# Otava leaves out what is younger than now or older than a year, so points have made-up days.
_FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_SINCE = "1999-01-01"
_ALL = "all"
# Its options that are taken from the environment where a CI means something else by them.
_NOT_MEANT = ("BRANCH",)

Series = Mapping[str, Sequence[float]]


class Cause(Enum):
    """What changed where a best did, judged by the memcpy baseline."""

    KERNEL = "kernel"
    MACHINE = "machine"
    BOTH = "kernel and machine"
    UNSURE = "not told apart"


# Below ``results/<run>/history/``.
HISTORY_FILE, CHANGE_POINTS_FILE = "history.parquet", "change_points.parquet"
# What is looked at: columns of a history.
BEST: str = "bandwidth_gbs"
COPY: str = "memcpy_gbs"
# In the place of a bandwidth where the kernel declares no bytes.
LAUNCHES: str = "launch_rate"
BESTS = {BEST: "GB/s", LAUNCHES: "launches/s"}
BESIDE: str = "vs_memcpy"


class HistoryRow(Group):
    """A group's best in a run that has it."""

    number: Small  # place of the run among all of the history, in time, from 1
    run: Text  # name of the run, with as much of its path as tells it from others
    measured_at: Time
    device_uuid: Text
    params: Text  # launch parameters, in one text
    bandwidth_gbs: Number | None
    bandwidth_low_gbs: Number | None
    bandwidth_high_gbs: Number | None
    launch_rate: Number  # [1/s] one over the median
    launch_rate_low: Number  # [1/s] lower end of its prediction interval for another run
    launch_rate_high: Number  # [1/s] upper end of its prediction interval for another run
    memcpy_gbs: Number | None
    vs_memcpy: Number | None
    candidates: Small


class ChangePoint(Group):
    """A run from which on a column of a group's history has another mean."""

    quantity: Text  # which column of the history has another mean from this run on
    number: Small
    run: Text
    before: Number  # [of that column] mean of that column since the change point before
    after: Number  # [of that column] mean of that column from this run on
    change: Number  # after over before, minus one
    cause: Text | None  # of a best: what changed, as the memcpy baseline tells; else null
    differences: list[Text]  # what the run was measured with otherwise than the one before it


HISTORY_SCHEMA, CHANGE_POINTS_SCHEMA = HistoryRow.schema(), ChangePoint.schema()


@dataclass(frozen=True)
class History:
    """Each group's best in each run, and where its mean changed.

    `rows` has the columns HISTORY_SCHEMA, `changes` those of CHANGE_POINTS_SCHEMA; `delta` is the
    share of the bandwidth under which a change is left out. `left_out` has a sentence for each run
    that could not be taken in; `why` says why there is no history at all, else it is None. Without
    Otava no changes were looked for (`is_searched`).
    """

    rows: pd.DataFrame
    changes: pd.DataFrame
    delta: float
    left_out: tuple[str, ...] = ()
    why: str | None = None
    is_searched: bool = True

    @property
    def title(self) -> str:
        """How many runs, the first and the last of them, and when they were measured."""
        runs = self.rows.drop_duplicates("number").sort_values("number")["run"].tolist()
        days = [f"{self.rows['measured_at'].agg(end):%Y-%m-%d}" for end in ("min", "max")]
        when = " to ".join(dict.fromkeys(days))
        return f"History of {len(runs)} runs: {runs[0]} to {runs[-1]}, {when}"

    @property
    def bests(self) -> pd.DataFrame:
        """The change points of groups' bests."""
        return self.changes[self.changes["quantity"].isin([*BESTS])]

    @property
    def headline(self) -> str:
        """How many groups' bests changed, in one sentence."""
        n = len(self.rows.drop_duplicates(list(GROUP)))
        if not self.is_searched:
            return f"{number_of(n, 'group')}, in which no change points were looked for."
        changed = len(self.bests.drop_duplicates(list(GROUP)))
        bound = percent(self.delta, sign=False)
        if not changed:
            return f"Of {number_of(n, 'group')} no best changed by {bound} or more."
        counts = self.bests["cause"].value_counts()
        causes = ", ".join(f"{cause}: {count}" for cause, count in counts.items())
        whose = "group's best" if n == 1 else "groups' bests"
        return (
            f"{changed} of {n} {whose} changed by {bound} or more (change points by cause: "
            f"{causes})."
        )

    def method(self, mark: str = "") -> str:
        """What a change point is, and what its causes mean; words are put between `mark`s."""
        words = {"kernel": f"{mark}Kernel{mark}", "machine": f"{mark}Machine{mark}"}
        return _METHOD.format(**words, delta=percent(self.delta, sign=False))

    def change_rows(self) -> list[list[str]]:
        """For each change point of a best, the largest first: the columns CHANGE_HEADS in words."""
        largest = self.bests.sort_values("change", key=abs, ascending=False, kind="stable")
        several = self.rows["timing_mode"].nunique() > 1
        rows = []
        for row in largest.to_dict("records"):
            kind = f", {kind_words(row['timing_mode'])}" if several else ""
            differ = row["differences"]
            more = f"; {len(differ) - _MOST_NAMED} more" if len(differ) > _MOST_NAMED else ""
            rows.append(
                [
                    f"{group_words(row)}{kind}",
                    f"{row['run']} ({row['number']})",
                    means(row),
                    percent(row["change"]),
                    row["cause"],
                    ("; ".join(differ[:_MOST_NAMED]) + more) or "nothing known",
                ]
            )
        return rows

    def remarks(self) -> list[str]:
        """What the machine did, what only the copy brings to light, and what was not found."""
        lines = list(self.left_out)
        copied = self.changes[self.changes["quantity"] == COPY]
        for (_, run), of_run in copied.groupby(["number", "run"], observed=True):
            n = number_of(len(of_run), "group")
            typical = percent(of_run["change"].median())
            told = f"changed from {run} on in {n}, by {typical} in the median."
            lines.append(f"The machine: the memcpy baseline {told}")
        hidden = sum(_is_hidden(row, self.bests) for row in self.changes.to_dict("records"))
        if hidden:
            n = number_of(hidden, "group")
            lines.append(f"Only relative to memcpy {n} changed: see change_points.parquet.")
        groups = self.rows.groupby(list(GROUP), observed=True)
        uncopied = int(groups[COPY].apply(lambda values: values.isna().any()).sum())
        if uncopied:
            n = number_of(uncopied, "group")
            lines.append(f"In {n} a run has no memcpy baseline to tell the machine by.")
        few = int((groups.size() < FEWEST_RUNS).sum())
        if few:
            n = number_of(few, "group")
            lines.append(f"{n} in fewer than {FEWEST_RUNS} runs: too few for a change point.")
        return lines

    def markdown(self, pictures: Sequence[str] = ()) -> str:
        """A summary that shows the files `pictures`, named from its own place."""
        if self.why is not None:
            parts = [f"**{self.why}**", _listed(self.left_out)]
        else:
            rows = self.change_rows()
            left = len(rows) - MOST_ROWS
            more = f"\n\n{left} more change points." if left > 0 else ""
            parts = [
                f"## {self.title}",
                f"**{self.headline}**",
                markdown_table(CHANGE_HEADS, rows[:MOST_ROWS]) + more if rows else "",
                _listed(self.remarks()),
                self.method("*") if self.is_searched else "",
                "\n".join(f"![{name.rpartition('.')[0]}]({name})" for name in pictures),
            ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def save(self, folder: Place, pictures: Sequence[str] = ()) -> Path:
        """Write ``history.parquet``, ``change_points.parquet`` and ``summary.md``."""
        out = Path(folder).expanduser()
        told = {"delta": self.delta, "left_out": self.left_out, "why": self.why}
        for name, frame, schema in (
            (HISTORY_FILE, self.rows, HISTORY_SCHEMA),
            (CHANGE_POINTS_FILE, self.changes, CHANGE_POINTS_SCHEMA),
        ):
            found = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            write_parquet(found, out / name, told)
        write_summed(out / "summary.md", self.markdown(pictures).encode())
        return out


def means(change: Mapping[str, Any], digits: int = 4) -> str:
    """``1021 → 998 GB/s``: the means before and after a change point of a best."""
    before, after = (significant(change[when], digits) for when in ("before", "after"))
    return f"{before} → {after} {BESTS[change['quantity']]}"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _is_hidden(row: Mapping[str, Any], bests: pd.DataFrame) -> bool:
    """Whether a best changed in multiples of the copy alone."""
    if row["quantity"] != BESIDE:
        return False
    near = bests[(bests["number"] - row["number"]).abs() <= NEAR]
    return not (near[list(GROUP)] == [row[name] for name in GROUP]).all(axis=1).any()


def bests_of(group: pd.DataFrame) -> tuple[str, Sequence[str]]:
    """The quantity that tells a group's bests, and its column and those of its interval."""
    if group[BEST].notna().all():
        return BEST, (BEST, "bandwidth_low_gbs", "bandwidth_high_gbs")
    return LAUNCHES, (LAUNCHES, "launch_rate_low", "launch_rate_high")


def read_history(folder: Path) -> History:
    """The tables in `folder`, as `History.save` wrote them. Raises BadParquetError."""
    file = folder / HISTORY_FILE
    told = read_metadata(file)
    return History(
        read_table(file, HISTORY_SCHEMA).to_pandas(),
        read_table(folder / CHANGE_POINTS_FILE, CHANGE_POINTS_SCHEMA).to_pandas(),
        told["delta"],
        tuple(told["left_out"]),
        told["why"],
    )


def write_history(
    dataset: Path, spec: Mapping[str, Any], tables: Sequence[Path], say: Callable[[str], None]
) -> None:
    """Write the `tables` of the history that `spec` names, and `say` what is not in them."""
    found = run_history(dataset, spec["run"], spec["earlier"], spec["otava"], spec["threshold"])
    for sentence in (*found.left_out, *filter(None, [found.why])):
        say(sentence)
    found.save(tables[0].parent)


def read_runs(places: Sequence[Place]) -> list[RunCells]:
    """Runs in the order in which they were measured. Raises CompareError."""
    named = zip(places, _short_names(places), strict=True)
    return _in_time([replace(read_run(place), name=name) for place, name in named])


def _short_names(places: Sequence[Place]) -> list[str]:
    """Names of the folders, with as many parents as make them unique."""
    parts = [Path(place).expanduser().resolve().parts for place in places]
    depths = range(1, max(map(len, parts), default=0) + 1)
    tails = (["/".join(part[-depth:]) for part in parts] for depth in depths)
    names = [part[-1] for part in parts]
    # A folder that is named twice keeps its short name.
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
        found = history_of([run for run in common if len(run.ok)], otava, delta)
    except CompareError as err:
        rows, changes = (
            s.empty_table().to_pandas() for s in (HISTORY_SCHEMA, CHANGE_POINTS_SCHEMA)
        )
        return History(rows, changes, delta, tuple(left_out), f"There is no history: {err}")
    return replace(found, left_out=tuple(left_out))


def history_of(
    runs: Sequence[RunCells],
    otava: str | None = None,
    delta: float = DELTA,
    needs_otava: bool = True,
) -> History:
    """The history of `runs` in their order; `otava` is the program, by default that on the PATH.

    A change point of a best is the kernel's where the best relative to memcpy changes, too, and
    the machine's where memcpy changes and the relative best does not. Without the program there
    are none, unless it is needed or named. Raises CompareError.
    """
    if len(runs) < 2:
        raise CompareError(f"A history has two runs or more, not {len(runs)}.")
    if not 0.0 <= delta < 1.0:
        raise CompareError(f"threshold is {delta}; it must be a share from 0 to less than 1.")
    refuse_unlike([runs])
    program = None
    remarks = tuple[str, ...]()
    try:
        program = find_otava(otava)
    except NoOtavaError as err:
        if needs_otava or otava is not None:
            raise CompareError(str(err)) from err
        remarks = (f"No change points: {err}",)
    rows = pd.concat(
        [_rows(number, run) for number, run in enumerate(runs, start=1)], ignore_index=True
    )
    if rows.empty:
        raise CompareError("The runs have no verified cell.")
    groups = [group for _, group in rows.groupby(list(GROUP), observed=True)]
    changes = []
    if program is not None:
        found = series_changes([_series(group) for group in groups], delta, program)
        for group, of_group in zip(groups, found, strict=True):
            changes += _change_rows(group, of_group, runs)
    return History(
        pd.concat(groups, ignore_index=True)[HISTORY_SCHEMA.names],
        pd.DataFrame(changes, columns=CHANGE_POINTS_SCHEMA.names),
        delta,
        remarks,
        is_searched=program is not None,
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
            PARAMS: params_texts(best),
            LAUNCHES: 1 / best["median_s"],
            "launch_rate_low": 1 / best["median_high_s"],
            "launch_rate_high": 1 / best["median_low_s"],
            COPY: copy,
            BESIDE: best[BEST].to_numpy(np.float64) / copy,
            "candidates": candidates.reindex(best.index),
        }
    )


def _series(group: pd.DataFrame) -> dict[str, list[float]]:
    """What is looked at for change points; the copy only where all runs have it."""
    best, _ = bests_of(group)
    copied = best == BEST and group[COPY].notna().all()
    names = (BEST, COPY, BESIDE) if copied else (best,)
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
                "cause": _cause(point, found).value if quantity in BESTS else None,
                "differences": _differences(before, after, runs),
            }
            rows.append(row)
    return sorted(rows, key=lambda row: row["number"])


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], runs: Sequence[RunCells]
) -> list[str]:
    """What differs between the runs of two rows of one group, a line each."""
    a, b = ([runs[row["number"] - 1]] for row in (before, after))
    found = differences(a, b, {after["kernel"]})
    if before["candidates"] != after["candidates"]:
        # A best among more cells is faster by itself.
        found.append(f"verified cells: {before['candidates']} → {after['candidates']}")
    return found


def _cause(point: SeriesChange, found: Mapping[str, Sequence[SeriesChange]]) -> Cause:
    """Whether the kernel or the machine changed at a change point of the best."""
    copied, beside = (
        any(abs(other.index - point.index) <= NEAR for other in found.get(name, ()))
        for name in (COPY, BESIDE)
    )
    if beside:
        return Cause.BOTH if copied else Cause.KERNEL
    return Cause.MACHINE if copied else Cause.UNSURE


@dataclass(frozen=True)
class SeriesChange:
    """From place `index` of a series on its mean is `after`; since the point before, `before`."""

    index: int
    before: float
    after: float


def series_changes(
    tests: Sequence[Series], delta: float, program: str
) -> list[dict[str, list[SeriesChange]]]:
    """Of each test the change points of each of its series, in order.

    All series of one test are equally long. Means that differ by less than the share `delta` are
    not told. Raises CompareError when `program` fails or answers otherwise than otava 0.8 does.
    """
    with TemporaryDirectory() as folder:
        config = _written(tests, Path(folder))
        command = [program, "analyze", _ALL, "--config-file", str(config), "--output", "json"]
        command += ["--since", _SINCE, "--magnitude", str(delta)]
        environment = {k: v for k, v in os.environ.items() if k not in _NOT_MEANT}
        try:
            done = subprocess.run(
                command, capture_output=True, encoding="utf-8", env=environment, check=False
            )
        except OSError as err:
            raise CompareError(f"'{program}' cannot be started ({err.strerror}).") from err
    try:
        answers: dict[str, Any] = {}
        # An object a line.
        for line in done.stdout.splitlines():
            answers |= json.loads(line)
        return [_points(answers[f"g{number}"], series) for number, series in enumerate(tests)]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        said = done.stderr.strip().splitlines()
        raise CompareError(
            f"'{program}' ended with status {done.returncode} and does not answer as otava 0.8 "
            f"does: {said[-1] if said else repr(err)}"
        ) from err


def _written(tests: Sequence[Series], folder: Path) -> Path:
    """The program's configuration (JSON, which is YAML), beside a CSV file of each test."""
    described: dict[str, Any] = {}
    for number, series in enumerate(tests):
        path = folder / f"g{number}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["time", *series])
            for place, values in enumerate(zip(*series.values(), strict=True)):
                day = (_FIRST_DAY + timedelta(days=place)).isoformat()
                rows.writerow([day, *(repr(float(value)) for value in values)])
        described[f"g{number}"] = {
            "type": "csv",
            "file": str(path),
            "time_column": "time",
            "metrics": {name: {"direction": 1} for name in series},
        }
    config = folder / "otava.yaml"
    groups = {_ALL: list(described)}
    config.write_text(json.dumps({"tests": described, "test_groups": groups}), encoding="utf-8")
    return config


def _points(groups: Sequence[Any], series: Series) -> dict[str, list[SeriesChange]]:
    found: dict[str, list[SeriesChange]] = {name: [] for name in series}
    for change in (change for group in groups for change in group["changes"]):
        means = (float(change[f"mean_{when}"]) for when in ("before", "after"))
        found[change["metric"]].append(SeriesChange(int(change["index"]), *means))
    return found
