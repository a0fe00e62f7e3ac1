"""The clock of a process that runs no kernel, held against the times that kernels are given."""

from __future__ import annotations

from collections.abc import Callable

# Taken before any workload is loaded, which may replace it.
from time import monotonic

from .events import Clocked, Message

# More than so many times the claimed seconds, and the work on as many copies of a word, and a pause
# of either process: then the claimed time is too short.
FACTOR, COPIES, PAUSE_S = 3.0, 5.0, 0.01
# A claimed time may be so much longer than the time that passed.
LONGER = 1.25
# A cell is timed so often, and its clock is wrong if all times are.
CLOCKINGS = 3


class OuterClock:
    """Times what a measuring process does between two messages."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._heard_s = clock, clock()
        self._copies_s = 0.0
        # Of the cell that is being timed.
        self._key, self._off = "", 0

    def fault(self, message: Message) -> str | None:
        """What is wrong with the claims of a cell, once CLOCKINGS in a row were wrong."""
        now = self._clock()
        took_s, self._heard_s = now - self._heard_s, now
        if not isinstance(message, Clocked):
            return None
        if message.is_copy:
            self._copies_s = took_s
            return None
        claimed_s = message.seconds
        too_short = took_s > FACTOR * claimed_s + COPIES * self._copies_s + PAUSE_S
        too_long = claimed_s > LONGER * took_s + PAUSE_S
        if message.key != self._key:
            self._key, self._off = message.key, 0
        self._off = self._off + 1 if too_short or too_long else 0
        if self._off < CLOCKINGS:
            return None
        return (
            f"the clock of its process is wrong: {message.launches} launches took {claimed_s:.3g} "
            f"s by it and {took_s:.3g} s by another process's"
        )
