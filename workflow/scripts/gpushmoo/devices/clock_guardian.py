"""``python -m gpushmoo.devices.clock_guardian BACKEND UUID CLOCK``: holds a device at a clock.

This process outlives its parent: when the parent ends, even by SIGKILL, the pipe between them
closes, and the clocks are freed. It ignores signals to its process group. It prints one line of
JSON, `LockedClocks`, and then waits.
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

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def main(backend: str, uuid: str, asked: str) -> int:
    """Lock, wait until the standard input is closed, free; 1 if freeing failed."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    functions = functions_of(BACKENDS[backend])
    try:
        clocks = functions.lock_clocks(uuid, int(asked) if asked.isdigit() else asked)
    except ClocksNotLockedError as err:
        _tell(LockedClocks(None, why=str(err)))
        return 0
    try:
        _tell(clocks)
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


def _tell(clocks: LockedClocks) -> None:
    with suppress(OSError):  # the parent has ended
        os.write(sys.stdout.fileno(), json.dumps(asdict(clocks)).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
