"""Machine code on disk: compiled once for all jobs of a run, and where CuPy can load it from."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...storage.wholefile import write_whole
from ..kept_code import CompiledCode, kept_code
from .nvrtc import compile_cubin, nvrtc_version
from .sass import EntryCode, listing, parse


def cached_cubin(
    source: str, name: str, options: Sequence[str], arch: str, cache: Path
) -> CompiledCode:
    """The machine code of `source` out of `cache`, compiled unless it is there undamaged.

    Raises what `compile_cubin` does.
    """
    parts = (source, *options, arch, nvrtc_version())
    compiled = partial(compile_cubin, source, name, options, arch)
    return kept_code(parts, cache / "cubin", compiled)


def disassembled(code: bytes, cache: Path) -> dict[str, EntryCode]:
    """What is in the machine code of each kernel; nvdisasm's text is kept, it takes half a second.

    Raises what `listing` does.
    """

    def text() -> CompiledCode:
        return CompiledCode(zlib.compress(listing(code).encode()), "")

    kept = kept_code((hashlib.sha256(code).hexdigest(), "nvdisasm"), cache / "sass", text)
    return parse(zlib.decompress(kept.code).decode())


def stored_cubin(code: bytes, cache: Path) -> Path:
    """A file in `cache` that holds `code`, named by its sum."""
    path = cache / "cubin" / f"{hashlib.sha256(code).hexdigest()[:32]}.cubin"
    if not path.is_file() or path.read_bytes() != code:
        write_whole(path, code)
    return path
