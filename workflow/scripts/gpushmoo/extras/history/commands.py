"""The command ``history`` of the command line."""

from __future__ import annotations

from typing import Any

from ...interactive.answers import FOLDER, ROWS, Answer
from ...interactive.commands import options
from ...interactive.commands.options import Command, add_command


def add_commands(commands: options.Subparsers) -> None:
    """Add the command ``history`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "history",
            _history,
            "order many runs by time: how each group's best changed",
            (ROWS.of("comparing.run_history.HistoryRow"), FOLDER),
        ),
        example="results --out history",
    )
    options.add_runs(parser, "+")
    options.add_out(parser)
    options.add_csv(parser)


def _history(**asked: Any) -> Answer:
    """Run the command ``history``, and return its answer."""
    from .history import history

    found = history(**asked)
    return Answer({"rows": found.rows, "folder": asked.get("out")}, page=found.markdown)
