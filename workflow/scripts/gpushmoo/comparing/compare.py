"""Compare two sides, one or more runs each, in tables and in sentences about them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..analysis.best import tied_best
from ..analysis.fastest import params_texts
from ..analysis.statistics import ChangeEstimate, Spreads
from ..core.display import number_of, seconds, significant
from ..core.errors import CompareError, RegressionError
from ..core.names import several
from ..core.schema import (
    GROUP,
    PARAMS,
    Bool,
    Float64,
    Group,
    Int32,
    Int64,
    Meaning,
    Status,
    String,
    Table,
)
from ..storage.store import read_table, write_parquet
from ..storage.wholefile import write_atomic
from .runs import (
    BEST,
    CELL,
    COPY,
    GROUP_MEAN,
    KEY,
    PLACE,
    LevelChanges,
    Place,
    RunCells,
    changes_of,
    device_uuids,
    differences,
    known_spreads,
    levels_of,
    read_run,
    refuse_unlike,
    swept_by_all,
    usual_spreads,
    verified_by_all,
)
from .verdicts import FALSE_SHARE, ChangeVerdict, adjusted, alarms, believed_cells, verdicts

DELTA = 0.01
Side = Sequence[RunCells]


class ChangedCell(Group):
    """A cell in A, before, and B, after. Changes are of times: 0.02 is two percent slower."""

    cell_key: String
    params: Annotated[String, Meaning("launch parameters, as one text")]
    a_s: Annotated[
        Float64, Meaning("median of a launch in A. With several runs, in the first", "s")
    ]
    b_s: Annotated[
        Float64, Meaning("median of a launch in B. With several runs, in the first", "s")
    ]
    change: Annotated[Float64 | None, Meaning("time in B over time in A, minus one")]
    change_low: Annotated[
        Float64 | None, Meaning("lower end of its 95 % interval. Null if nothing determines it")
    ]
    change_high: Annotated[
        Float64 | None, Meaning("upper end of its 95 % interval. Null if nothing determines it")
    ]
    change_vs_memcpy: Annotated[
        Float64 | None, Meaning("the change of the time in multiples of the memcpy baseline")
    ]
    change_vs_memcpy_low: Annotated[Float64 | None, Meaning("lower end of its 95 % interval")]
    change_vs_memcpy_high: Annotated[Float64 | None, Meaning("upper end of its 95 % interval")]
    p_value: Annotated[
        Float64, Meaning("of no change, the larger of both tests. For this row alone", "0 to 1")
    ]
    verdict: Annotated[
        String, Meaning("slower, faster, same or undecided, corrected for the number of rows")
    ]


class ChangedGroup(Group):
    """The best of a group in A and in B, and all its cells together."""

    best_a: Annotated[String, Meaning("launch parameters of A's fastest cell")]
    best_b: Annotated[String, Meaning("launch parameters of B's fastest cell")]
    a_gbs: Annotated[
        Float64 | None, Meaning("bandwidth of A's best. With several runs, in the first", "GB/s")
    ]
    b_gbs: Annotated[
        Float64 | None, Meaning("bandwidth of B's best. With several runs, in the first", "GB/s")
    ]
    a_s: Annotated[Float64, Meaning("median of A's best. With several runs, in the first", "s")]
    b_s: Annotated[Float64, Meaning("median of B's best. With several runs, in the first", "s")]
    change: Float64 | None
    change_low: Float64 | None
    change_high: Float64 | None
    change_vs_memcpy: Float64 | None
    change_vs_memcpy_low: Float64 | None
    change_vs_memcpy_high: Float64 | None
    p_value: Float64
    verdict: String
    alarm: Annotated[
        Bool, Meaning("whether the best got slower by more than delta, significant at 95 %")
    ]
    winner_still_tied: Annotated[
        Bool, Meaning("whether A's fastest cell is tied with the fastest in B")
    ]
    group_mean_change: Annotated[
        Float64 | None,
        Meaning("change of the mean log time of all cells that both have, as a share"),
    ]
    group_mean_low: Annotated[Float64 | None, Meaning("lower end of its 95 % interval")]
    group_mean_high: Annotated[Float64 | None, Meaning("upper end of its 95 % interval")]
    group_mean_verdict: Annotated[
        String, Meaning("slower, faster, same or undecided, of all these cells together")
    ]
    unlike: Annotated[
        Float64,
        Meaning("change that a different number of launches in a sample may cause. 0 if equal"),
    ]
    tied_a: Annotated[Int32, Meaning("cells that are statistically tied with A's fastest")]
    tied_b: Annotated[Int32, Meaning("cells that are statistically tied with B's fastest")]
    tied_both: Annotated[Int32, Meaning("cells that are both")]
    only_a: Annotated[Int32, Meaning("cells that are verified in A and not in B")]
    only_b: Annotated[Int32, Meaning("cells that are verified in B and not in A")]
    slower: Annotated[Int32, Meaning("cells of the group that are slower")]
    faster: Annotated[Int32, Meaning("cells of the group that are faster")]
    same: Annotated[Int32, Meaning("cells of the group that are same")]
    undecided: Annotated[Int32, Meaning("cells of the group with an undecided verdict")]


class Drift(Table):
    """The change of the memcpy baseline."""

    kernel: String
    dtype: String
    height: Int64
    width: Int64
    cache_state: String
    device_name: String
    change: Float64 | None
    change_low: Float64 | None
    change_high: Float64 | None


CHANGED_CELLS_SCHEMA, CHANGED_GROUPS_SCHEMA = ChangedCell.schema(), ChangedGroup.schema()
DRIFT_SCHEMA = Drift.schema()

# Columns of the table of groups that changed.
HEADS = (
    "group",
    "best of A → B in GB/s",
    "change",
    "relative to memcpy",
    "verdict",
    "A's best in B",
    "all its cells",
)
# Rows of each table in the text. The saved tables have the rest.
MAX_ROWS = 20
VERDICTS = tuple(verdict.value for verdict in ChangeVerdict)
_MAX_CELLS, _MAX_GROUPS = 5, 3
_MEAN_CHANGE = "group_mean_change"
_METHOD = (
    "Changes are of the time of a launch, with 95 % intervals. {copy}: the change in multiples of "
    "the memcpy baseline of the same rounds. {same}: both intervals are within ±{delta}. "
    "All cells of a group together can show a change that its best alone does not."
)


@dataclass(frozen=True)
class Comparison:
    """Changes from A to B.

    Attributes
    ----------
    cells, groups
        Data frames with the columns of CHANGED_CELLS_SCHEMA and CHANGED_GROUPS_SCHEMA. Changes are
        shares of the time in A.
    drift
        Change of the memcpy baseline (DRIFT_SCHEMA).
    missing
        Cells that only one side has.
    a, b
        Names of the runs of each side.
    day
        Day of the last of all runs.
    delta
        Share of the time up to which a change does not matter.
    rests
        Source of the intervals, as a sentence.
    differences
        Other differences between A and B.
    """

    cells: pd.DataFrame
    groups: pd.DataFrame
    drift: pd.DataFrame
    missing: pd.DataFrame
    a: Sequence[str]
    b: Sequence[str]
    day: str
    delta: float
    rests: str
    differences: Sequence[str]

    @property
    def slower(self) -> pd.DataFrame:
        """The groups whose best got slower by more than delta; a CI job fails on these."""
        return self.groups[self.groups["alarm"]]

    def markdown(self) -> str:
        """Return a summary for a pull request, ending in a line break."""
        counted = [[what, *map(str, numbers)] for what, numbers in self.counts()]
        differ = [f"* {line}" for line in self.differences]
        parts = [
            f"## {self.title}",
            f"**{self.headline}**",
            markdown_table(["", *VERDICTS], counted),
            self._changed_table(),
            "\n".join(f"* {line}" for line in self.remarks()),
            "What else differs (A → B):\n\n" + "\n".join(differ) if differ else "",
            self.method("*"),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def save(self, folder: Place) -> Path:
        """Write ``cells.parquet``, ``groups.parquet``, ``drift.parquet`` and ``summary.md``."""
        out = Path(folder).expanduser()
        for name, frame, schema in (
            ("cells", self.cells, CHANGED_CELLS_SCHEMA),
            ("groups", self.groups, CHANGED_GROUPS_SCHEMA),
            ("drift", self.drift, DRIFT_SCHEMA),
        ):
            found = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            write_parquet(found, out / f"{name}.parquet", {})
        write_atomic(out / "summary.md", self.markdown().encode())
        return out

    @property
    def title(self) -> str:
        """Names of the runs on both sides of the comparison."""
        return f"A: {', '.join(self.a)} → B: {', '.join(self.b)}"

    @property
    def headline(self) -> str:
        """The result that decides a CI job, in one sentence."""
        n, slow = len(self.groups), len(self.slower)
        bound = percent(self.delta, sign=False)
        if slow:
            whose = "group's best" if n == 1 else "groups' bests"
            return f"{slow} of {n} {whose} got slower by more than {bound}."
        left = self.groups[self.groups["verdict"] == ChangeVerdict.UNDECIDED]
        seen = ((left["change_high"] - left["change_low"]) / 2.0).median()
        below = f"changes below {percent(seen, sign=False)}" if seen < 1 else "even a doubled time"
        rest = f"; {below} cannot be seen"
        rest = f"{len(left)} of {number_of(n, 'group')}{rest if pd.notna(seen) else ''}."
        if len(left) == n:
            return f"Undecided: {rest}"
        none = f"No best of {number_of(n, 'group')} got significantly slower by more than {bound}."
        return f"{none} Undecided: {rest}" if len(left) else none

    def counts(self) -> list[tuple[str, list[int]]]:
        """Count the verdicts on groups' bests, groups and cells, in the order of VERDICTS."""
        return [
            (what, [int((found == verdict).sum()) for verdict in VERDICTS])
            for what, found in (
                ("groups' bests", self.groups["verdict"]),
                ("groups as a whole", self.groups["group_mean_verdict"]),
                ("cells", self.cells["verdict"]),
            )
        ]

    def method(self, mark: str = "") -> str:
        """Explain the source of the intervals and the terms, which are put between `mark`s."""
        words = {"copy": f"{mark}Relative to memcpy{mark}", "same": f"{mark}Same{mark}"}
        return f"{self.rests} {_METHOD.format(**words, delta=percent(self.delta, sign=False))}"

    def _changed_table(self) -> str:
        named = changed_groups(self.groups)
        if named.empty:
            return ""
        rows = changed_rows(named.head(MAX_ROWS), "**")
        left = len(named) - MAX_ROWS
        return markdown_table(HEADS, rows) + (f"\n\n{left} more changed." if left > 0 else "")

    def remarks(self) -> list[str]:
        """List the drift of the machine, groups measured differently, and cells of one side."""
        return [*self._drift_lines(), *self._unlike_lines(), *self._missing_lines()]

    def _unlike_lines(self) -> list[str]:
        unlike = self.groups[self.groups["unlike"] > 0.0]
        if unlike.empty:
            return []
        ranked = unlike.sort_values("unlike", ascending=False).head(_MAX_GROUPS)
        named = "; ".join(
            f"{group_words(row)}: {percent(row['unlike'], sign=False)}"
            for row in ranked.to_dict("records")
        )
        more = len(unlike) - len(ranked)
        return [
            f"{number_of(len(unlike), 'group')} have a different number of launches per sample "
            "in A and B, whose times include the overhead of a sample. Changes below its effect "
            f"stay undecided: {named}{f'; and {more} more' if more else ''}."
        ]

    def _drift_lines(self) -> list[str]:
        drift = self.drift
        if drift.empty:
            words = "No copy of the runtime was timed: the change of the machine itself is unknown"
            return [f"{words} apart."]
        row = drift.loc[drift["change"].abs().idxmax()].to_dict()
        size = f"{row['height']} × {row['width']}"
        place = f"{row['kernel']}, {row['dtype']}, {size}, {row['cache_state']}"
        told = f"{change(row)} ({place})"
        if len(drift) > 1:
            typical = percent(drift["change"].median())
            told = f"{typical}, the median of {len(drift)} places, and at most by {told}"
        lines = [f"The machine itself: the time of the memcpy baseline changed by {told}."]
        if (drift["change"].abs() > self.delta).mean() > 0.5:
            lines.append(
                "The machine itself changed by more than the threshold. Use the changes relative "
                "to the memcpy baseline, and measure again."
            )
        return lines

    def _missing_lines(self) -> list[str]:
        lines = []
        for side, other in (("A", "B"), ("B", "A")):
            lost = self.missing[self.missing["verified_in"] == side]
            if lost.empty:
                continue
            how = ", ".join(f"{n} {status}" for status, n in lost["status"].value_counts().items())
            swept = lost[lost["status"] != "not swept"].head(_MAX_CELLS).to_dict("records")
            named = "; ".join(
                f"{row['kernel']} {row['dtype']} {row[PARAMS]} ({row['status']})".replace("  ", " ")
                for row in swept
            )
            lines.append(
                f"{len(lost)} cells that {side} verified have no verified time in {other}: {how}"
                + (f"; such as {named}." if named else ".")
            )
        return lines


