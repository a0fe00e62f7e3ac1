"""The command line: ``gpushmoo sweep``, ``compare``, ``new``, ``explore`` and ``watch``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import yaml

from .. import __name__ as library
from .. import __version__
from ..comparing.errors import CompareError
from ..core.errors import DeviceError
from ..core.schema import GROUP, Status
from ..explorer.errors import ExplorerError
from ..planning.config_schema import ConfigError
from ..watching.state import WatchError
from .compare_command import add_compare, run_compare
from .measure import sweep
from .new_kernel import write_kernel
from .result import Sweep

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
    except (CompareError, ConfigError, ExplorerError, WatchError) as err:
        print(f"{library}: {err}", file=sys.stderr)
        return _REFUSED
    except DeviceError as err:
        print(f"{library}: {err}", file=sys.stderr)
        return _FAILED
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
        "--axis",
        action="append",
        default=[],
        type=_axis,
        metavar="NAME=VALUES",
        help="values of a launch parameter: TILE=16,32 or block_x=4:64:4 (from:to:step)",
    )
    for flag, example, meaning in (
        ("--dtype", "float,double", "element types"),
        ("--variant", "NAME,NAME", "variants of the kernel"),
        ("--size", "2048,512x1024", "sizes: the side of a square, or height and width"),
        ("--cache", "warm,flushed", "what the last cache holds before a launch"),
    ):
        kind = _sizes if flag == "--size" else _words
        measured.add_argument(flag, action="extend", type=kind, metavar=example, help=meaning)
    measured.add_argument("--backend", help="which backend; by default the first that answers")
    measured.add_argument("--device", type=int, metavar="INDEX", help="which device, from 0")
    measured.add_argument("--runtime", help="which runtime, of a backend that has several")
    measured.add_argument("--repeats", type=int, metavar="N", help="how often all is measured")
    measured.add_argument(
        "--measure",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a key under 'measure' of config/config.yaml, such as max_samples=21",
    )
    measured.add_argument("--save", metavar="FOLDER", help="keep the cells in this new folder")
    shown = commands.add_parser(
        "explore", help="write a page that a browser opens, of a run's cells"
    )
    shown.add_argument("run", help="a run's folder, such as results/local, or a data set's")
    shown.add_argument("second", nargs="?", help="another one, to be shown beside it")
    shown.add_argument(
        "--out", metavar="FILE", help="where the page goes, by default explorer.html"
    )
    add_compare(commands)
    made = commands.add_parser("new", help="write the folder of a new kernel that runs at once")
    made.add_argument("name", help="the kernel's name: letters, digits and '_'")
    made.add_argument("--in", dest="parent", default="kernels", help="by default %(default)s")
    watched = commands.add_parser("watch", help="show how far a run is, until it is finished")
    watched.add_argument("run", nargs="?", type=Path, help="its folder; by default the last")
    watched.add_argument("--once", action="store_true", help="print one frame and end")
    return parser


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
    chosen = {name: getattr(given, name) for name in ("backend", "device", "runtime", "repeats")}
    result = sweep(
        given.kernel,
        axes=dict(given.axis) or None,
        dtypes=given.dtype,
        variants=given.variant,
        sizes=given.size,
        cache=given.cache,
        **{name: value for name, value in chosen.items() if value is not None},
        **dict(given.measure),
    )
    print(report(result))
    if given.save is not None:
        folder = result.save(given.save)
        print(f"\nSaved in {folder}; its report:\n  {_tool('snakemake')} --cores all", end="")
        print(f" --configfile {folder / 'report.yaml'}")
    return 0 if Status.OK in result.statuses else _FAILED


def report(result: Sweep) -> str:
    """The best cells of each group as a short table, with what its sweep has in common above it."""
    best = result.best()
    parts = [repr(result).strip("<>") + "."]
    for _, group in best.groupby(list(GROUP), sort=False):
        top = group.iloc[0]
        parts.append(
            f"\n{top['dtype']}, {top['variant']}, {top['height']} x {top['width']}, "
            f"{top['cache_state']}, {top['device_name']}: "
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
    print(f"  {_tool('python')} -m {library} sweep {folder}")
    print(f"  {_tool('snakemake')} --cores all --configfile {config}")
    return 0


def _explore(given: argparse.Namespace) -> int:
    # Not before it is wanted: the models' tables take a second to import.
    from ..explorer.explore import explore

    page = explore(given.run, given.second, out=given.out)
    print(f"{page} opens in any browser; it needs no network.")
    return 0


def _watch(given: argparse.Namespace) -> int:
    # What draws in a terminal is of no use to a sweep.
    from ..watching.follow import watch

    watch(given.run, given.once)
    return 0


def _tool(name: str) -> str:
    """A program of this environment as it is typed here: ``.venv/bin/snakemake``."""
    program = Path(sys.executable).with_name(name)
    try:
        return str(program.relative_to(Path.cwd()))
    except ValueError:  # an environment elsewhere, which is the active one
        return name


_COMMANDS = {
    "compare": run_compare,
    "explore": _explore,
    "new": _new,
    "sweep": _sweep,
    "watch": _watch,
}
