"""Files without a name: memory that other processes map, and that goes with its last process.

Nothing has to be removed after an interrupt or a kill. Children find such a file among the open
files of its owner.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from .. import __name__ as library

_PROCESSES = "/proc"
_MEMORY = "/proc/meminfo"
# The limit of a container, how much of it is in use, and of that what files occupy.
_LIMIT, _USED = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"
_USES = "/sys/fs/cgroup/memory.stat"
# Of the memory that is available, a file takes at most one part in so many.
_SHARE = 2


class UnnamedFile:
    """An open file of this process, closed with this object; `path` opens it elsewhere."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.path = descriptor, f"{_PROCESSES}/{os.getpid()}/fd/{descriptor}"
        self.close = weakref.finalize(self, os.close, descriptor)


def unnamed_file(nbytes: int) -> UnnamedFile | None:
    """A file for so many bytes: in memory, or in the temporary folder if memory is scarce.

    None if other processes could not open it. Raises OSError.
    """
    made = _in_memory(nbytes) or _on_disk()
    if made is not None and _is_reached(made):
        return made
    return None


def is_unnamed(path: Path) -> bool:
    """Whether `path` is a link to an unnamed file."""
    return path.is_symlink() and os.readlink(path).startswith(f"{_PROCESSES}/")


def available_bytes() -> int:
    """Bytes of memory that can be taken before the system is short of it; 0 if unknown."""
    found = [_table(_MEMORY).get("MemAvailable", 0) * 1024]
    with suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = (int(Path(file).read_text(encoding="ascii")) for file in (_LIMIT, _USED))
        found.append(limit - used + _table(_USES).get("inactive_file", 0))
    return max(0, min(found))


def _table(file: str) -> dict[str, int]:
    """The numbers of a file with a name and a number in each line."""
    with suppress(OSError, ValueError):
        lines = Path(file).read_text(encoding="ascii").splitlines()
        return {words[0].rstrip(":"): int(words[1]) for line in lines if (words := line.split())}
    return {}


def _in_memory(nbytes: int) -> UnnamedFile | None:
    if nbytes * _SHARE <= available_bytes():
        with suppress(OSError, AttributeError):  # not of Linux
            return UnnamedFile(os.memfd_create(library))
    return None


def _on_disk() -> UnnamedFile:
    with tempfile.TemporaryFile() as file:
        return UnnamedFile(os.dup(file.fileno()))


def _is_reached(file: UnnamedFile) -> bool:
    """Whether a child of the same user may open the file by its path."""
    try:
        same = os.path.samestat(os.stat(file.path), os.fstat(file.descriptor))
        # Of a process that must not be looked into it is root.
        owner = os.stat(f"{_PROCESSES}/{os.getpid()}").st_uid
    except OSError:
        return False
    return same and os.geteuid() in (owner, 0)
