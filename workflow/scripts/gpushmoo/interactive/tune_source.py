"""The source of a kernel that `tune` measures: its file, and what its text says of the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..core.backends import AUTO, BACKENDS
from ..planning.config_schema import ConfigError
from ..workloads.contract import SharedMemory

WORD = r"[A-Za-z_]\w*"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def read_source(
    source: str | os.PathLike[str], backend: str
) -> tuple[bytes, str, str, Path | None]:
    """The kernel's file, its suffix, the backend for it, and where it was if it was one."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        found = [b for b in BACKENDS.values() if any(mark in source for mark in b.marks)]
        found = [BACKENDS[backend]] if backend != AUTO else found
        if not found:
            marks = ", ".join(mark for b in BACKENDS.values() for mark in b.marks)
            raise ConfigError(
                f"source: its text has no kernel: none of {marks}; or name a backend."
            )
        return source.encode(), found[0].source_suffix, found[0].name, None
    file = Path(source).expanduser().absolute()
    known = {suffix: b for b in BACKENDS.values() for suffix in b.suffixes}
    suffix = next((s for s in known if file.name.endswith(s)), None)
    if suffix is None:
        ends = ", ".join(known)
        raise ConfigError(f"source: '{source}' ends in none of {ends}, nor is it a kernel's text.")
    if backend not in (AUTO, known[suffix].name):
        raise ConfigError(f"source: '{source}' is no source for backend '{backend}'.")
    try:
        return file.read_bytes(), suffix, known[suffix].name, file
    except OSError as err:
        raise ConfigError(f"source: '{source}' cannot be read ({err}).") from err


def kernel_parameters(text: str, name: str) -> list[str]:
    """The declarations of a kernel's parameters, as far as its text tells them."""
    function = re.escape(re.split("[<(]", name)[0].strip())
    found = re.search(rf"\b{function}\s*\(([^{{;]*?)\)\s*\{{", text)
    parts = found[1].split(",") if found else []
    plain = [re.split(r"[=\[]", part)[0] for part in parts]
    return plain if all(re.search(WORD, part) for part in plain) else []


def refuse_other(text: str, name: str, parameters: Sequence[str], given: Collection[Any]) -> None:
    """Raise ConfigError where the text surely has no such kernel, or one of other parameters."""
    marks = "|".join(mark for b in BACKENDS.values() for mark in b.marks)
    heads = rf"\b(?:{marks}|def)\b[^;{{]*?({WORD})\s*\([^(){{;]*\)\s*[{{:]"
    kernels = ", ".join(re.findall(heads, text))
    entry = re.split("[<(]", name)[0].split("::")[-1].strip()
    is_hidden = re.search(rf'\b{re.escape(entry)}\b|##|#\s*include\s*"', text)
    if kernels and not is_hidden:
        raise ConfigError(f"name: the source has no kernel '{name}'; it has: {kernels}.")
    # A macro may be several, or make one of several.
    is_plain = all(re.fullmatch(r"[\w\s*&]*\w[\s*&]+\w+\s*", one) for one in parameters)
    # Not of each backend is shared memory an argument.
    is_plain &= not any(isinstance(one, SharedMemory) for one in given)
    if parameters and is_plain and len(given) != len(parameters):
        words = ", ".join(re.findall(WORD, one)[-1] for one in parameters)
        raise ConfigError(
            f"arguments: '{name}' takes {len(parameters)} ({words}), not {len(given)}."
        )


def is_const(key: str, parameters: Sequence[str]) -> bool:
    """Whether the source declares that parameter as const."""
    return any(re.search(rf"\bconst\b.*\b{key}\b", one, re.DOTALL) for one in parameters)
