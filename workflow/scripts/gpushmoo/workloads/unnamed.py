"""Create files without a name: memory that other processes map, freed with its last process.

Nothing must be removed after an interrupt or a kill. Children find such a file among the open files
of its owner.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __name__ as library

_PROCESSES = "/proc"
_MEMORY = "/proc/meminfo"
# The limit of a container, its use, and the part of the use that files occupy.
_LIMIT, _USED = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"
_USES = "/sys/fs/cgroup/memory.stat"
# A file uses at most this fraction (one part in …) of the available memory.
_SHARE = 2


class UnnamedFile:
    """Open file of this process, closed with this object; `path` opens it elsewhere."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.path = f"{_PROCESSES}/{os.getpid()}/fd/{descriptor}"
        self.close = weakref.finalize(self, os.close, descriptor)


def unnamed_file(nbytes: int) -> UnnamedFile | None:
    """Return a file of `nbytes` bytes: in memory, or in the temporary folder if that is scarce.

    The result is None if other processes could not open it. Raises OSError.
    """
    made = _in_memory(nbytes) or _on_disk()
    if made is not None and _is_reached(made):
        return made
    return None


class _Memory(mmap.mmap):
    """The memory of an unnamed file."""

    file: UnnamedFile


def array_in_file(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """Return an array of undefined content in an unnamed file, in NumPy's file format.

    The result is None if `unnamed_file` returns None. Raises OSError, also if there is no room.
    """
    empty = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, (0,) * len(shape))
    file = unnamed_file(empty.nbytes)
    if file is None:
        return None
    with open(file.path, "wb") as head:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(head, {**header, "shape": shape})
        begin = head.tell()
    # Writing without room would end the process.
    os.posix_fallocate(file.descriptor, begin, empty.nbytes)
    memory = _Memory(file.descriptor, begin + empty.nbytes)
    memory.file = file
    return np.ndarray(shape, dtype, memory, begin)


def file_of(array: npt.NDArray[Any]) -> UnnamedFile | None:
    """Return the file behind an array of `array_in_file`, or behind a view of all its bytes."""
    base: Any = array
    while isinstance(base, np.ndarray):
        whole = base
        base = base.base
    is_whole = array.nbytes == whole.nbytes and array.ctypes.data == whole.ctypes.data
    return base.file if isinstance(base, _Memory) and is_whole else None


def is_unnamed(path: Path) -> bool:
    """Return whether `path` is a link to an unnamed file."""
    return path.is_symlink() and os.readlink(path).startswith(f"{_PROCESSES}/")


def available_bytes() -> int:
    """Return the bytes of memory that are available before the system is short; 0 if unknown."""
    found = [_table(_MEMORY).get("MemAvailable", 0) * 1024]
    with suppress(OSError, ValueError):  # There is no container, or it has no limit.
        limit, used = (int(Path(file).read_text(encoding="ascii")) for file in (_LIMIT, _USED))
        found.append(limit - used + _table(_USES).get("inactive_file", 0))
    return max(0, min(found))


def _table(file: str) -> dict[str, int]:
    """Return the numbers of a file with a name and a number in each line."""
    with suppress(OSError, ValueError):
        lines = Path(file).read_text(encoding="ascii").splitlines()
        return {words[0].rstrip(":"): int(words[1]) for line in lines if (words := line.split())}
    return {}


def _in_memory(nbytes: int) -> UnnamedFile | None:
    if nbytes * _SHARE <= available_bytes():
        with suppress(OSError, AttributeError):  # The file exists on Linux only.
            return UnnamedFile(os.memfd_create(library))
    return None


def _on_disk() -> UnnamedFile:
    with tempfile.TemporaryFile() as file:
        return UnnamedFile(os.dup(file.fileno()))


def _is_reached(file: UnnamedFile) -> bool:
    """Return whether a child of the same user may open the file by its path."""
    try:
        same = os.path.samestat(os.stat(file.path), os.fstat(file.descriptor))
        # Root owns the files of a process that must not be inspected.
        owner = os.stat(f"{_PROCESSES}/{os.getpid()}").st_uid
    except OSError:
        return False
    return same and os.geteuid() in (owner, 0)
