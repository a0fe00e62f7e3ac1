"""The command ``explore`` of the command line."""

from __future__ import annotations

from typing import Any

from ...interactive.answers import FILES, Answer
from ...interactive.commands import options
from ...interactive.commands.options import Command, add_command


def add_commands(commands: options.Subparsers) -> None:
    """Add the command ``explore`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "explore", _explore, "write a page that a browser opens, of a run's cells", (FILES,)
        ),
        example="results/local --out local.html",
    )
    options.add_run(parser)
    parser.add_argument("second", metavar="RUN", nargs="?", help="another run, shown beside it")
    options.add_out(parser)


def _explore(**asked: Any) -> Answer:
    """Run the command ``explore``, and return its answer."""
    from .explore import explore

    page = explore(**asked)
    return Answer({"files": [page]}, lambda: f"{page} opens in any browser; it needs no network.")
