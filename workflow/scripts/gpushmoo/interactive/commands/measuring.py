"""Define the commands that measure on this machine: ``sweep``, ``tune`` and ``ab``."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.display import mode_words, tied_words
from ...core.errors import ConfigError
from ...storage.room import output
from ..answers import (
    ALONE,
    FAILED,
    FOLDER,
    GROUPS,
    NOT_MEASURED,
    REFUSED,
    ROWS,
    SLOWER,
    STATUSES,
    UNCHANGED,
    VERDICT,
    Answer,
    as_typed,
)
from . import options
from .options import Command, Parser, add_command

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..measure import Sweep

# The copy's own half width from which the table says it.
_UNSTEADY = 0.1
# Rows of each group in the table; --out keeps all.
_MAX_ROWS = 5


def add_commands(commands: options.Subparsers) -> None:
    """Add the commands of this module to the parser."""
    _add_sweep(commands)
    _add_tune(commands)
    _add_ab(commands)


def _add_sweep(commands: options.Subparsers) -> None:
    """Add the command ``sweep`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "sweep",
            _sweep,
            "measure a kernel's folder here and now",
            (ROWS.of("interactive.text_tables.Best"), STATUSES, FOLDER),
        ),
        example="kernels/transpose --axes TILE=16,32 PAD=1 --dtypes float --sizes 1024",
    )
    options.add_kernel(parser)
    parser.add_argument(
        "--variants",
        metavar="NAME,NAME",
        type=options.words,
        action="extend",
        help="variants of the kernel",
    )
    options.add_swept(parser)
    parser.add_argument("--search", metavar="MODE", help="all, race or guided")
    options.add_repeats(parser)
    options.add_out(parser)
    options.add_csv(parser)


def _sweep(
    kernel: str, out: str | None = None, measure: Mapping[str, Any] | None = None, **asked: Any
) -> Answer:
    """Run the command ``sweep``, and return its answer."""
    from ..measure import empty_folder, sweep

    _leave_warnings_out()
    if out is not None:
        # Said before anything is measured.
        empty_folder(out)
    return _swept(sweep(kernel, **{**(measure or {}), **asked}), out)


def _leave_warnings_out() -> None:
    """Leave out warnings of results, since the table itself says that no cell worked."""
    warnings.filterwarnings("ignore", module=__name__)


def _add_tune(commands: options.Subparsers) -> None:
    """Add the command ``tune`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "tune",
            _tune,
            "measure a kernel that options describe",
            (ROWS.of("interactive.text_tables.Best"), STATUSES, FOLDER),
        ),
        example=(
            "add.cl add --size 1000003 --axes block_x=32,64 --arguments 'c=empty(n, float32)' "
            "'a=random(n, float32)' 'n=int32(n)' --expect 'c=2 * a' --bytes-moved '8 * n'"
        ),
    )
    parser.add_argument(
        "source", metavar="FILE", help="the kernel's source: .cu, .cl, .cubin or .triton.py"
    )
    parser.add_argument("name", metavar="NAME", help="the kernel's name")
    options.add_size(parser)
    _add_named(
        parser,
        "--arguments",
        "the kernel's, in NumPy: x=random(n,float32)",
        required=True,
    )
    options.add_axes(parser, required=True)
    _add_named(parser, "--expect", "expected outputs: y=2*x")
    parser.add_argument(
        "--ulp",
        metavar="N",
        type=options.whole,
        help="largest error of an element, in units in the last place",
    )
    parser.add_argument(
        "--rtol",
        metavar="SHARE",
        type=options.real,
        help="largest error of an element, as a share of it",
    )
    parser.add_argument(
        "--atol", metavar="BOUND", type=options.real, help="largest error of an element"
    )
    parser.add_argument(
        "--in-place",
        metavar="NAMES",
        type=options.words,
        action="extend",
        help="outputs whose content the kernel reads",
    )
    for name, meaning in (
        ("--block", "threads of a block; by default block_x, block_y, block_z"),
        ("--grid", "blocks; by default as many as cover the size"),
        ("--valid", "condition of a combination: TILE<=block_x"),
        ("--work", "floating-point operations of a launch"),
        ("--bytes-moved", "bytes that a launch reads and writes"),
    ):
        parser.add_argument(name, metavar="EXPRESSION", help=meaning)
    options.add_device(parser)
    options.add_measure(parser)
    options.add_repeats(parser)
    options.add_out(parser)
    options.add_csv(parser)


def _add_named(parser: Parser, name: str, meaning: str, *, required: bool = False) -> None:
    """Add an option whose values are pairs ``NAME=EXPRESSION``."""
    parser.add_argument(
        name,
        metavar="NAME=EXPRESSION",
        type=options.named,
        nargs="+",
        action=options.AddPairs,
        required=required,
        help=meaning,
    )


