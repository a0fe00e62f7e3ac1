"""The command ``judge`` of the command line."""

from __future__ import annotations

from typing import Any

from ...interactive.answers import GROUPS, ROWS, VERDICT, Answer
from ...interactive.commands import options
from ...interactive.commands.options import Command, add_command


def add_commands(commands: options.Subparsers) -> None:
    """Add the command ``judge`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "judge",
            _judge,
            "analyze published tuning results, and name what they leave open",
            (
                ROWS.of("extras.judging.judge.JudgedGroup"),
                GROUPS.of("comparing.compare.ChangedGroup"),
            ),
        ),
        example="cache.json --before older.json",
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="of Kernel Tuner (cache or T4), nvbench, Triton, or a run's folder",
    )
    parser.add_argument(
        "--problem",
        metavar="NAME,NAME",
        type=options.words,
        action="extend",
        help="axes of nvbench that are not launch parameters",
    )
    options.add_before(parser)
    options.add_noise_runs(parser)
    options.add_threshold(parser)
    options.add_csv(parser)


def _judge(fail_on_regression: bool = False, **asked: Any) -> Answer:
    """Run the command ``judge``, and return its answer."""
    from .judge import judge

    found = judge(**asked)
    groups = [] if found.comparison is None else found.comparison.groups
    slower = found.comparison is not None and not found.comparison.slower.empty
    status = VERDICT if fail_on_regression and slower else 0
    page = None if found.comparison is None else found.comparison.markdown
    return Answer({"rows": found.rows, "groups": groups}, found.summary, status, page)
