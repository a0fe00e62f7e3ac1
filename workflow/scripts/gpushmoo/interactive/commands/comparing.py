"""Define the command ``compare``, which compares runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...core.errors import CompareError
from ...storage.room import output_folder
from ..answers import FOLDER, ROWS, VERDICT, Answer
from . import options
from .options import Command, add_command


def add_commands(commands: options.Subparsers) -> None:
    """Add the commands of this module to the parser."""
    _add_compare(commands)


def _add_compare(commands: options.Subparsers) -> None:
    """Add the command ``compare`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "compare",
            _compare,
            "compare two runs, A and a later B: which groups got slower or faster",
            (ROWS.of("comparing.compare.ChangedGroup"), FOLDER),
        ),
        example="results/before results/after --fail-on-regression",
    )
    options.add_runs(parser, "*")
    options.add_before(parser)
    parser.add_argument("--after", metavar="RUN", nargs="+", help="the same number of runs after")
    options.add_noise_runs(parser)
    options.add_out(parser)
    options.add_threshold(parser)
    options.add_csv(parser)


def _compare(
    runs: Sequence[str] = (),
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    noise_runs: Sequence[str] = (),
    fail_on_regression: bool = False,
    out: str | None = None,
    **threshold: float,
) -> Answer:
    """Run the command ``compare``, and return its answer."""
    import pandas as pd

    from ...comparing.compare import compare
    from ...comparing.false_alarms import false_alarms

    folder = None
    if noise_runs and not (runs or before or after):
        alarms = false_alarms(noise_runs, **threshold)
        text = alarms.markdown()
        rows = pd.concat([c.groups.assign(run_a=a, run_b=b) for a, b, c in alarms.pairs])
    else:
        if len(runs) != (0 if before or after else 2):
            raise CompareError(
                "compare takes two runs, or several of both by --before and --after."
            )
        found = compare(before or runs[:1], after or runs[1:], noise_runs=noise_runs, **threshold)
        if out is not None:
            folder = Path(out).expanduser()
            with output_folder(folder, CompareError) as fresh:
                found.save(fresh)
        text = found.markdown()
        rows = found.groups
    status = VERDICT if fail_on_regression and rows["alarm"].any() else 0
    return Answer({"rows": rows, "folder": folder}, None, status, page=lambda: text)
