"""A simulated device against the measured one of its name: persistent blocks, point by point."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.paths import ROOT
from gpushmoo.storage.dataset import of_one_mode, read_medians
from gpushmoo.storage.store import write_parquet

from .machine import Level, Machine, Tiling, load_machine, residency
from .run import BLOCK_EQ, SAME_MACHINE_SCHEMA, SIMULATED_DTYPES, simulate_tiles

# Tiles of each block in the two simulations of a point. A measured block has more.
FEW, MANY = 12, 36


@dataclass(frozen=True)
class Point:
    """A measured cell: `tiles` of `dtype` shared by `blocks`, at `measured_gbs`."""

    dtype: str
    tiling: Tiling
    blocks: int
    measured_gbs: float


def compare_with_measured(asked: Mapping[str, Any], dataset: Path, out: Path, threads: int) -> None:
    """Simulate the measured cells of the device of the machine's name (SAME_MACHINE_SCHEMA).

    Of block_eq_partition, the variant as described, at its largest size, with one block, each
    doubling of it, one to a multiprocessor, as many as the device holds, one more, and twice as
    many. The result is empty where no such device measured it.
    """
    machine = load_machine(ROOT / asked["file"])
    found = points(machine, read_medians(dataset, {"kernel": BLOCK_EQ}))
    work = [(Level(level), point) for level in asked["levels"] for point in found]

    def row(job: tuple[Level, Point]) -> dict[str, Any]:
        level, point = job
        simulated = predicted_gbs(machine, point, level)
        return {
            "device": machine.name,
            "level": level.value,
            "dtype": point.dtype,
            "num_partition": point.blocks,
            "measured_gbs": point.measured_gbs,
            "simulated_gbs": simulated,
            "error": simulated / point.measured_gbs - 1,
        }

    with ThreadPoolExecutor(max(1, threads)) as pool:
        # The longest first, so that no thread is left alone with one at the end.
        order = sorted(range(len(work)), key=lambda i: -work[i][1].blocks)
        rows = dict(zip(order, pool.map(row, [work[i] for i in order]), strict=True))
    table = pa.Table.from_pylist([rows[i] for i in range(len(work))], schema=SAME_MACHINE_SCHEMA)
    write_parquet(table, out, {})


def points(machine: Machine, cells: pd.DataFrame) -> list[Point]:
    """The measured cells to compare with, by dtype and blocks."""
    cells = cells[
        (cells["kernel"] == BLOCK_EQ)
        & (cells["device_name"] == machine.name)
        & (cells["status"] == "ok")
        & (cells["variant"] == "reciprocal")
        & cells["dtype"].isin(SIMULATED_DTYPES)
    ]
    if cells.empty:
        return []
    cells = cells[cells["width"] == cells["width"].max()]
    cells = of_one_mode(cells)
    # On more data than the cache holds the states agree; where there is a choice, the flushed one.
    cells = cells.sort_values("cache_state").drop_duplicates(["dtype", "num_partition"])
    found = []
    for dtype in (d for d in SIMULATED_DTYPES if d in set(cells["dtype"])):
        part = cells[cells["dtype"] == dtype]
        width, height = int(part["width"].iloc[0]), int(part["height"].iloc[0])
        itemsize = DTYPES[dtype].itemsize
        tile = Tiling.partition_wide(machine, 512, itemsize)
        tiling = Tiling(width, height, itemsize, tile.tile_width, tile.tile_height)
        by_blocks = part.set_index("num_partition")["bandwidth_gbs"]
        wanted = _blocks(machine, tiling)
        found += [Point(dtype, tiling, n, float(by_blocks[n])) for n in wanted if n in by_blocks]
    return found


def _blocks(machine: Machine, tiling: Tiling) -> list[int]:
    units = machine.n_sm
    capacity = machine.n_sm * residency(machine, tiling).blocks
    doublings = [2**i for i in range(units.bit_length()) if 2**i < units]
    more = [units, 2 * units, 2 * units + 1, capacity, capacity + 1, 2 * capacity]
    return list(dict.fromkeys(doublings + more))


def predicted_gbs(machine: Machine, point: Point, level: Level) -> float:
    """Bandwidth of a measured cell, from its first tiles.

    Between FEW and MANY tiles of each block every further one takes the same time, and so do the
    rest of the busiest block's.
    """
    longest = -(-point.tiling.n_tiles // point.blocks)
    cycles = _cycles(machine, point, level, min(MANY, longest))
    if longest > MANY:
        each = (cycles - _cycles(machine, point, level, FEW)) / (MANY - FEW)
        cycles += (longest - MANY) * each
    seconds = cycles / (machine.core_clock_ghz * 1e9)
    return 2 * point.tiling.n_bytes / seconds / 1e9


def _cycles(machine: Machine, point: Point, level: Level, rounds: int) -> float:
    """Core cycles in which each block copies `rounds` tiles, or what there are."""
    tiles = min(point.tiling.n_tiles, rounds * point.blocks)
    run = simulate_tiles(machine, point.tiling, point.blocks, level, n_tiles=tiles)
    return float(run.drained_cycles)
