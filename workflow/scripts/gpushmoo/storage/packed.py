"""Recorded shards in one file, as the repository keeps them, and the folder of them again."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from uuid import uuid4

PACKED = "packed.parquet"
# Beside a packed record: the shards, in a folder named after its digest.
UNPACKED = ".unpacked"


def unpacked(place: Path) -> Path:
    """The folder of shards that `place` names: itself, or what it is in a packed record.

    A record is unpacked once, beside its file. Raises BadParquetError and OSError.
    """
    for folder in (place, *place.parents):
        if (folder / PACKED).is_file():
            return _unpacked_once(folder / PACKED) / place.relative_to(folder)
        if folder.exists():
            break
    return place


def _unpacked_once(packed: Path) -> Path:
    with packed.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    out = packed.parent / UNPACKED / digest[:16]
    if out.is_dir():
        return out
    # Planning asks for the place at every start, and what unpacks takes long to import.
    from .restored import unpack

    fresh = out.with_name(f"{out.name}.{uuid4().hex}")
    try:
        unpack(packed, fresh)
        fresh.rename(out)
    except OSError:
        # Another process may have been faster.
        if not out.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out
