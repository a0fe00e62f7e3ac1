"""What simulated devices are asked: blocks, the document's tables, tiles of other widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Residency, expand_axis

from .questions import questions, write_profile
from .simulation.cells import (
    AS_DESCRIBED,
    BLOCK_EQ,
    COALESCED,
    COMPILED_COMMANDS,
    SIMULATED_DTYPES,
    Case,
    write_cases,
)
from .simulation.machine import Level, Machine, clocks, load_machine

# Machines by the names of their variants, and the cells that are simulated on them.
Work = tuple[Mapping[str, Machine], list[Case]]


def make_table(asked: Mapping[str, Any], out: Path, threads: int) -> None:
    """Write the table that `asked` describes, which `DevicePlan.asked` has."""
    machine, kind = load_machine(ROOT / asked["file"]), asked["kind"]
    if kind == "profile":
        write_profile(machine, asked["sides"][0], out)
    else:
        machines, cases = CELLS[kind](machine, asked)
        write_cases(machines, cases, out, threads)


def blocks(machine: Machine, asked: Mapping[str, Any]) -> Work:
    """block_eq_partition for float and double: every level, size and number of blocks."""
    per_sm = max(1, machine.max_threads_per_sm // 512)
    counts = expand_axis(asked["num_partition"], Residency(machine.n_sm, per_sm))
    return {AS_DESCRIBED: machine}, [
        Case(BLOCK_EQ, dtype, size, n, Level(level))
        for level in asked["levels"]
        for size in asked["sizes"]
        for dtype in SIMULATED_DTYPES
        for n in counts
    ]


def tables(machine: Machine, asked: Mapping[str, Any]) -> Work:
    """The document's tables 4 to 6 and 1 as predictions, at every level.

    At the document's memory clock and at the board's, by which variants are named. Table 1 is the
    coalesced copy of float, double and float3, the last both by the one command that the document
    assumes and by the three of compiled code.
    """
    machines = clocks(machine)
    wanted = [
        (clock, level, size)
        for clock in machines
        for level in map(Level, asked["levels"])
        for size in asked["sizes"]
    ]
    cases = [
        Case(BLOCK_EQ, dtype, size, n, level, variant=clock)
        for clock, level, size in wanted
        for dtype in SIMULATED_DTYPES
        for n in asked["num_partition"]
    ] + [
        Case(COALESCED, dtype, size, 0, level, commands, clock)
        for clock, level, size in wanted
        for dtype in ("float", "double", "float3")
        for commands in sorted({1, COMPILED_COMMANDS.get(dtype, 1)})
    ]
    # The longest first, so that no thread is left alone with one at the end.
    cases.sort(key=lambda c: (-c.side, -list(Level).index(c.level)))
    return machines, cases


def tile_widths(machine: Machine, asked: Mapping[str, Any]) -> Work:
    """Every width and pitch that is asked, at the board's clock.

    Not on one bus, which knows no addresses.
    """
    clock, machine = list(clocks(machine).items())[-1]
    return {clock: machine}, [
        Case(BLOCK_EQ, dtype, asked["size"], n, level, 1, clock, row_bytes, pad_bytes)
        for level in map(Level, asked["levels"])
        if level is not Level.BUS
        for dtype in SIMULATED_DTYPES
        for n in asked["num_partition"]
        for row_bytes in asked["row_bytes"]
        for pad_bytes in asked["pad_bytes"]
    ]


CELLS: Mapping[str, Callable[[Machine, Mapping[str, Any]], Work]] = {
    "blocks": blocks,
    "tables": tables,
    "questions": questions,
    "tiles": tile_widths,
}
