"""Machine code on disk: compiled once for all jobs of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ..wholefile import write_whole
from .nvrtc import compile_cubin, nvrtc_version


def cached_cubin(source: str, name: str, options: Sequence[str], arch: str, cache: Path) -> Path:
    """The file in `cache` with the machine code of `source`, compiled unless it is there undamaged.

    Raises what `compile_cubin` does.
    """
    parts = (source, *options, arch, nvrtc_version())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    # The name holds a sum of the code: a damaged file is no file of that name.
    for path in (cache / "cubin").glob(f"{key}-*.cubin"):
        if path.name == _name(key, path.read_bytes()):
            return path
    code = compile_cubin(source, name, options, arch)
    path = cache / "cubin" / _name(key, code)
    write_whole(path, code)
    return path


def _name(key: str, code: bytes) -> str:
    return f"{key}-{hashlib.sha256(code).hexdigest()[:32]}.cubin"
