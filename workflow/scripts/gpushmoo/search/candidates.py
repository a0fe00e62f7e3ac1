"""What a search knows of a cell before it ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """One cell of a group: how it is launched, on which problem, on which device.

    `params` are sorted by name; `block` holds the threads of a block along x, y and z, `blocks` the
    blocks of the grid; the problem has `height` rows of `width` elements of `element_bytes` bytes;
    the device has `units` multiprocessors, each of which holds `resident_per_unit` of these blocks
    at once (None where that is not told).
    """

    params: tuple[tuple[str, int], ...]
    block: tuple[int, int, int]
    blocks: int
    height: int
    width: int
    element_bytes: int
    units: int
    resident_per_unit: int | None

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Prior:
    """A cell with these launch parameters elsewhere: on another size, type or device.

    `slower` is its time over that of the fastest cell of its own group, 1.0 or more.
    """

    params: tuple[tuple[str, int], ...]
    slower: float
