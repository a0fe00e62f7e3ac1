"""What the simulated device is asked: the document's tables, and tiles of other widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpushmoo.simulation.cases import (
    BLOCK_EQ,
    COALESCED,
    COMPILED_COMMANDS,
    Case,
    write_cases,
)
from gpushmoo.simulation.machine import Level, load_machine
from gpushmoo.simulation.stages import SIMULATED_DTYPES

from .clocks import clocks

COALESCED_DTYPES = ("float", "double", "float3")


def simulate_tables(
    device_file: Path,
    levels: Sequence[str],
    sizes: Sequence[int],
    num_partition: Sequence[int],
    cells: Path,
    threads: int,
) -> None:
    """The document's tables 4 to 6 and 1 as predictions, at every level (SIMULATION_SCHEMA).

    At the document's memory clock and at the board's, by which variants are named. Table 1 is the
    coalesced copy of float, double and float3, the last both by the one command that the document
    assumes and by the three of compiled code.
    """
    machines = clocks(load_machine(device_file))
    cases = [
        Case(BLOCK_EQ, dtype, size, n, Level(level), variant=clock)
        for clock in machines
        for level in levels
        for size in sizes
        for dtype in SIMULATED_DTYPES
        for n in num_partition
    ] + [
        Case(COALESCED, dtype, size, 0, Level(level), commands, clock)
        for clock in machines
        for level in levels
        for size in sizes
        for dtype in COALESCED_DTYPES
        for commands in sorted({1, COMPILED_COMMANDS.get(dtype, 1)})
    ]
    # The longest first, so that no thread is left alone with one at the end.
    cases.sort(key=lambda c: (-c.side, -list(Level).index(c.level)))
    write_cases(machines, cases, cells, threads)


def simulate_tile_widths(
    device_file: Path, levels: Sequence[str], asked: Mapping[str, Any], cells: Path, threads: int
) -> None:
    """Every width and pitch that is `asked`, at the board's clock (SIMULATION_SCHEMA).

    Not on one bus, which knows no addresses.
    """
    clock, machine = list(clocks(load_machine(device_file)).items())[-1]
    cases = [
        Case(BLOCK_EQ, dtype, asked["size"], n, level, 1, clock, row_bytes, pad_bytes)
        for level in map(Level, levels)
        if level is not Level.BUS
        for dtype in SIMULATED_DTYPES
        for n in asked["num_partition"]
        for row_bytes in asked["row_bytes"]
        for pad_bytes in asked["pad_bytes"]
    ]
    write_cases({clock: machine}, cases, cells, threads)
