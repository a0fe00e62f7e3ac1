"""The command line: ``gpushmoo sweep``, ``ab``, ``compare``, ``export`` and others.

`commands.yaml` says what there is. An option sets the Python function's argument of its name; one
that is not given is not passed, so each default is in the function alone. Functions are
imported when they are called: statistics, figures and the terminal's library take up to a second
each.
"""

from __future__ import annotations

import argparse
import json
import keyword
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from functools import partial
from importlib.resources import files
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from .. import __name__ as library
from .. import __version__
from ..core.display import kind_words, number_of, tied_words
from ..core.errors import (
    BadParquetError,
    CompareError,
    ConfigError,
    DeviceError,
    OpenedError,
    UserError,
)
from ..core.median import median_interval
from ..core.paths import ROOT, child_environment
from ..core.readable import typed
from ..core.run_plan import SAVED
from ..core.schema import FAULTS, GROUP, Status, is_axis
from ..core.space import BLOCK_AXES
from ..planning import RUN_FOLDER
from ..storage.joblog import END_SIGNALS
from ..storage.room import is_full, output, output_folder, unwritten
from . import tables
from .measure import Sweep, empty_folder, sweep
from .snakemake_run import STOPPED, STOPPED_SENTENCE, run_snakemake
from .tables import COMMANDS, CSV, ERROR, JSON, VERDICT, Answer

if TYPE_CHECKING:
    from pandas import DataFrame

# The copy's own half width from which the table says it.
_UNSTEADY = 0.1
# Rows of each group in the table; the rest is in what --out keeps.
_MOST_ROWS = 5
# Exit statuses besides 0.
_VERDICT, _REFUSED, _NOT_MEASURED = VERDICT, 2, 3
_STATUSES = """exit status:
  0  done
  1  a verdict: a wrong result, or a regression with --fail-on-regression
  2  the request was wrong, also its expressions or the kernel's workload.py
  3  not measured: no device, a lost device, no cell that worked, Ctrl-C, an error of gpushmoo
`run` ends as Snakemake does, after Ctrl-C with 130."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help tells what there is.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line `arguments` say; the exit status (see ``--help``).

    By default they are those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    words, options = _for_snakemake(words) if words[:1] == ["run"] else (words, [])
    if "--json-schema" in (*words, *options) and (
        named := [w for w in words if w in COMMANDS["commands"]]
    ):
        print(json.dumps(tables.answer_schema(named[0]), indent=1))
        return 0
    form = next((form for form in (JSON, CSV) if f"--{form}" in words), None)
    began = time.monotonic()
    # A table says by itself that no cell worked.
    warnings.filterwarnings("ignore", module=__name__)
    try:
        command = _asked(words, options, form)
        with _on_stderr() if form else nullcontext():
            answer = command()
        try:
            tables.print_answer(words[0], form, answer, time.monotonic() - began)
            sys.stdout.flush()
        except OSError as err:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            # Else the reader, such as `head`, has seen enough.
            if not isinstance(err, BrokenPipeError):
                raise UserError(unwritten("stdout", err)) from err
        return answer.status
    except UserError as err:
        sentence = str(err)
        status = _NOT_MEASURED if isinstance(err, DeviceError) else _REFUSED
    except KeyboardInterrupt:
        kept = "; only `run` keeps what it measured" if words[0] in ("sweep", "tune") else ""
        sentence = f"stopped{kept}."
        status = _NOT_MEASURED
        if words[0] == "run":
            sentence, status = STOPPED_SENTENCE, STOPPED
    except Exception as err:
        # Python's own status would be that of a verdict.
        sentence = f"{type(err).__name__}: {err}"
        status = _NOT_MEASURED
        if isinstance(err, OSError) and is_full(err):
            # A command's own output is a UserError.
            sentence = unwritten(err.filename or gettempdir(), err)
        else:
            traceback.print_exc()
    print(f"{library}: {sentence}", file=sys.stderr)
    if form == JSON:
        took_s = time.monotonic() - began
        tables.print_json(ERROR, {"status": status, "took_s": took_s, "error": sentence})
    return status


# What follows them is a configuration of Snakemake's own.
_CONFIGFILES = ("--configfile", "--configfiles")


def _for_snakemake(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of ``run`` that are for this program, and those for Snakemake.

    Snakemake's are all behind ``--``, options that ``run`` does not have, and their values.
    """
    takes = " ".join(COMMANDS["commands"]["run"]["takes"]).split()
    own = {*(word for word in takes if word.startswith("-")), "--json", "--help", "-h"}
    ours = list[str]()
    theirs = list[str]()
    previous = ""
    for place, word in enumerate(words):
        if word == "--":
            theirs += words[place + 1 :]
            break
        is_config = word.endswith((".yaml", ".yml", ".json")) and Path(word).is_file()
        after_option = previous.startswith("-") and previous not in _CONFIGFILES
        if word.startswith("-"):
            is_ours = word.partition("=")[0] in own
        else:
            is_ours = previous == "--cores" or not theirs or (is_config and after_option)
        (ours if is_ours else theirs).append(word)
        previous = word
    return ours, theirs


