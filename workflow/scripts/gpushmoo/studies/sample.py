"""The cells whose hardware counters are read: chosen to tell explanations of their speed apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ..core.space import CACHE_STATES, Cell, Problem
from ..storage.wholefile import read_json

Shape = tuple[int, int]
WARM, FLUSHED = CACHE_STATES

# Width and height of blocks, in threads.
COPIES: Sequence[Shape] = (
    *((4, 64), (8, 8), (8, 64), (12, 16), (16, 16), (32, 4)),
    *((32, 8), (32, 32), (33, 8), (48, 8), (64, 4), (64, 16)),
)
FEW_COPIES: Sequence[Shape] = ((8, 8), (16, 16), (32, 8), (33, 8), (64, 4))
SURFACES: Sequence[Shape] = ((4, 64), (8, 32), (16, 16), (32, 8), (64, 4), (64, 16))
TEXTURES: Sequence[Shape] = ((4, 4), (8, 8), (16, 16), (32, 8), (64, 4))
# Around 132 multiprocessors with 3 (float4) or 4 (float) resident blocks each, and two full waves.
BLOCKS = (1, 132, 264, 396, 408, 528, 529, 1056)
# Sides of squares of float4: two of them fill from half of an L2 cache of 60 MiB to 13 times it.
AROUND_L2 = (1024, 1280, 1536, 1792, 2048, 3072, 5120)


@dataclass(frozen=True)
class SampledCell:
    """A cell, and what its counters are to tell."""

    cell: Cell
    asks: str


@dataclass(frozen=True)
class Series:
    """Cells of one kernel, all combinations of what it lists; `points` are launch parameters."""

    asks: str
    kernel: str
    dtypes: Sequence[str]
    variants: Sequence[str]
    sizes: Sequence[int]
    points: Sequence[dict[str, int]]
    states: Sequence[str] = (WARM,)

    def cells(self) -> Iterator[SampledCell]:
        """In an order in which cells with the same data follow each other."""
        for dtype, size, state, variant, point in product(
            self.dtypes, self.sizes, self.states, self.variants, self.points
        ):
            params = tuple(sorted(point.items()))
            yield SampledCell(
                Cell(self.kernel, dtype, variant, Problem(size, size), params, state), self.asks
            )


def blocks_of(shapes: Sequence[Shape]) -> list[dict[str, int]]:
    """Launch parameters of blocks of these widths and heights."""
    return [{"block_x": x, "block_y": y} for x, y in shapes]


SERIES: Sequence[Series] = (
    Series(
        "sectors and lines that rows of a block touch, far outside of L2",
        *("copy2d_coalesced", ["float", "double", "float3", "float4"], ["element"], [8192]),
        blocks_of(COPIES),
    ),
    Series(
        "whether a flush changes what DRAM moves where no data could stay",
        *("copy2d_coalesced", ["float", "float4"], ["element"], [8192], blocks_of(FEW_COPIES)),
        states=(FLUSHED,),
    ),
    Series(
        "what L2 keeps from launch to launch, and what a flush takes from it",
        *("copy2d_coalesced", ["float", "float4"], ["element"], [1024], blocks_of(FEW_COPIES)),
        states=(WARM, FLUSHED),
    ),
    Series(
        "bytes on their way by the number of persistent blocks, and what the last wave costs",
        *("block_eq_partition", ["float", "float4"], ["exact"], [8192]),
        [{"num_partition": n} for n in BLOCKS],
    ),
    Series(
        "sectors that L1 sends of texels written by blocks: which it merges, and at what height",
        *("surf2d_memset", ["float", "float4"], ["block-one"], [4096], blocks_of(SURFACES)),
    ),
    Series(
        "the same of threads that take texels by rows, and by tiles of 8 by 8",
        *("surf2d_memset", ["float", "float4"], ["row-one", "tile8-one"], [4096]),
        blocks_of([(32, 8), (64, 4)]),
    ),
    Series(
        "requests and sectors of texture fetches, and what L1 keeps of them",
        *("tex2d_sum", ["float"], ["block-point-clamp"], [4096], blocks_of(TEXTURES)),
    ),
    Series(
        "where L2 ends: the share of sectors found in it by the working set",
        *("global_copy", ["float4"], ["plain"], AROUND_L2),
        [{"block_x": 512, "unroll": 4, "passes": 1}],
    ),
    Series(
        "whether pointers that may overlap cost accesses or only waiting",
        *("copy2d_document", ["float", "float4"], ["published", "distinct"], [8192]),
        [{"block_rows": 8}],
    ),
    Series(
        "part-written sectors and lines a warp, by columns",
        *("transpose", ["float"], ["naive"], [8192]),
        [{"TILE": 32, "ROWS": rows, "PAD": 0, "block_x": 32} for rows in (1, 4, 8)],
    ),
    Series(
        "what a tile in shared memory, its padding and the order of tiles change",
        *("transpose", ["float"], ["tile", "tile-diagonal"], [8192]),
        [{"TILE": 32, "ROWS": 4, "PAD": pad, "block_x": 32} for pad in (0, 1)],
    ),
    Series(
        "how often neighbours come from L1, from L2 and from DRAM",
        *("stencil5", ["float"], ["global", "tiled"], [8192]),
        blocks_of([(32, 4), (32, 8), (256, 1)]),
    ),
)


def designed_sample() -> list[SampledCell]:
    """All cells, those of one kernel and its data next to each other."""
    return [cell for series in SERIES for cell in series.cells()]


def explained_cells(files: Iterable[Path]) -> list[SampledCell]:
    """The launches of which a run's ``model/device.json`` says what binds them.

    Raises DamagedFileError.
    """
    whys = [why for file in files for d in read_json(file)["devices"] for why in d.get("whys", ())]
    return [
        SampledCell(
            Cell(
                why["kernel"],
                why["dtype"],
                why["variant"],
                Problem(why["height"], why["width"]),
                tuple(sorted(why["params"].items())),
                why["cache_state"],
            ),
            "what binds the fastest launch",
        )
        for why in sorted(whys, key=lambda why: (why["kernel"], why["dtype"], why["height"]))
    ]
