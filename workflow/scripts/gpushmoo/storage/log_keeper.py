"""``python log_keeper.py BYTES``: copies its input to its output, at most so many bytes of it.

A process of its own, so that a job that is killed leaves the log as far as it came, and so that
what prints never waits for a job that is busy. It imports little, to start in milliseconds.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

# Exit status that says that something was left out.
DROPPED = 3
# What the two lines between beginning and end take at most.
_LINES = 400


def keep(most: int) -> int:
    """Copy standard input until its end: the first half of `most` bytes, then the last half.

    The exit status: DROPPED where what came between is left out, else 0.
    """
    head, tail = most // 2, most // 2 - _LINES
    last = bytearray()
    dropped = 0
    while data := os.read(0, 2**16):
        if head:
            _write(data[:head])
            data, head = data[head:], max(0, head - len(data))
            if not head:
                _write(
                    f"\n[gpushmoo: a log holds {most / 1e6:g} MB at most: the last half of it "
                    "follows when the job has ended.]\n".encode()
                )
        last += data
        if len(last) > 2 * tail:
            dropped += len(last) - tail
            del last[:-tail]
    dropped += max(0, len(last) - tail)
    if dropped:
        _write(
            f"[gpushmoo: {dropped} bytes are left out here. What prints so much is most likely a "
            "kernel or workload.py, and what is timed includes it.]\n".encode()
        )
    _write(bytes(last[-tail:]))
    return DROPPED if dropped else 0


def _write(data: bytes) -> None:
    """All of it; on a full disk what does not fit is lost, and what prints does not wait for it."""
    with suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1])))
