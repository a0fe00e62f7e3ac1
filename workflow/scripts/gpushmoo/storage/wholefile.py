"""Files other than Parquet: written whole or not at all, with a sum of themselves at the end.

A file may be damaged after it was written: a power cut leaves it empty or cut off, a disk flips a
bit. So its last line holds the SHA-256 of all bytes before, in a form that other programs take for
a comment or, in JSON, for one key more. What reads such a file asks the sum first.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What stands before and after the sum, by the kind of file.
_AROUND_SUM = {
    ".html": (b"<!-- sha256: ", b" -->\n"),
    ".json": (b',\n "sha256": "', b'"\n}\n'),
    ".md": (b"\n<!-- sha256: ", b" -->\n"),
    ".pdf": (b"\n%sha256: ", b"\n"),
    ".svg": (b"<!-- sha256: ", b" -->\n"),
    ".txt": (b"sha256: ", b"\n"),
}
# The end of an object in JSON, in the place of which its sum is written.
_END_OF_OBJECT = "\n}"


class UnusableFilesError(Exception):
    """Files that must not be used; one sentence. `files` are those at fault."""

    def __init__(self, sentence: str, files: Sequence[Path] = ()) -> None:
        """Remember the files, which a job sets aside."""
        super().__init__(sentence)
        self.files = tuple(files)


class DamagedFileError(UnusableFilesError):
    """A file is not as it was written; one sentence that begins with its name."""

    def __init__(self, path: Path, what: str) -> None:
        """Remember the file, which must not be used."""
        super().__init__(f"'{path}' {what}", [path])
        self.path = path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a name beside `path` to write to; what is there in the end is synced and renamed.

    The name is this process's own, so that a killed or doubled writer never leaves half a file or
    mixes two, and the folder is synced, too, so that a power cut does not undo the renaming. Raises
    OSError (no space, read-only), leaving nothing behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        yield own
        sync(own)
        os.replace(own, path)
        sync(path.parent)
    finally:
        own.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk before anything else is done."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as err:
        # Some network file systems have no such call for folders.
        if err.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` and nothing else, as `whole_file` does."""
    with whole_file(path) as own:
        own.write_bytes(data)


def write_summed(path: Path, data: bytes) -> None:
    """Write `data` and its sum; names end in ``.html``, ``.md``, ``.svg``, ``.pdf`` or ``.txt``."""
    write_whole(path, data + _sum_line(path, data))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object that is not empty as JSON, its keys sorted but for ``sha256``, the last."""
    text = json.dumps(content, indent=1, sort_keys=True)
    write_summed(path, text.removesuffix(_END_OF_OBJECT).encode())


def read_summed(path: Path) -> bytes:
    """What was given to `write_summed`. Raises DamagedFileError naming the file."""
    try:
        data = path.read_bytes()
    except OSError as err:
        raise DamagedFileError(path, f"cannot be read: {err.strerror}.") from err
    body = data[: -len(_sum_line(path, b""))]
    if body + _sum_line(path, body) != data:
        state = "is no longer what was written" if data else "is empty"
        raise DamagedFileError(path, f"{state} (damaged, or changed by another program).")
    return body


def read_json(path: Path) -> dict[str, Any]:
    """What was given to `write_json`. Raises DamagedFileError naming the file."""
    content: dict[str, Any] = json.loads(read_summed(path) + _END_OF_OBJECT.encode())
    return content


def _sum_line(path: Path, data: bytes) -> bytes:
    before, after = _AROUND_SUM[path.suffix]
    return before + hashlib.sha256(data).hexdigest().encode() + after
