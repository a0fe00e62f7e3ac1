"""What simulated devices are asked: blocks, tables, tiles, a profile, and the joint search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Residency, expand_axis
from gpushmoo.storage.store import write_parquet

from .search import write_search
from .simulation.dram_controller import P_BURSTS, P_OPENINGS, P_REQUESTS, P_WAITED
from .simulation.machine import (
    Level,
    Machine,
    clocks,
    load_machine,
)
from .simulation.run import (
    AS_DESCRIBED,
    BLOCK_EQ,
    COALESCED,
    COMPILED_COMMANDS,
    PROFILE_SCHEMA,
    SIMULATED_DTYPES,
    Case,
    Watch,
    run_case,
    write_cases,
)

# Stretches of time in a profile.
BINS = 60


def write_profile(machine: Machine, side: int, out: Path) -> None:
    """The coalesced copy of `side`² elements over time (PROFILE_SCHEMA).

    It shows for each partition what it did in BINS equal stretches of the run's time.
    """
    cases = _coalesced(Level.BANKS, side, AS_DESCRIBED)
    rows = [row for case in cases for row in _profile(machine, case)]
    write_parquet(pa.Table.from_pylist(rows, schema=PROFILE_SCHEMA), out, {})


def _coalesced(level: Level, side: int, variant: str) -> list[Case]:
    """The coalesced copy of each dtype, of float3 by the document's one command and by three."""
    return [
        Case(COALESCED, dtype, side, 0, level, commands, variant)
        for dtype in ("float", "double", "float3")
        for commands in sorted({1, COMPILED_COMMANDS.get(dtype, 1)})
    ]


def _profile(machine: Machine, case: Case) -> list[dict[str, object]]:
    whole = run_case(machine, case)
    width = int(whole.drained_cycles) // BINS + 1
    run = run_case(machine, case, Watch(bins=BINS, bin_cycles=width))
    ticks = run.ticks
    return [
        {
            "dtype": case.dtype,
            "commands": case.commands,
            "partition": p,
            "from_cycle": float(b * width),
            "to_cycle": float((b + 1) * width),
            "bursts": int(run.profile[b, p, P_BURSTS]),
            "requests": int(run.profile[b, p, P_REQUESTS]),
            "row_openings": int(run.profile[b, p, P_OPENINGS]),
            # Waiting times add up to requests times cycles; over the stretch that is their number.
            "waiting": float(run.profile[b, p, P_WAITED] / ticks / width),
        }
        for b in range(BINS)
        for p in range(machine.partitions)
    ]


# Machines by the names of their variants, and the cells that are simulated on them.
Work = tuple[Mapping[str, Machine], list[Case]]


def make_table(asked: Mapping[str, Any], out: Path, threads: int) -> None:
    """Write the table that `asked` describes, which `DevicePlan.asked` has."""
    machine = load_machine(ROOT / asked["file"])
    kind = asked["kind"]
    if kind == "profile":
        write_profile(machine, asked["side"], out)
    elif kind == "search":
        write_search(machine, asked, out, threads)
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
    ]
    cases += [case for clock, level, size in wanted for case in _coalesced(level, size, clock)]
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
    "tiles": tile_widths,
}
