"""Define the options that several commands share, the parsers of their values, and `add_command`.

An option sets the Python function's argument of its name. An option that you omit is not passed, so
the function alone has the default.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ... import __name__ as library
from ...core.backends import BACKENDS
from ...core.errors import UserError
from ...core.space import BLOCK_AXES
from ..answers import CSV, JSON, Answer, Key, answer_schema


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error as one sentence."""

    def error(self, message: str) -> NoReturn:
        """Raise a UserError instead of printing the usage and exiting, as argparse does.

        Parameters
        ----------
        message
            What is wrong with the command line. A hint to ``--help`` is appended.

        Raises
        ------
        UserError
            Always.
        """
        raise UserError(f"{message}; run with --help to list the options.")


if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Parser]


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes
    ----------
    name
        Name of the command.
    run
        Function that runs it. Its arguments have the names of the options.
    meaning
        Description for ``--help``.
    gives
        Keys of the JSON object that it prints.
    needs_form
        Whether the function has an argument `form`: ``json``, ``csv``, or None for text.
    """

    name: str
    run: Callable[..., Answer]
    meaning: str
    gives: Sequence[Key]
    needs_form: bool = False


def add_command(commands: Subparsers, command: Command, *, example: str) -> Parser:
    """Add a command to the parser.

    Parameters
    ----------
    commands : Subparsers
        The commands of the parser.
    command : Command
        The command to add. The parsed arguments have it as `command`.
    example : str
        Its words after the command's name, for the end of ``--help``.

    Returns
    -------
    Parser
        The command's parser, without arguments yet.
    """
    parser = commands.add_parser(
        command.name,
        help=command.meaning,
        epilog=f"example:\n  {library} {command.name} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.set_defaults(command=command)
    return parser


def add_json_options(parser: Parser) -> None:
    """Add the options that every command has: ``--json`` and ``--json-schema``."""
    parser.add_argument(
        f"--{JSON}",
        dest="form",
        action="store_const",
        const=JSON,
        help="print one object, and nothing else; its schema: --json-schema",
    )
    parser.add_argument("--json-schema", action=_PrintSchema, nargs=0, help=argparse.SUPPRESS)


class _PrintSchema(argparse.Action):
    """Prints the JSON Schema of the command and ends the program, as ``--help`` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        command = parser.get_default("command")
        schema = answer_schema(command.name, command.meaning, command.gives)
        print(json.dumps(schema, indent=1))
        parser.exit()


# Options of several commands

# The backends of which `sweep` and `tune` take several devices at once.
_SEVERAL = "/".join(name.upper() for name, backend in BACKENDS.items() if backend.claims_gpu)


def add_csv(parser: Parser) -> None:
    """Add ``--csv`` to the options of a command."""
    parser.add_argument(
        f"--{CSV}",
        dest="form",
        action="store_const",
        const=CSV,
        help="print the table as CSV, and nothing else",
    )


def add_kernel(parser: Parser) -> None:
    """Add the argument KERNEL, a kernel's folder."""
    parser.add_argument(
        "kernel", metavar="KERNEL", help="folder of the kernel, such as kernels/transpose"
    )


