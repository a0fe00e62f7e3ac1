"""One measurement per device at a time, across processes and users of a host."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

# A device waits so long for the job that follows.
_POLL_S = 0.02


class DeviceLock:
    """An exclusive lock that the kernel frees when all processes that hold it have ended.

    `descriptor` is that of the locked file while the lock is held, else None. A process that is
    given it holds the lock as well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody has it; whether it is taken now. Raises OSError."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # which of both, the file system decides
            os.close(descriptor)
            return False
        self.descriptor = descriptor
        return True

    def release(self) -> None:
        """Let others have it; nothing where it is not held."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __enter__(self) -> DeviceLock:
        """The lock as it is; leaving the block releases it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW
        try:
            # Without O_CREAT: with it another user's file may not be opened in a shared folder.
            return os.open(self._path, flags)
        except FileNotFoundError:
            descriptor = os.open(self._path, flags | os.O_CREAT, 0o666)
        with suppress(PermissionError):  # another user was faster
            os.fchmod(descriptor, 0o666)
        return descriptor


def device_lock(uuid: str) -> DeviceLock:
    """The lock of the device `uuid`.

    Lock files lie in GPUSHMOO_LOCK_DIR or the system's temporary folder, so that all runs on a
    host meet at the same file.
    """
    folder = Path(os.environ.get("GPUSHMOO_LOCK_DIR", tempfile.gettempdir()))
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", uuid)
    return DeviceLock(folder / f"gpushmoo-{name}.lock")


def lock_one(
    devices: Sequence[tuple[int, str]], on_wait: Callable[[], None]
) -> tuple[int, DeviceLock]:
    """Lock the first free one of `devices` (index, UUID); its index and the lock, held.

    While all are taken it waits, and says so once by `on_wait`.
    """
    locks = [(index, device_lock(uuid)) for index, uuid in devices]
    has_waited = False
    while True:
        for index, lock in locks:
            if lock.acquire():
                return index, lock
        if not has_waited:
            on_wait()
            has_waited = True
        time.sleep(_POLL_S)
