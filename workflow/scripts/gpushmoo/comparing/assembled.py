"""The tables of a comparison, as `tables` has their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.best import tied_best
from ..analysis.fastest import axes_of, params_text
from ..core.schema import GROUP, PARAMS, Status
from .decisions import FALSE_SHARE, Became, adjusted, alarms, believed_cells, verdicts
from .levels import Pairs, verified_by_all
from .runs import KEY, PLACE, RunCells
from .spreads import ChangeEstimate
from .tables import CHANGED_CELLS_SCHEMA, CHANGED_GROUPS_SCHEMA, DRIFT_SCHEMA


def _shares(of: ChangeEstimate, name: str) -> dict[str, Any]:
    """A change and its interval as shares; null where unknown."""
    ends = {name: of.change, f"{name}_low": of.low, f"{name}_high": of.high}
    return {
        column: pd.Series(np.where(np.isfinite(v), np.expm1(v), np.nan), dtype=float)
        for column, v in ends.items()
    }


def _with_changes(pairs: Pairs) -> pd.DataFrame:
    rows = pairs.first[[name for name in GROUP if name in pairs.first]].reset_index(drop=True)
    shares = _shares(pairs.changes.raw, "change") | _shares(pairs.changes.over_copy, "beside_copy")
    return rows.assign(**shares, p_value=pairs.changes.p)


def cell_table(pairs: Pairs, delta: float) -> pd.DataFrame:
    """A row for each cell that both sides verified, with its verdict (CHANGED_CELLS_SCHEMA)."""
    table = _with_changes(pairs)
    groups = list(table[list(GROUP)].itertuples(index=False, name=None))
    believed = believed_cells(table["p_value"].to_numpy(), groups)
    return table.assign(
        cell_key=pairs.first["cell_key"].to_numpy(),
        params=params_of(pairs.first).to_numpy(),
        a_s=pairs.first["median_s"].to_numpy(float),
        b_s=pairs.second["median_s"].to_numpy(float),
        verdict=[v.value for v in verdicts(pairs.changes, believed, delta)],
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


def missing_cells(first: Sequence[RunCells], second: Sequence[RunCells]) -> pd.DataFrame:
    """Cells that are verified in all runs of one side and not in all of the other.

    With columns `verified_in` (A or B), `status` in the other side, PARAMS, and those of GROUP.
    """
    verified = [verified_by_all(side) for side in (first, second)]
    parts = []
    for name, mine, has, other, others in (
        ("A", first, verified[0], verified[1], second),
        ("B", second, verified[1], verified[0], first),
    ):
        lost = mine[0].cells.loc[has.difference(other)]
        status = pd.Series("not swept", lost.index, object)
        for run in others:
            there = run.cells.loc[run.cells.index.intersection(lost.index), "status"]
            status.loc[there.index[there != Status.OK]] = there[there != Status.OK]
        parts.append(
            lost.assign(verified_in=name, status=status, **{PARAMS: params_of(lost)})[
                [*GROUP, "cell_key", PARAMS, "verified_in", "status"]
            ]
        )
    return pd.concat(parts, ignore_index=True)


def _tied(runs: Sequence[RunCells], swept: pd.Index) -> dict[Any, set[str]]:
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


def _whole_changes(wholes: Pairs, index: pd.Index, delta: float) -> pd.DataFrame:
    """What all common cells of each group changed by, together, and the verdict on it."""
    believed = adjusted(wholes.changes.p) <= FALSE_SHARE
    columns = _shares(wholes.changes.raw, "whole")
    told = [v.value for v in verdicts(wholes.changes, believed, delta)]
    table = pd.DataFrame({**columns, "whole_verdict": told}).set_index(wholes.index)
    return table.reindex(index).fillna({"whole_verdict": Became.UNDECIDED.value})


def group_table(
    pairs: Pairs,
    wholes: Pairs,
    cells: pd.DataFrame,
    missing: pd.DataFrame,
    sides: tuple[Sequence[RunCells], Sequence[RunCells]],
    swept: pd.Index,
    delta: float,
) -> pd.DataFrame:
    """A row for each group that both sides have, with what became of its best cells and of all.

    `cells` is the `cell_table`, `missing` that of `missing_cells` (CHANGED_GROUPS_SCHEMA).
    """
    table = _with_changes(pairs)
    believed = adjusted(table["p_value"].to_numpy()) <= FALSE_SHARE
    tied = [_tied(side, swept) for side in sides]
    sets = [[of_side.get(key, set()) for key in pairs.index] for of_side in tied]
    winners = pairs.first["cell_key"]
    table = table.assign(
        best_a=params_of(pairs.first.set_index(KEY)).to_numpy(),
        best_b=params_of(pairs.second.set_index(KEY)).to_numpy(),
        a_gbs=pairs.first["bandwidth_gbs"].to_numpy(float),
        b_gbs=pairs.second["bandwidth_gbs"].to_numpy(float),
        verdict=[v.value for v in verdicts(pairs.changes, believed, delta)],
        alarm=alarms(pairs.changes, delta),
        winner_held=[w in b for w, b in zip(winners, sets[1], strict=True)],
        tied_a=[len(s) for s in sets[0]],
        tied_b=[len(s) for s in sets[1]],
        tied_both=[len(a & b) for a, b in zip(*sets, strict=True)],
        **_whole_changes(wholes, pairs.index, delta).reset_index(drop=True),
    )
    counts = cells.groupby([*GROUP, "verdict"], observed=True).size().unstack(fill_value=0)
    lost = missing.groupby([*GROUP, "verified_in"], observed=True).size().unstack(fill_value=0)
    for column, source, name in (
        *((v, counts, v) for v in ("slower", "faster", "same", "undecided")),
        ("only_a", lost, "A"),
        ("only_b", lost, "B"),
    ):
        found = source[name] if name in source else pd.Series(dtype=int)
        table[column] = found.reindex(pairs.index).fillna(0).to_numpy(int) if len(found) else 0
    return table[CHANGED_GROUPS_SCHEMA.names]


def drift_table(pairs: Pairs) -> pd.DataFrame:
    """What the runtime's own copy took more in B in each place (DRIFT_SCHEMA)."""
    places = pairs.index.to_frame(index=False, name=PLACE)
    return places.assign(**_shares(pairs.changes.raw, "change"))[DRIFT_SCHEMA.names]
