"""What the page shows of a run's history: each group's best over runs, and its change points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..analysis.history import BEST, COPY, HistoryTables
from ..core.schema import GROUP, PARAMS

_DIGITS = 5


def over_runs(found: HistoryTables) -> dict[str, Any]:
    """Plain values: the runs by their number, and the groups by their names (see `group_key`)."""
    runs = found.rows.drop_duplicates("number").sort_values("number")
    changes: dict[str, list[Mapping[str, Any]]] = {}
    for row in found.changes.to_dict("records"):
        changes.setdefault(group_key(row), []).append(row)
    return {
        "why": found.why,
        "runs": [
            {"number": row["number"], "run": row["run"], "day": f"{row['measured_at']:%Y-%m-%d}"}
            for row in runs[["number", "run", "measured_at"]].to_dict("records")
        ],
        "groups": {
            (key := group_key(rows.iloc[0].to_dict())): _line(rows, changes.get(key, ()))
            for _, rows in found.rows.groupby(list(GROUP), observed=True)
        },
    }


def group_key(row: Mapping[str, Any]) -> str:
    """The names of a group as one text; ``page/runs.js`` makes the same of what is chosen."""
    return "\n".join(str(row[name]) for name in GROUP)


def _line(rows: pd.DataFrame, changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A group's bests in the order of runs, GB/s, and its change points as shares."""
    group = rows.sort_values("number")
    columns = {
        "best": BEST,
        "low": "bandwidth_low_gbs",
        "high": "bandwidth_high_gbs",
        "copy": COPY,
    }
    return {
        "number": group["number"].tolist(),
        PARAMS: group[PARAMS].tolist(),
        **{name: [_rounded(value) for value in group[column]] for name, column in columns.items()},
        "changes": [
            {
                "number": row["number"],
                "run": row["run"],
                "of": {BEST: "best", COPY: "copy"}[row["quantity"]],
                "change": _rounded(row["change"]),
                "cause": row["cause"],
                "differences": list(row["differences"]),
            }
            for row in changes
            if row["quantity"] in (BEST, COPY)
        ],
    }


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else float(f"{value:.{_DIGITS}g}")
