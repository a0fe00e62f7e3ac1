"""Describe a call of `tune` in Markdown, next to the pickle that contains it.

A pickle cannot be reviewed, so a reader of the kernel's folder needs the description.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .. import __name__ as library
from .. import __version__
from ..workloads.call import ArrayArgument, Call

_HEAD = """# {entry}

Written by `to_folder` of a `{library}.tune` call. `workload.py` loads `workload.pickle`, which
{library} {version} reads and perhaps no other version. Load it only if you trust its author.
`arrays/`, `expected/` and `bounds/` (each element's `atol`) are NumPy files. The pickle holds:

"""


def described(call: Call, axes: Mapping[str, Any]) -> str:
    """Return the description of a call as Markdown.

    Parameters
    ----------
    call
        The call.
    axes
        Values by axis. For an axis with labels, the indices of the labels.
    """
    lines = [f"* `{key}`: {value}" for key, value in _facts(call, axes)]
    head = _HEAD.format(entry=call.entry, library=library, version=__version__)
    return head + "\n".join(lines) + "\n"


def _facts(call: Call, axes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "size", " x ".join(map(str, call.size))
    for place, argument in enumerate(call.arguments, 1):
        yield f"argument {place}", _argument(argument)
    for axis, values in axes.items():
        macro = ", a macro" if axis in call.defined else ""
        yield f"axis {axis}", f"{_plain(call.labels.get(axis, values))}{macro}"
    for key, value in call.expressions:
        if value is not None and value != 0:
            yield key, _plain(value)
    if call.options:
        yield "options", " ".join(call.options)
    for name, array in call.constants.items():
        yield f"constant {name}", f"{array.dtype}, shape {array.shape}"
    if call.check is not None:
        yield "check", _plain(call.check)


def _argument(argument: Any) -> str:
    if not isinstance(argument, ArrayArgument):
        kind = f"{argument.dtype} " if isinstance(argument, np.generic) else ""
        return f"{kind}{argument}"
    words = [f"`{argument.name}`, {argument.dtype}, shape {argument.shape}"]
    if argument.content:
        words.append("read")
    if argument.limit is not None:
        each = ", the largest of its elements' bounds" if argument.bounded else ""
        words.append(f"compared ({argument.limit}{each})")
    elif not argument.watched:
        words.append("written and not compared")
    return ", ".join(words)


def _plain(value: Any) -> str:
    if callable(value):
        return f"the function `{getattr(value, '__qualname__', value)}`"
    return f"`{value}`"
