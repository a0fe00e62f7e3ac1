"""The command line: ``gpushmoo sweep``, ``versus``, ``compare``, ``export`` and others.

An option has the name of the Python function's argument that it sets; one that is not given is not
passed, so each default stands in the function alone. Functions are imported when they are called:
statistics, figures and the terminal's library take up to a second each.
"""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

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

if TYPE_CHECKING:
    from pandas import DataFrame

# Rows of each group in the table; the rest is in what --save keeps.
_MOST_ROWS = 5
# Exit statuses: nothing could be measured, or something got slower; the request was wrong.
_FAILED, _REFUSED = 1, 2
# Former names of options.
_RENAMED = {
    "--aa": "--noise-runs",
    "--blocks": "--rounds",
    "--delta": "--threshold",
    "--guard": "--fail-on-regression",
    "--same": "--noise-runs",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(_REFUSED, f"{library}: {message}; --help tells what there is.\n")


class _Named(argparse.Action):
    """Collects NAME=VALUE of several options in one dictionary."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, getattr(namespace, self.dest, {}) | dict([values]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line `arguments` say; the exit status: 0, 1 without a result, 2 if wrong.

    By default they are those of this process.
    """
    parser, words = _parser(), sys.argv[1:] if arguments is None else arguments
    for name in (word.partition("=")[0] for word in words):
        if name in _RENAMED:
            parser.error(f"{name} is now {_RENAMED[name]}")
    given = vars(parser.parse_args(words))
    command = given.pop("command")
    try:
        status: int = command(**given)
    except UserError as err:
        print(f"{library}: {err}", file=sys.stderr)
        return _FAILED if isinstance(err, DeviceError) else _REFUSED
    except KeyboardInterrupt:
        print(f"{library}: stopped.", file=sys.stderr)
        return _FAILED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=library, description="Sweeps a kernel over its launch parameters.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, parser_class=_Parser)

    def command(name: str, function: Any, meaning: str) -> Any:
        made = commands.add_parser(name, help=meaning, argument_default=argparse.SUPPRESS)
        made.set_defaults(command=function)
        return made.add_argument

    add = command("sweep", _sweep, "measure a kernel's folder here and now")
    add("kernel", help="folder of the kernel, such as kernels/transpose")
    _add_list(add, "--variant", "variants", "NAME,NAME", "variants of the kernel")
    _add_swept(add)
    add("--search", metavar="MODE", help="all, race or guided")
    add("--repeats", type=int, metavar="N", help="how often the fastest are measured, at most")
    add("--budget", type=float, metavar="SECONDS", help="seconds to measure the fastest again")
    add("--save", metavar="FOLDER", help="keep the cells in this new folder")

    add = command("explore", _explore, "write a page that a browser opens, of a run's cells")
    add("run", help="a run's folder, such as results/local, or a data set's")
    add("second", nargs="?", help="another one, shown next to it")
    add("--out", metavar="FILE", help="the page's file, by default explorer.html")

    add = command("versus", _versus, "measure two versions of a kernel alternately")
    add("a", help="folder of the kernel, such as kernels/transpose")
    add("b", nargs="?", help="another one's; by default the same")
    for side in "ab":
        add(f"--variant-{side}", metavar="NAME", help=f"variant of {side.upper()}")
        add(
            f"--option-{side}",
            dest=f"options_{side}",
            action="append",
            metavar="OPTION",
            help=f"for {side.upper()}'s compiler, such as --option-{side}=-use_fast_math",
        )
    _add_swept(add)
    add("--rounds", type=int, metavar="N", help="rounds of samples A B B A, by default 8")
    _add_verdict(add, "a cell of B")

    add = command("compare", _compare, "compare two runs: what got slower, what faster")
    add("runs", nargs="*", metavar="RUN", help="the run before, and that after")
    for side, when in (("a", "before"), ("b", "after")):
        add(
            f"--{side}",
            action="append",
            metavar="RUN",
            help=f"one of several runs {when}, in the order in which they were measured",
        )
    add(
        "--noise-runs",
        nargs="+",
        metavar="RUN",
        help="runs of one and the same thing, for the run-to-run spread; without other runs these "
        "are compared with each other to count false alarms",
    )
    _add_verdict(add, "a group's best")
    add("--out", metavar="FOLDER", help="write tables and summary to this folder")
    add("--markdown", type=Path, metavar="FILE", help="write the summary to this file")

    add = command("history", _history, "order many runs by time: where a group's best changed")
    add("runs", nargs="+", metavar="RUN", help="folders of runs, of several runs, or recorded sets")
    add("--otava", metavar="PROGRAM", help="Apache Otava's program; by default that on the PATH")
    _add_threshold(add)
    add("--out", metavar="FOLDER", help="write tables, summary and pictures to this folder")

    add = command("export", _export, "write a run's results for other programs, by default in all")
    add("run", help="a run's folder, such as results/local, or a data set's")
    for form, meaning in (
        ("t4", "the auto-tuning community's form, a file for each group of cells"),
        ("kernel-tuner", "cache files that Kernel Tuner's simulation mode replays"),
        ("header", "the launches to use, as C and C++ headers"),
        ("json", "the same as data"),
    ):
        add(f"--{form}", dest="formats", action="append_const", const=form, help=meaning)
    add("--out", metavar="FOLDER", help="a new folder, by default 'export'")

    add = command("new", _new, "write the folder of a new kernel that runs at once")
    add("name", help="the kernel's name: letters, digits and '_'")
    add("--in", dest="parent", type=Path, metavar="FOLDER", help="by default kernels")

    add = command("watch", _watch, "show the progress of a run until it is finished")
    add("run", nargs="?", help="its folder; by default that of the last run")
    add("--once", action="store_true", help="print one frame and end")
    return parser


def _add_swept(add: Any) -> None:
    """What is swept, where and how, for all that measures."""
    add(
        "--axis",
        dest="axes",
        action=_Named,
        type=_axis,
        metavar="NAME=VALUES",
        help="values of a launch parameter: TILE=16,32 or block_x=4:64:4, which a configuration "
        "calls {from: 4, to: 64, step: 4}",
    )
    _add_list(add, "--dtype", "dtypes", "float,double", "element types")
    _add_list(
        add,
        "--size",
        "sizes",
        "2048,512x1024",
        "sizes: the side of a square, or height and width, which a configuration calls [512, 1024]",
        _sizes,
    )
    _add_list(add, "--cache", "cache", "warm,flushed", "contents of the last cache before a launch")
    _add_list(
        add, "--timing-modes", "timing_modes", "batched,isolated", "how the device gets launches"
    )
    add("--backend", help="which backend; by default the first that answers")
    add("--device", type=int, metavar="INDEX", help="which device, from 0")
    add("--runtime", help="which runtime, of a backend that has several")
    add(
        "--measure",
        action=_Named,
        type=_setting,
        metavar="KEY=VALUE",
        help="a key under 'measure' of a configuration, such as max_samples=21",
    )


def _add_verdict(add: Any, what: str) -> None:
    _add_threshold(add)
    add(
        "--fail-on-regression",
        action="store_true",
        help=f"end with status {_FAILED} if {what} surely got slower by more than the threshold",
    )


def _add_threshold(add: Any) -> None:
    add("--threshold", type=float, metavar="SHARE", help="least change that matters, 0.01 is 1 %%")


def _words(text: str) -> list[Any]:
    return [word for word in text.split(",") if word]


def _add_list(
    add: Any, flag: str, argument: str, example: str, meaning: str, parse: Any = _words
) -> None:
    add(flag, dest=argument, action="extend", type=parse, metavar=example, help=meaning)


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
    parts = [[int(n) for n in part.split(":")] for part in values.split(",")]
    keys = ("from", "to", "step")
    return name, [p[0] if len(p) == 1 else dict(zip(keys, p, strict=False)) for p in parts]


def _setting(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``, the value as YAML has it."""
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' must be KEY=VALUE, such as max_samples=21")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as err:
        raise argparse.ArgumentTypeError(f"'{value}' is no value") from err


def _sweep(
    kernel: str, save: str | None = None, measure: Mapping[str, Any] | None = None, **asked: Any
) -> int:
    result = sweep(kernel, **{**(measure or {}), **asked})
    print(report(result))
    if save is not None:
        folder = result.save(save)
        print(f"\nSaved in {folder}; its report:\n  {_snakemake(folder / 'report.yaml')}")
    return 0 if Status.OK in result.statuses else _FAILED


def report(result: Sweep) -> str:
    """The best cells of each group as a short table, with what its sweep has in common above it."""
    best = result.best()
    parts = [repr(result).strip("<>") + "."]
    several = best["timing_mode"].nunique() > 1
    for _, group in best.groupby(list(GROUP), sort=False):
        top = group.iloc[0]
        kind = f"{kind_words(top['timing_mode'])}, " if several else ""
        parts.append(
            f"\n{top['dtype']}, {top['variant']}, {top['height']} x {top['width']}, "
            f"{top['cache_state']}, {kind}{top['device_name']}: "
            f"{top['tied']} of {top['candidates']} are statistically tied with the fastest"
        )
        parts.append(_table(group.head(_MOST_ROWS)))
    if best.empty:
        parts += dict.fromkeys(result.cells["message"].dropna())
    return "\n".join(parts)


def _table(group: DataFrame) -> str:
    place = list(group.columns).index("threads_per_block")
    shown = group[list(group.columns)[len(GROUP) : place]].copy()
    bounds = zip(group["bandwidth_low_gbs"], group["bandwidth_high_gbs"], strict=True)
    shown["GB/s"] = [f"{value:.4g}" for value in group["bandwidth_gbs"]]
    shown["95 % interval"] = [f"{low:.4g} to {high:.4g}" for low, high in bounds]
    shown["of the copy"] = [
        f"{100 * share:.0f} %" if share == share else "" for share in group["vs_memcpy"]
    ]
    return str(shown.to_string(index=False))


def _versus(
    *,
    fail_on_regression: bool = False,
    measure: Mapping[str, Any] | None = None,
    **asked: Any,
) -> int:
    from .versus import versus

    result = versus(**{**(measure or {}), **asked})
    print(result)
    if not result.verdicts:
        return _FAILED
    return _FAILED if fail_on_regression and result.slower else 0


def _compare(
    runs: Sequence[str] = (),
    a: Sequence[str] = (),
    b: Sequence[str] = (),
    noise_runs: Sequence[str] = (),
    fail_on_regression: bool = False,
    out: str | None = None,
    markdown: Path | None = None,
    **threshold: float,
) -> int:
    from ..comparing.compare import compare
    from ..comparing.false_alarms import false_alarms

    if noise_runs and not (runs or a or b):
        alarms = false_alarms(noise_runs, **threshold)
        text, slower = alarms.markdown(), any(len(c.slower) for *_, c in alarms.pairs)
    else:
        if runs and (a or b):
            raise CompareError(
                "Name runs either by --a and --b or without an option, not both ways."
            )
        if not (a or b) and len(runs) != 2:
            raise CompareError(f"compare takes two runs, not {len(runs)}; several by --a and --b.")
        found = compare(a or runs[:1], b or runs[1:], noise_runs=noise_runs, **threshold)
        if out is not None:
            found.save(out)
        text, slower = found.markdown(), bool(len(found.slower))
    print(text, end="")
    if markdown is not None:
        write_whole(markdown, text.encode())
    return _FAILED if fail_on_regression and slower else 0


def _history(**asked: Any) -> int:
    from .history import history

    print(history(**asked).markdown(), end="")
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


def _watch(**asked: Any) -> int:
    from ..watching.view import watch

    watch(**asked)
    return 0


def _new(name: str, parent: Path = Path("kernels")) -> int:
    folder, config = write_kernel(name, parent)
    print(f"{folder} holds a kernel that runs as it is; every line says what it is for. Next:")
    print(f"  {_tool('python')} -m {library} sweep {shlex.quote(str(folder))}")
    print(f"  {_snakemake(config)}")
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
