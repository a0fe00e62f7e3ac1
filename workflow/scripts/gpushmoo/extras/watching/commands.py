"""The command ``watch`` of the command line."""

from __future__ import annotations

from ...interactive.answers import ROWS, STATUSES, TEXT, Answer, answer_key
from ...interactive.commands import options
from ...interactive.commands.options import Command, add_command

ENDED = answer_key("ended", "cells that have ended, of all repeats", "integer")
FINISHED = answer_key("finished", "whether all is measured", "boolean")
LEFT_S = answer_key(
    "left_s",
    "estimated time of the rest; null if it is unknown",
    ["number", "null"],
    unit="s",
)
MEASURING = answer_key("measuring", "shards that are being measured", "array", items=TEXT)
PLANNED = answer_key(
    "planned", "cells of all repeats; by the plan, until they are counted", "number"
)
PLANNED_SHARDS = answer_key("planned_shards", "files that the run's jobs write", "integer")
QUIET_S = answer_key("quiet_s", "time since the last sign of the run", "number", unit="s")
RUN = answer_key("run", "the run's name", "string")
SHARDS = answer_key("shards", "those of them that are there", "integer")


def add_commands(commands: options.Subparsers) -> None:
    """Add the command ``watch`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "watch",
            _watch,
            "show the progress of a run until it is finished",
            (
                ROWS.of("extras.watching.table.SweepProgress"),
                RUN,
                FINISHED,
                ENDED,
                PLANNED,
                SHARDS,
                PLANNED_SHARDS,
                STATUSES,
                MEASURING,
                LEFT_S,
                QUIET_S,
            ),
            needs_form=True,
        ),
        example="results/local --once",
    )
    options.add_run(parser, nargs="?")
    parser.add_argument("--once", action="store_true", help="print one frame and end")


def _watch(form: str | None, run: str | None = None, once: bool = False) -> Answer:
    """Run the command ``watch``, and return its answer."""
    from .view import watch, watched

    if form is None:
        watch(run, once)
        return Answer({})
    return Answer(watched(run).state().told())