def compare(
    before: Place | Sequence[Place],
    after: Place | Sequence[Place],
    *,
    noise_runs: Place | Sequence[Place] = (),
    threshold: float = DELTA,
) -> Comparison:
    """Compare runs with earlier ones, and find kernels that got slower or faster.

    Parameters
    ----------
    before, after : path or list of paths
        Runs' folders, data sets or folders of shards. Several of both are pairs in their order.
        Measure these alternately (A B B A).
    noise_runs : list of paths
        Two or more repeated runs without a change, which show the run-to-run spread. By default,
        the pairs show it, otherwise runs of the same device model in the library, otherwise the
        repeats within the runs.
    threshold : float
        The change that does not matter, as a share of the time.

    Returns
    -------
    Comparison
        With `groups`, `cells` and `slower` (data frames), `markdown` and `save`.

    Raises
    ------
    CompareError
        If a run cannot be read, the runs cannot be compared, or an argument is invalid. It is a
        ValueError with one sentence.
    """
    if not 0.0 < threshold < 1.0:
        raise CompareError(f"threshold is {threshold}; it must be a share between 0 and 1.")
    sides = [several(side) for side in (before, after)]
    noise_runs = several(noise_runs)
    named = [os.path.realpath(place) for side in (*sides, noise_runs) for place in side]
    for place in noise_runs:
        if named.count(os.path.realpath(place)) > 1:
            raise CompareError(
                f"'{place}' is listed twice; noise_runs must be other runs than those to compare."
            )
    first, second = ([read_run(place) for place in side] for side in sides)
    return compare_runs(first, second, [read_run(place) for place in noise_runs], threshold)


