"""Compiled code on disk, by what it was compiled from: nothing is compiled twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..storage.wholefile import write_whole


@dataclass(frozen=True)
class CompiledCode:
    """What a compiler made: code that a device loads, and the compiler's messages."""

    code: bytes
    log: str


def kept_code(
    parts: Sequence[str], folder: Path, compiled: Callable[[], CompiledCode]
) -> CompiledCode:
    """The code that was made of `parts`, out of `folder`; `compiled` unless it is there undamaged.

    `parts` are all that decides about the code: source, options, target, compiler.
    """
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    # The name holds a sum of both: what is damaged is no file of that name.
    for path in folder.glob(f"{key}-*.log"):
        code = path.with_suffix(".bin")
        if code.is_file():
            kept = CompiledCode(code.read_bytes(), path.read_bytes().decode(errors="replace"))
            if path.stem == _stem(key, kept):
                return kept
    made = compiled()
    path = folder / f"{_stem(key, made)}.bin"
    write_whole(path, made.code)
    write_whole(path.with_suffix(".log"), made.log.encode())
    return made


def _stem(key: str, made: CompiledCode) -> str:
    return f"{key}-{hashlib.sha256(made.code + made.log.encode()).hexdigest()[:32]}"
