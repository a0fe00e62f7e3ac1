"""What simulated devices are asked: blocks, tables, tiles, and what the document leaves open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Residency, expand_axis
from gpushmoo.storage.store import write_parquet

from .answers import ALONE, BOARD, EVEN, HALF, named
from .memory import banks_of
from .simulation.dram_controller import P_BURSTS, P_OPENINGS, P_REQUESTS, P_WAITED
from .simulation.machine import (
    Level,
    Machine,
    at_board_clock,
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

BLOCKS = (8, 16, 30, 32)
# Requests among which the controller behind the banks may choose, where no variant says otherwise.
CHOICE = 32
# Stretches of time in a profile.
BINS = 60


@dataclass(frozen=True)
class Variant:
    """A machine with something changed, at a level of detail."""

    name: str
    machine: Machine
    level: Level


def variants(machine: Machine) -> tuple[Variant, ...]:
    """The machine as described and with each mechanism switched on or off by itself.

    What answers the question of 16 and 32 blocks is asked at every level of detail. Raises
    MachineError for a machine without banks or without another clock on the board.
    """
    full = at_board_clock(machine)
    return (
        *_at_levels(HALF, machine),
        *_at_levels(HALF, _one_block(machine), ALONE),
        Variant("half clock: banks, in order", _choosing(machine, 1), Level.BANKS),
        Variant("half clock: in order, rows cost nothing", _free_rows(machine), Level.BANKS),
        Variant("half clock: in order, no turnaround", _no_turnaround(machine), Level.BANKS),
        Variant("half clock: in order, neither", _no_turnaround(_free_rows(machine)), Level.BANKS),
        Variant("half clock: banks, choice of 4", _choosing(machine, 4), Level.BANKS),
        Variant("half clock: banks, choice of 16", _choosing(machine, 16), Level.BANKS),
        *_at_levels(BOARD, full),
        *_at_levels(BOARD, _one_block(full), ALONE),
        *_at_levels(BOARD, replace(full, n_sm=BLOCKS[-1]), EVEN),
        Variant(
            "board's clock: partitions, hashed",
            replace(full, hashed_partitions=True),
            Level.PARTITIONS,
        ),
        Variant(
            f"board's clock: partitions, hashed, {ALONE}",
            replace(_one_block(full), hashed_partitions=True),
            Level.PARTITIONS,
        ),
        Variant("board's clock: banks, in order", _choosing(full, 1), Level.BANKS),
        Variant(
            "board's clock: one bus, writes posted", replace(full, writes_awaited=False), Level.BUS
        ),
    )


def _at_levels(clock: str, machine: Machine, changed: str = "") -> list[Variant]:
    """The machine at every level; behind its banks is a controller that may choose."""
    machine = _choosing(machine, CHOICE)
    return [Variant(named(clock, level, changed), machine, level) for level in Level]


def _one_block(machine: Machine) -> Machine:
    """An SM takes its second block only after its first."""
    return replace(machine, max_threads_per_sm=512)


def _choosing(machine: Machine, n: int) -> Machine:
    return replace(machine, banks=replace(banks_of(machine), choose_from=n))


def _free_rows(machine: Machine) -> Machine:
    """In order, with the least time that opening and closing a row can take."""
    banks = replace(banks_of(machine), t_rcd_cycles=1, t_rrd_cycles=1, t_wr_cycles=1, choose_from=1)
    return replace(machine, t_ras_cycles=1, t_rp_cycles=1, banks=banks)


def _no_turnaround(machine: Machine) -> Machine:
    """In order, with a read's data as soon after a write's as can be."""
    banks = replace(banks_of(machine), t_cl_cycles=1, t_wl_cycles=1, t_cdlr_cycles=1, choose_from=1)
    return replace(machine, banks=banks)


def questions(
    machine: Machine, asked: Mapping[str, Any]
) -> tuple[Mapping[str, Machine], list[Case]]:
    """All variants, by name, and their cells of arrays with the `asked` sides."""
    found = variants(machine)
    cases = [case for side in asked["sides"] for case in _cases(found, side)]
    return {v.name: v.machine for v in found}, cases


def write_profile(machine: Machine, side: int, out: Path) -> None:
    """The coalesced copy of `side`² elements over time (PROFILE_SCHEMA).

    It shows for each partition what it did in BINS equal stretches of the run's time.
    """
    shown = next(v for v in variants(machine) if v.name == named(HALF, Level.BANKS))
    rows = [
        row
        for case in _coalesced(shown.level, side, shown.name)
        for row in _profile(shown.machine, case)
    ]
    write_parquet(pa.Table.from_pylist(rows, schema=PROFILE_SCHEMA), out, {})


def _cases(found: Iterable[Variant], side: int) -> list[Case]:
    cases = []
    for v in found:
        cases += [
            Case(BLOCK_EQ, dtype, side, n, v.level, variant=v.name)
            for dtype in ("float", "double")
            for n in BLOCKS
        ]
        cases += _coalesced(v.level, side, v.name)
    return cases


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
    "questions": questions,
    "tiles": tile_widths,
}
