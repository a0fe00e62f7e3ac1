"""One measurement per device at a time, across processes and users of a host."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

_POLL_S = 0.1


def device_lock(uuid: str) -> FileLock:
    """The lock of the device `uuid`; the kernel frees it when its holder dies.

    Lock files lie in GPUSHMOO_LOCK_DIR or the system's temporary folder, so that all runs on a
    host meet at the same file.
    """
    folder = Path(os.environ.get("GPUSHMOO_LOCK_DIR", tempfile.gettempdir()))
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", uuid)
    return FileLock(folder / f"gpushmoo-{name}.lock", mode=0o666)


def lock_one(
    devices: Sequence[tuple[int, str]], on_wait: Callable[[], None]
) -> tuple[int, FileLock]:
    """Lock the first free one of `devices` (index, UUID); its index and the lock, held.

    While all are taken it waits, and says so once by `on_wait`.
    """
    locks = [(index, device_lock(uuid)) for index, uuid in devices]
    told = False
    while True:
        for index, lock in locks:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            return index, lock
        if not told:
            on_wait()
            told = True
        time.sleep(_POLL_S)
