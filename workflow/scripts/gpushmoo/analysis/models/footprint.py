"""Which pieces of memory a block of threads touches, under two assumptions on an image's layout.

NVIDIA's multiprocessors look lines of 128 bytes up and move sectors of 32 bytes (CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory"). What these are of an image follows from its
layout:

* ``rows``: pitch-linear, row after row. A sector is 32 bytes of a row, a line 128 bytes of it.
* ``tiled``: NVIDIA's block-linear layout, in groups of 64 bytes × 8 rows (Linux, drm_fourcc.h,
  DRM_FORMAT_MOD_NVIDIA_BLOCK_LINEAR_2D). Byte x of row y of a group lies at
  x/32 · 256 + y/2 · 64 + x%32/16 · 32 + y%2 · 16 + x%16, divisions rounded down (Mesa's nil and the
  crate tegra_swizzle, which untile such images), so a sector is 16 bytes × 2 rows, a line 32 × 4.

CUDA does not say how its arrays are laid out, so both are assumptions; a fit tells which of them
explains the times (see `blocks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ...core.dtypes import DTYPES
from ...core.space import Cell
from ...workloads.contract import Workload, ceil_div

Ints = npt.NDArray[np.int64]

WARP = 32
# How a block's corner meets the edges of sectors repeats after 8 blocks of texels of 4 bytes and
# more, and after fewer rows of blocks; both coordinates run through all of that, not in step.
POSITIONS = tuple((i, 3 * i % 8) for i in range(8))


@dataclass(frozen=True)
class Layout:
    """Extents of a sector and of a line in an image: (bytes along the row, rows)."""

    sector: tuple[int, int]
    line: tuple[int, int]


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {"rows": Layout(sector=(32, 1), line=(128, 1)), "tiled": Layout(sector=(16, 2), line=(32, 4))}
)


@dataclass(frozen=True)
class Traffic:
    """Mean numbers of distinct sectors and lines, of a warp and of a whole block."""

    sectors_per_warp: float
    lines_per_warp: float
    sectors_per_block: float
    lines_per_block: float


@dataclass(frozen=True)
class BlockFootprint:
    """Threads and warps of a block, and what it touches under each layout, by its name.

    A last warp that is not full counts whole, as it does for the hardware.
    """

    threads: int
    warps: int
    traffic: Mapping[str, Traffic]


# What was counted, by an element's bytes and hashes of the texels and of which lie in the image:
# sizes, kernels and types of one width that map threads alike have the same.
Known = dict[tuple[int, bytes, bytes], Mapping[str, Traffic]]


def footprint(workload: Workload, cell: Cell, known: Known | None = None) -> BlockFootprint | None:
    """The mean footprint of some blocks of `cell`; None where its workload tells no texels.

    Blocks at the image's right and lower edges, of which there are few, are looked at only where
    there are no others; a texel outside of the image is not touched. What `known` holds of the same
    texels is not counted again, and what is counted is added to it.
    """
    launch = workload.launch(cell)
    inner_x, inner_y = (max(1, n - 1) for n in launch.grid[:2])
    places = sorted({(x % inner_x, y % inner_y) for x, y in POSITIONS})
    taken = [workload.texels(cell, place) for place in places]
    texels = np.array([t for t in taken if t is not None])
    if len(texels) < len(places):
        return None
    warps = ceil_div(launch.threads, WARP)
    itemsize = DTYPES[cell.dtype].itemsize
    inside = np.all(texels < (cell.problem.width, cell.problem.height), axis=2)
    key = (itemsize, blake2b(texels.tobytes()).digest(), blake2b(inside.tobytes()).digest())
    known = {} if known is None else known
    if key not in known:
        known[key] = _traffic(texels, inside, itemsize)
    return BlockFootprint(launch.threads, warps, known[key])


def _traffic(texels: Ints, inside: npt.NDArray[np.bool_], itemsize: int) -> Mapping[str, Traffic]:
    """Means over blocks whose threads take `texels`, shape (blocks, threads, 2), where `inside`."""
    places, threads = inside.shape
    warps = ceil_div(threads, WARP)
    warp = np.arange(places)[:, None] * warps + np.arange(threads) // WARP
    columns, rows = texels[inside].T
    first = columns * itemsize
    of_warp = _Touched(first, rows, warp[inside], places * warps)
    of_block = _Touched(first, rows, warp[inside] // warps, places)
    return {
        name: Traffic(
            of_warp.mean(layout.sector),
            of_warp.mean(layout.line),
            of_block.mean(layout.sector),
            of_block.mean(layout.line),
        )
        for name, layout in LAYOUTS.items()
    }


@dataclass(frozen=True)
class _Touched:
    """First byte and row of texels that `groups` groups (warps or blocks) of threads take.

    An image's texel has 1, 2, 4, 8 or 16 bytes, so that it lies in the sector of its first byte.
    """

    first: Ints
    row: Ints
    group: Ints
    groups: int

    def mean(self, extent: tuple[int, int]) -> float:
        """Distinct pieces of (bytes, rows) `extent` that a group touches, on average."""
        x, y = self.first // extent[0], self.row // extent[1]
        pieces = np.sort((self.group * (y.max() + 1) + y) * (x.max() + 1) + x)
        return float(1 + np.count_nonzero(np.diff(pieces))) / self.groups
