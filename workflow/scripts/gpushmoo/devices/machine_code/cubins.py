"""Machine code on disk: compiled once for all jobs of a run, and where CuPy can load it from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ...storage.wholefile import write_whole
from .nvrtc import Cubin, compile_cubin, nvrtc_version


def cached_cubin(source: str, name: str, options: Sequence[str], arch: str, cache: Path) -> Cubin:
    """The machine code of `source` out of `cache`, compiled unless it is there undamaged.

    Raises what `compile_cubin` does.
    """
    parts = (source, *options, arch, nvrtc_version())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = cache / "cubin"
    # The name holds a sum of both: what is damaged is no file of that name.
    for path in folder.glob(f"{key}-*.log"):
        cubin = path.with_suffix(".cubin")
        if cubin.is_file():
            kept = Cubin(cubin.read_bytes(), path.read_bytes().decode(errors="replace"))
            if path.stem == _stem(key, kept):
                return kept
    made = compile_cubin(source, name, options, arch)
    path = folder / f"{_stem(key, made)}.cubin"
    write_whole(path, made.code)
    write_whole(path.with_suffix(".log"), made.log.encode())
    return made


def stored_cubin(code: bytes, cache: Path) -> Path:
    """A file in `cache` that holds `code`, named by its sum."""
    path = cache / "cubin" / f"{hashlib.sha256(code).hexdigest()[:32]}.cubin"
    if not path.is_file() or path.read_bytes() != code:
        write_whole(path, code)
    return path


def _stem(key: str, made: Cubin) -> str:
    return f"{key}-{hashlib.sha256(made.code + made.log.encode()).hexdigest()[:32]}"