def add_run(parser: Parser, nargs: str | None = None) -> None:
    """Add the argument RUN, one run's folder."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs=nargs,
        help="a run's folder, such as results/local, or a data set's",
    )


def add_runs(parser: Parser, nargs: str) -> None:
    """Add the positional argument RUN for several runs. `nargs` is that of argparse."""
    parser.add_argument(
        "runs", metavar="RUN", nargs=nargs, help="folders of runs, an earlier one first"
    )


def add_size(parser: Parser) -> None:
    """Add ``--size``, one problem size."""
    parser.add_argument(
        "--size",
        metavar="2048",
        type=size,
        required=True,
        help="elements (tune), side of a square, or height x width",
    )


def add_out(parser: Parser) -> None:
    """Add ``--out`` to the options of a command."""
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="the file or folder that is written; explore, export: by default in RUN",
    )


def add_axes(parser: Parser, *, required: bool = False) -> None:
    """Add ``--axes`` to the options of a command."""
    parser.add_argument(
        "--axes",
        metavar="NAME=VALUES",
        type=axes,
        nargs="+",
        action=AddAxes,
        required=required,
        help="launch parameters: TILE=16,32, or 4 to 64 by 4: x=4:64:4",
    )


def add_cache(parser: Parser) -> None:
    """Add ``--cache`` to the options of a command."""
    parser.add_argument(
        "--cache",
        metavar="warm,flushed",
        type=words,
        action="extend",
        help="contents of the last cache before a launch",
    )


def add_device(parser: Parser) -> None:
    """Add the options that choose a device."""
    parser.add_argument(
        "--backend", metavar="NAME", help="which backend; by default the first that answers"
    )
    parser.add_argument(
        "--device",
        metavar="INDEX",
        type=device,
        help=f"which device, from 0; for sweep and tune also all: every {_SEVERAL} device at once",
    )
    runtimes = ", ".join(name for backend in BACKENDS.values() for name in backend.runtimes)
    parser.add_argument("--opencl-runtime", metavar="NAME", help=f"which runtime: {runtimes}")


def add_measure(parser: Parser) -> None:
    """Add ``--measure`` to the options of a command."""
    parser.add_argument(
        "--measure",
        metavar="KEY=VALUE",
        type=setting,
        nargs="+",
        action=AddPairs,
        help="keys under 'measure' of a configuration: max_samples=21",
    )


def add_swept(parser: Parser) -> None:
    """Add the options that choose the cells of a kernel's folder, and the device."""
    add_axes(parser)
    parser.add_argument(
        "--dtypes", metavar="float,double", type=words, action="extend", help="element types"
    )
    parser.add_argument(
        "--sizes",
        metavar="2048,512x1024",
        type=sizes,
        action="extend",
        help="sides of squares, height x width, or of_cache:4, by the last cache",
    )
    add_cache(parser)
    parser.add_argument(
        "--timing-modes",
        metavar="NAME,NAME",
        type=words,
        action="extend",
        help="batched, isolated, stream or graph",
    )
    add_device(parser)
    add_measure(parser)


def add_repeats(parser: Parser) -> None:
    """Add ``--repeats`` and ``--budget`` to the options of a command."""
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=count,
        help="how often the fastest are measured, at most",
    )
    parser.add_argument(
        "--budget",
        metavar="SECONDS",
        type=positive,
        help="seconds to measure the fastest again",
    )


def add_before(parser: Parser) -> None:
    """Add ``--before`` to the options of a command."""
    parser.add_argument(
        "--before", metavar="RUN", nargs="+", help="several runs before, in the order of time"
    )


def add_noise_runs(parser: Parser) -> None:
    """Add ``--noise-runs`` to the options of a command."""
    parser.add_argument(
        "--noise-runs",
        metavar="RUN",
        nargs="+",
        help="runs without a change, for their spread; alone: false alarms",
    )


def add_threshold(parser: Parser) -> None:
    """Add ``--threshold`` and ``--fail-on-regression`` to the options of a command."""
    parser.add_argument(
        "--threshold",
        metavar="SHARE",
        type=share,
        help="smallest change that matters: 1%% or 0.01",
    )
    parser.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="end with status 1 if anything got significantly slower by more than the threshold",
    )


