"""What the accesses of a block ask of the caches: lines, sectors, and sectors only half used.

NVIDIA's multiprocessors look lines of 128 bytes up and move sectors of 32 bytes (CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory"). An array lies row by row. Of an image CUDA
does not say; NVIDIA's block-linear layout is assumed, in groups of 64 bytes × 8 rows (Linux,
drm_fourcc.h, DRM_FORMAT_MOD_NVIDIA_BLOCK_LINEAR_2D). Byte x of row y of a group lies at
x/32 · 256 + y/2 · 64 + x%32/16 · 32 + y%2 · 16 + x%16, divisions rounded down (Mesa's nil and the
crate tegra_swizzle, which untile such images), so a sector is 16 bytes × 2 rows, a line 32 × 4.
Hardware counters agree with that (docs/model.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from ...core.dtypes import DTYPES
from ...core.space import Cell
from ...workloads.contract import Touched, Workload

Ints = npt.NDArray[np.int64]

WARP = 32
# The widest access of a thread, in bytes.
WIDEST = 16
# How a block's corner meets the edges of sectors repeats after 8 blocks of elements of 4 bytes and
# more, and after fewer rows of blocks; both coordinates run through all of that, not in step.
POSITIONS = tuple((i, 3 * i % 8) for i in range(8))


@dataclass(frozen=True)
class Layout:
    """Extents of a sector and of a line: (bytes along the row, rows)."""

    sector: tuple[int, int]
    line: tuple[int, int]


ROWS = Layout(sector=(32, 1), line=(128, 1))
TILED = Layout(sector=(16, 2), line=(32, 4))


@dataclass(frozen=True)
class Asked:
    """What one turn of a block asks for by its loads, or by its stores; means over some blocks.

    `lines` counts those of every instruction of every warp, `first_lines` only those that no other
    instruction of the warp asks for in the same turn. `part_bytes` are bytes in sectors that a warp
    touches in part; sectors are counted of each warp, and of the whole block. `bytes` are what the
    block's threads take, `distinct_bytes` without what several of them take.
    """

    lines: float = 0.0
    first_lines: float = 0.0
    part_bytes: float = 0.0
    warp_sectors: float = 0.0
    block_sectors: float = 0.0
    bytes: float = 0.0
    distinct_bytes: float = 0.0


@dataclass(frozen=True)
class BlockTraffic:
    """Loads and stores of one turn of a block; which of them go to images."""

    load: Asked
    store: Asked
    image_loads: bool
    image_stores: bool


# What was counted, by a hash of the elements and what else it depends on: sizes and kernels that
# map threads alike have the same.
Counted = dict[tuple[int, int, Layout, int, bytes], Asked]


def block_traffic(workload: Workload, cell: Cell, counted: Counted) -> BlockTraffic | None:
    """What a turn of the blocks of `cell` asks for; None where the kernel does not say.

    Looks at eight blocks, no edge among them where there are others. What `counted` holds is not
    counted again, and what is counted is added to it.
    """
    launch = workload.launch(cell)
    inner_x, inner_y = (max(1, n - 1) for n in launch.grid[:2])
    places = sorted({(x % inner_x, y % inner_y) for x, y in POSITIONS})
    blocks = [workload.touched(cell, place) for place in places]
    told = [block for block in blocks if block is not None]
    if len(told) < len(blocks):
        return None
    itemsize = DTYPES[cell.dtype].itemsize
    sides = {}
    images = {}
    for kind in ("load", "store"):
        mine = [[t for t in block if t.kind == kind] for block in told]
        images[kind] = any(t.image for block in mine for t in block)
        layout = TILED if images[kind] else ROWS
        piece = access_bytes(itemsize)
        content = blake2b(b"".join(t.elements.tobytes() for block in mine for t in block))
        key = (itemsize, piece, layout, len(mine), content.digest())
        if key not in counted:
            counted[key] = _asked(mine, itemsize, piece, layout)
        sides[kind] = counted[key]
    return BlockTraffic(sides["load"], sides["store"], images["load"], images["store"])


def access_bytes(itemsize: int) -> int:
    """Bytes that one instruction moves of an element: of 12, as float3 has, 4 at a time."""
    return min(itemsize & -itemsize, WIDEST)


def _asked(blocks: Sequence[Sequence[Touched]], itemsize: int, piece: int, layout: Layout) -> Asked:
    if not blocks[0]:
        return Asked()
    threads = len(blocks[0][0].elements)
    warps = -(-threads // WARP)
    group = np.arange(len(blocks))[:, None] * warps + np.arange(threads) // WARP
    lines, sectors, elements = [], [], []
    for taken in zip(*blocks, strict=True):
        texels = np.stack([t.elements for t in taken])
        row, first = texels[..., 1], texels[..., 0] * itemsize
        elements.append(_keys(group // warps, texels[..., 0], row))
        for offset in range(0, itemsize, piece):
            x = first + offset
            lines.append(_keys(group, x // layout.line[0], row // layout.line[1]))
            sectors.append(_keys(group, x // layout.sector[0], row // layout.sector[1]))
    whole, used = np.unique(np.concatenate(sectors), return_counts=True)
    used_bytes = used * piece
    size = layout.sector[0] * layout.sector[1]
    count = len(blocks)
    return Asked(
        lines=sum(map(_distinct, lines)) / count,
        first_lines=_distinct(np.concatenate(lines)) / count,
        part_bytes=float(used_bytes[used_bytes < size].sum()) / count,
        warp_sectors=len(whole) / count,
        block_sectors=_distinct(_regrouped(whole, warps)) / count,
        bytes=float(threads * itemsize * len(blocks[0])),
        distinct_bytes=_distinct(np.concatenate(elements)) * itemsize / count,
    )


# A group's number stands above the row, this above the column.
_GROUP, _ROW = 1 << 42, 1 << 22


def _keys(group: Ints, column: Ints, row: Ints) -> Ints:
    return np.asarray(group * _GROUP + row * _ROW + column).ravel()


def _regrouped(keys: Ints, warps: int) -> Ints:
    """Keys of warps as keys of their blocks."""
    return np.asarray(keys // _GROUP // warps * _GROUP + keys % _GROUP)


def _distinct(keys: Ints) -> int:
    return 1 + int(np.count_nonzero(np.diff(np.sort(keys))))