def compare_runs(
    first: Side,
    second: Side,
    same: Side = (),
    delta: float = DELTA,
    usual: Mapping[str, Spreads] | None = None,
) -> Comparison:
    """Compare runs that were read; pass the spreads of `same` as `usual` if many are compared.

    Raises CompareError if the numbers of runs differ, or if the runs have no common cell.
    """
    if len(first) != len(second) or not first:
        raise CompareError(
            f"There are {len(first)} runs before and {len(second)} after, but they are compared in "
            "pairs; pass the same number of each."
        )
    if len(same) == 1:
        raise CompareError(
            "noise_runs: one run does not show the run-to-run spread; list two or more."
        )
    refuse_unlike([first, second, *([same] if same else [])])
    basis = _basis(first, second, same, usual)
    runs = [*first, *second]
    found = {
        name: changes_of(level, basis.usual, basis.by_repeats, basis.only_observed)
        for name, level in levels_of(runs).items()
    }
    if found[CELL].first.empty:
        names = " and ".join(run.name for run in runs)
        raise CompareError(f"{names} have no verified cell in common.")
    cells = _cell_table(found[CELL], delta)
    missing = _missing_cells(first, second)
    copies = found[COPY]
    places = copies.first.index.to_frame(index=False, name=PLACE)
    return Comparison(
        cells,
        _group_table(found[BEST], found[GROUP_MEAN], cells, missing, (first, second), delta),
        places.assign(**_shares(copies.raw, "change"))[DRIFT_SCHEMA.names],
        missing,
        [run.name for run in first],
        [run.name for run in second],
        max(shard["written_at"][:10] for run in runs for shard in run.provenance),
        delta,
        basis.text,
        differences(first, second, set(cells["kernel"])),
    )


