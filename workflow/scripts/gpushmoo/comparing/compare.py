"""Two sides, one or more runs each, held against each other: the function of that name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from ..analysis.best import tied_best
from ..analysis.fastest import axes_of, params_text
from ..analysis.statistics import ChangeEstimate, Spreads
from ..core.median import CONFIDENCE
from ..core.schema import GROUP, PARAMS, Status
from . import CompareError
from .comparison import (
    CHANGED_CELLS_SCHEMA,
    CHANGED_GROUPS_SCHEMA,
    DRIFT_SCHEMA,
    Comparison,
    percent,
)
from .levels import (
    BEST,
    CELL,
    COPY,
    WHOLE,
    LevelChanges,
    changes_of,
    known_spreads,
    levels_of,
    sample_shift,
    swept_by_all,
    usual_spreads,
    verified_by_all,
)
from .runs import KEY, PLACE, Place, RunCells, differences, read_run, refuse_unlike
from .verdicts import (
    FALSE_SHARE,
    Booleans,
    Changes,
    ChangeVerdict,
    adjusted,
    alarms,
    believed_cells,
    verdicts,
)

DELTA = 0.01
# Runs beside a pair that tell how far runs lie apart; of fewer the repeats tell it.
FEWEST_BESIDE = 2
Side = Sequence[RunCells]


def compare(
    a: Place | Sequence[Place],
    b: Place | Sequence[Place],
    *,
    noise_runs: Sequence[Place] = (),
    threshold: float = DELTA,
) -> Comparison:
    """Hold `b` against `a`: run's folders, data sets, folders of shards, one or several of each.

    Several of both are pairs in their order, best measured in turns (A B B A). `noise_runs` are two
    or more runs of one and the same thing, from which the run-to-run spread is estimated; without
    them it comes from the pairs, from runs of this device that come with the library, or from the
    repeats within the runs. A change below `threshold`, a share of the time, does not matter.
    Raises CompareError, a ValueError, with one sentence.
    """
    if not 0.0 < threshold < 1.0:
        raise CompareError(f"threshold is {threshold}; it must be a share between 0 and 1.")
    first, second = (
        [read_run(place) for place in ([side] if isinstance(side, str | os.PathLike) else side)]
        for side in (a, b)
    )
    return compare_runs(first, second, [read_run(place) for place in noise_runs], threshold)


def compare_runs(
    first: Side,
    second: Side,
    same: Side = (),
    delta: float = DELTA,
    usual: Mapping[str, Spreads] | None = None,
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
    found = {
        name: changes_of(level, usual, by_repeats, sample_shift if name == CELL else None)
        for name, level in levels_of(runs).items()
    }
    if found[CELL].first.empty:
        raise CompareError("A and B have no verified cell in common.")
    cells = _cell_table(found[CELL], delta)
    missing = _missing_cells(first, second)
    return Comparison(
        cells,
        _group_table(found[BEST], found[WHOLE], cells, missing, (first, second), delta),
        _drift_table(found[COPY]),
        missing,
        [run.name for run in first],
        [run.name for run in second],
        max(shard["written_at"][:10] for run in runs for shard in run.provenance),
        delta,
        rests,
        differences(first, second, set(cells["kernel"])),
    )


def _basis(
    first: Side, second: Side, same: Side, usual: Mapping[str, Spreads] | None
) -> tuple[str, Mapping[str, Spreads] | None, bool]:
    """What the intervals rest on in words, the usual spreads, and whether repeats tell them."""
    if usual is not None:
        return "Intervals rest on runs of one and the same thing.", usual, False
    pairs = f"{len(first)} pairs of runs" if len(first) > 1 else ""
    text = ""
    if same:
        text = f"{len(same)} runs of one and the same thing"
        devices = len({device for run in same for device in run.devices})
        usual = usual_spreads(levels_of(same))
    elif (known := known_spreads(first[0])) is not None:
        text, devices, usual = known.words, known.devices, known.spreads
    if usual is not None:
        text = f"Intervals rest on {text}{f', and on {pairs}' if pairs else ''}."
        sides = [{device for run in side for device in run.devices} for side in (first, second)]
        if sides[0] != sides[1] and devices == 1:
            text += " A and B are of different devices and these of one: intervals are too narrow."
        return text, usual, False
    if pairs:
        return f"Intervals rest on {pairs} alone.", None, False
    if min(run.repeats for run in (*first, *second)) > 1:
        text = (
            "Nobody knows how far runs of this device lie apart: intervals rest on the repeats "
            "within both runs, which may lie closer together than runs; name runs of one and the "
            "same thing (--noise-runs)."
        )
        return text, None, True
    text = (
        "Nothing tells how far two runs lie apart, for each has one repeat: all is undecided; name "
        "runs of one and the same thing (--noise-runs), or measure several pairs."
    )
    return text, None, False


def _shares(of: ChangeEstimate, name: str) -> dict[str, Any]:
    """A change and its interval as shares; null where unknown."""
    ends = {name: of.change, f"{name}_low": of.low, f"{name}_high": of.high}
    return {
        column: pd.Series(np.where(np.isfinite(v), np.expm1(v), np.nan), dtype=float)
        for column, v in ends.items()
    }


def _with_changes(found: LevelChanges) -> pd.DataFrame:
    rows = found.first[list(GROUP)].reset_index(drop=True)
    shares = _shares(found.raw, "change") | _shares(found.over_copy, "beside_copy")
    return rows.assign(**shares, p_value=found.p)


def _words(changes: Changes, believed: Booleans, delta: float) -> list[str]:
    return [verdict.value for verdict in verdicts(changes, believed, delta)]


def _cell_table(found: LevelChanges, delta: float) -> pd.DataFrame:
    """A row for each cell that both sides verified, with its verdict (CHANGED_CELLS_SCHEMA)."""
    table = _with_changes(found)
    groups = list(table[list(GROUP)].itertuples(index=False, name=None))
    believed = believed_cells(table["p_value"].to_numpy(), groups)
    return table.assign(
        cell_key=found.first["cell_key"].to_numpy(),
        params=params_of(found.first).to_numpy(),
        a_s=found.first["median_s"].to_numpy(float),
        b_s=found.second["median_s"].to_numpy(float),
        verdict=_words(found, believed, delta),
    )[CHANGED_CELLS_SCHEMA.names]


def params_of(cells: pd.DataFrame) -> pd.Series:
    """The launch parameters of each cell in one text."""
    parts = []
    for _, of_kernel in cells.groupby("kernel", observed=True, sort=False):
        axes = axes_of(of_kernel)
        rows = of_kernel[axes].to_dict("records")
        some = [params_text(row, [a for a in axes if pd.notna(row[a])]) for row in rows]
        parts.append(pd.Series(some, of_kernel.index, object))
    return pd.concat(parts).reindex(cells.index) if parts else pd.Series([], dtype=object)


def _missing_cells(first: Side, second: Side) -> pd.DataFrame:
    """Cells that are verified in all runs of one side and not in all of the other.

    With columns `verified_in` (A or B), `status` in the other side, PARAMS, and those of GROUP.
    """
    parts = []
    for name, side, other in (("A", first, second), ("B", second, first)):
        lost = side[0].cells.loc[verified_by_all(side).difference(verified_by_all(other))]
        status = pd.Series("not swept", lost.index, object)
        for run in other:
            there = run.cells.loc[run.cells.index.intersection(lost.index), "status"]
            status.loc[there.index[there != Status.OK]] = there[there != Status.OK]
        columns = {"verified_in": name, "status": status, PARAMS: params_of(lost)}
        parts.append(lost.assign(**columns)[[*GROUP, "cell_key", *columns]])
    return pd.concat(parts, ignore_index=True)


def _tied(runs: Side, swept: pd.Index) -> dict[Any, set[str]]:
    """For each group the cells that half of the runs or more cannot tell from their fastest."""
    counts: dict[Any, dict[str, int]] = {}
    for run in runs:
        ok = run.ok.loc[run.ok.index.intersection(swept)].reset_index(drop=True)
        for key, group in ok.groupby(list(GROUP), observed=True):
            of_group = counts.setdefault(key, {})
            for cell in tied_best(group)["cell_key"]:
                of_group[cell] = of_group.get(cell, 0) + 1
    return {
        key: {c for c, n in cells.items() if 2 * n >= len(runs)} for key, cells in counts.items()
    }


def _group_table(
    best: LevelChanges,
    whole: LevelChanges,
    cells: pd.DataFrame,
    missing: pd.DataFrame,
    sides: tuple[Side, Side],
    delta: float,
) -> pd.DataFrame:
    """A row for each group that both sides have, with what became of its best cells and of all.

    `cells` is the `_cell_table`, `missing` that of `_missing_cells` (CHANGED_GROUPS_SCHEMA).
    """
    table, index = _with_changes(best), best.first.index
    believed = adjusted(table["p_value"].to_numpy()) <= FALSE_SHARE
    swept = swept_by_all([*sides[0], *sides[1]])
    tied_a, tied_b = ([_tied(side, swept).get(key, set()) for key in index] for side in sides)
    wholes = pd.DataFrame(
        _shares(whole.raw, "whole")
        | {"whole_verdict": _words(whole, adjusted(whole.p) <= FALSE_SHARE, delta)}
    ).set_index(whole.first.index)
    wholes = wholes.reindex(index).fillna({"whole_verdict": ChangeVerdict.UNDECIDED.value})
    table = table.assign(
        best_a=params_of(best.first.set_index(KEY)).to_numpy(),
        best_b=params_of(best.second.set_index(KEY)).to_numpy(),
        a_gbs=best.first["bandwidth_gbs"].to_numpy(float),
        b_gbs=best.second["bandwidth_gbs"].to_numpy(float),
        verdict=_words(best, believed, delta),
        alarm=alarms(best, delta),
        winner_held=[w in b for w, b in zip(best.first["cell_key"], tied_b, strict=True)],
        tied_a=[len(a) for a in tied_a],
        tied_b=[len(b) for b in tied_b],
        tied_both=[len(a & b) for a, b in zip(tied_a, tied_b, strict=True)],
        **wholes.reset_index(drop=True),
    )
    counts = cells.groupby([*GROUP, "verdict"], observed=True).size().unstack(fill_value=0)
    lost = missing.groupby([*GROUP, "verified_in"], observed=True).size().unstack(fill_value=0)
    lost = lost.rename(columns={"A": "only_a", "B": "only_b"})
    for column in ("slower", "faster", "same", "undecided", "only_a", "only_b"):
        found = next((of[column] for of in (counts, lost) if column in of and len(of)), None)
        table[column] = 0 if found is None else found.reindex(index).fillna(0).to_numpy(int)
    return table[CHANGED_GROUPS_SCHEMA.names]


def _drift_table(found: LevelChanges) -> pd.DataFrame:
    """What the runtime's own copy took more in B in each place (DRIFT_SCHEMA)."""
    places = found.first.index.to_frame(index=False, name=PLACE)
    return places.assign(**_shares(found.raw, "change"))[DRIFT_SCHEMA.names]


