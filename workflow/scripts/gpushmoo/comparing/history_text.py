"""A history as Markdown: each group's change points, their causes and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import pandas as pd

from ..core.display import kind_words, significant
from ..core.schema import GROUP
from .markdown import MOST_ROWS, group_words, percent

# What is looked at: columns of HISTORY_SCHEMA.
BEST, COPY, BESIDE = "bandwidth_gbs", "copy_gbs", "over_copy"
# Change points of two series that lie as near as this, in runs, are one and the same.
NEAR = 1
# In fewer runs otava finds no change of a few percent.
FEWEST_RUNS = 4
_MOST_NAMED = 3


class Cause(Enum):
    """What changed where a best did, as the copy beside it tells."""

    KERNEL = "kernel"
    MACHINE = "machine"
    BOTH = "kernel and machine"
    UNSURE = "not told apart"


_METHOD = (
    "Change points are Apache Otava's (p < 0.001), of the mean over runs; changes under {delta} "
    "are not told. *Kernel*: the best beside the runtime's own copy changed there too. *Machine*: "
    "the copy did, and the best beside it did not. A change point at the last run rests on one run."
)


def history_summary(
    rows: pd.DataFrame, changes: pd.DataFrame, delta: float, pictures: Sequence[str]
) -> str:
    """The whole text of a history's tables, ending in a line break."""
    runs = rows.drop_duplicates("number").sort_values("number")["run"].tolist()
    days = [f"{rows['measured_at'].agg(end):%Y-%m-%d}" for end in ("min", "max")]
    when = days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    parts = [
        f"## History of {len(runs)} runs: {runs[0]} to {runs[-1]}, {when}",
        f"**{_headline(rows, changes, delta)}**",
        _table(changes, several=rows["launch_kind"].nunique() > 1),
        "\n".join(f"* {line}" for line in _remarks(rows, changes)),
        _METHOD.format(delta=percent(delta, sign=False)),
        "\n".join(f"![{name.rpartition('.')[0]}]({name})" for name in pictures),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(rows: pd.DataFrame, changes: pd.DataFrame, delta: float) -> str:
    n = len(rows.drop_duplicates(list(GROUP)))
    best = changes[changes["quantity"] == BEST]
    changed = len(best.drop_duplicates(list(GROUP)))
    bound = percent(delta, sign=False)
    if not changed:
        return f"Of {n} groups no best changed by {bound} or more."
    causes = best["cause"].value_counts()
    told = ", ".join(f"{cause}: {count}" for cause, count in causes.items())
    verb = "group's best" if changed == 1 else "groups' bests"
    return f"{changed} of {n} {verb} changed by {bound} or more (change points by cause: {told})."


def _table(changes: pd.DataFrame, several: bool) -> str:
    best = changes[changes["quantity"] == BEST]
    if best.empty:
        return ""
    lines = [
        "| group | from run on | best in GB/s: before → after | change | cause | what differs |",
        "|---|---|---|---|---|---|",
    ]
    largest = best.loc[best["change"].abs().sort_values(ascending=False, kind="stable").index]
    for row in largest.head(MOST_ROWS).to_dict("records"):
        kind = f", {kind_words(row['launch_kind'])}" if several else ""
        means = f"{significant(row['before'], 4)} → {significant(row['after'], 4)}"
        lines.append(
            f"| {group_words(row)}{kind} | {row['run']} ({row['number']}) | {means} | "
            f"{percent(row['change'])} | {row['cause']} | {_differences(row)} |"
        )
    left = len(best) - MOST_ROWS
    return "\n".join(lines) + (f"\n\n{left} more change points." if left > 0 else "")


def _differences(row: Mapping[str, Any]) -> str:
    """What that run was measured with otherwise than the one before."""
    told = list(row["differences"])
    more = f"; {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return ("; ".join(told[:_MOST_NAMED]) + more).replace("|", "\\|") or "nothing known"


def _remarks(rows: pd.DataFrame, changes: pd.DataFrame) -> list[str]:
    """What the machine did, what only the copy brings to light, and what could not be found."""
    lines = []
    copied = changes[changes["quantity"] == COPY]
    for (_, run), of_run in copied.groupby(["number", "run"], observed=True):
        lines.append(
            f"The machine: the runtime's own copy changed from {run} on in "
            f"{_groups(len(of_run))}, by {percent(of_run['change'].median())} in the median."
        )
    hidden = sum(_is_hidden(row, changes) for row in changes.to_dict("records"))
    if hidden:
        lines.append(
            f"Beside the copy alone {_groups(hidden)} changed: see `change_points.parquet`."
        )
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
