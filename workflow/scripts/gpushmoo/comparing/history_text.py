"""A history as Markdown: each group's change points, their causes and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import pandas as pd

from ..analysis.history import HistoryTables
from ..core.display import kind_words, significant
from ..core.history_schema import BESIDE, BEST, COPY
from ..core.schema import GROUP
from .markdown import MOST_ROWS, group_words, percent, table

# Change points of two series that lie as near as this, in runs, are one and the same.
NEAR = 1
# In fewer runs otava finds no change of a few percent.
FEWEST_RUNS = 4
_MOST_NAMED = 3
CHANGE_HEADS = [
    "group",
    "from run on",
    "best in GB/s: before → after",
    "change",
    "cause",
    "what differs",
]


class Cause(Enum):
    """What changed where a best did, as the copy beside it tells."""

    KERNEL = "kernel"
    MACHINE = "machine"
    BOTH = "kernel and machine"
    UNSURE = "not told apart"


_METHOD = (
    "Change points are Apache Otava's (p < 0.001), of the mean over runs; changes under {delta} "
    "are not told. {kernel}: the best beside the runtime's own copy changed there too. {machine}: "
    "the copy did, and the best beside it did not. A change point at the last run rests on one run."
)


def history_summary(found: HistoryTables, pictures: Sequence[str]) -> str:
    """The whole text of a history's tables, ending in a line break."""
    if found.why is not None:
        return "\n\n".join([f"**{found.why}**", *_listed(found.left_out)]) + "\n"
    parts = [
        f"## {history_title(found.rows)}",
        f"**{history_headline(found)}**",
        _table(found),
        *_listed(history_remarks(found)),
        history_method(found.delta, "*"),
        "\n".join(f"![{name.rpartition('.')[0]}]({name})" for name in pictures),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _listed(lines: Sequence[str]) -> list[str]:
    return ["\n".join(f"* {line}" for line in lines)] if lines else []


def history_title(rows: pd.DataFrame) -> str:
    """How many runs, the first and the last of them, and when they were measured."""
    runs = rows.drop_duplicates("number").sort_values("number")["run"].tolist()
    days = [f"{rows['measured_at'].agg(end):%Y-%m-%d}" for end in ("min", "max")]
    when = days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    return f"History of {len(runs)} runs: {runs[0]} to {runs[-1]}, {when}"


def history_method(delta: float, mark: str = "") -> str:
    """What a change point is, and what its causes mean; words are put between `mark`s."""
    words = {"kernel": f"{mark}Kernel{mark}", "machine": f"{mark}Machine{mark}"}
    return _METHOD.format(**words, delta=percent(delta, sign=False))


def history_headline(found: HistoryTables) -> str:
    """How many groups' bests changed, in one sentence."""
    n = len(found.rows.drop_duplicates(list(GROUP)))
    best = found.changes[found.changes["quantity"] == BEST]
    changed = len(best.drop_duplicates(list(GROUP)))
    bound = percent(found.delta, sign=False)
    if not changed:
        return f"Of {n} groups no best changed by {bound} or more."
    causes = best["cause"].value_counts()
    told = ", ".join(f"{cause}: {count}" for cause, count in causes.items())
    whose = "group's best" if n == 1 else "groups' bests"
    return f"{changed} of {n} {whose} changed by {bound} or more (change points by cause: {told})."


def change_rows(found: HistoryTables) -> list[list[str]]:
    """For each change point of a best, the largest first: the columns CHANGE_HEADS in words."""
    best = found.changes[found.changes["quantity"] == BEST]
    largest = best.sort_values("change", key=abs, ascending=False, kind="stable")
    several = found.rows["launch_kind"].nunique() > 1
    rows = []
    for row in largest.to_dict("records"):
        kind = f", {kind_words(row['launch_kind'])}" if several else ""
        means = f"{significant(row['before'], 4)} → {significant(row['after'], 4)}"
        since = f"{row['run']} ({row['number']})"
        group = f"{group_words(row)}{kind}"
        told = [group, since, means, percent(row["change"]), row["cause"]]
        rows.append([*told, differences_words(row["differences"])])
    return rows


def _table(found: HistoryTables) -> str:
    rows = change_rows(found)
    if not rows:
        return ""
    left = len(rows) - MOST_ROWS
    more = f"\n\n{left} more change points." if left > 0 else ""
    return table(CHANGE_HEADS, rows[:MOST_ROWS]) + more


def differences_words(told: Sequence[str]) -> str:
    """What that run was measured with otherwise than the one before."""
    more = f"; {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return ("; ".join(told[:_MOST_NAMED]) + more) or "nothing known"


def history_remarks(found: HistoryTables) -> list[str]:
    """What the machine did, what only the copy brings to light, and what could not be found."""
    rows, changes = found.rows, found.changes
    lines = list(found.left_out)
    copied = changes[changes["quantity"] == COPY]
    for (_, run), of_run in copied.groupby(["number", "run"], observed=True):
        lines.append(
            f"The machine: the runtime's own copy changed from {run} on in "
            f"{_groups(len(of_run))}, by {percent(of_run['change'].median())} in the median."
        )
    hidden = sum(_is_hidden(row, changes) for row in changes.to_dict("records"))
    if hidden:
        lines.append(f"Beside the copy alone {_groups(hidden)} changed: see change_points.parquet.")
    groups = rows.groupby(list(GROUP), observed=True)
    uncopied = int(groups[COPY].apply(lambda values: values.isna().any()).sum())
    if uncopied:
        lines.append(
            f"In {_groups(uncopied)} a run has no copy: there the machine is not told apart."
        )
    few = int((groups.size() < FEWEST_RUNS).sum())
    if few:
        lines.append(
            f"{_groups(few)} in fewer than {FEWEST_RUNS} runs: too few for a change point."
        )
    return lines


def _groups(n: int) -> str:
    return f"{n} group" + ("s" if n != 1 else "")


def _is_hidden(row: Mapping[str, Any], changes: pd.DataFrame) -> bool:
    """Whether a best changed beside the copy and not by itself."""
    if row["quantity"] != BESIDE:
        return False
    near = changes[(changes["number"] - row["number"]).abs() <= NEAR]
    same = (near[list(GROUP)] == [row[name] for name in GROUP]).all(axis=1)
    return not (same & (near["quantity"] == BEST)).any()
