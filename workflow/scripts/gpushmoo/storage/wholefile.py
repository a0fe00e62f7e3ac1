"""Write files and folders completely or not at all, and move damaged ones aside.

Readers detect a file that is empty or truncated, except for a missing end of a text.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..core.errors import DamagedFileError

# Ends of complete files by their suffix. Files of earlier versions have a comment behind it.
_ENDS = {".html": b"</html>", ".pdf": b"%%EOF", ".svg": b"</svg>"}
_LAST_BYTES = 128
# Key of a checksum in JSON files of earlier versions.
_OLD_SUM = "sha256"
# Subfolder of a run for its damaged files.
QUARANTINE = "quarantine"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is synced and renamed to `path` after the block.

    Each process has a separate path, so writers never mix or leave a partial file. The folder is
    synced as well, so that a power cut does not undo the renaming. Raises OSError (no space,
    read-only), and leaves nothing behind.
    """
    own = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex}")
    with _folder(path.parent):
        try:
            yield own
            sync(own)
            os.replace(own, path)
            sync(path.parent)
        finally:
            own.unlink(missing_ok=True)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Create the folder for the block; on an error, remove the created part if it is empty."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def replaced_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `out` after the block; an error keeps `out`."""
    with _folder(out.parent), _fresh(out.with_name(f".{out.name}.{_own()}")) as fresh:
        yield fresh
        _sync_all(fresh)
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
        sync(out.parent)


@contextmanager
def filled_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose files move to `out` after the block; an error keeps `out`.

    Files with other names stay there.
    """
    with _folder(out), _fresh(out / f".{_own()}") as fresh:
        yield fresh
        _sync_all(fresh)
        for path in sorted(fresh.iterdir()):
            os.replace(path, out / path.name)
        sync(out)


def _own() -> str:
    return f"{os.getpid()}.{uuid.uuid4().hex}"


@contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync_all(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as err:
        # Some network file systems cannot sync folders.
        if err.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` as `whole_file` does."""
    with whole_file(path) as own:
        own.write_bytes(data)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object as JSON with sorted keys."""
    write_atomic(path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def read_complete(path: Path) -> bytes:
    """Return the content of a file; raise DamagedFileError if it is missing, empty or truncated."""
    try:
        data = path.read_bytes()
    except OSError as err:
        raise DamagedFileError(path, f"cannot be read: {err.strerror}.") from err
    if _ENDS.get(path.suffix, b"") not in data[-_LAST_BYTES:] or not data:
        raise _not_whole(path, data)
    return data


def read_json(path: Path) -> dict[str, Any]:
    """Return the object that `write_json` wrote; raise DamagedFileError if it is not complete."""
    data = read_complete(path)
    try:
        content = json.loads(data)
    except ValueError as err:
        raise _not_whole(path, data) from err
    if not isinstance(content, dict):
        raise _not_whole(path, data)
    content.pop(_OLD_SUM, None)
    return content


def _not_whole(path: Path, data: bytes) -> DamagedFileError:
    state = "is truncated" if data else "is empty"
    return DamagedFileError(path, f"{state} (damaged, or changed by another program).")


def set_aside(paths: Sequence[Path], run: Path) -> list[Path]:
    """Move files or data sets of a run's folder into its quarantine; return their new paths.

    A number avoids names that exist there. Links and mounts in the run's folder are not resolved.
    Files outside `run` (a recorded data set) stay, and so do files that another job has moved.
    Raises OSError (no space, read-only).
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
