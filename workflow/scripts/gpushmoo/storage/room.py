"""Check whether folders accept files, and word the error if one does not."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import WriteError
from .wholefile import filled_folder

# Bytes that a folder must accept: some files of a compiler.
_ROOM = 4 * 2**20
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable"),
    errno.EFBIG: "allow larger files (ulimit -f)",
    **dict.fromkeys((errno.EIO, errno.ESTALE), "check its disk"),
}
# A name that is not possible, or that belongs to another kind of file.
_NAMES = (errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)


def temporary_folder() -> Path:
    """Return the folder for temporary files of compilers; Python's may differ if a disk is full."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


def is_full(err: OSError) -> bool:
    """Return whether there is no room; NumPy reports that without an error number."""
    no_number = err.errno is None and str(err).endswith(" written")
    return no_number or err.errno in (errno.ENOSPC, errno.EDQUOT)


def is_unwritable(err: Exception) -> bool:
    """Return whether the disk or its permissions are the reason."""
    return isinstance(err, OSError) and (is_full(err) or err.errno in _REMEDIES)


def unwritten(path: Path | str, err: OSError) -> str:
    """Return the sentence on a file or folder that could not be written."""
    reason = os.strerror(err.errno) if err.errno else str(err)
    if isinstance(err, shutil.Error):
        # The path is a list of files and reasons.
        reason = str(err.args[0][0][2])
    other = "name another one" if err.errno in _NAMES else "make it usable"
    remedy = _REMEDIES.get(err.errno or errno.ENOSPC, other)
    return f"'{path}' cannot be written to ({reason}): {remedy}, then start again."


@contextmanager
def output(out: Path, error: type[Exception]) -> Iterator[None]:
    """Convert an OSError in the block, which writes the user's file `out`, to an `error`.

    The sentence names the file, the reason and the remedy. Write with `whole_file`,
    `replaced_folder` or `filled_folder`, which leave nothing behind.
    """
    try:
        yield
    except OSError as err:
        elsewhere = _elsewhere(out.absolute(), err)
        raise error(unwritten(elsewhere or out, err)) from err


def _elsewhere(out: Path, err: OSError) -> Path | None:
    """Return the file of an error if it is not `out`, such as a temporary one."""
    named = err.path if isinstance(err, WriteError) else err.filename
    if not isinstance(named, str | os.PathLike):
        return None
    path = Path(named).absolute()
    return None if path.is_relative_to(out.parent) or out.is_relative_to(path) else path


@contextmanager
def output_folder(out: Path, error: type[Exception]) -> Iterator[Path]:
    """Yield a temporary folder, which becomes `out` at the end of the block.

    If `out` cannot be written, the function raises an `error` with one sentence: the folder, the
    reason and the remedy.
    """
    with output(out, error), filled_folder(out) as fresh:
        yield fresh


def obstacle(*folders: Path) -> str | None:
    """Return the sentence on the first folder that does not accept a few megabytes, or None.

    If a folder does not exist, its nearest existing parent is tried.
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
