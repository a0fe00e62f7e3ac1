"""Lock a device against other processes and users, and lock its clocks while it measures."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..core.backends import BACKENDS
from ..core.errors import ClocksNotLockedError
from ..core.paths import child_environment
from ..devices.base import functions_of
from ..devices.capabilities import LockedClocks

log = logging.getLogger(__name__)

# Seconds after which a job says that it waits. Jobs of one run wait for each other for a moment.
_SAY_S = 10.0
# Seconds between two attempts to lock a device.
_POLL_S = 0.02
# Seconds within which the guardian of the clocks must end.
_PATIENCE_S = 60.0


class DeviceLock:
    """Exclusive lock on a device, held through an open file that is locked by ``flock``.

    The system frees the lock when every process that has this open file has closed it or has ended.

    `descriptor` is the file descriptor of the locked file, or None while this object does not hold
    the lock. Another process that receives a copy of the descriptor also holds the lock.

    Parameters
    ----------
    path
        The file to lock. It is created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor: int | None = None

    def acquire(self) -> bool:
        """Take the lock if it is free, and return whether it was free.

        Raises
        ------
        OSError
            If the file cannot be opened.
        """
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # one or the other, by the file system
            os.close(descriptor)
            return False
        self.descriptor = descriptor
        return True

    def release(self) -> None:
        """Free the lock if this object holds it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __enter__(self) -> DeviceLock:
        """Return the lock. Leaving the block releases it."""
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
    """Return the lock of a device, whose file is in GPUSHMOO_LOCK_DIR or in the temporary folder.

    Parameters
    ----------
    uuid
        UUID of the device.
    """
    folder = Path(os.environ.get("GPUSHMOO_LOCK_DIR", tempfile.gettempdir()))
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", uuid)
    return DeviceLock(folder / f"gpushmoo-{name}.lock")


def lock_one(
    devices: Sequence[tuple[int, str]], on_wait: Callable[[], None], own: bool = False
) -> tuple[int, DeviceLock]:
    """Wait until one of several devices is free, and lock it.

    Parameters
    ----------
    devices
        Index and UUID of each device, in the order in which they are tried.
    on_wait
        Called once if no device is free for some seconds.
    own
        Whether the first device is preferred. The others are then tried only after `on_wait`.

    Returns
    -------
    tuple
        Index of the locked device, and its lock.
    """
    locks = [(index, device_lock(uuid)) for index, uuid in devices]
    waits = True
    say_at = time.monotonic() + _SAY_S
    while True:
        for index, lock in locks[:1] if own and waits else locks:
            if lock.acquire():
                return index, lock
        if waits and time.monotonic() >= say_at:
            waits = False
            on_wait()
        time.sleep(_POLL_S)


class HeldClocks:
    """Clock frequencies that a guardian process keeps locked on one device until `free` is called.

    The guardian is a child process. It inherits the descriptor of `lock`, so the device stays
    locked against other jobs until the guardian has freed the clocks, even if this process is
    killed. If the clocks cannot be locked, `sentence` says why, and measuring continues.

    Parameters
    ----------
    backend
        Name of the device's backend.
    uuid
        UUID of the device.
    asked
        Core clock to lock, in MHz, or ``base``.
    lock
        The acquired lock of the device.
    """

    def __init__(self, backend: str, uuid: str, asked: int | str, lock: DeviceLock) -> None:
        self._uuid = uuid
        self.asked = asked
        self._guardian = None
        if not BACKENDS[backend].locks_clocks:
            self.told = LockedClocks(None, why=f"backend '{backend}' has no way to lock clocks")
            return
        assert lock.descriptor is not None
        guardian = subprocess.Popen(
            [sys.executable, "-m", "gpushmoo.measuring.locks", backend, uuid, str(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock.descriptor,),
            # Signals to this process's group do not reach it.
            start_new_session=True,
            env=child_environment(),
        )
        self._guardian = guardian
        assert guardian.stdout is not None
        line = guardian.stdout.readline()
        ended = f"the process that holds them ended with status {guardian.poll()}"
        self.told = LockedClocks(**json.loads(line)) if line else LockedClocks(None, why=ended)
        log.info("clocks: %s", self.told)

    @property
    def sentence(self) -> str | None:
        """Reason why the clocks are not locked as requested, or None if they are."""
        if self.told.why is None:
            return None
        return (
            f"The clocks were not locked (measure.lock_clocks: {self.asked}): {self.told.why}; the "
            "device chooses them itself."
        )

    def provenance(self) -> dict[str, Any]:
        """Return the requested and the locked clocks, for the shard's metadata."""
        return {"asked": self.asked, "locked": self.told.core is not None, **asdict(self.told)}

    def free(self) -> None:
        """End the guardian process, which frees the clocks. A failure is logged."""
        if self._guardian is None:
            return
        guardian = self._guardian
        self._guardian = None
        try:
            # Its standard input closes.
            guardian.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            guardian.kill()
            guardian.communicate()
        if guardian.returncode != 0:
            log.error("the clocks of %s may still be locked: 'nvidia-smi -rgc -rmc'", self._uuid)


# The guardian of the clocks: ``python -m gpushmoo.measuring.locks BACKEND UUID CLOCK``. It ignores
# signals to its process group and outlives its parent: when that ends, even by SIGKILL, the pipe
# between them closes, and the clocks are freed. It prints one line of JSON, `LockedClocks`.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def main(backend: str, uuid: str, asked: str) -> int:
    """Lock the clocks of a device until the standard input closes, and return the exit status.

    Parameters
    ----------
    backend
        Name of the device's backend.
    uuid
        UUID of the device.
    asked
        Core clock to lock, in MHz, or ``base``.

    Returns
    -------
    int
        1 if the clocks could not be freed, otherwise 0.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    clocks = functions_of(BACKENDS[backend]).clocks(uuid)
    try:
        locked = clocks.lock(int(asked) if asked.isdigit() else asked)
    except ClocksNotLockedError as err:
        _tell(LockedClocks(None, why=str(err)))
        return 0
    try:
        _tell(locked)
        while os.read(sys.stdin.fileno(), 4096):
            pass
    finally:
        try:
            clocks.free()
        except ClocksNotLockedError as err:
            with suppress(OSError):
                print(err, file=sys.stderr)
            return 1
    return 0


def _tell(clocks: LockedClocks) -> None:
    with suppress(OSError):  # the parent has ended
        os.write(sys.stdout.fileno(), json.dumps(asdict(clocks)).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