@dataclass(frozen=True)
class _Basis:
    """What intervals are based on, in words; the other values are arguments of `changes_of`."""

    text: str
    usual: Mapping[str, Spreads] | None = None
    by_repeats: bool = False
    only_observed: bool = False


def _basis(first: Side, second: Side, same: Side, usual: Mapping[str, Spreads] | None) -> _Basis:
    """Choose the source of the spread between runs."""
    if usual is not None:
        return _Basis("Intervals are based on repeated runs without a change.", usual)
    pairs = f"{len(first)} pairs of runs" if len(first) > 1 else ""
    text, devices, known = "", 0, None
    if same:
        text = f"{len(same)} repeated runs without a change"
        devices = len(device_uuids(same))
        usual = usual_spreads(levels_of(same))
        if CELL not in usual:
            raise CompareError("The noise runs have no verified cell in common.")
    elif (known := known_spreads(first[0])) is not None:
        text, devices, usual = known.words, known.devices, known.spreads
    if usual is not None:
        text = f"Intervals are based on {text}{f', and on {pairs}' if pairs else ''}."
        if known is not None:
            text += " Those of other launches are based on the repeats within both runs."
        if device_uuids(first) != device_uuids(second) and devices == 1:
            text += " A and B are of different devices but these of one: intervals are too narrow."
        return _Basis(text, usual, only_observed=known is not None)
    if pairs:
        return _Basis(f"Intervals are based on {pairs} alone.")
    if min(run.repeats for run in (*first, *second)) > 1:
        text = (
            "The run-to-run spread of this device is unknown. Intervals are based on the repeats "
            "within both runs, whose spread may be smaller. List repeated runs without a change "
            "(--noise-runs)."
        )
        return _Basis(text, by_repeats=True)
    return _Basis(
        "The run-to-run spread is unknown, because each run has one repeat: all is undecided. "
        "List repeated runs without a change (--noise-runs), or measure several pairs."
    )


