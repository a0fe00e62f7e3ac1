"""The command line: ``gpushmoo sweep``, ``versus``, ``compare``, ``export`` and others."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import yaml

from .. import __name__ as library
from .. import __version__
from ..comparing import CompareError
from ..core.display import kind_words
from ..core.errors import DeviceError, UserError
from ..core.paths import ROOT
from ..core.schema import GROUP, Status
from ..planning.config_schema import ConfigError
from ..storage.wholefile import write_whole
from .measure import Sweep, sweep

# Rows of each group in the table; the rest is in what --save keeps.
_MOST_ROWS = 5
# Exit statuses, where nothing could be measured and of what cannot be asked.
_FAILED, _REFUSED = 1, 2


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(_REFUSED, f"{library}: {message}; --help tells what there is.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line `arguments` say; the exit status: 0, 1 without a result, 2 if wrong.

    By default they are those of this process.
    """
    given = _parser().parse_args(arguments)
    try:
        return _COMMANDS[given.command](given)
    except UserError as err:
        print(f"{library}: {err}", file=sys.stderr)
        return _FAILED if isinstance(err, DeviceError) else _REFUSED
    except KeyboardInterrupt:
        print(f"{library}: stopped.", file=sys.stderr)
        return _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=library, description="Sweeps a kernel over its launch parameters.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    measured = commands.add_parser("sweep", help="measure a kernel's folder here and now")
    measured.add_argument("kernel", help="folder of the kernel, such as kernels/transpose")
    measured.add_argument(
        "--variant",
        action="extend",
        type=_words,
        metavar="NAME,NAME",
        help="variants of the kernel",
    )
    _add_swept(measured)
    measured.add_argument("--search", metavar="MODE", help="all, race or guided")
    measured.add_argument("--repeats", type=int, metavar="N", help="how often all is measured")
    measured.add_argument("--save", metavar="FOLDER", help="keep the cells in this new folder")
    shown = commands.add_parser(
        "explore", help="write a page that a browser opens, of a run's cells"
    )
    shown.add_argument("run", help="a run's folder, such as results/local, or a data set's")
    shown.add_argument("second", nargs="?", help="another one, to be shown beside it")
    shown.add_argument(
        "--out", metavar="FILE", help="where the page goes, by default explorer.html"
    )
    _add_versus(commands)
    _add_compare(commands)
    _add_history(commands)
    exported = commands.add_parser(
        "export", help="write a run's results for other programs; by default in every form"
    )
    exported.add_argument("run", help="a run's folder, such as results/local, or a data set's")
    for form, meaning in (
        ("t4", "the auto-tuning community's form, a file for each group of cells"),
        ("kernel-tuner", "cache files that Kernel Tuner's simulation mode replays"),
        ("header", "the launches to use, as C and C++ headers"),
        ("json", "the same as data"),
    ):
        exported.add_argument(
            f"--{form}", dest="formats", action="append_const", const=form, help=meaning
        )
    exported.add_argument("--out", metavar="FOLDER", help="where it goes, by default 'export'")
    made = commands.add_parser("new", help="write the folder of a new kernel that runs at once")
    made.add_argument("name", help="the kernel's name: letters, digits and '_'")
    made.add_argument("--in", dest="parent", default="kernels", help="by default %(default)s")
    watched = commands.add_parser("watch", help="show how far a run is, until it is finished")
    watched.add_argument("run", nargs="?", type=Path, help="its folder; by default the last")
    watched.add_argument("--once", action="store_true", help="print one frame and end")
    return parser


def _add_swept(parser: argparse.ArgumentParser) -> None:
    """What is swept, where and how, for whatever measures."""
    parser.add_argument(
        "--axis",
        action="append",
        default=[],
        type=_axis,
        metavar="NAME=VALUES",
        help="values of a launch parameter: TILE=16,32 or block_x=4:64:4, which a configuration "
        "calls {from: 4, to: 64, step: 4}",
    )
    for flag, example, meaning in (
        ("--dtype", "float,double", "element types"),
        (
            "--size",
            "2048,512x1024",
            "sizes: the side of a square, or height and width, "
            "which a configuration calls [512, 1024]",
        ),
        ("--cache", "warm,flushed", "what the last cache holds before a launch"),
        ("--launch", "back_to_back,isolated", "how launches come to the device"),
    ):
        kind = _sizes if flag == "--size" else _words
        parser.add_argument(flag, action="extend", type=kind, metavar=example, help=meaning)
    parser.add_argument("--backend", help="which backend; by default the first that answers")
    parser.add_argument("--device", type=int, metavar="INDEX", help="which device, from 0")
    parser.add_argument("--runtime", help="which runtime, of a backend that has several")
    parser.add_argument(
        "--measure",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a key under 'measure' of a configuration, such as max_samples=21",
    )


