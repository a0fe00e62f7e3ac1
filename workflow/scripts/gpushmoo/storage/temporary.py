"""Create temporary folders that are removed with their process, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

from .. import __name__ as library

# Lock file in each folder, locked by its process for as long as it lives.
_LOCK = ".lock"
_PREFIX = f"{library}-"
# Signals that end a process at once unless it handles them. SIGINT is an exception in Python.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class OwnFolder(tempfile.TemporaryDirectory[str]):
    """Temporary folder that is removed with this object, or with the process.

    SIGTERM and SIGHUP remove it as well, unless the program handles these. After SIGKILL, the next
    such folder of this user removes it. Raises OSError.
    """

    def __init__(self) -> None:
        remove_left_over()
        super().__init__(prefix=_PREFIX, ignore_cleanup_errors=True)
        lock, fresh = Path(self.name, _LOCK), Path(self.name, f"{_LOCK}.new")
        self._descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT, 0o600)
        # Some file systems have no locks: a folder that is not locked is left alone.
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fresh.rename(lock)
        weakref.finalize(self, os.close, self._descriptor)
        # A forked process has the folders of its parent in this list.
        self.owner = os.getpid()
        _LIVE.add(self)
        _listen()


_LIVE: weakref.WeakSet[OwnFolder] = weakref.WeakSet()


def remove_left_over() -> None:
    """Remove the folders of processes that were killed."""
    for folder in _left_over():
        shutil.rmtree(folder, ignore_errors=True)


def _left_over() -> Iterator[Path]:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield lock.parent
            finally:
                os.close(descriptor)


def _listen() -> None:
    """Make the signals remove the folders, except for signals that the program handles."""
    for number in _SIGNALS:
        with suppress(ValueError):  # Python allows this only in the main thread.
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    """Remove the folders, then end by the signal as without a handler."""
    for folder in [one for one in _LIVE if one.owner == os.getpid()]:
        shutil.rmtree(folder.name, ignore_errors=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
