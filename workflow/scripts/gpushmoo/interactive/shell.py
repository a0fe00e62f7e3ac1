"""The command line: ``gpushmoo sweep``, ``ab``, ``compare``, ``export`` and others.

`commands.yaml` says what there is. An option sets the Python function's argument of its name; one
that is not given is not passed, so each default stands in the function alone. Functions are
imported when they are called: statistics, figures and the terminal's library take up to a second
each.
"""

from __future__ import annotations

import argparse
import keyword
import os
import re
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from .. import __name__ as library
from .. import __version__
from ..comparing import CompareError
from ..core.display import kind_words, tied_words
from ..core.errors import DeviceError, UserError
from ..core.paths import ROOT
from ..core.schema import FAULTS, GROUP, Status
from ..planning.config_schema import ConfigError
from .measure import Sweep, empty_folder, sweep
from .tables import CSV, JSON, aligned, found_devices, found_kernels, print_table

if TYPE_CHECKING:
    from pandas import DataFrame

# Rows of each group in the table; the rest is in what --out keeps.
_MOST_ROWS = 5
# Exit statuses besides 0.
_VERDICT, _REFUSED, _NOT_MEASURED = 1, 2, 3
_STATUSES = """exit status:
  0  done
  1  a verdict: a wrong result, or a regression with --fail-on-regression
  2  the request was wrong
  3  not measured: no device, a lost device, no cell that worked, Ctrl-C, an error of gpushmoo
`run` ends as Snakemake does."""
# What each command does and takes, and what each argument means.
_TABLE = yaml.CSafeLoader((files(__package__) / "commands.yaml").read_bytes()).get_single_data()


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(_REFUSED, f"{library}: {message}; --help tells what there is.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line `arguments` say; the exit status (see ``--help``).

    By default they are those of this process.
    """
    parser, words = _parser(), list(sys.argv[1:] if arguments is None else arguments)
    options: list[str] = []
    if words[:1] == ["run"] and "--" in words:
        words, options = words[: words.index("--")], words[words.index("--") + 1 :]
    renamed, unknown = _TABLE["renamed"], words[:1]
    if not set(unknown) & set(renamed):
        parsed, unknown = parser.parse_known_args(words)
    for name in (word.partition("=")[0] for word in unknown):
        if name in renamed:
            parser.error(f"{name} is now {renamed[name]}")
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given = vars(parsed) | ({"options": options} if options else {})
    pairs = ("axes", "measure", "arguments", "expect")
    for name in pairs:
        named: dict[str, Any] = {}
        for key, value in given.get(name, ()):
            # An axis that is named twice has the values of both.
            named[key] = named[key] + value if name == "axes" and key in named else value
        given |= {name: named} if name in given else {}
    command = given.pop("command")
    try:
        status: int = command(**given)
    except UserError as err:
        print(f"{library}: {err}", file=sys.stderr)
        return _NOT_MEASURED if isinstance(err, DeviceError) else _REFUSED
    except KeyboardInterrupt:
        print(f"{library}: stopped.", file=sys.stderr)
        return _NOT_MEASURED
    except Exception:
        # Python's own status would be that of a verdict.
        traceback.print_exc()
        return _NOT_MEASURED
    return status


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

    for name, told in _TABLE["commands"].items():
        command = commands.add_parser(
            name,
            help=told["does"],
            epilog=f"example:\n  {library} {name} {told['example']}",
            formatter_class=raw,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        command.set_defaults(command=globals()[f"_{name}"])
        for word in " ".join(told["takes"]).split():
            argument, many = word.rstrip("?*+!"), word[-1]
            kind, value, text = _TABLE["arguments"][argument]
            how = {**_KINDS[kind], **({"metavar": value} if value else {})}
            how |= {"nargs": many} if many in "?*+" else {"required": True} if many == "!" else {}
            command.add_argument(argument, help=text.replace("%", "%%"), **how)
    return parser


def _words(text: str) -> list[Any]:
    return [word for word in text.split(",") if word]


def _sizes(text: str) -> list[Any]:
    """``512,512x1024`` as numbers and as height with width."""
    return [_size(word) for word in _words(text)]


def _size(word: str) -> int | tuple[int, ...]:
    if not re.fullmatch(r"\d+(x\d+)?", word):
        raise argparse.ArgumentTypeError(f"'{word}' must be a number or such as 512x1024")
    parts = tuple(int(n) for n in word.split("x"))
    return parts[0] if len(parts) == 1 else parts


def _axis(text: str) -> tuple[str, list[Any]]:
    """``NAME=16,4:64:4,text`` as the axis and its specification."""
    name, equals, values = text.partition("=")
    if not (equals and all(values.split(","))):
        raise argparse.ArgumentTypeError(
            f"'{text}' must be NAME=VALUES, such as TILE=16,32 or block_x=4:64:4"
        )
    found: list[Any] = []
    for word in values.split(","):
        ends = dict(zip(("from", "to", "step"), map(_number, word.split(":")), strict=False))
        is_range = len(ends) > 1 and None not in ends.values()
        found.append(ends if is_range else _setting(f"{name}={word}")[1])
    return name, found


def _number(word: str) -> int | None:
    return int(word) if word.isdecimal() else None


def _setting(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``, the value as YAML has it."""
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' must be KEY=VALUE, such as max_samples=21")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as err:
        raise argparse.ArgumentTypeError(f"'{value}' is no value") from err


def _named(text: str) -> tuple[str, str]:
    """``NAME=EXPRESSION``."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"'{text}' must be NAME=EXPRESSION, such as 'y=2 * x'")
    return name, value


# How arguments of each kind are read.
_KINDS: dict[str, dict[str, Any]] = {
    "text": {},
    "int": {"type": int},
    "float": {"type": float},
    "path": {"type": Path},
    "in": {"type": Path, "dest": "parent"},
    "size": {"type": _size},
    "sizes": {"type": _sizes, "action": "extend"},
    "list": {"type": _words, "action": "extend"},
    "many": {"nargs": "+"},
    "axes": {"type": _axis, "nargs": "+", "action": "extend"},
    "named": {"type": _named, "nargs": "+", "action": "extend"},
    "keys": {"type": _setting, "nargs": "+", "action": "extend"},
    "what": {"choices": ("kernels", "devices")},
    "flag": {"action": "store_true"},
    **{form: {"dest": "form", "action": "store_const", "const": form} for form in (JSON, CSV)},
}


def _sweep(
    kernel: str,
    out: str | None = None,
    measure: Mapping[str, Any] | None = None,
    form: str | None = None,
    **asked: Any,
) -> int:
    if out is not None:
        # Said before anything is measured.
        empty_folder(out)
    return _swept("sweep", sweep(kernel, **{**(measure or {}), **asked}), out, form)


def _tune(
    source: str,
    name: str,
    size: int | tuple[int, ...],
    arguments: Mapping[str, str],
    axes: Mapping[str, Sequence[Any]],
    expect: Mapping[str, str] | None = None,
    out: str | None = None,
    measure: Mapping[str, Any] | None = None,
    form: str | None = None,
    **asked: Any,
) -> int:
    from .tune import numpy_values, tune

    if out is not None:
        empty_folder(out)
    given = numpy_values(arguments, size)
    wanted = numpy_values(expect or {}, size, given)
    asked = {**(measure or {}), **asked, "expect": wanted or None}
    return _swept("tune", tune(source, name, given, size, axes, **asked), out, form)


def _swept(command: str, result: Sweep, out: str | None, form: str | None) -> int:
    """Print what a sweep has found, and keep it in `out`; the exit status."""
    config = None if out is None else result.save(out) / "report.yaml"
    statuses = result.statuses
    print_table(command, form, result.best, lambda: report(result), statuses=statuses)
    if config is not None:
        said = (
            f"\nSaved in {config.parent}; its report:\n  {_typed()} run {shlex.quote(str(config))}"
        )
        print(said, file=sys.stderr if form else sys.stdout)
    return _status(statuses)


def _status(statuses: Mapping[str, int]) -> int:
    """The exit status of cells, or pairs, that ended so."""
    if statuses.keys() & {Status.WRONG_RESULT, Status.FALSE_TIME}:
        return _VERDICT
    return 0 if Status.OK in statuses else _NOT_MEASURED


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
        parts.append(_table(group.head(_MOST_ROWS), alone))
    if best.empty:
        parts += dict.fromkeys(result.cells["message"].dropna())
    else:
        faulty = result.cells[result.cells["status"].isin(FAULTS)]
        rows = faulty[["cell_key", "status", "message"]].head(_MOST_ROWS)
        parts += ["", *(f"{key}: {status}, {said}" for key, status, said in rows.to_numpy())]
    return "\n".join(parts)


def _table(group: DataFrame, alone: bool) -> str:
    from ..core.merit import merit_of

    place = list(group.columns).index("threads_per_block")
    shown = group[list(group.columns)[len(GROUP) : place]].copy()
    merit = merit_of(group)
    values, lows, highs = merit.of(group)
    shown[merit.unit] = [f"{value:.4g}" for value in values]
    heading = "95 %, this run" if alone else "95 % interval"
    shown[heading] = [f"{low:.4g} to {high:.4g}" for low, high in zip(lows, highs, strict=True)]
    if group["vs_memcpy"].notna().any():
        shown["of the copy"] = [
            f"{100 * share:.0f} %" if share == share else "" for share in group["vs_memcpy"]
        ]
    return str(shown.to_string(index=False))


def _ab(
    *,
    a: str,
    b: str | None = None,
    markdown: Path | None = None,
    fail_on_regression: bool = False,
    measure: Mapping[str, Any] | None = None,
    form: str | None = None,
    **asked: Any,
) -> int:
    from .ab import SAMPLE_COLUMNS, ab
    from .checkouts import Checkouts, ab_checkouts

    asked = {**(measure or {}), **asked}
    if (Path(a).expanduser() / "workload.py").is_file():
        if odd := asked.keys() & {"kernels", "unchanged"}:
            raise ConfigError(f"{odd.pop()}: '{a}' is a kernel's folder, not one of several.")
        test = ab(a, b, **asked)
        found = Checkouts((a, b or a), test.threshold, ([], []))
        found.add(test.sides[0].folder.name, test)
        print_table("ab", form, test.cells.drop(columns=SAMPLE_COLUMNS), lambda: str(test))
    else:
        found = ab_checkouts(a, b, **asked)
        rows = found.cells.drop(columns=SAMPLE_COLUMNS, errors="ignore")
        names = ("groups", "slower", "unchanged", "alone", "failed")
        more = {name: getattr(found, name) for name in names}
        print_table("ab", form, rows, found.markdown().rstrip, **more)
    if markdown is not None:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(found.markdown())
    if any(t.wrong for t in found.tests.values()) or (fail_on_regression and found.slower):
        return _VERDICT
    return _NOT_MEASURED if found.failed else 0


def _compare(
    runs: Sequence[str] = (),
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    noise_runs: Sequence[str] = (),
    fail_on_regression: bool = False,
    out: str | None = None,
    form: str | None = None,
    **threshold: float,
) -> int:
    import pandas as pd

    from ..comparing.compare import compare
    from ..comparing.false_alarms import false_alarms

    if noise_runs and not (runs or before or after):
        alarms = false_alarms(noise_runs, **threshold)
        text = alarms.markdown()
        rows = pd.concat([c.groups.assign(run_a=a, run_b=b) for a, b, c in alarms.pairs])
    else:
        if runs and (before or after):
            raise CompareError(
                "Name runs either by --before and --after or without an option, not both ways."
            )
        if not (before or after) and len(runs) != 2:
            raise CompareError(
                f"compare takes two runs, not {len(runs)}; several by --before and --after."
            )
        found = compare(before or runs[:1], after or runs[1:], noise_runs=noise_runs, **threshold)
        if out is not None:
            found.save(out)
        text, rows = found.markdown(), found.groups
    print_table("compare", form, rows, text.rstrip)
    return _VERDICT if fail_on_regression and rows["alarm"].any() else 0


def _judge(fail_on_regression: bool = False, form: str | None = None, **asked: Any) -> int:
    from ..judging.judge import judge

    found = judge(**asked)
    held = {} if found.comparison is None else {"groups": found.comparison.groups}
    print_table("judge", form, found.rows, lambda: str(found), **held)
    slower = found.comparison is not None and not found.comparison.slower.empty
    return _VERDICT if fail_on_regression and slower else 0


def _history(form: str | None = None, **asked: Any) -> int:
    from .history import history

    found = history(**asked)
    print_table("history", form, found.rows, found.markdown().rstrip, changes=found.changes)
    return 0


def _explore(**asked: Any) -> int:
    from ..explorer.explore import explore

    print(f"{explore(**asked)} opens in any browser; it needs no network.")
    return 0


def _export(**asked: Any) -> int:
    from ..exporting.write import export

    done = export(**asked)
    for sentence in done.notes:
        print(f"{library}: {sentence}", file=sys.stderr)
    print(f"{done.folder} holds {len(done.files)} files.")
    return 0


def _predict(
    axes: Mapping[str, Sequence[Any]] | None = None,
    cache: Sequence[str] = (),
    form: str | None = None,
    **asked: Any,
) -> int:
    from .predict import fastest, predict

    if cache:
        if len(cache) > 1:
            raise ConfigError("cache needs one value.")
        asked["cache"] = cache[0]
    values = axes or {}
    if all(len(v) == 1 and isinstance(v[0], int) for v in values.values()):
        one = predict(**asked, **{name: value for name, [value] in values.items()})
        print_table("predict", form, one.row, lambda: str(one))
    else:
        found = predict(**asked, axes=values)
        print_table("predict", form, found, lambda: fastest(found, values, _MOST_ROWS))
    return 0


def _run(configs: Sequence[str] = (), cores: str = "all", options: Sequence[str] = ()) -> int:
    snakefile, program = ROOT / "Snakefile", Path(sys.executable).with_name("snakemake")
    if not snakefile.is_file():
        raise ConfigError(f"A run needs a clone of {library}: its Snakefile, kernels and reports.")
    for config in configs:
        if not Path(config).is_file():
            raise ConfigError(f"'{config}' is no file; name that of a configuration.")
    words = [*(["--configfile", *configs] if configs else []), "--cores", cores, *options]
    there = [] if Path.cwd() == ROOT else ["-s", str(snakefile)]
    os.execv(program, [str(program), *there, *words])


def _watch(**asked: Any) -> int:
    from ..watching.view import watch

    watch(**asked)
    return 0


def _list(what: str, form: str | None = None) -> int:
    rows, notes = (found_devices if what == "devices" else found_kernels)()
    for sentence in notes:
        print(f"{library}: {sentence}", file=sys.stderr)
    # Of some kernels there are dozens of variants.
    print_table("list", form, rows, lambda: aligned(rows.drop(columns="variants", errors="ignore")))
    return _NOT_MEASURED if rows.empty and what == "devices" else 0


def _new(name: str, parent: Path = Path("kernels")) -> int:
    folder, config = write_kernel(name, parent)
    print(f"{folder} holds a kernel that runs as it is; every line says what it is for. Next:")
    print(f"  {_typed()} sweep {shlex.quote(str(folder))}")
    print(f"  {_typed()} run {shlex.quote(str(config))}")
    return 0


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
    folder, config = parent / name, parent / f"{name}.yaml"
    for path in (folder, config):
        if path.exists():
            raise ConfigError(f"name: '{path}' exists already; choose another name.")
    try:
        folder.mkdir(parents=True)
        for item in (files(__package__) / "template").iterdir():
            text = item.read_text(encoding="utf-8").replace(_NAME, name)
            is_config = item.name == f"{_NAME}.yaml"
            out = config if is_config else folder / item.name.removesuffix(_AS_TEXT)
            out.write_text(text, encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"--in: '{folder}' cannot be written ({err.strerror}).") from err
    return folder, config
