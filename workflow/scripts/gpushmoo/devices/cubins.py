"""Machine code on disk: compiled once for all jobs of a run."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from .nvrtc import compile_cubin, nvrtc_version


def cached_cubin(source: str, name: str, options: Sequence[str], arch: str, cache: Path) -> Path:
    """The file in `cache` with the machine code of `source`, compiled unless it is there.

    Raises what `compile_cubin` does.
    """
    parts = (source, *options, arch, nvrtc_version())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    path = cache / "cubin" / f"{key}.cubin"
    if not path.is_file():
        code = compile_cubin(source, name, options, arch)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Jobs share the cache: nobody may see half a file.
        own = path.with_name(f".{key}.{os.getpid()}.{uuid.uuid4().hex}")
        own.write_bytes(code)
        own.replace(path)
    return path