def _shares(of: ChangeEstimate, name: str) -> dict[str, Any]:
    """Return a change, the column `name`, and its interval as shares; null if unknown."""
    ends = dict(zip(_columns_of(name), (of.change, of.low, of.high), strict=True))
    return {
        column: pd.Series(np.where(np.isfinite(v), np.expm1(v), np.nan), dtype=float)
        for column, v in ends.items()
    }


def _with_changes(found: LevelChanges) -> pd.DataFrame:
    rows = found.first[list(GROUP)].reset_index(drop=True)
    shares = _shares(found.raw, "change") | _shares(found.vs_memcpy, "change_vs_memcpy")
    return rows.assign(**shares, p_value=found.p)


def _cell_table(found: LevelChanges, delta: float) -> pd.DataFrame:
    """Return a row with a verdict for each cell that both sides verified (CHANGED_CELLS_SCHEMA)."""
    table = _with_changes(found)
    groups = list(table[list(GROUP)].itertuples(index=False, name=None))
    believed = believed_cells(table["p_value"].to_numpy(), groups)
    return table.assign(
        cell_key=found.first["cell_key"].to_numpy(),
        params=params_texts(found.first).to_numpy(),
        a_s=found.first["median_s"].to_numpy(float),
        b_s=found.second["median_s"].to_numpy(float),
        verdict=verdicts(found, believed, delta),
    )[CHANGED_CELLS_SCHEMA.names]