def _add_versus(commands: Any) -> None:
    measured = commands.add_parser(
        "versus", help="measure two versions of a kernel alternately: which is faster"
    )
    measured.add_argument("a", help="folder of the kernel, such as kernels/transpose")
    measured.add_argument("b", nargs="?", help="another one's; by default the same")
    for side in "ab":
        measured.add_argument(
            f"--variant-{side}", metavar="NAME", help=f"variant of {side.upper()}"
        )
    for side in "ab":
        measured.add_argument(
            f"--option-{side}",
            action="append",
            default=[],
            metavar="OPTION",
            help=f"for {side.upper()}'s compiler, such as --option-{side}=-use_fast_math",
        )
    _add_swept(measured)
    measured.add_argument("--blocks", type=int, metavar="N", help="of samples A B B A, 8 if unsaid")
    measured.add_argument(
        "--delta", type=float, metavar="SHARE", help="a change that matters, 0.01 if unsaid"
    )
    measured.add_argument(
        "--guard", action="store_true", help="end with 1 when B is slower by more than that"
    )


def _words(text: str) -> list[Any]:
    return [word for word in text.split(",") if word]


def _sizes(text: str) -> list[Any]:
    """``512,512x1024`` as numbers and as height with width."""
    words = _words(text)
    for word in words:
        if not re.fullmatch(r"\d+(x\d+)?", word):
            raise argparse.ArgumentTypeError(f"'{word}' must be a number or such as 512x1024")
    parts = [[int(n) for n in word.split("x")] for word in words]
    return [part[0] if len(part) == 1 else part for part in parts]


def _axis(text: str) -> tuple[str, list[Any]]:
    """``NAME=16,4:64:4`` as the axis and its specification."""
    name, _, values = text.partition("=")
    if not re.fullmatch(r"\d+(:\d+){0,2}(,\d+(:\d+){0,2})*", values):
        raise argparse.ArgumentTypeError(
            f"'{text}' must be NAME=VALUES, such as TILE=16,32 or block_x=4:64:4"
        )
    return name, [_part([int(n) for n in part.split(":")]) for part in values.split(",")]


def _part(numbers: list[int]) -> Any:
    if len(numbers) == 1:
        return numbers[0]
    return dict(zip(("from", "to", "step"), numbers, strict=False))