@contextmanager
def _on_stderr() -> Iterator[None]:
    """Within it what a kernel's Python, a compiler or a child prints goes to stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _asked(words: Sequence[str], options: Sequence[str], form: str | None) -> Callable[[], Answer]:
    """The command with its arguments; `options` are for Snakemake."""
    parser = _parser()
    renamed = COMMANDS["renamed"]
    unknown = list(words[:1])
    if not set(unknown) & set(renamed):
        parsed, unknown = parser.parse_known_args(words)
    for name in (word.partition("=")[0] for word in unknown):
        if name in renamed:
            parser.error(f"{name} is now {renamed[name]}")
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given = {**vars(parsed), **({"options": options} if options else {})}
    given.pop("form", None)
    if "axes" in given:
        axes: dict[str, list[Any]] = {}
        for axis, values in (one for several in given["axes"] for one in several):
            # An axis that is named twice has the values of both.
            axes[axis] = axes.get(axis, []) + values
        given["axes"] = axes
    given |= {n: dict(given[n]) for n in ("measure", "arguments", "expect") if n in given}
    command = given.pop("command")
    given |= {"form": form} if "form" in signature(command).parameters else {}
    return partial(command, **given)


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog=library,
        description="Finds the launch parameters that make a memory-bound GPU kernel fastest.",
        epilog=_STATUSES,
        formatter_class=raw,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, parser_class=_Parser, metavar="COMMAND")

    for name, told in COMMANDS["commands"].items():
        command = commands.add_parser(
            name,
            help=told["does"],
            epilog=f"example:\n  {library} {name} {told['example']}",
            formatter_class=raw,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        # An extra brings its function along.
        command.set_defaults(command=told.get("answer") or globals()[f"_{name}"])
        for word in " ".join([*told["takes"], "--json"]).split():
            argument = word.rstrip("?*+!")
            many = word[-1]
            kind, value, text = COMMANDS["arguments"][argument]
            how = {**_KINDS[kind], **({"metavar": value} if value else {})}
            how |= {"nargs": many} if many in "?*+" else {"required": True} if many == "!" else {}
            command.add_argument(argument, help=text.replace("%", "%%"), **how)
    return parser


def _words(text: str) -> list[Any]:
    return [word for word in text.split(",") if word]


def _sizes(text: str) -> list[Any]:
    """``512,512x1024,of_cache:4`` as numbers, as height with width, and as by the last cache."""
    return [_of_cache(word) or _size(word) for word in _words(text)]


def _of_cache(word: str) -> dict[str, float] | None:
    found = re.fullmatch(r"of_cache:(\d+(\.\d+)?)", word, re.ASCII)
    return None if found is None else {"of_cache": float(found[1])}


def _size(word: str) -> int | tuple[int, ...]:
    if not re.fullmatch(r"\d+(x\d+)?", word, re.ASCII):
        raise argparse.ArgumentTypeError(f"'{word}' must be a number or such as 512x1024")
    parts = tuple(int(n) for n in word.split("x"))
    return parts[0] if len(parts) == 1 else parts


# Behind it begins another axis: `block_x=32,64,block_y=2`.
_NEXT_AXIS = re.compile(r",(?=[A-Za-z_]\w*=(?!=))", re.ASCII)
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


def _axes(text: str) -> list[tuple[str, list[Any]]]:
    """``NAME=16,4:64:4,text`` as an axis with its specification. A comma may begin another axis.

    Raises ArgumentTypeError.
    """
    found = []
    for part in _NEXT_AXIS.split(text):
        name, equals, values = part.partition("=")
        words = values.split(",")
        if not (equals and name.isidentifier() and all(words)):
            raise argparse.ArgumentTypeError(
                f"'{part}' must be NAME=VALUES, such as TILE=16,32 or block_x=4:64:4; separate "
                "axes by blanks"
            )
        found.append((name, [_axis_value(name, word) for word in words]))
    return found


def _axis_value(name: str, word: str) -> Any:
    """A number, a range or a text. Raises ArgumentTypeError."""

    def refuse(problem: str) -> NoReturn:
        raise argparse.ArgumentTypeError(f"'{name}={word}': {problem}")

    parts = word.split(":")
    if all(map(_is_whole, parts)) and len(parts) in (2, 3):
        ends = dict(zip(("from", "to", "step"), map(int, parts), strict=False))
        if ends["from"] > ends["to"] or ends.get("step") == 0:
            refuse("the range is empty; write FROM:TO:STEP, such as 4:64:4")
        return ends
    if len(parts) > 1 and any(map(_is_whole, parts)):
        refuse("a range must be FROM:TO or FROM:TO:STEP, such as 4:64:4")
    if word[0] in "=[" or any(word.count(a) != word.count(b) for a, b in _BRACKETS):
        refuse(f"separate values by commas, without brackets, such as {name}=16,32")
    value = typed(word)
    if name in BLOCK_AXES and not _is_count(value):
        refuse("a block must have a whole number of threads")
    # Any other word may be a macro's text.
    return word if value is None else value


def _is_whole(word: str) -> bool:
    return word.isascii() and word.isdecimal()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _setting(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``, the value as in Snakemake's ``--config``."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"'{text}' must be KEY=VALUE, such as max_samples=21")
    try:
        return key, typed(yaml.load(value, yaml.CBaseLoader))
    except yaml.YAMLError as err:
        raise argparse.ArgumentTypeError(f"'{value}' is not a value of YAML") from err


def _named(text: str) -> tuple[str, str]:
    """Split an argument ``NAME=EXPRESSION``. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"'{text}' must be NAME=EXPRESSION, such as 'y=2 * x'")
    return name, value


