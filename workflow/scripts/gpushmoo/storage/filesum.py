"""A sum that a Parquet file carries of itself, asked before anything in it is believed.

Parquet has checksums of pages alone. A flipped bit beside them may change a device's name, or the
statistics by which readers pass over rows, and one in the footer can end the process inside of the
library that reads it. So 48 bytes more stand before the footer, where readers, who go by offsets,
never look: a mark, and the SHA-256 of all others.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa

MARK = b"gpushmoo sha-256"
_LENGTH = len(MARK) + hashlib.sha256().digest_size
# The footer's length, and "PAR1".
_TAIL = 8
_PIECE = 2**20


def add_sum(path: Path) -> None:
    """Give a whole Parquet file its sum. Raises OSError (no space)."""
    with path.open("r+b") as f:
        whole = f.read()
        place = len(whole) - _TAIL - int.from_bytes(whole[-_TAIL:-4], "little")
        f.seek(place)
        f.write(MARK + hashlib.sha256(whole).digest() + whole[place:])


def sum_fault(file: pa.NativeFile) -> str | None:
    """What the sum of a whole Parquet file tells against it, as a clause; None for nothing."""
    size = file.size()
    file.seek(size - _TAIL)
    place = size - _TAIL - int.from_bytes(file.read(4), "little") - _LENGTH
    file.seek(max(0, place))
    stated: bytes = file.read(_LENGTH)
    if not stated.startswith(MARK):
        return "carries no sum of itself where it must stand; it was not written by gpushmoo"
    found = hashlib.sha256()
    _feed(found, file, 0, place)
    _feed(found, file, place + _LENGTH, size)
    if stated != MARK + found.digest():
        return "no longer holds what was written; a bit has flipped"
    return None


def _feed(digest: Any, file: pa.NativeFile, begin: int, end: int) -> None:
    file.seek(begin)
    while begin < end:
        piece = file.read(min(_PIECE, end - begin))
        digest.update(piece)
        begin += len(piece)
