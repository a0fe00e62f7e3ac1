"""``python -m gpushmoo.devices.clock_guardian BACKEND UUID CLOCK``: holds a device at a clock.

A process of its own, which outlives the one that started it: whatever becomes of that one, even
when it is killed, the pipe between them closes, and the clocks are freed. So signals that end whole
groups of processes are not for this one. It prints one line of JSON, `LockedClocks`, and then
waits. With ``free`` in the place of the clock it frees what another left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict

from ..core.backends import BACKENDS
from .base import ClocksNotLockedError, LockedClocks, functions_of

FREE = "free"
# What Python is told to run.
PROGRAM = __name__
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def main(backend: str, uuid: str, asked: str) -> int:
    """Lock, wait until the standard input is closed, free; 1 where that was not possible."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    functions = functions_of(BACKENDS[backend])
    if asked == FREE:
        try:
            functions.free_clocks(uuid)
        except ClocksNotLockedError as err:
            print(err, file=sys.stderr)
            return 1
        return 0
    try:
        told = functions.lock_clocks(uuid, int(asked) if asked.isdigit() else asked)
    except ClocksNotLockedError as err:
        _tell(LockedClocks(None, why=str(err)))
        return 0
    try:
        _tell(told)
        while os.read(sys.stdin.fileno(), 4096):
            pass
    finally:
        try:
            functions.free_clocks(uuid)
        except ClocksNotLockedError as err:
            with suppress(OSError):
                print(err, file=sys.stderr)
            return 1
    return 0


def _tell(told: LockedClocks) -> None:
    """To whoever started it, if that still lives."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), json.dumps(asdict(told)).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
