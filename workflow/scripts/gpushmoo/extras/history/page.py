"""The report's section on earlier runs."""

from __future__ import annotations

from typing import Any

from ...comparing.run_history import CHANGE_HEADS, METHOD, History

# Groups that the section names.
_MAX_ROWS = 15


def history_page(found: History) -> dict[str, Any]:
    """Sentences and the rows of a table, as display strings."""
    if found.why is not None:
        sentences = [found.why, *found.left_out]
        words = {"title": "History", "method": "", "sentences": sentences}
        return {**words, "heads": [], "rows": [], "figured": False}
    rows = found.change_rows()
    left = len(rows) - _MAX_ROWS
    more = [f"{left} more groups are in history/history.parquet."] if left > 0 else []
    return {
        "title": found.title,
        "sentences": [*found.left_out, *more],
        "method": METHOD,
        "heads": list(CHANGE_HEADS),
        "rows": rows[:_MAX_ROWS],
        "figured": True,
    }
