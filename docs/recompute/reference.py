"""The configuration's keys from their classes, and the command line from its parser."""

import json
from argparse import SUPPRESS, Action, _SubParsersAction
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import gpushmoo
from gpushmoo.core.keys import REQUIRED, keys_of
from gpushmoo.interactive.shell import build_parser as command_line
from gpushmoo.planning.settings import Settings, Sweep

# Functions of the library, each before the classes of its options.
FUNCTIONS = (
    "sweep",
    "tune",
    "LaunchConfig",
    "Check",
    "Build",
    "ab",
    "Version",
    "compare",
    "history",
    "predict",
    "explore",
    "export",
    "open_run",
    "judge",
    "sum_bound",
)


def values() -> dict[str, Any]:
    """A line for each key of a configuration and of a sweep, and the commands."""
    sweep = _keys(Sweep)
    return {
        "config": list(_keys(Settings)),
        "sweep": [[name, meaning] for name, _, meaning in sweep],
        "commands": _commands(),
        "functions": [_function(name) for name in FUNCTIONS],
        "names": FUNCTIONS,
        "errors": [_function(name) for name in dir(gpushmoo) if _is_error(name)],
    }


def _is_error(name: str) -> bool:
    """Return whether an exported name is that of an exception."""
    value = getattr(gpushmoo, name)
    return isinstance(value, type) and issubclass(value, Exception)


def _function(name: str) -> list[str]:
    """The name, and the first sentence of what it does."""
    return [
        f"`{name}`",
        str(getattr(gpushmoo, name).__doc__).splitlines()[0].rstrip(".").replace("|", "\\|"),
    ]


def _keys(kind: Any, above: str = "") -> Iterator[list[str]]:
    """Name, default and meaning of each key of a section, or of those under it."""
    for name, key in keys_of(kind).items():
        if is_dataclass(key.default):
            yield from _keys(type(key.default), f"{above}{name}.")
        else:
            default = "" if key.default is REQUIRED else f"`{json.dumps(key.default)}`"
            yield [f"`{above}{name}`", default, key.meaning.rstrip(".")]


def _commands() -> list[dict[str, Any]]:
    """Return each command with its usage, meaning, example and options."""
    (commands,) = (a for a in command_line()._actions if isinstance(a, _SubParsersAction))
    meanings = {a.dest: a.help for a in commands._choices_actions}
    found = []
    for name, parser in commands.choices.items():
        arguments = [
            a for a in parser._actions if a.dest not in ("help", "form") and a.help != SUPPRESS
        ]
        usage = [name, *(_written(a) for a in arguments if not a.option_strings)]
        found.append(
            {
                "name": name,
                "usage": " ".join(usage),
                "meaning": meanings[name],
                "example": str(parser.epilog or "").partition("\n")[2].strip(),
                "options": [_option(a) for a in arguments],
            }
        )
    return found


def _option(action: Action) -> dict[str, Any]:
    """Describe an argument or option: how it is written, and sentences on its effect and limits."""
    text = str(action.help).replace("%%", "%")
    facts = [f"{part[0].upper()}{part[1:]}." for part in text.split("; ") if part]
    if action.option_strings and action.required:
        facts.append("Required.")
    if action.choices:
        facts.append(f"One of {', '.join(f'`{choice}`' for choice in action.choices)}.")
    if action.nargs == "+" and action.option_strings:
        facts.append("Takes one or more values, separated by blanks.")
    return {"written": f"`{_written(action)}`", "facts": facts}


def _written(action: Action) -> str:
    """``--axes NAME=VALUES``, ``KERNEL`` or ``[RUN …]``."""
    if action.option_strings:
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        return action.option_strings[0] + value
    word = str(action.metavar or action.dest.upper())
    return {"?": f"[{word}]", "*": f"[{word} …]", "+": f"{word} …"}.get(str(action.nargs), word)
