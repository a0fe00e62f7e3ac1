"""Report the progress of long work: in one terminal line that is replaced, or in a few lines."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

# On other streams the first line appears after this many seconds, and pauses double.
_FIRST_S, _LONGEST_S = 2.0, 120.0
# Seconds until the first line that work continues: finding a device takes a few.
_FIRST_BEAT_S = 10.0
# Control sequence: go to the begin of the line and clear it.
_CLEAR = "\r\x1b[K"


class News:
    """Shows the latest progress of some work on a stream.

    Use `in_place` for a terminal that no other process writes to. In this mode the line is
    replaced, and must be cleared before anything else is written. Other streams get few lines.
    """

    def __init__(
        self, stream: TextIO, in_place: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.in_place = in_place and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._stream, self._clock = stream, clock
        self._pause_s = _FIRST_S
        self._due_s = clock() + _FIRST_S
        self._is_shown = False

    def show(self, text: str) -> None:
        """Replace the line by `text`; on other streams, write it if the last line is old enough."""
        now = self._clock()
        if self.in_place:
            # A longer line would wrap to two, of which only one is cleared.
            room = shutil.get_terminal_size().columns - 1
            self._stream.write(f"{_CLEAR}{text[:room]}")
            self._stream.flush()
            self._is_shown = True
        elif now >= self._due_s:
            self.write(text)
            self._pause_s = min(2.0 * self._pause_s, _LONGEST_S)
            self._due_s = now + self._pause_s

    def write(self, text: str) -> None:
        """Write `text` as a permanent line, in place of the progress line if one is shown."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the shown line, if there is one."""
        if self._is_shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._is_shown = False


@contextmanager
def heartbeat(stream: TextIO, text: str, first_s: float = _FIRST_BEAT_S) -> Iterator[None]:
    """Print a line from time to time while the block runs, which prints nothing itself."""
    ended, began = threading.Event(), time.monotonic()

    def beat() -> None:
        pause_s = first_s
        while not ended.wait(pause_s):
            stream.write(f"{text} ({time.monotonic() - began:.0f} s so far)\n")
            stream.flush()
            pause_s = min(2.0 * pause_s, _LONGEST_S)

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
