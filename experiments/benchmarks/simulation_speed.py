"""Half-warp events a second of the compiled simulation, and of the plain one beside it.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/benchmarks/simulation_speed.py

An event is a bar of a Gantt chart: of each half-warp and tile an index, a read, a write command and
a write. In each of ROUNDS rounds every level runs once on one core, in a random order, and so does
gantt.simulate on a smaller array; ratios are taken within a round. Then the tables 1, 4, 5 and 6 of
the first document are simulated at all levels on as many cores as there are.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpushmoo.core.paths import ROOT
from gpushmoo.simulation.machine import Level, load_machine
from gpushmoo.simulation.reference import Chart, TileCopy, simulate
from gpushmoo.simulation.run import simulate_tiles
from gpushmoo.simulation.tiling import Tiling
from tesla_c1060.stages import simulate_tables

ROUNDS = 9
SIDES = {Level.BUS: 4096, Level.PARTITIONS: 1024, Level.BANKS: 1024}
BLOCKS = 30
PLAIN = "plain Python"
T = TypeVar("T")


def main() -> None:
    """Measure and print."""
    device = ROOT / "config/devices/tesla-c1060.yaml"
    machine = load_machine(device)

    def compiled(level: Level) -> float:
        run, seconds = _timed(
            lambda: simulate_tiles(
                machine, Tiling.partition_wide(machine, SIDES[level], 4), BLOCKS, level
            )
        )
        return run.events / seconds

    def plain() -> float:
        load = TileCopy.square(machine, 128, 4)
        _, seconds = _timed(lambda: simulate(machine, load, BLOCKS, chart=Chart(writes=True)))
        return 4 * load.n_tiles * load.half_warps / seconds

    ways: dict[str, Callable[[], float]] = {PLAIN: plain}
    ways |= {level.value: lambda level=level: compiled(level) for level in Level}
    for way in ways.values():
        way()  # compiles
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        order = list(ways)
        random.Random(number).shuffle(order)
        for name in order:
            rates[name].append(ways[name]())
    for name, found in rates.items():
        ratios = [a / b for a, b in zip(found, rates[PLAIN], strict=True)]
        print(
            f"{name:>12}: {statistics.median(found) / 1e6:6.2f} million events a second "
            f"({min(found) / 1e6:.2f} to {max(found) / 1e6:.2f}), {statistics.median(ratios):.0f} "
            f"times plain Python ({min(ratios):.0f} to {max(ratios):.0f})"
        )
    with tempfile.TemporaryDirectory() as folder:
        _, seconds = _timed(
            lambda: simulate_tables(
                device,
                [level.value for level in Level],
                [256, 512, 1024, 2048, 4096],
                [1, 2, 4, 8, 16, 30, 32],
                Path(folder) / "tables.parquet",
                os.cpu_count() or 1,
            )
        )
    print(f"tables 1, 4, 5, 6 at all levels: {seconds:.1f} s on {os.cpu_count()} cores")


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    found = work()
    return found, time.perf_counter() - begin


if __name__ == "__main__":
    main()
