"""Define the command ``run``, which runs configurations with Snakemake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ... import __name__ as library
from ...core.errors import BadParquetError, ConfigError, OpenedError
from ...core.paths import ROOT, child_environment
from ...planning import RUN_FOLDER
from ...storage.joblog import END_SIGNALS
from ..answers import FILES, FOLDER, STATUSES, Answer
from ..snakemake_run import run_snakemake
from . import options
from .options import Command, add_command


def add_commands(commands: options.Subparsers) -> None:
    """Add the commands of this module to the parser."""
    _add_run(commands)


def _add_run(commands: options.Subparsers) -> None:
    """Add the command ``run`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "run",
            _run,
            "run configurations with Snakemake, and write a report",
            (FOLDER, FILES, STATUSES),
            needs_form=True,
        ),
        example="mine.yaml --cores 4 --dry-run",
    )
    parser.add_argument(
        "configs", metavar="CONFIG", nargs="*", help="files merged over config/config.yaml"
    )
    parser.add_argument(
        "--cores",
        metavar="N",
        type=options.cores,
        help="by default all; other options are Snakemake's: --dry-run, --unlock",
    )


# The options of ``run`` itself.
OPTIONS = ("-h", "--help", "--cores", "--json", "--json-schema")
# What follows them is a configuration of Snakemake's own.
_CONFIGFILES = ("--configfile", "--configfiles")


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the words after ``run`` into those for gpushmoo and those for Snakemake.

    Snakemake gets all words after ``--``, options that ``run`` does not have, and their values.
    """
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
            is_ours = word.partition("=")[0] in OPTIONS
        else:
            is_ours = previous == "--cores" or not theirs or (is_config and after_option)
        (ours if is_ours else theirs).append(word)
        previous = word
    return ours, theirs


def _run(
    form: str | None, configs: Sequence[str] = (), cores: str = "all", options: Sequence[str] = ()
) -> Answer:
    """Run the command ``run``, and return its answer."""
    snakefile = ROOT / "Snakefile"
    if not snakefile.is_file():
        raise ConfigError(f"A run needs a clone of {library}: its Snakefile, kernels and reports.")
    for config in configs:
        if not Path(config).is_file():
            raise ConfigError(f"'{config}' is not a file; pass the path of a configuration file.")
    words = [*(["--configfile", *configs] if configs else []), "--cores", cores, *options]
    there = [] if Path.cwd() == ROOT else ["-s", str(snakefile)]
    if form is None:
        return Answer({}, status=run_snakemake([*there, *words]))
    from ...analysis.aggregate import opened
    from ...storage.dataset import read_cells

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
    """Run a program that receives the signals sent to this process, and return its exit status."""
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
