"""Whether folders take the files of compilers, and the sentence if one does not."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

# Bytes that a folder must take: some files of a compiler.
_ROOM = 4 * 2**20
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable"),
    errno.EFBIG: "allow larger files (ulimit -f)",
    **dict.fromkeys((errno.EIO, errno.ESTALE), "check its disk"),
}


def temporary_folder() -> Path:
    """Where compilers keep temporary files; Python goes elsewhere if there is no room."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


def is_full(err: OSError) -> bool:
    """Whether there is no room, which NumPy says without a number."""
    no_number = err.errno is None and str(err).endswith(" written")
    return no_number or err.errno in (errno.ENOSPC, errno.EDQUOT)


def is_unwritable(err: Exception) -> bool:
    """Whether the disk or its permissions are the reason."""
    return isinstance(err, OSError) and (is_full(err) or err.errno in _REMEDIES)


def unwritten(path: Path | str, err: OSError) -> str:
    """The sentence on a file or folder that could not be written."""
    reason = os.strerror(err.errno) if err.errno else str(err)
    remedy = _REMEDIES.get(err.errno or errno.ENOSPC, "make it usable")
    return f"'{path}' cannot be written to ({reason}): {remedy}, then start again."


def obstacle(*folders: Path) -> str | None:
    """The sentence on the first folder that does not take a few megabytes; None if all do.

    If a folder does not exist, the one in which it would be created is tried.
    """
    for folder in folders:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(_ROOM))
                file.flush()
        except OSError as err:
            return unwritten(folder, err)
    return None
