"""Describe the path of one thread through a kernel's machine code.

The model reads it without the code that disassembles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PathPart:
    """Part of a thread's path through the machine code.

    `loads` and `stores` count accesses to global memory, textures and surfaces. `load_width` and
    `store_width` are the bytes of the widest of them. `waits` counts groups of loads of which a
    result is needed before the next group begins, and `shared_waits` such groups
    of loads from shared memory. `edge_waits` counts groups that only threads at the edge of their
    block's tile load, from the tiles of other blocks. `barriers` counts those of the whole block.
    """

    instructions: int = 0
    loads: int = 0
    stores: int = 0
    load_width: int = 0
    store_width: int = 0
    waits: int = 0
    barriers: int = 0
    shared_waits: int = 0
    edge_waits: int = 0

    @property
    def accesses(self) -> int:
        """The larger of the numbers of loads and stores."""
        return max(self.loads, self.stores)


@dataclass(frozen=True)
class CodePath:
    """Part that a thread runs once, and part that it runs in each turn of its loop (else zeros).

    `step` is a loop with a barrier that accesses nothing beyond the multiprocessor, such as a step
    of a tree in shared memory (else zeros). It is not among the other parts. `around` is what loops
    around the turn's loop add to it, which `once` contains, too.
    """

    once: PathPart
    turn: PathPart
    step: PathPart = field(default_factory=PathPart)
    around: PathPart = field(default_factory=PathPart)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CodePath:
        """Return the path from the plain values of `dataclasses.asdict`, as files contain them."""
        # Older files have only the first two.
        names = ("once", "turn", "step", "around")
        parts = (PathPart(**values.get(name, {})) for name in names)
        return cls(*parts)
