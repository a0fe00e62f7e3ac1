"""The command ``history`` of the command line."""

from __future__ import annotations

import argparse
from typing import Any


def add_history(commands: Any) -> None:
    """Add the command to those of the command line."""
    told = commands.add_parser(
        "history", help="many runs in the order of time: where a group's best changed"
    )
    told.add_argument(
        "runs", nargs="+", metavar="RUN", help="runs' folders, folders of runs, or of recorded sets"
    )
    told.add_argument(
        "--otava", metavar="PROGRAM", help="Apache Otava's program; by default that on the PATH"
    )
    told.add_argument(
        "--delta", type=float, default=0.01, metavar="SHARE", help="what does not matter: 0.01"
    )
    told.add_argument(
        "--out", metavar="FOLDER", help="write tables, summary and pictures to this folder"
    )


def run_history(given: argparse.Namespace) -> int:
    """Print the summary and write what is asked for; the exit status. Raises CompareError."""
    # Not before it is wanted: what draws takes a second to import.
    from .history import history

    found = history(given.runs, otava=given.otava, delta=given.delta, out=given.out)
    print(found.markdown(), end="")
    return 0
