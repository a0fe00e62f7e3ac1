"""How a process ends: with the one that started it, or by a signal, with nothing left behind."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_PR_SET_PDEATHSIG = 1
# What persons, schedulers and closed terminals send to end a job.
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends (Linux only).

    A process that waits for a hung compiler or device reads no pipe that could tell it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class JobSignalledError(BaseException):
    """The job was told to end; one sentence. No exception that programs catch by the way."""


@contextmanager
def raises_signals() -> Iterator[None]:
    """Within it the first of these signals raises JobSignalledError; another ends the process.

    So what the job has begun is undone: its measuring process is ended, a file half written is
    removed. A signal that the process was started to ignore (``nohup``) stays ignored.
    """
    before = {s: signal.getsignal(s) for s in END_SIGNALS}
    taken = [s for s in END_SIGNALS if before[s] is not signal.SIG_IGN]

    def end(number: int, frame: FrameType | None) -> None:
        for s in taken:
            signal.signal(s, signal.SIG_DFL)
        raise JobSignalledError(
            f"This job was ended by {signal.Signals(number).name} before its file was written; "
            "start the run again: finished shards are kept, only this one is measured again."
        )

    for s in taken:
        signal.signal(s, end)
    try:
        yield
    finally:
        for s in taken:
            signal.signal(s, before[s])