def _tune(
    source: str,
    name: str,
    size: int | tuple[int, ...],
    arguments: Mapping[str, str],
    axes: Mapping[str, Sequence[Any]],
    expect: Mapping[str, str] | None = None,
    out: str | None = None,
    measure: Mapping[str, Any] | None = None,
    **asked: Any,
) -> Answer:
    """Run the command ``tune``, and return its answer."""
    from ..measure import empty_folder
    from ..tune import tune
    from ..tune_arguments import numpy_values
    from ..tune_options import Check, LaunchConfig

    _leave_warnings_out()
    if out is not None:
        empty_folder(out)
    given = numpy_values(arguments, size)
    wanted = numpy_values(expect or {}, size, given)
    launch, check = (
        {field.name: asked.pop(field.name) for field in fields(kind) if field.name in asked}
        for kind in (LaunchConfig, Check)
    )
    asked = {**(measure or {}), **asked}
    asked |= {"launch": LaunchConfig(**launch), "check": Check(wanted or None, **check)}
    return _swept(tune(source, name, given, size, axes, **asked), out)


def _swept(result: Sweep, out: str | None) -> Answer:
    """Return the answer of a sweep, after saving the sweep in `out`."""
    from ...core.run_plan import SAVED
    from ...core.schema import Status

    try:
        folder = None if out is None else result.save(out)
    except ConfigError:
        # The numbers took their time, so the user sees them.
        print(report(result), file=sys.stderr)
        raise
    told = {"rows": result.best, "statuses": result.statuses, "folder": folder}

    def text() -> str:
        if folder is None:
            return report(result)
        config = shlex.quote(str(folder / SAVED))
        return f"{report(result)}\n\nSaved in {folder}; its report:\n  {as_typed()} run {config}"

    status = 0 if Status.OK in result.statuses else NOT_MEASURED
    if {*result.statuses} == {Status.WORKLOAD_FAILED}:
        # An expression or a workload.py has no value that can be launched.
        status = REFUSED
    if result.statuses.keys() & {Status.WRONG_RESULT, Status.TIMING_MISMATCH}:
        status = VERDICT
    return Answer(told, text, status)


def report(result: Sweep) -> str:
    """Return the best cells of each group as short tables, below a line on the whole sweep."""
    from ...core.schema import FAULTS, GROUP, is_axis

    best = result.best
    parts = [repr(result).strip("<>") + "."]
    several = best["timing_mode"].nunique() > 1
    # Then an interval says nothing of another run.
    alone = result.cells["repeat_medians_s"].str.len().max() < 2
    for _, group in best.groupby(list(GROUP), sort=False):
        top = group.iloc[0]
        kind = f"{mode_words(top['timing_mode'])}, " if several else ""
        parts.append(
            f"\n{top['dtype']}, {top['variant']}, {top['height']} x {top['width']}, "
            f"{top['cache_state']}, {kind}{top['device_name']}: "
            f"{tied_words(top['tied'], top['candidates'])}"
        )
        parts.append(_table(group, alone, _unsteady(result, top)))
    if best.empty:
        parts += dict.fromkeys(result.cells["message"].dropna())
    else:
        faulty = result.cells[result.cells["status"].isin(FAULTS)]
        axes = [column for column in faulty.columns if is_axis(column)]
        parts.append("")
        for row in faulty.head(_MAX_ROWS).to_dict("records"):
            launch = ", ".join(f"{axis}={row[axis]}" for axis in axes)
            parts.append(
                f"{row['dtype']}, {row['variant']}, {row['height']} x {row['width']}, "
                f"{row['cache_state']}, {launch}: {row['status']}, {row['message']}"
            )
    return "\n".join(parts)


def _unsteady(result: Sweep, of: Mapping[str, Any]) -> str:
    """Return the half width of the interval of a group's copy, in words, if it is large."""
    from ...core.median import median_interval

    keys = ("height", "width", "cache_state", "timing_mode")
    shards = [s for s in result.provenance if s["params"]["dtype"] == of["dtype"]]
    copies = (c for s in shards for c in s["controls"] if all(c[k] == of[k] for k in keys))
    seconds = [second for copy in copies for second in copy["seconds"]]
    half = median_interval(seconds).relative_half_width if seconds else 0.0
    return f" ± {100 * half:.0f} %" * (half >= _UNSTEADY)


