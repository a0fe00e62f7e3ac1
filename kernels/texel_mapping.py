"""Map threads to texels of an image, as the kernels' macros FIRST_COL and FIRST_ROW do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gpushmoo.core.space import Cell, Problem
from gpushmoo.workloads.contract import HeatMap, ceil_div
from gpushmoo.workloads.views import FigureData

MAPPINGS = ("block", "row", "tile8", "morton")
TILE = 8
# Block shapes of the documents' range, and full waves of resident blocks: see `waves_of`.
AXES = {"block_x": {"from": 4, "to": 64}, "block_y": {"from": 4, "to": 64}, "waves": 0}


class CoveringMap(HeatMap):
    """Map of grids that cover the image, if there are any: more shapes have them than waves."""

    def draw(self, data: FigureData, svg: Path) -> None:
        """Draw the map without cells of persistent blocks if other cells are left."""
        if "waves" in data.cells:
            covering = data.cells[data.cells["waves"].fillna(0) == 0]
            data = data if covering.empty else replace(data, cells=covering)
        super().draw(data, svg)


def mapping_of(variant: str) -> str:
    """Return the mapping, the first part of the name of every variant."""
    return variant.split("-")[0]


def waves_of(cell: Cell) -> int:
    """Return the waves of resident blocks in the grid of `cell`; 0 if it covers the image once."""
    return dict(cell.params).get("waves", 0)


def refused_waves(cell: Cell) -> str | None:
    """Return why `cell` cannot have waves: a strip of tiles needs blocks that cover it."""
    tiled = mapping_of(cell.variant) in ("tile8", "morton")
    return "only blocks and rows can stride over an image" if waves_of(cell) and tiled else None


def grid_of(mapping: str, problem: Problem, block_x: int, block_y: int) -> tuple[int, int, int]:
    """Return the blocks (x, y, z) that cover the image."""
    if mapping == "block":
        return ceil_div(problem.width, block_x), ceil_div(problem.height, block_y), 1
    threads = block_x * block_y
    if mapping == "row":
        return ceil_div(problem.width, threads), problem.height, 1
    strip = ceil_div(problem.width, TILE) * TILE**2
    return ceil_div(strip, threads), ceil_div(problem.height, TILE), 1


def texels_of(cell: Cell, block: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Return column and row of the first texel of each thread of `block`; shape (threads, 2)."""
    mapping, block_x, block_y = mapping_of(cell.variant), cell["block_x"], cell["block_y"]
    y, x = np.divmod(np.arange(block_x * block_y), block_x)
    if mapping == "block":
        return np.stack([block[0] * block_x + x, block[1] * block_y + y], axis=1)
    i = block[0] * block_x * block_y + np.arange(block_x * block_y)
    if mapping == "row":
        return np.stack([i, np.full_like(i, block[1])], axis=1)
    if mapping == "tile8":
        x, y = i & 7, i >> 3 & 7
    else:
        x = i & 1 | i >> 1 & 2 | i >> 2 & 4
        y = i >> 1 & 1 | i >> 2 & 2 | i >> 3 & 4
    return np.stack([(i >> 6) * TILE + x, block[1] * TILE + y], axis=1)
