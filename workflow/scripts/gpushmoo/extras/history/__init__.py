"""Orders many runs by time: the command ``history`` and a section of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...registry import Command, Extra, Section

if TYPE_CHECKING:
    from ...interactive.tables import Answer
    from ...planning.flow import Flow


def _history(**asked: Any) -> Answer:
    from ...interactive.tables import Answer
    from .history import history

    found = history(**asked)
    return Answer({"rows": found.rows, "folder": asked.get("out")}, page=found.markdown)


def _files(flow: Flow) -> Sequence[str]:
    return flow.history_files


def _content(files: Sequence[Path]) -> dict[str, Any]:
    from ...comparing.history import read_history
    from .page import history_page

    return history_page(read_history(files[0].parent))


EXTRA = Extra(
    commands={
        "history": Command(
            does="order many runs by time: how each group's best changed",
            takes=["runs+ --out --csv"],
            gives=["rows:comparing.history.HistoryRow", "folder"],
            example="results --out history",
            answer=_history,
        )
    },
    section=Section(_files, "history", _content, place=20),
    keys=["history"],
)
