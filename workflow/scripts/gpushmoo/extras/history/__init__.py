"""Orders many runs by time: the command ``history`` and a section of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...registry import Extra, Section

if TYPE_CHECKING:
    from ...planning.flow import Flow


def _files(flow: Flow) -> Sequence[str]:
    return flow.history_files


def _content(files: Sequence[Path]) -> dict[str, Any]:
    from ...comparing.run_history import read_history
    from .page import history_page

    return history_page(read_history(files[0].parent))


EXTRA = Extra(
    section=Section(_files, "history", _content, place=20),
    keys=["history"],
)