def _missing_cells(first: Side, second: Side) -> pd.DataFrame:
    """Return cells that are verified in all runs of one side but not in all of the other.

    The columns are `verified_in` (A or B), `status` in the other side, PARAMS, and those of GROUP.
    """
    parts = []
    for name, side, other in (("A", first, second), ("B", second, first)):
        lost = side[0].cells.loc[verified_by_all(side).difference(verified_by_all(other))]
        status = pd.Series("not swept", lost.index, object)
        for run in other:
            there = run.cells.loc[run.cells.index.intersection(lost.index), "status"]
            status.loc[there.index[there != Status.OK]] = there[there != Status.OK]
        columns = {"verified_in": name, "status": status, PARAMS: params_texts(lost)}
        parts.append(lost.assign(**columns)[[*GROUP, "cell_key", *columns]])
    return pd.concat(parts, ignore_index=True)


def _tied(runs: Side, swept: pd.Index) -> dict[Any, set[str]]:
    """Return for each group the cells that are tied with the fastest in at least half the runs."""
    counts: dict[Any, Counter[str]] = {}
    for run in runs:
        ok = run.ok.loc[run.ok.index.intersection(swept)].reset_index(drop=True)
        for key, group in ok.groupby(list(GROUP), observed=True):
            counts.setdefault(key, Counter()).update(tied_best(group)["cell_key"])
    return {
        key: {c for c, n in cells.items() if 2 * n >= len(runs)} for key, cells in counts.items()
    }


def _group_table(
    best: LevelChanges,
    mean: LevelChanges,
    cells: pd.DataFrame,
    missing: pd.DataFrame,
    sides: tuple[Side, Side],
    delta: float,
) -> pd.DataFrame:
    """Return a row for each group of both sides, best and all cells (CHANGED_GROUPS_SCHEMA)."""
    table = _with_changes(best)
    index = best.first.index
    believed = adjusted(table["p_value"].to_numpy()) <= FALSE_SHARE
    swept = swept_by_all([*sides[0], *sides[1]])
    tied_a, tied_b = ([_tied(side, swept).get(key, set()) for key in index] for side in sides)
    means = pd.DataFrame(
        _shares(mean.raw, _MEAN_CHANGE)
        | {"group_mean_verdict": verdicts(mean, adjusted(mean.p) <= FALSE_SHARE, delta)}
    ).set_index(mean.first.index)
    means = means.reindex(index).fillna({"group_mean_verdict": ChangeVerdict.UNDECIDED.value})
    table = table.assign(
        best_a=params_texts(best.first.set_index(KEY)).to_numpy(),
        best_b=params_texts(best.second.set_index(KEY)).to_numpy(),
        a_gbs=best.first["bandwidth_gbs"].to_numpy(float),
        b_gbs=best.second["bandwidth_gbs"].to_numpy(float),
        a_s=best.first["median_s"].to_numpy(float),
        b_s=best.second["median_s"].to_numpy(float),
        verdict=verdicts(best, believed, delta),
        alarm=alarms(best, delta),
        unlike=np.expm1(best.unlike),
        winner_still_tied=[w in b for w, b in zip(best.first["cell_key"], tied_b, strict=True)],
        tied_a=[len(a) for a in tied_a],
        tied_b=[len(b) for b in tied_b],
        tied_both=[len(a & b) for a, b in zip(tied_a, tied_b, strict=True)],
        **means.reset_index(drop=True),
    )
    counts = cells.groupby([*GROUP, "verdict"], observed=True).size().unstack(fill_value=0)
    lost = missing.groupby([*GROUP, "verified_in"], observed=True).size().unstack(fill_value=0)
    lost = lost.rename(columns={"A": "only_a", "B": "only_b"})
    for column in ("slower", "faster", "same", "undecided", "only_a", "only_b"):
        found = next((of[column] for of in (counts, lost) if column in of and len(of)), None)
        table[column] = 0 if found is None else found.reindex(index).fillna(0).to_numpy(int)
    return table[CHANGED_GROUPS_SCHEMA.names]


