"""What launches did beside writing their output: past a buffer, or into an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..devices.base import Device, Witnesses
from ..devices.guard_bands import Strays

Array = npt.NDArray[Any]

# Words that are read back at a time in search of the first wrong one, and what unwritten ones hold.
CHUNK, POISON = 2**20, 0xFFFFFFFF


class BufferWatch:
    """The buffers that launches are given, by name; the `inputs` among them must not change."""

    def __init__(
        self,
        device: Device,
        buffers: Mapping[str, Any],
        inputs: Mapping[str, Any],
        restore: Callable[[], None],
    ) -> None:
        """`restore` makes the content of the inputs, and what else launches do not write, anew."""
        self._device, self._buffers, self._inputs = device, buffers, inputs
        self._restore = restore
        self._sums = device.checksums(list(inputs.values()))

    def witnesses(self, output: Any, expected: Any) -> Witnesses:
        """What is to be looked at after a run that writes `output`."""
        return Witnesses(
            output, expected, list(self._buffers.values()), list(self._inputs.values())
        )

    def damage(self) -> tuple[int, list[str]]:
        """Words written around the buffers, and a clause for each fault; none of it is left.

        So what one cell did is held against no other.
        """
        strays = self._device.strays(list(self._buffers.values()))
        for buffer, stray in zip(self._buffers.values(), strays, strict=True):
            if stray:
                self._device.guard(buffer)
        sums = self._device.checksums(list(self._inputs.values()))
        words, clauses = self.said(strays, sums)
        if clauses:
            self._restore()
        return words, clauses

    def said(self, strays: Sequence[Strays], sums: Sequence[int]) -> tuple[int, list[str]]:
        """Words written around the buffers, and a clause for each fault."""
        words, clauses = 0, []
        for name, stray in zip(self._buffers, strays, strict=True):
            words += stray.before + stray.past
            if stray.past:
                clauses.append(f"wrote {_count(stray.past)} past the end of '{name}'")
            if stray.before:
                clauses.append(f"wrote {_count(stray.before)} before the beginning of '{name}'")
        changed = [n for n, b, a in zip(self._inputs, self._sums, sums, strict=True) if b != a]
        return words, clauses + [f"changed its input '{name}'" for name in changed]


def _count(words: int) -> str:
    return f"{words} word{'s' * (words != 1)}"


def first_difference(
    device: Device, buffer: Any, expected: Any, shape: tuple[int, ...], scalar: np.dtype[Any]
) -> str:
    """The first place at which `buffer` is not as expected, as an array of `shape` and `scalar`."""
    total = int(np.prod(shape)) * scalar.itemsize // 4
    for begin in range(0, total, CHUNK):
        count = min(CHUNK, total - begin)
        found, wanted = (device.words(b, begin, count) for b in (buffer, expected))
        if (found == wanted).all():
            continue
        word = int(np.argmax(found != wanted))
        unwritten = " (nothing was written there)" if found[word] == POISON else ""
        # An element may be a part of a word, or several words.
        per_word = max(1, 4 // scalar.itemsize)
        first = word * 4 // scalar.itemsize
        parts = slice(first, first + per_word)
        is_wrong = found.view(scalar)[parts] != wanted.view(scalar)[parts]
        element = first + int(np.argmax(is_wrong))
        place = np.unravel_index(begin * 4 // scalar.itemsize + element, shape)
        got, due = found.view(scalar)[element], wanted.view(scalar)[element]
        return f"the first at {[int(i) for i in place]}: expected {due!s}, found {got!s}{unwritten}"
    return "none when it was looked for"
