"""Define the commands ``new`` and ``list``, which write a kernel and list kernels and devices."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from ..answers import FILES, FOLDER, NOT_MEASURED, NOTES, ROWS, Answer, as_typed
from ..new_kernel import write_kernel
from . import options
from .options import Command, add_command


def add_commands(commands: options.Subparsers) -> None:
    """Add the commands of this module to the parser."""
    _add_new(commands)
    _add_list(commands)


def _add_new(commands: options.Subparsers) -> None:
    """Add the command ``new`` to the parser."""
    parser = add_command(
        commands,
        Command("new", _new, "write the folder of a new kernel that runs at once", (FOLDER, FILES)),
        example="mine",
    )
    parser.add_argument("name", metavar="NAME", help="the kernel's name")
    parser.add_argument(
        "--in",
        metavar="FOLDER",
        dest="parent",
        type=Path,
        help="folder to write it into, by default kernels",
    )


def _new(name: str, parent: Path = Path("kernels")) -> Answer:
    """Run the command ``new``, and return its answer."""
    folder, config = write_kernel(name, parent)
    lines = (
        f"{folder} holds a kernel that runs as it is; every line says what it is for. Next:",
        f"  {as_typed()} sweep {shlex.quote(str(folder))}",
        f"  {as_typed()} run {shlex.quote(str(config))}",
    )
    files = [config, *sorted(folder.iterdir())]
    return Answer({"folder": folder, "files": files}, lambda: "\n".join(lines))


def _add_list(commands: options.Subparsers) -> None:
    """Add the command ``list`` to the parser."""
    parser = add_command(
        commands,
        Command(
            "list",
            _list,
            "list the kernels or the devices",
            (
                ROWS.of(
                    "interactive.text_tables.ListedKernel", "interactive.text_tables.ListedDevice"
                ),
                NOTES,
            ),
        ),
        example="devices --json",
    )
    parser.add_argument(
        "what",
        metavar="{kernels,devices}",
        choices=("kernels", "devices"),
        help="what is listed",
    )
    options.add_csv(parser)


def _list(what: str) -> Answer:
    """Run the command ``list``, and return its answer."""
    from .. import text_tables

    rows, notes = (text_tables.found_devices if what == "devices" else text_tables.found_kernels)()
    status = NOT_MEASURED if rows.empty and what == "devices" else 0
    # Of some kernels there are dozens of variants.
    shown = rows.drop(columns="variants", errors="ignore")
    text = None if rows.empty else partial(text_tables.aligned, shown)
    return Answer({"rows": rows, "notes": notes}, text, status)
