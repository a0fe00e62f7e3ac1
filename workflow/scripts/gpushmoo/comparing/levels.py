"""What changes between runs: cells, each group's best, a group as a whole, the machine's copies.

All of these levels are tables of logarithms with a column for each run, or each pair of runs, and
are judged alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..core.schema import Status
from .decisions import Booleans, Changes
from .runs import (
    LOG_CELL,
    LOG_COPY,
    LOG_S,
    RunCells,
    Wholes,
    bests,
    classes_of,
    copies,
    flat,
    wholes,
    within_variances,
)
from .shift import shifts
from .spreads import ChangeEstimate, Floats, Spreads, estimate, replicated

# The levels, and those of them that are looked at beside the copy as well.
CELL, BEST, WHOLE, COPY = "cell", "best", "whole", "copy"
OVER_COPY = "_over_copy"
KINDS = (*(name + end for name in (CELL, BEST, WHOLE) for end in ("", OVER_COPY)), COPY)


@dataclass(frozen=True)
class LevelLogs:
    """Log times of things in runs: `raw` and `over_copy` have a row each and a column for each run.

    `over_copy` is NaN where no copy was timed. `classes` are of the rows.
    """

    index: pd.Index
    classes: list[str]
    raw: Floats
    over_copy: Floats

    def kinds(self, name: str) -> Iterator[tuple[str, Floats, Booleans]]:
        """Name of the kind, its logarithms, and which rows have them in all runs."""
        yield name, self.raw, _whole(self.raw)
        if name != COPY:
            yield name + OVER_COPY, self.over_copy, _whole(self.over_copy)


def _whole(values: Floats) -> Booleans:
    """Which rows have all their values."""
    whole: Booleans = np.all(np.isfinite(values), axis=1)
    return whole


def levels_of(runs: Sequence[RunCells]) -> dict[str, LevelLogs]:
    """The levels of several runs: what all of them have."""
    swept, verified = swept_by_all(runs), verified_by_all(runs)
    return {
        CELL: _level([run.ok for run in runs]),
        BEST: _level([bests(run, swept) for run in runs]),
        WHOLE: _level([wholes(run, verified) for run in runs]),
        COPY: _level([copies(run) for run in runs]),
    }


def swept_by_all(runs: Sequence[RunCells]) -> pd.Index:
    """Cells that every run tried, whatever came of them."""
    return _common([run.cells.index[run.cells["status"] != Status.UNPROPOSED] for run in runs])


def verified_by_all(runs: Sequence[RunCells]) -> pd.Index:
    """Cells that are verified in every run."""
    return _common([run.ok.index for run in runs])


def _common(indices: Sequence[pd.Index]) -> pd.Index:
    """The labels that every index has, in the order of the first; cells or groups, as they are."""
    found = indices[0]
    for index in indices[1:]:
        found = found.intersection(index)
    return found


def _level(tables: Sequence[pd.DataFrame]) -> LevelLogs:
    index = _common([table.index for table in tables])
    same = [table.loc[index] for table in tables]
    raw = np.column_stack([t[LOG_S].to_numpy(np.float64) for t in same])
    copy = np.column_stack([t[LOG_COPY].to_numpy(np.float64) for t in same])
    times = same[0].get(LOG_CELL, same[0][LOG_S]).to_numpy(np.float64)
    return LevelLogs(index, classes_of(times, list(same[0]["cache_state"])), raw, raw + copy)


def usual_spreads(
    levels: Mapping[str, LevelLogs], without: Collection[int] = ()
) -> dict[str, Spreads]:
    """How far runs of the same thing lie apart, by kind, from the levels of two or more of them.

    `without` are places of runs that shall not count.
    """
    found = {}
    for name, level in levels.items():
        runs = [i for i in range(level.raw.shape[1]) if i not in without]
        for kind, logs, known in level.kinds(name):
            if known.any():
                names = [c for c, k in zip(level.classes, known, strict=True) if k]
                found[kind] = replicated([logs[known][:, runs]], names).spreads()
    return found


@dataclass(frozen=True)
class Pairs:
    """What changed from the first to the second run of each pair, at one level.

    `first` and `second` have the columns of a run's cells, of the first pair's runs.
    """

    index: pd.Index
    classes: list[str]
    first: pd.DataFrame
    second: pd.DataFrame
    changes: Changes


def changes_of(
    name: str,
    tables: Sequence[tuple[pd.DataFrame, pd.DataFrame]],
    usual: dict[str, Spreads] | None,
    by_repeats: bool,
    shift: Callable[[pd.DataFrame, pd.DataFrame], Floats] | None = None,
) -> Pairs:
    """The changes of what all `tables`, a pair each, have. See `spreads.estimate`.

    With `by_repeats` the repeats within a pair's two runs tell the spread. `shift` gives the raw
    changes in the place of the differences of LOG_S.
    """
    index = _common([table.index for pair in tables for table in pair])
    same = [(a.loc[index], b.loc[index]) for a, b in tables]
    first, second = same[0]
    times = first.get(LOG_CELL, first[LOG_S]).to_numpy(np.float64)
    classes = classes_of(times, list(first["cache_state"]))
    raw = _columns([shift(a, b) if shift else _difference(a, b, LOG_S) for a, b in same], index)
    copy = _columns([_difference(a, b, LOG_COPY) for a, b in same], index)
    if "within_half_width" in first:
        within = (within_variances(first) + within_variances(second)) / 2.0
    else:
        within = np.zeros(len(index))
    estimates = []
    for kind, values in ((name, raw), (name + OVER_COPY, raw + copy)):
        repeats = _repeats(same[0], kind != name) if by_repeats and len(index) else []
        known_before = (usual or {}).get(kind)
        estimates.append(_estimate(values, classes, within, known_before, repeats))
    return Pairs(index, classes, first, second, Changes(*estimates))


def _columns(values: Sequence[Floats], index: pd.Index) -> Floats:
    return np.column_stack(values) if len(index) else np.empty((0, len(values)))


def _difference(a: pd.DataFrame, b: pd.DataFrame, name: str) -> Floats:
    difference: Floats = b[name].to_numpy(np.float64) - a[name].to_numpy(np.float64)
    return difference


def _estimate(
    changes: Floats,
    classes: list[str],
    within: Floats,
    usual: Spreads | None,
    repeats: Sequence[Floats],
) -> ChangeEstimate:
    """As `estimate`; rows with a NaN, which have no copy, are NaN.

    `repeats` are blocks of log times of a run's repeats, which tell the spread of single pairs.
    """
    known = _whole(np.column_stack([changes, *repeats]))
    nothing = ChangeEstimate(*(np.full(len(known), value) for value in (np.nan, np.inf, 1.0)))
    if not known.any():
        return nothing
    names = [c for c, k in zip(classes, known, strict=True) if k]
    seen = None
    if changes.shape[1] > 1:
        # A change is of two runs.
        seen = replicated([changes[known]], names).scaled(0.5)
    elif repeats:
        seen = replicated([block[known] for block in repeats], names)
    found = estimate(changes[known], names, within[known], usual, seen)
    for values, some in zip(
        (nothing.change, nothing.error, nothing.df),
        (found.change, found.error, found.df),
        strict=True,
    ):
        values[known] = some
    return nothing


def _repeats(pair: tuple[pd.DataFrame, pd.DataFrame], over_copy: bool) -> list[Floats]:
    """Log times of the repeats of both runs, shape (cells, repeats); none where a cell has one."""
    blocks = []
    for side in pair:
        medians = list(side.get("repeat_medians_s", ()))
        n = min((len(values) for values in medians), default=0)
        if n < 2:
            return []
        block = np.log(np.array([values[:n] for values in medians], np.float64))
        if over_copy:
            copies = [v[:n] if len(v) >= n else np.full(n, np.nan) for v in side["repeat_copy_gbs"]]
            block = block + np.log(np.array(copies, np.float64))
        blocks.append(block)
    return blocks


def sample_shift(first: pd.DataFrame, second: pd.DataFrame) -> Floats:
    """The Hodges–Lehmann shift of each cell's log samples, the mean over its repeats.

    A repeat is held against that of the same number, where both runs have equally many.
    """
    sides = [flat(side["samples_s"]) for side in (first, second)]
    counts = [list(side["repeat_samples"]) for side in (first, second)]
    alike = {len(a) for a in counts[0]} | {len(b) for b in counts[1]}
    if len(alike) != 1 or alike == {1}:
        (x, n), (y, m) = sides
        return shifts(x, n, y, m)
    found = []
    for repeat in range(alike.pop()):
        parts = [_part(*side, np.array(c), repeat) for side, c in zip(sides, counts, strict=True)]
        (x, n), (y, m) = parts
        found.append(shifts(x, n, y, m))
    mean: Floats = np.mean(found, axis=0)
    return mean


def _part(logs: Floats, lengths: Wholes, counts: Wholes, repeat: int) -> tuple[Floats, Wholes]:
    """The samples of one repeat of each cell, in a row, and how many they are."""
    begins = np.cumsum(lengths) - lengths + counts[:, :repeat].sum(axis=1)
    wanted = counts[:, repeat]
    offsets = np.arange(wanted.sum()) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    return logs[np.repeat(begins, wanted) + offsets], wanted
