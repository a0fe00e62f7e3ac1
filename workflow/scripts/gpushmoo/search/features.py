"""What a model of a group sees of its candidates: numbers on which the time depends smoothly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .candidates import Candidate

Floats = npt.NDArray[np.float64]

WARP = 32
SECTOR_BYTES = 32
# A column that another one follows so closely tells nothing new.
ALIKE = 0.9999
# Axes of which the block's own columns tell.
IN_THE_BLOCK = frozenset({"block_x", "block_y", "block_z"})


def features_of(candidates: Sequence[Candidate]) -> Floats:
    """A row for each candidate, a column for each feature, of mean 0 and standard deviation 1.

    On the axes alone a model misses what a launch is made of: whole warps, whole sectors, whole
    waves. Columns that are constant, or as good as another one, are left out.
    """
    columns = [*_block_columns(candidates), *_grid_columns(candidates), *_axis_columns(candidates)]
    kept: list[Floats] = []
    for column in columns:
        spread = float(np.std(column))
        if spread > 1e-9:
            scaled = (column - np.mean(column)) / spread
            if all(abs(float(np.mean(scaled * other))) < ALIKE for other in kept):
                kept.append(scaled)
    return np.column_stack(kept) if kept else np.zeros((len(candidates), 0))


def _block_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """The block's sides and threads, how full its warps are, and what its rows read."""
    block = np.array([c.block for c in candidates], dtype=np.int64)
    threads = block.prod(axis=1)
    warps = -(-threads // WARP)
    element_bytes = candidates[0].element_bytes
    rows = {int(x): _sectors(int(x), element_bytes) for x in np.unique(block[:, 0])}
    return [
        *np.log2(block.T),
        np.log2(threads),
        threads / (WARP * warps),
        np.log2([rows[int(x)] for x in block[:, 0]]),
        *np.log2(np.gcd(block.T, WARP)),
        np.log2(np.gcd(threads, WARP)),
    ]


def _sectors(block_x: int, element_bytes: int) -> float:
    """Sectors that a full warp touches in the mean over as many as it would have to.

    Of blocks with rows of `block_x` threads, where rows of blocks begin at a sector.
    """
    period = np.lcm(block_x, WARP)
    thread = np.arange(period)
    row, column = np.divmod(thread, block_x)
    first = column * element_bytes // SECTOR_BYTES
    last = (column * element_bytes + element_bytes - 1) // SECTOR_BYTES
    # Threads come in the order of their addresses, so a sector is new unless the last one ended in
    # it; a warp begins anew.
    begins = thread % WARP == 0
    again = np.zeros(period, dtype=bool)
    again[1:] = (row[1:] == row[:-1]) & (first[1:] == last[:-1]) & ~begins[1:]
    touched = (last - first + 1 - again).sum()
    return float(touched * SECTOR_BYTES / (period * element_bytes))


def _grid_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """Elements of a thread, how even they are, and how full multiprocessors and waves are."""
    blocks = np.array([c.blocks for c in candidates], dtype=np.float64)
    threads = np.array([c.threads for c in candidates], dtype=np.float64)
    units = np.array([c.units for c in candidates], dtype=np.float64)
    elements = np.array([max(1, c.height * c.width) for c in candidates], dtype=np.float64)
    columns = [np.log2(np.maximum(1.0, blocks)), np.log2(blocks * threads / elements)]
    columns.append(_fill(blocks / units))
    columns.append(_fill(elements / (blocks * threads)))
    if all(c.resident_per_unit for c in candidates):
        resident = np.array([c.resident_per_unit for c in candidates], dtype=np.float64)
        columns += [np.log2(resident * threads), _fill(blocks / (units * resident))]
    return columns


def _fill(rounds: Floats) -> Floats:
    """How full the rounds are that so many take: 1.5 rounds take two and fill them to 0.75."""
    filled: Floats = rounds / np.maximum(1.0, np.ceil(rounds))
    return filled


def _axis_columns(candidates: Sequence[Candidate]) -> list[Floats]:
    """The logarithm of every other axis; 0 stays 0."""
    names = sorted({name for c in candidates for name, _ in c.params} - IN_THE_BLOCK)
    values = [np.array([dict(c.params).get(name, 0) for c in candidates]) for name in names]
    return [np.sign(v) * np.log2(1.0 + np.abs(v)) for v in values]
