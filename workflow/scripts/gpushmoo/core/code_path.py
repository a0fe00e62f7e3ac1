"""What one thread runs of a kernel, as the machine code tells it.

The model reads it without the code that reads machine code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PathPart:
    """A part of a thread's way through the machine code.

    `loads` and `stores` count accesses to global memory, textures and surfaces, `load_width` and
    `store_width` are the bytes of the widest of them; `waits` counts groups of loads of which a
    result is needed before the next group begins.
    """

    instructions: int = 0
    loads: int = 0
    stores: int = 0
    load_width: int = 0
    store_width: int = 0
    waits: int = 0

    @property
    def accesses(self) -> int:
        """Loads or stores, whichever are more."""
        return max(self.loads, self.stores)


@dataclass(frozen=True)
class CodePath:
    """What a thread runs once, and what it runs for each turn of its loop (none: zeros)."""

    once: PathPart
    turn: PathPart

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CodePath:
        """The path whose plain values `dataclasses.asdict` gave, as files hold them."""
        return cls(PathPart(**values["once"]), PathPart(**values["turn"]))