def _table(group: DataFrame, alone: bool, unsteady: str) -> str:
    """Return the table of a group. Its intervals are of this run `alone`, or of another run."""
    from ...core.metric import metric_of
    from ...core.schema import is_axis
    from ..text_tables import aligned

    top = group.head(_MAX_ROWS)
    merit = metric_of(group)
    shown = top[[*filter(is_axis, top.columns)]].copy()
    values, lows, highs = merit.of(top)
    shown[merit.unit] = [f"{value:.4g}" for value in values]
    heading = "95 %, this run" if alone else "95 % interval"
    shown[heading] = [f"{low:.4g} to {high:.4g}" for low, high in zip(lows, highs, strict=True)]
    if group["vs_memcpy"].notna().any():
        shown[f"of memcpy{unsteady}"] = [
            f"{100 * share:.0f} %" if share == share else "" for share in top["vs_memcpy"]
        ]
    more = len(group) - len(shown)
    return aligned(shown, str.rjust) + (f"\nand {more} more" if more else "")


def _add_ab(commands: options.Subparsers) -> None:
    """Add the command ``ab`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "ab",
            _ab,
            "measure two versions of a kernel, or of many, alternately",
            (
                ROWS.of("interactive.ab.PairedCell"),
                GROUPS.of("interactive.ab.PairedGroup"),
                SLOWER,
                UNCHANGED,
                ALONE,
                FAILED,
            ),
        ),
        example="main --kernels kernels/transpose --sizes 1024 --fail-on-regression",
    )
    parser.add_argument(
        "a", metavar="A", help="a kernel's folder; or a checkout, a wheel, a git revision"
    )
    parser.add_argument(
        "b",
        metavar="B",
        nargs="?",
        help="another one; by default the same kernel, or the working tree",
    )
    parser.add_argument(
        "--kernels", metavar="NAME", nargs="+", help="names of kernels, or folders in both"
    )
    parser.add_argument(
        "--unchanged", action="store_true", help="measure kernels that did not change, too"
    )
    parser.add_argument("--variant-a", metavar="NAME", help="variant of A")
    parser.add_argument("--variant-b", metavar="NAME", help="variant of B")
    parser.add_argument(
        "--options-a",
        metavar="OPTIONS",
        help="for A's compiler, such as --options-a=-use_fast_math",
    )
    parser.add_argument("--options-b", metavar="OPTIONS", help="for B's compiler")
    options.add_swept(parser)
    parser.add_argument(
        "--pairs",
        metavar="N",
        type=options.count,
        help="pairs of an element type at most; of many kernels 32",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=options.count,
        help="rounds of samples A B B A, by default 8",
    )
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="append a summary to it")
    options.add_threshold(parser)
    options.add_csv(parser)


def _ab(
    *,
    a: str,
    b: str | None = None,
    markdown: Path | None = None,
    fail_on_regression: bool = False,
    measure: Mapping[str, Any] | None = None,
    **asked: Any,
) -> Answer:
    """Run the command ``ab``, and return its answer."""
    from ..ab import SAMPLE_COLUMNS, ab, versions_of
    from ..checkouts import Checkouts, ab_checkouts

    asked = {**(measure or {}), **asked}
    if markdown is not None:
        _refuse_unwritable(markdown)
    if (Path(a).expanduser() / "workload.py").is_file():
        if odd := asked.keys() & {"kernels", "unchanged"}:
            raise ConfigError(f"{odd.pop()}: '{a}' is a kernel's folder, not one of several.")
        test = ab(*versions_of(a, b, asked), **asked)
        found = Checkouts((a, b or a), test.threshold, ([], []))
        found.add(test.sides[0].folder.name, test)
        text = test.__repr__
        page = None
    else:
        found = ab_checkouts(a, b, **asked)
        text = None
        page = found.markdown
    if markdown is not None:
        try:
            _append(markdown, found.markdown())
        except ConfigError:
            # The numbers took their time, so the user sees them.
            print((text or found.markdown)(), file=sys.stderr)
            raise
    told = {"rows": found.cells.drop(columns=SAMPLE_COLUMNS, errors="ignore")}
    names = ("groups", "slower", "unchanged", "alone", "failed")
    told |= {name: getattr(found, name) for name in names}
    if any(t.wrong for t in found.tests.values()) or (fail_on_regression and found.slower):
        return Answer(told, text, VERDICT, page)
    return Answer(told, text, NOT_MEASURED if found.failed else 0, page)


def _refuse_unwritable(path: Path) -> None:
    """Raise ConfigError, before anything is measured, if nothing can be appended to the file."""
    is_new = not path.exists()
    _append(path, "")
    if is_new:
        path.unlink()


def _append(path: Path, text: str) -> None:
    """Append text to a file, either all of it or nothing."""
    with output(path, ConfigError), path.open("ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        data = text.encode()
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            with suppress(OSError):
                file.truncate(size)
            raise