class AddAxes(argparse.Action):
    """Collects axes in one dictionary. An axis that is named twice has the values of both."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        """Add the `values` of one option: for each word a list of axes with their values."""
        found = dict(getattr(namespace, self.dest, {}))
        for axis, of_axis in (one for several in values for one in several):
            found[axis] = [*found.get(axis, []), *of_axis]
        setattr(namespace, self.dest, found)


class AddPairs(argparse.Action):
    """Collects pairs of a name and a value in one dictionary. The last value of a name counts."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        """Add the pairs of one occurrence of the option to the dictionary."""
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **dict(values)})


# Values. Each function reads the text of an option and raises ArgumentTypeError.


def words(text: str) -> list[str]:
    """Return the parts of ``float,double`` as a list."""
    return [word for word in text.split(",") if word]


def sizes(text: str) -> list[Any]:
    """Parse ``512,512x1024,of_cache:4`` as a number, height and width, and a size by the cache."""
    return [_of_cache(word) or size(word) for word in words(text)]


def _of_cache(word: str) -> dict[str, float] | None:
    """Read a size by the last cache; None for any other word."""
    found = re.fullmatch(r"of_cache:(\d+(\.\d+)?)", word, re.ASCII)
    return None if found is None else {"of_cache": float(found[1])}


def size(word: str) -> int | tuple[int, ...]:
    """Parse ``512`` as a number, or ``512x1024`` as height and width."""
    if not re.fullmatch(r"\d+(x\d+)?", word, re.ASCII):
        raise argparse.ArgumentTypeError(f"'{word}' must be a number or such as 512x1024")
    parts = tuple(int(n) for n in word.split("x"))
    return parts[0] if len(parts) == 1 else parts


# Behind it begins another axis: `block_x=32,64,block_y=2`.
_NEXT_AXIS = re.compile(r",(?=[A-Za-z_]\w*=(?!=))", re.ASCII)
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


def axes(text: str) -> list[tuple[str, list[Any]]]:
    """Parse ``NAME=16,4:64:4,text`` as axes. A comma separates values, and may separate axes."""
    found = []
    for part in _NEXT_AXIS.split(text):
        name, equals, values = part.partition("=")
        several = values.split(",")
        if not (equals and name.isidentifier() and all(several)):
            raise argparse.ArgumentTypeError(
                f"'{part}' must be NAME=VALUES, such as TILE=16,32 or block_x=4:64:4; separate "
                "axes by blanks"
            )
        found.append((name, [_axis_value(name, word) for word in several]))
    return found


def _axis_value(name: str, word: str) -> Any:
    """Read a number, a range or a text."""
    from ...core.readable import typed

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
    """Return whether the word consists of digits only."""
    return word.isascii() and word.isdecimal()


def _is_count(value: Any) -> bool:
    """Return whether the value is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def setting(text: str) -> tuple[str, Any]:
    """Parse ``KEY=VALUE``, with the value as in Snakemake's ``--config``."""
    import yaml

    from ...core.readable import typed

    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"'{text}' must be KEY=VALUE, such as max_samples=21")
    try:
        return key, typed(yaml.load(value, yaml.CBaseLoader))
    except yaml.YAMLError as err:
        raise argparse.ArgumentTypeError(f"'{value}' is not a value of YAML") from err


def named(text: str) -> tuple[str, str]:
    """Return name and expression of ``NAME=EXPRESSION``."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"'{text}' must be NAME=EXPRESSION, such as 'y=2 * x'")
    return name, value


def whole(text: str) -> int:
    """Parse an integer that is 0 or more."""
    return _at_least(0, text)


def count(text: str) -> int:
    """Parse an integer that is 1 or more."""
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    """Read a whole number, `least` or more."""
    # No counter has more digits.
    if not re.fullmatch(r"\+?\d{1,18}", text, re.ASCII) or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' must be a whole number, at least {least}")
    return int(text)


def cores(text: str) -> str:
    """Check a number of cores or ``all``, and return it as text, as Snakemake requires it."""
    return text if text == "all" else str(count(text))


def device(text: str) -> int | str:
    """Parse the index of a device, from 0, or ``all``."""
    return text if text == "all" else whole(text)


def real(text: str) -> float:
    """Parse a finite number that is 0 or more."""
    value = _finite(text)
    if value is None or value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' must be a finite number, at least 0")
    return value


def positive(text: str) -> float:
    """Parse a finite number that is more than 0."""
    value = _finite(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' must be a finite number, more than 0")
    return value


def share(text: str) -> float:
    """Parse a share such as ``2%`` or ``0.02``, and return it as a number from 0 to 1."""
    value = _finite(text.removesuffix("%"))
    value = value / 100 if value is not None and text.endswith("%") else value
    if value is None or not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' must be a share from 0 to 1, as 2% or 0.02")
    return value


def _finite(text: str) -> float | None:
    """Read a finite number; None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