def regression(groups: Path, out: Path) -> None:
    """Write to `out` that a comparison's `groups` raise no alarm; RegressionError if they do."""
    table = read_table(groups, CHANGED_GROUPS_SCHEMA).to_pandas()
    slow = changed_groups(table[table["alarm"]]).to_dict("records")
    if slow:
        named = "; ".join(f"{group_words(row)}: {change(row)}" for row in slow[:_MAX_GROUPS])
        more = f"; and {len(slow) - _MAX_GROUPS} more" if len(slow) > _MAX_GROUPS else ""
        raise RegressionError(
            f"{len(slow)} of {len(table)} groups' bests got significantly slower: {named}{more}. "
            f"'{groups.with_name('summary.md')}' has the table."
        )
    write_atomic(out, f"No best of {len(table)} groups got significantly slower.\n".encode())


def changed_groups(groups: pd.DataFrame) -> pd.DataFrame:
    """Return the groups whose best cell, or mean time of all cells, changed significantly.

    Parameters
    ----------
    groups
        Rows of `ChangedGroup`.

    Returns
    -------
    pandas.DataFrame
        These rows of `groups`: those with an alarm, then the others, both by decreasing change of
        the best cell.
    """
    changed = groups[["verdict", "group_mean_verdict"]].isin(
        [ChangeVerdict.SLOWER, ChangeVerdict.FASTER]
    )
    named = groups[groups["alarm"] | changed.any(axis=1)]
    ranked = named.assign(size=named["change"].abs())
    return ranked.sort_values(["alarm", "size"], ascending=False).drop(columns="size")


def changed_rows(groups: pd.DataFrame, mark: str = "") -> list[list[str]]:
    """Return the texts of HEADS for each group; an alarm's verdict is put between `mark`s."""
    return [
        [
            group_words(row),
            _speeds(row),
            change(row),
            change(row, "change_vs_memcpy"),
            f"{mark}{row['verdict']}{mark}" if row["alarm"] else row["verdict"],
            _winner_words(row),
            f"{row['group_mean_verdict']}: {change(row, _MEAN_CHANGE)}",
        ]
        for row in groups.to_dict("records")
    ]


def _speeds(row: Mapping[str, Any]) -> str:
    """Return both bests in GB/s, or their times if the kernel declares no bytes."""
    if pd.isna(row["a_gbs"]) or pd.isna(row["b_gbs"]):
        return f"{seconds(row['a_s'])} → {seconds(row['b_s'])}"
    return f"{significant(row['a_gbs'])} → {significant(row['b_gbs'])}"


def _winner_words(row: Mapping[str, Any]) -> str:
    """State whether A's best is still among B's best, and name B's otherwise."""
    if row["winner_still_tied"]:
        return "still tied" if row["best_a"] != row["best_b"] else "still the best"
    return f"no longer: {row['best_a']} → {row['best_b']}"


def percent(share: float | None, sign: bool = True) -> str:
    """Return ``+1.23 %``, or ``—`` if the share is not known."""
    if share is None or pd.isna(share):
        return "—"
    digits = 2 if abs(share) < 0.1 else 1
    return f"{100 * share:{'+' if sign else ''}.{digits}f} %".replace("-", "−")


def change(row: Mapping[str, Any], name: str = "change") -> str:
    """Return the change in the column `name` with its interval in parentheses."""
    value, low, high = (row[column] for column in _columns_of(name))
    if pd.isna(low):
        return percent(value)
    return f"{percent(value)} ({percent(low)} to {percent(high)})"


def _columns_of(name: str) -> tuple[str, str, str]:
    """Return the columns of the change `name`, and of both ends of its interval."""
    stem = "group_mean" if name == _MEAN_CHANGE else name
    return name, f"{stem}_low", f"{stem}_high"


def group_words(row: Mapping[str, Any]) -> str:
    """Return ``copy, float, element, 1024 × 1024, warm``."""
    place = f"{row['height']} × {row['width']}" if row["height"] else ""
    names = (row["kernel"], row["dtype"], row["variant"], place, row["cache_state"])
    return ", ".join(filter(None, names))


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, in which bars within cells are escaped."""
    lines = [heads, *rows]
    texts = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    first, *others = (f"| {text} |" for text in texts)
    return "\n".join([first, "|---" * len(heads) + "|", *others])
