"""Run the command line: ``gpushmoo sweep``, ``ab``, ``compare``, ``export`` and others.

`commands` has a module for each family of commands. The function of a command imports the library
only when it runs, because statistics, figures and the terminal's library take up to a second each.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from importlib import import_module
from tempfile import gettempdir

from .. import __name__ as library
from .. import __version__
from ..core.errors import DeviceError, UserError
from ..registry import extra_commands
from ..storage.room import is_full, unwritten
from .answers import (
    CSV,
    JSON,
    NOT_MEASURED,
    REFUSED,
    Answer,
    print_answer,
    print_error,
)
from .commands import FAMILIES
from .commands import __name__ as commands
from .commands.options import Parser, add_json_options
from .commands.run import split_words
from .snakemake_run import STOPPED, STOPPED_SENTENCE

_STATUSES = """exit status:
  0  done
  1  a verdict: a wrong result, or a regression with --fail-on-regression
  2  the request was wrong, also its expressions or the kernel's workload.py
  3  not measured: no device, a lost device, no cell that worked, Ctrl-C, an error of gpushmoo
`run` ends as Snakemake does, after Ctrl-C with 130."""


# Former names of commands and options.
_RENAMED = {
    "versus": "ab",
    "--a": "--before",
    "--aa": "--noise-runs",
    "--axis": "--axes",
    "--b": "--after",
    "--blocks": "--rounds",
    "--delta": "--threshold",
    "--dtype": "--dtypes",
    "--guard": "--fail-on-regression",
    "--header": "--formats=header",
    "--kernel-tuner": "--formats=kernel-tuner",
    "--moved": "--bytes-moved",
    "--option-a": "--options-a",
    "--option-b": "--options-b",
    "--runtime": "--opencl-runtime",
    "--same": "--noise-runs",
    "--save": "--out",
    "--size": "--sizes",
    "--t4": "--formats=t4",
    "--variant": "--variants",
}


def build_parser() -> Parser:
    """Return the parser of the whole command line, including the commands of extras."""
    parser = Parser(
        prog=library,
        description="Finds the launch parameters that make a memory-bound GPU kernel fastest.",
        epilog=_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(required=True, parser_class=Parser, metavar="COMMAND")
    for family in FAMILIES:
        import_module(f"{commands}.{family}").add_commands(subparsers)
    for module in extra_commands():
        import_module(module).add_commands(subparsers)
    for command in subparsers.choices.values():
        add_json_options(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, print its result or error, and return the exit status (see ``--help``).

    Parameters
    ----------
    arguments
        Words of the command line, by default those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    words, options = split_words(words) if words[:1] == ["run"] else (words, [])
    form = next((form for form in (JSON, CSV) if f"--{form}" in words), None)
    began = time.monotonic()
    try:
        command = _parsed(words, options, form)
        with _on_stderr() if form else nullcontext():
            answer = command()
        try:
            print_answer(words[0], form, answer, time.monotonic() - began)
            sys.stdout.flush()
        except OSError as err:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            # Else the reader, such as `head`, has seen enough.
            if not isinstance(err, BrokenPipeError):
                raise UserError(unwritten("stdout", err)) from err
        return answer.status
    except UserError as err:
        sentence = str(err)
        status = NOT_MEASURED if isinstance(err, DeviceError) else REFUSED
    except KeyboardInterrupt:
        kept = "; only `run` keeps what it measured" if words[0] in ("sweep", "tune") else ""
        sentence = f"stopped{kept}."
        status = NOT_MEASURED
        if words[0] == "run":
            sentence, status = STOPPED_SENTENCE, STOPPED
    except Exception as err:
        # Python's own status would be that of a verdict.
        sentence = f"{type(err).__name__}: {err}"
        status = NOT_MEASURED
        if isinstance(err, OSError) and is_full(err):
            # A command's own output is a UserError.
            sentence = unwritten(err.filename or gettempdir(), err)
        else:
            traceback.print_exc()
    print(f"{library}: {sentence}", file=sys.stderr)
    if form == JSON:
        print_error(status, sentence, time.monotonic() - began)
    return status


@contextmanager
def _on_stderr() -> Iterator[None]:
    """Redirect to stderr everything that a kernel's Python, a compiler or a child prints."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _parsed(words: Sequence[str], options: Sequence[str], form: str | None) -> Callable[[], Answer]:
    """Return the function of the command with its arguments. `options` are for Snakemake."""
    parser = build_parser()
    unknown = list(words[:1])
    if not set(unknown) & set(_RENAMED):
        parsed, unknown = parser.parse_known_args(words)
    for name in (word.partition("=")[0] for word in unknown):
        if name in _RENAMED:
            parser.error(f"{name} is now {_RENAMED[name]}")
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    given = {**vars(parsed), **({"options": options} if options else {})}
    given.pop("form", None)
    command = given.pop("command")
    return partial(command.run, **given, **({"form": form} if command.needs_form else {}))
