"""The order in which cells are sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def shuffled(items: Sequence[T], rng: np.random.Generator) -> Iterator[T]:
    """The items in a fresh random order: one round.

    Every round visits each active cell once, so a drift of the machine spreads over all cells
    and cannot favour one.
    """
    for i in rng.permutation(len(items)):
        yield items[i]
