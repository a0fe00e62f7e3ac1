"""How much of the work of measuring a shard's cells is done."""

from __future__ import annotations

from collections.abc import Iterable


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