def _whole(least: int) -> Callable[[str], int]:
    """Reads a whole number, `least` or more. Raises ArgumentTypeError."""

    def read(text: str) -> int:
        # No counter has more digits.
        if not re.fullmatch(r"\+?\d{1,18}", text, re.ASCII) or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' must be a whole number, at least {least}")
        return int(text)

    return read


def _cores(text: str) -> str:
    """``all``, or a number. Raises ArgumentTypeError."""
    return text if text == "all" else str(_whole(1)(text))


def _device(text: str) -> int | str:
    """``all``, or an index from 0. Raises ArgumentTypeError."""
    return text if text == "all" else _whole(0)(text)


def _real(text: str) -> float:
    """A finite number, at least 0. Raises ArgumentTypeError."""
    value = _finite(text)
    if value is None or value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' must be a finite number, at least 0")
    return value


def _positive(text: str) -> float:
    """A finite number above 0. Raises ArgumentTypeError."""
    value = _finite(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' must be a finite number, more than 0")
    return value


def _share(text: str) -> float:
    """A share of 1 from ``2%`` or ``0.02``. Raises ArgumentTypeError."""
    value = _finite(text.removesuffix("%"))
    value = value / 100 if value is not None and text.endswith("%") else value
    if value is None or not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' must be a share from 0 to 1, as 2% or 0.02")
    return value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# How arguments of each kind are read.
_KINDS: dict[str, dict[str, Any]] = {
    "text": {},
    "whole": {"type": _whole(0)},
    "count": {"type": _whole(1)},
    "cores": {"type": _cores},
    "device": {"type": _device},
    "real": {"type": _real},
    "positive": {"type": _positive},
    "share": {"type": _share},
    "path": {"type": Path},
    "in": {"type": Path, "dest": "parent"},
    "size": {"type": _size},
    "sizes": {"type": _sizes, "action": "extend"},
    "list": {"type": _words, "action": "extend"},
    "many": {"nargs": "+"},
    "axes": {"type": _axes, "nargs": "+", "action": "extend"},
    "named": {"type": _named, "nargs": "+", "action": "extend"},
    "keys": {"type": _setting, "nargs": "+", "action": "extend"},
    "what": {"choices": ("kernels", "devices")},
    "flag": {"action": "store_true"},
    **{form: {"dest": "form", "action": "store_const", "const": form} for form in (JSON, CSV)},
}


def _sweep(
    kernel: str, out: str | None = None, measure: Mapping[str, Any] | None = None, **asked: Any
) -> Answer:
    if out is not None:
        # Said before anything is measured.
        empty_folder(out)
    return _swept(sweep(kernel, **{**(measure or {}), **asked}), out)


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
    from .tune import tune
    from .tune_arguments import numpy_values

    if out is not None:
        empty_folder(out)
    given = numpy_values(arguments, size)
    wanted = numpy_values(expect or {}, size, given)
    asked = {**(measure or {}), **asked, "expect": wanted or None}
    return _swept(tune(source, name, given, size, axes, **asked), out)


def _swept(result: Sweep, out: str | None) -> Answer:
    """What a sweep has found, which is kept in `out`."""
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
        return f"{report(result)}\n\nSaved in {folder}; its report:\n  {_typed()} run {config}"

    status = 0 if Status.OK in result.statuses else _NOT_MEASURED
    if {*result.statuses} == {Status.WORKLOAD_FAILED}:
        # An expression or a workload.py has no value that can be launched.
        status = _REFUSED
    if result.statuses.keys() & {Status.WRONG_RESULT, Status.FALSE_TIME}:
        status = _VERDICT
    return Answer(told, text, status)


def report(result: Sweep) -> str:
    """The best cells of each group as a short table, with what its sweep has in common above it."""
    best = result.best
    parts = [repr(result).strip("<>") + "."]
    several = best["timing_mode"].nunique() > 1
    # Then an interval says nothing of another run.
    alone = result.cells["repeat_medians_s"].str.len().max() < 2
    for _, group in best.groupby(list(GROUP), sort=False):
        top = group.iloc[0]
        kind = f"{kind_words(top['timing_mode'])}, " if several else ""
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
        for row in faulty.head(_MOST_ROWS).to_dict("records"):
            launch = ", ".join(f"{axis}={row[axis]}" for axis in axes)
            parts.append(
                f"{row['dtype']}, {row['variant']}, {row['height']} x {row['width']}, "
                f"{row['cache_state']}, {launch}: {row['status']}, {row['message']}"
            )
    return "\n".join(parts)


def _unsteady(result: Sweep, of: Mapping[str, Any]) -> str:
    """The half width of the copy of a group as words, where it is `_UNSTEADY` or more."""
    keys = ("height", "width", "cache_state", "timing_mode")
    shards = [s for s in result.provenance if s["params"]["dtype"] == of["dtype"]]
    copies = (c for s in shards for c in s["controls"] if all(c[k] == of[k] for k in keys))
    seconds = [second for copy in copies for second in copy["seconds"]]
    half = median_interval(seconds).relative_half_width if seconds else 0.0
    return f" ± {100 * half:.0f} %" * (half >= _UNSTEADY)


def _table(group: DataFrame, alone: bool, unsteady: str) -> str:
    from ..core.merit import merit_of

    top = group.head(_MOST_ROWS)
    merit = merit_of(group)
    shown = top[[*filter(is_axis, top.columns)]].copy()
    values, lows, highs = merit.of(top)
    shown[merit.unit] = [f"{value:.4g}" for value in values]
    heading = "95 %, this run" if alone else "95 % interval"
    shown[heading] = [f"{low:.4g} to {high:.4g}" for low, high in zip(lows, highs, strict=True)]
    if group["vs_memcpy"].notna().any():
        shown[f"of the copy{unsteady}"] = [
            f"{100 * share:.0f} %" if share == share else "" for share in top["vs_memcpy"]
        ]
    more = len(group) - len(shown)
    return tables.aligned(shown, str.rjust) + (f"\nand {more} more" if more else "")


def _ab(
    *,
    a: str,
    b: str | None = None,
    markdown: Path | None = None,
    fail_on_regression: bool = False,
    measure: Mapping[str, Any] | None = None,
    **asked: Any,
) -> Answer:
    from .ab import SAMPLE_COLUMNS, ab
    from .checkouts import Checkouts, ab_checkouts

    asked = {**(measure or {}), **asked}
    if markdown is not None:
        _refuse_unwritable(markdown)
    if (Path(a).expanduser() / "workload.py").is_file():
        if odd := asked.keys() & {"kernels", "unchanged"}:
            raise ConfigError(f"{odd.pop()}: '{a}' is a kernel's folder, not one of several.")
        test = ab(a, b, **asked)
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
        return Answer(told, text, _VERDICT, page)
    return Answer(told, text, _NOT_MEASURED if found.failed else 0, page)


def _refuse_unwritable(path: Path) -> None:
    """Raise ConfigError, before anything is measured, if nothing can be appended to the file."""
    is_new = not path.exists()
    _append(path, "")
    if is_new:
        path.unlink()


def _append(path: Path, text: str) -> None:
    """Append to a file, all or nothing. Raises ConfigError."""
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


def _compare(
    runs: Sequence[str] = (),
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    noise_runs: Sequence[str] = (),
    fail_on_regression: bool = False,
    out: str | None = None,
    **threshold: float,
) -> Answer:
    import pandas as pd

    from ..comparing.compare import compare
    from ..comparing.false_alarms import false_alarms

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
    status = _VERDICT if fail_on_regression and rows["alarm"].any() else 0
    return Answer({"rows": rows, "folder": folder}, None, status, page=lambda: text)


def _export(**asked: Any) -> Answer:
    from ..exporting.write import export

    done = export(**asked)
    written = number_of(len(done.files), "file")
    return Answer(vars(done), lambda: f"{written} written to {done.folder}.")


def _predict(
    axes: Mapping[str, Sequence[Any]] | None = None, cache: Sequence[str] = (), **asked: Any
) -> Answer:
    from .predict import fastest, predict

    if cache:
        if len(cache) > 1:
            raise ConfigError("cache needs one value.")
        asked["cache"] = cache[0]
    values = axes or {}
    if all(len(v) == 1 and isinstance(v[0], int) for v in values.values()):
        one = predict(**asked, **{name: value for name, [value] in values.items()})
        return Answer({"rows": one.row}, one.__str__)
    found = predict(**asked, axes=values)
    return Answer({"rows": found}, lambda: fastest(found, values, _MOST_ROWS))


def _run(
    form: str | None, configs: Sequence[str] = (), cores: str = "all", options: Sequence[str] = ()
) -> Answer:
    snakefile = ROOT / "Snakefile"
    if not snakefile.is_file():
        raise ConfigError(f"A run needs a clone of {library}: its Snakefile, kernels and reports.")
    for config in configs:
        if not Path(config).is_file():
            raise ConfigError(f"'{config}' is no file; name that of a configuration.")
    words = [*(["--configfile", *configs] if configs else []), "--cores", cores, *options]
    there = [] if Path.cwd() == ROOT else ["-s", str(snakefile)]
    if form is None:
        return Answer({}, status=run_snakemake([*there, *words]))
    from ..analysis.aggregate import opened
    from ..storage.dataset import read_cells

    began = time.time()
    told = dict[str, Any](folder=None, files=[], statuses={})
    with TemporaryDirectory(prefix=f"{library}-") as place:
        said = Path(place, "run")
        command = [sys.executable, "-m", run_snakemake.__module__, *there, *words]
        status = _waited_for(command, {**child_environment(), RUN_FOLDER: str(said)})
        if said.is_file():
            folder = Path(said.read_text(encoding="utf-8"))
            told["folder"] = folder
            told["files"] = sorted(p for p in folder.glob("[!.]*.*") if p.stat().st_mtime >= began)
            with suppress(OpenedError, BadParquetError), opened(folder) as found:
                told["statuses"] = Counter(read_cells(found.dataset, columns=["status"])["status"])
    return Answer(told, None, status)


def _waited_for(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit status of a program that gets this one's signals."""
    # The terminal's own come by this process, too, so that it gets each once.
    with subprocess.Popen(command, env=environment, process_group=0) as child:

        def pass_on(number: int, _: Any) -> None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)

        heard = [s for s in END_SIGNALS if signal.getsignal(s) != signal.SIG_IGN]
        before = {number: signal.signal(number, pass_on) for number in heard}
        status = child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _list(what: str) -> Answer:
    rows, notes = (tables.found_devices if what == "devices" else tables.found_kernels)()
    status = _NOT_MEASURED if rows.empty and what == "devices" else 0
    # Of some kernels there are dozens of variants.
    shown = rows.drop(columns="variants", errors="ignore")
    text = None if rows.empty else partial(tables.aligned, shown)
    return Answer({"rows": rows, "notes": notes}, text, status)


def _new(name: str, parent: Path = Path("kernels")) -> Answer:
    folder, config = write_kernel(name, parent)
    lines = (
        f"{folder} holds a kernel that runs as it is; every line says what it is for. Next:",
        f"  {_typed()} sweep {shlex.quote(str(folder))}",
        f"  {_typed()} run {shlex.quote(str(config))}",
    )
    files = [config, *sorted(folder.iterdir())]
    return Answer({"folder": folder, "files": files}, lambda: "\n".join(lines))


def _typed() -> str:
    """This command as it was typed."""
    if Path(sys.argv[0]).name == library:
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m {library}"


# The kernel's name in the template's files.
_NAME = "my_kernel"
# Ends a file of the template that is no Python module of the library.
_AS_TEXT = ".txt"


def write_kernel(name: str, parent: Path) -> tuple[Path, Path]:
    """Make ``parent/name`` with its sources, and a configuration next to it that sweeps it.

    Both paths. Raises ConfigError for a name that cannot be one, and where either exists.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise ConfigError(
            f"name: '{name}' cannot be a kernel's; it must be a letter and then letters, digits "
            "and '_', 64 at most, and no word of Python."
        )
    folder = parent / name
    config = parent / f"{name}.yaml"
    for path in (folder, config):
        if path.exists():
            raise ConfigError(f"name: '{path}' exists already; choose another name.")
    with output_folder(parent, ConfigError) as fresh:
        (fresh / name).mkdir()
        for item in (files(__package__) / "template").iterdir():
            text = item.read_text(encoding="utf-8").replace(_NAME, name)
            is_config = item.name == f"{_NAME}.yaml"
            place = config.name if is_config else Path(name, item.name.removesuffix(_AS_TEXT))
            (fresh / place).write_text(text, encoding="utf-8")
    return folder, config
