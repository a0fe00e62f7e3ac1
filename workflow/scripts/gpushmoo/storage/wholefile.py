"""Files and folders that are written whole or not at all, and set aside once they are damaged.

Files other than Parquet end with a sum of themselves: their last line holds the SHA-256 of all
bytes before, in a form that other programs take for a comment or, in JSON, for one key more. What
reads such a file asks the sum first.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
# Folder of a run for files of it that must not be used.
QUARANTINE = "quarantine"


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


@contextmanager
def replaced_folder(out: Path) -> Iterator[Path]:
    """Give a new folder beside `out` to fill, which takes the place of `out` in the end.

    The old one goes only when all of the new one is on the disk. Whatever is raised while it is
    filled, and OSError (no space), leave `out` as it was and nothing beside it.
    """
    fresh = out.with_name(f".{out.name}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        fresh.mkdir(parents=True)
        yield fresh
        for path in (*fresh.rglob("*"), fresh):
            sync(path)
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
        sync(out.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


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


def set_aside(paths: Sequence[Path], run: Path) -> list[Path]:
    """Move files (or data sets) of the run's folder into its quarantine, under their paths there.

    A file that lies there already keeps its name and the new one gets a number. What counts is the
    path as it is given: folders of the run may be links or mounts. Files outside of `run` (a
    recorded data set) stay where they are and are not among those returned, nor are those that
    another job has moved. Raises OSError (no space, read-only).
    """
    moved = []
    folder = Path(os.path.abspath(run))
    for path in paths:
        place = Path(os.path.abspath(path))
        if not place.is_relative_to(folder) or not os.path.lexists(place):
            continue
        wanted = run / QUARANTINE / place.relative_to(folder)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        target, number = wanted, 1
        while os.path.lexists(target):
            number += 1
            target = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        with suppress(FileNotFoundError):
            shutil.move(place, target)
            moved.append(target)
    return moved
