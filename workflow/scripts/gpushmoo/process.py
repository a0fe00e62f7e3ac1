"""The caller's end of a measuring process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from . import worker
from .devices.base import DeviceError
from .messages import Crashed, Job, Locked, Message, Refused


class WorkerSilentError(Exception):
    """The process said nothing for as long as it may."""


class WorkerGoneError(Exception):
    """The process ended without a word; the sentence says how."""


class WorkerKilledError(WorkerGoneError):
    """It was ended by SIGKILL, as no kernel does: by a person, or the system short of memory."""


class WorkerCrashedError(RuntimeError):
    """An error in a program inside the process, not in the device; its log has the traceback."""


def lend(connection: Connection[Any, Any], index: int, lock: BaseFileLock, pid: int) -> None:
    """Tell the process `pid` over its socket which device is locked, and let it hold the lock."""
    descriptor = lock._context.lock_file_fd
    assert descriptor is not None
    try:
        connection.send(Locked(index))
        send_handle(connection, descriptor, pid)
    except (BrokenPipeError, ConnectionResetError):
        return


class WorkerProcess:
    """Starts ``gpushmoo.worker`` and talks with it. Its output goes where the caller's goes."""

    def __init__(self, job: Job) -> None:
        mine, its = socket.socketpair()
        package = Path(__file__).resolve().parents[1]
        paths = [str(package), os.environ.get("PYTHONPATH", "")]
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self._connection: Connection[Any, Any] = Connection(mine.detach())
        self.say(job)

    def say(self, message: object) -> None:
        """Send `message`; a process that is gone is found by the next `hear`."""
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return

    def lend(self, index: int, lock: BaseFileLock) -> None:
        """Have the process open the device `index` and hold its `lock` as well.

        So the device stays locked until both have ended: when the caller is killed, the process may
        still be in a kernel for a moment.
        """
        lend(self._connection, index, lock, self._process.pid)

    def hear(self, limit_s: float) -> Message:
        """The next message within `limit_s` seconds.

        Raises WorkerSilentError, WorkerGoneError, WorkerCrashedError, or DeviceError with the
        sentence of a device that cannot be used.
        """
        try:
            if not self._connection.poll(limit_s):
                raise WorkerSilentError
            message: Message = self._connection.recv()
        except (EOFError, OSError) as err:  # OSError: it was ended in the middle of a message
            raise self._how_it_ended() from err
        if isinstance(message, Refused):
            raise DeviceError(message.message)
        if isinstance(message, Crashed):
            raise WorkerCrashedError(message.message)
        return message

    def _how_it_ended(self) -> WorkerGoneError:
        status = self._process.wait()
        if status >= 0:
            return WorkerGoneError(f"the measuring process ended with status {status}")
        text = f"the measuring process was ended by {signal.Signals(-status).name}"
        return WorkerKilledError(text) if -status == signal.SIGKILL else WorkerGoneError(text)

    def stop(self) -> None:
        """End the process at once, whatever it does."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def join(self) -> None:
        """Wait for a process that has nothing more to do."""
        self._connection.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.stop()
