"""How much of a shard is measured, and the lines that tell it to a person who watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TextIO


@dataclass
class Progress:
    """Prints lines as ``shard 2/7 …: 40/142 cells done, 28 % of the work, about 31 s left``.

    At most one line every `every_s` seconds, besides the first and the last.
    `done` counts finished cells; the estimate uses the finer `fraction` of the work.
    """

    label: str
    cells: int
    stream: TextIO
    every_s: float = 2.0
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)
    _printed: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()
        self._printed = self._started

    def announce(self) -> None:
        """Print the shard's first line, before any of its cells has ended."""
        self._say(f"{self.cells} cells to measure")

    def update(self, done: int, fraction: float) -> None:
        """Report `done` finished cells and the `fraction` (0..1) of all work; rate-limited."""
        now = self.clock()
        if now - self._printed < self.every_s:
            return
        self._printed = now
        left = ""
        if 0.0 < fraction < 1.0:
            seconds = (now - self._started) * (1.0 - fraction) / fraction
            left = f", about {duration(seconds)} left"
        self._say(f"{done}/{self.cells} cells done, {100 * fraction:.0f} % of the work{left}")

    def finish(self, summary: str) -> None:
        """The shard's last line, always printed."""
        self._say(f"{summary} in {duration(self.clock() - self._started)}")

    def _say(self, text: str) -> None:
        self.stream.write(f"{self.label}: {text}\n")
        self.stream.flush()


def duration(seconds: float) -> str:
    """``45 s``, ``3 min 5 s`` or ``2 h 4 min``."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


class Work:
    """Counts the steps of cells: the verification and each sample that a cell may take are one.

    Only cells that run count, or the estimate would run ahead.
    """

    def __init__(self, keys: Iterable[str], max_samples: int) -> None:
        """`keys` are those of the cells that run; each takes at most so many samples."""
        self._steps = 1 + max_samples
        self._left = dict.fromkeys(keys, self._steps)
        self._total = self._steps * len(self._left)
        self._done = 0

    @property
    def fraction(self) -> float:
        """The share, 0 to 1, of all steps."""
        return self._done / self._total

    def step(self, key: str, samples: int) -> bool:
        """Whether it was progress: the cell `key` has so many samples, some taken again maybe."""
        left = self._left.get(key)
        if left is None or self._steps - left > samples:
            return False
        self._left[key] -= 1
        self._done += 1
        return True

    def end(self, key: str) -> None:
        """The cell has ended; the steps that it did not need count as done."""
        self._done += self._left.pop(key)
