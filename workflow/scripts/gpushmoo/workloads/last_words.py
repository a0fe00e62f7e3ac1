"""What of the user's runs in a measuring process, told where it can be read after its end.

Whatever ends a process (``os._exit``, a crash in C code, SIGKILL), memory that it shares with its
caller stays. So the name of the method that runs stands there, for less than a microsecond a call;
a message on a socket would cost ten times as much.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile

# Bytes of the shared memory; a longer text is cut.
_SIZE = 256

_now: mmap.mmap | bytearray = bytearray(_SIZE)


def mark(clause: str) -> bytes:
    """`clause` ("workload.py's inputs ran") as `swap` takes it."""
    return clause.encode(errors="backslashreplace")[:_SIZE].ljust(_SIZE, b"\0")


def swap(now: bytes) -> bytes:
    """Say that `now` runs; what was said before, to be said again when it has ended."""
    before = _now[:]
    _now[:] = now
    return bytes(before)


def share(descriptor: int) -> None:
    """Say from now on in the memory of the caller's `LastWords`, whose file descriptor this is."""
    global _now
    _now = mmap.mmap(descriptor, _SIZE)


class LastWords:
    """The caller's end of the memory; `descriptor` is to be inherited by the process."""

    def __init__(self) -> None:
        self.descriptor = _memory_file()
        self._memory = mmap.mmap(self.descriptor, _SIZE)
        self._file = os.fdopen(self.descriptor, "r+b")

    def read(self) -> str | None:
        """The clause on what runs, or ran when the process ended; None where nothing does."""
        return self._memory[:].rstrip(b"\0").decode(errors="replace") or None

    def close(self) -> None:
        """Free memory and file; `read` is not possible any more."""
        self._memory.close()
        self._file.close()


def _memory_file() -> int:
    """A file of `_SIZE` zeros; on Linux in memory, so that it needs no room on a disk."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("gpushmoo")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, bytes(_SIZE))
    return descriptor
