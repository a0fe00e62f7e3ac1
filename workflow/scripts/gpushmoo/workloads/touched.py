"""Which elements the threads of a block access side by side: what the hardware can join of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Touched:
    """One access that all threads of a block make, in one turn of their loop if they have one.

    `elements` are column and row, shape (threads, 2), in the order of the threads' indices; `image`
    says that they are texels of an image and not elements of an array that lies row by row.
    """

    kind: Literal["load", "store"]
    elements: Ints
    image: bool = False


def tile_elements(shape: tuple[int, int], place: tuple[int, int]) -> Ints:
    """Column and row of each element of the tile at `place` (x, y), tiles being (width, height)."""
    y, x = np.divmod(np.arange(shape[0] * shape[1]), shape[0])
    return np.stack([place[0] * shape[0] + x, place[1] * shape[1] + y], axis=1)


def same_elements(
    elements: Ints | None, moved: tuple[int, int], images: tuple[bool, bool]
) -> tuple[Touched, ...] | None:
    """A load of `elements` where bytes are read, and a store where bytes are written; None of None.

    `moved` are bytes read and written; `images` says which of them are an image's.
    """
    if elements is None:
        return None
    kinds: tuple[Literal["load", "store"], ...] = ("load", "store")
    return tuple(
        Touched(kind, elements, image)
        for kind, n_bytes, image in zip(kinds, moved, images, strict=True)
        if n_bytes
    )