@dataclass(frozen=True)
class Rate:
    """`hits` of `n`, with the exact 95 % interval of Clopper and Pearson; shares."""

    hits: int
    n: int

    @property
    def share(self) -> float:
        """Hits over trials, 0 to 1; there must have been a trial."""
        return self.hits / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end of the 95 % interval of `share`, 0 to 1."""
        found = binomtest(self.hits, self.n).proportion_ci(CONFIDENCE, "exact")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        """``1 of 20 (5.0 %, 95 % interval 0.1 % to 24.9 %)``."""
        low, high = (percent(end, sign=False) for end in self.interval)
        share = percent(self.share, sign=False)
        return f"{self.hits} of {self.n} ({share}, 95 % interval {low} to {high})"


@dataclass(frozen=True)
class FalseAlarms:
    """What all pairs of runs of one and the same thing were judged to be.

    `pairs` has names and comparison of each pair; `apart` are those in which no run stands twice,
    which alone are independent of each other.
    """

    pairs: Sequence[tuple[str, str, Comparison]]
    apart: Sequence[int]

    def markdown(self) -> str:
        """How many pairs raised an alarm, with the interval of the rate, and which, as Markdown."""
        alarmed = [f"{a} → {b}" for a, b, found in self.pairs if len(found.slower)]
        rate = Rate(sum(bool(len(self.pairs[i][2].slower)) for i in self.apart), len(self.apart))
        groups = sum(len(found.groups) for *_, found in self.pairs)
        slower = sum(int((found.groups["verdict"] == "slower").sum()) for *_, found in self.pairs)
        lines = [
            "## False alarms",
            f"Of pairs of runs that measured the same, **{rate}** raise an alarm, counting "
            f"each run once; of all {len(self.pairs)} pairs {len(alarmed)} do"
            + (f": {', '.join(alarmed)}." if alarmed else "."),
            f"Of {groups} bests of groups in these pairs {slower} have the verdict *slower*.",
        ]
        return "\n\n".join(lines) + "\n"


def false_alarms(places: Sequence[Place], *, threshold: float = DELTA) -> FalseAlarms:
    """Hold each of the runs `places`, all of one and the same thing, against each later one.

    Run-to-run spread is estimated from the runs that are not of the pair. Raises CompareError.
    """
    return false_alarms_of([read_run(place) for place in places], threshold)


def false_alarms_of(runs: Side, delta: float = DELTA) -> FalseAlarms:
    """As `false_alarms`, of runs that were read."""
    if len(runs) < 2:
        raise CompareError("One run cannot be held against itself; name two or more.")
    levels = levels_of(runs)
    places = list(combinations(range(len(runs)), 2))
    pairs = []
    for i, j in places:
        usual = usual_spreads(levels, (i, j)) if len(runs) - 2 >= FEWEST_BESIDE else None
        found = compare_runs([runs[i]], [runs[j]], (), delta, usual)
        pairs.append((runs[i].name, runs[j].name, found))
    apart = [n for n, (i, j) in enumerate(places) if i % 2 == 0 and j == i + 1]
    return FalseAlarms(pairs, apart)
