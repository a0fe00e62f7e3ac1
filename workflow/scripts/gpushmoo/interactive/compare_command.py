"""The command ``compare`` of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..comparing import CompareError
from ..storage.wholefile import write_whole

# Exit status of a guard that found a group slower.
SLOWER = 1


def add_compare(commands: Any) -> None:
    """Add the command to those of the command line."""
    compared = commands.add_parser(
        "compare", help="hold one run against another: what got slower, what faster"
    )
    compared.add_argument("runs", nargs="*", metavar="RUN", help="the run before, and that after")
    for side, when in (("a", "before"), ("b", "after")):
        compared.add_argument(
            f"--{side}",
            action="append",
            default=[],
            metavar="RUN",
            help=f"one of several runs {when}, in the order in which they were measured",
        )
    compared.add_argument(
        "--same", nargs="+", default=[], metavar="RUN", help="runs of one and the same thing"
    )
    compared.add_argument(
        "--aa", action="store_true", help="all RUNs are of the same thing: count false alarms"
    )
    compared.add_argument(
        "--delta", type=float, default=0.01, metavar="SHARE", help="what does not matter: 0.01"
    )
    compared.add_argument(
        "--guard",
        action="store_true",
        help=f"end with status {SLOWER} if a group's best surely got slower by more than that",
    )
    compared.add_argument("--out", metavar="FOLDER", help="write tables and summary to this folder")
    compared.add_argument("--markdown", type=Path, metavar="FILE", help="write the summary here")


def run_compare(given: argparse.Namespace) -> int:
    """Do what `given` asks; the exit status. Raises CompareError."""
    # Not before it is wanted: statistics take a second to import.
    from ..comparing.compare import compare, false_alarms

    if given.aa:
        _refuse(given.a + given.b + given.same, "--aa takes its runs without a flag")
        alarms = false_alarms(given.runs, delta=given.delta)
        return _told(given, alarms.markdown(), any(len(c.slower) for *_, c in alarms.pairs))
    named = bool(given.a or given.b)
    if named:
        _refuse(given.runs, "name runs either by --a and --b or without a flag")
    elif len(given.runs) != 2:
        raise CompareError(
            f"compare takes two runs, not {len(given.runs)}; several by --a and --b."
        )
    first, second = (given.a, given.b) if named else ([given.runs[0]], [given.runs[1]])
    found = compare(first, second, same=given.same, delta=given.delta)
    if given.out is not None:
        found.save(given.out)
    return _told(given, found.markdown(), bool(len(found.slower)))


def _refuse(runs: list[str], sentence: str) -> None:
    if runs:
        raise CompareError(f"{sentence}, not {', '.join(runs)}.")


def _told(given: argparse.Namespace, text: str, slower: bool) -> int:
    print(text, end="")
    if given.markdown is not None:
        write_whole(given.markdown, text.encode())
    return SLOWER if given.guard and slower else 0
