"""The document's tables as predictions, and its numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gpushmoo.simulation.cases import (
    BLOCK_EQ,
    COALESCED,
    COMPILED_COMMANDS,
    Case,
    write_cases,
)
from gpushmoo.simulation.machine import Level, load_machine
from gpushmoo.simulation.stages import SIMULATED_DTYPES
from gpushmoo.storage.wholefile import write_json

from .checks import published_checks
from .clocks import clocks
from .latency import latency_sweep

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


def check_published(
    device_file: Path, levels: Sequence[str], latencies: Sequence[int], checks: Path
) -> None:
    """Write the published quantities recomputed, and one block of float at all `latencies`."""
    machine = load_machine(device_file)
    rows = [asdict(check) for check in published_checks(machine)]
    write_json(checks, {"checks": rows, "latency": latency_sweep(machine, levels, latencies)})