def _setting(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``, the value as YAML has it."""
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' must be KEY=VALUE, such as max_samples=21")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as err:
        raise argparse.ArgumentTypeError(f"'{value}' is no value") from err


def _sweep(given: argparse.Namespace) -> int:
    names = ("backend", "device", "runtime", "repeats", "search")
    chosen = {name: getattr(given, name) for name in names}
    result = sweep(
        given.kernel,
        axes=dict(given.axis) or None,
        dtypes=given.dtype,
        variants=given.variant,
        sizes=given.size,
        cache=given.cache,
        launch=given.launch,
        **{name: value for name, value in chosen.items() if value is not None},
        **dict(given.measure),
    )
    print(report(result))
    if given.save is not None:
        folder = result.save(given.save)
        print(f"\nSaved in {folder}; its report:\n  {_snakemake(folder / 'report.yaml')}")
    return 0 if Status.OK in result.statuses else _FAILED


def _versus(given: argparse.Namespace) -> int:
    # Not before it is wanted: the statistics take a second to import.
    from .versus import versus

    names = ["variant_a", "variant_b", "backend", "device", "runtime", "blocks", "delta"]
    chosen = {name: getattr(given, name) for name in names}
    result = versus(
        given.a,
        given.b,
        options_a=given.option_a,
        options_b=given.option_b,
        axes=dict(given.axis) or None,
        dtypes=given.dtype,
        sizes=given.size,
        cache=given.cache,
        launch=given.launch,
        **{name: value for name, value in chosen.items() if value is not None},
        **dict(given.measure),
    )
    print(result)
    if not result.verdicts:
        return _FAILED
    return _FAILED if given.guard and result.slower else 0


def report(result: Sweep) -> str:
    """The best cells of each group as a short table, with what its sweep has in common above it."""
    best = result.best()
    parts = [repr(result).strip("<>") + "."]
    several = best["launch_kind"].nunique() > 1
    for _, group in best.groupby(list(GROUP), sort=False):
        top = group.iloc[0]
        kind = f"{kind_words(top['launch_kind'])}, " if several else ""
        parts.append(
            f"\n{top['dtype']}, {top['variant']}, {top['height']} x {top['width']}, "
            f"{top['cache_state']}, {kind}{top['device_name']}: "
            f"{top['tied']} of {top['candidates']} cannot be told from the fastest"
        )
        parts.append(_table(group.head(_MOST_ROWS)))
    if best.empty:
        parts += dict.fromkeys(result.cells["message"].dropna())
    return "\n".join(parts)


def _table(group: pd.DataFrame) -> str:
    place = list(group.columns).index("threads_per_block")
    shown = group[list(group.columns)[len(GROUP) : place]].copy()
    bounds = zip(group["bandwidth_low_gbs"], group["bandwidth_high_gbs"], strict=True)
    shown["GB/s"] = [f"{value:.4g}" for value in group["bandwidth_gbs"]]
    shown["95 % interval"] = [f"{low:.4g} to {high:.4g}" for low, high in bounds]
    shown["of the copy"] = [_share(value) for value in group["over_copy"]]
    return str(shown.to_string(index=False))


def _share(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{100 * value:.0f} %"


def _new(given: argparse.Namespace) -> int:
    folder, config = write_kernel(given.name, Path(given.parent))
    print(f"{folder} holds a kernel that runs as it is; every line says what it is for. Next:")
    print(f"  {_tool('python')} -m {library} sweep {shlex.quote(str(folder))}")
    print(f"  {_snakemake(config)}")
    return 0


def _explore(given: argparse.Namespace) -> int:
    # Not before it is wanted: the models' tables take a second to import.
    from ..explorer.explore import explore

    page = explore(given.run, given.second, out=given.out)
    print(f"{page} opens in any browser; it needs no network.")
    return 0


def _export(given: argparse.Namespace) -> int:
    from ..exporting.write import FORMATS, export

    done = export(given.run, out=given.out, formats=given.formats or FORMATS)
    for sentence in done.notes:
        print(f"{library}: {sentence}", file=sys.stderr)
    print(f"{done.folder} holds {len(done.files)} files.")
    return 0


def _watch(given: argparse.Namespace) -> int:
    # What draws in a terminal is of no use to a sweep.
    from ..watching.view import watch

    watch(given.run, given.once)
    return 0


def _snakemake(config: Path) -> str:
    """The command that renders a report as the file `config` says, as it is typed here."""
    snakefile = ROOT / "Snakefile"
    if not snakefile.is_file():
        return f"in a clone of {library}: snakemake --cores all --configfile {config.resolve()}"
    there = "" if Path.cwd() == ROOT else f" -s {shlex.quote(str(snakefile))}"
    return f"{_tool('snakemake')}{there} --cores all --configfile {shlex.quote(str(config))}"


def _tool(name: str) -> str:
    """A program of this environment as it is typed here: ``.venv/bin/snakemake``."""
    program = Path(sys.executable).with_name(name)
    if program.is_relative_to(Path.cwd()):
        return str(program.relative_to(Path.cwd()))
    return name if shutil.which(name) == str(program) else shlex.quote(str(program))


# Exit status of a guard that found a group slower.
SLOWER = 1


def _add_compare(commands: Any) -> None:
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


def _compare(given: argparse.Namespace) -> int:
    # Not before it is wanted: statistics take a second to import.
    from ..comparing.compare import compare, false_alarms

    if given.aa:
        _refuse_runs(given.a + given.b + given.same, "--aa takes its runs without a flag")
        alarms = false_alarms(given.runs, delta=given.delta)
        return _told_compared(
            given, alarms.markdown(), any(len(c.slower) for *_, c in alarms.pairs)
        )
    named = bool(given.a or given.b)
    if named:
        _refuse_runs(given.runs, "name runs either by --a and --b or without a flag")
    elif len(given.runs) != 2:
        raise CompareError(
            f"compare takes two runs, not {len(given.runs)}; several by --a and --b."
        )
    first, second = (given.a, given.b) if named else ([given.runs[0]], [given.runs[1]])
    found = compare(first, second, same=given.same, delta=given.delta)
    if given.out is not None:
        found.save(given.out)
    return _told_compared(given, found.markdown(), bool(len(found.slower)))


def _refuse_runs(runs: list[str], sentence: str) -> None:
    if runs:
        raise CompareError(f"{sentence}, not {', '.join(runs)}.")


def _told_compared(given: argparse.Namespace, text: str, slower: bool) -> int:
    print(text, end="")
    if given.markdown is not None:
        write_whole(given.markdown, text.encode())
    return SLOWER if given.guard and slower else 0


def _add_history(commands: Any) -> None:
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


def _history(given: argparse.Namespace) -> int:
    # Not before it is wanted: what draws takes a second to import.
    from .history import history

    found = history(given.runs, otava=given.otava, delta=given.delta, out=given.out)
    print(found.markdown(), end="")
    return 0


_COMMANDS = {
    "compare": _compare,
    "explore": _explore,
    "export": _export,
    "history": _history,
    "new": _new,
    "sweep": _sweep,
    "versus": _versus,
    "watch": _watch,
}


# Stands for the new name in the template's files.
_NAME = "my_kernel"
# A file of the template that is no Python module of the library.
_AS_TEXT = ".txt"
_CONFIG = "my_kernel.yaml"


def write_kernel(name: str, parent: Path) -> tuple[Path, Path]:
    """Make ``parent/name`` with its sources, and beside it a configuration that sweeps it.

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
            out = folder / item.name.removesuffix(_AS_TEXT)
            if item.name == _CONFIG:
                out = config
            out.write_text(text, encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"--in: '{folder}' cannot be written ({err.strerror}).") from err
    return folder, config
