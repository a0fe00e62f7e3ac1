"""The report's page of history: which groups' bests changed over runs, since when, and why."""

from __future__ import annotations

from typing import Any

from ..analysis.history import BEST, HistoryTables
from ..comparing.history import (
    CHANGE_HEADS,
    Cause,
    change_rows,
    history_headline,
    history_method,
    history_remarks,
    history_title,
)
from ..core.display import percent, significant
from ..core.schema import GROUP
from .findings import Finding
from .tables import Json, size_words

FIGURE = "history.svg"
# Change points that the page names.
_MOST_ROWS = 15
# The first page tells of a loss that began in one of so many last runs.
_RECENT = 5


def history_page(found: HistoryTables) -> Json:
    """Sentences and the rows of a table, as display strings."""
    if found.why is not None:
        sentences = [found.why, *found.left_out]
        return {"title": "History", "sentences": sentences, "method": "", "heads": [], "rows": []}
    rows = change_rows(found)
    left = len(rows) - _MOST_ROWS
    more = [f"{left} more change points are in history/change_points.parquet."] if left > 0 else []
    return {
        "title": history_title(found.rows),
        "sentences": [history_headline(found), *history_remarks(found), *more],
        "method": history_method(found.delta),
        "heads": list(CHANGE_HEADS),
        "rows": rows[:_MOST_ROWS],
    }


def history_findings(found: HistoryTables) -> list[Finding]:
    """For the first page: the group that lost most in a recent run and has not got it back."""
    if found.changes.empty:
        return []
    best = found.changes[found.changes["quantity"] == BEST].sort_values("number")
    last = best.drop_duplicates(list(GROUP), keep="last")
    until = found.rows["number"].max()
    lost = last[(last["change"] < 0) & (last["number"] > until - _RECENT)]
    if lost.empty:
        return []
    worst = lost.loc[lost["change"].idxmin()]
    return [Finding(_lost_words(worst.to_dict(), len(lost)), float(-worst["change"]), FIGURE)]


def _lost_words(row: dict[str, Any], groups: int) -> str:
    who = f"{row['kernel']}, {row['dtype']}, {size_words(row['height'], row['width'])}"
    others = f" ({groups - 1} more groups lost less)" if groups > 1 else ""
    words = {
        Cause.KERNEL: "the kernel changed, not the machine",
        Cause.MACHINE: "the machine changed, as the runtime's own copy shows",
        Cause.BOTH: "the kernel and the machine changed",
        Cause.UNSURE: "whether the kernel or the machine changed is not told apart",
    }[Cause(row["cause"])]
    means = f"{significant(row['before'])} → {significant(row['after'])} GB/s"
    return (
        f"Since run {row['run']} the best of {who} moves {percent(-row['change'])} less, {means}: "
        f"{words}{others}."
    )
