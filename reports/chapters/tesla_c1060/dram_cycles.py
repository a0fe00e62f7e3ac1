"""Timelines of reads inside one partition's memory, in cycles of the machine's memory clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from .simulation.machine import Banks, Machine, MachineError, exact


class Stage(Enum):
    """What a part of a memory device is doing."""

    COMMAND = "command"
    ROW_ACCESS = "row access"
    COLUMN_READ = "column read"
    DATA_RESTORE = "data restore"
    PRECHARGE = "precharge"
    DATA_BURST = "data burst"


@dataclass(frozen=True)
class StageSpan:
    """`stage` of read `read` (counted from 0), from `start` to `end` in memory cycles."""

    read: int
    stage: Stage
    start: Fraction
    end: Fraction

    @property
    def cycles(self) -> Fraction:
        """How long it lasts, memory cycles."""
        return self.end - self.start


def banks_of(machine: Machine) -> Banks:
    """The machine's banks; MachineError where its file says nothing of them."""
    if machine.banks is None:
        raise MachineError(
            f"banks is missing: the file of {machine.name} says nothing of the memory's timing."
        )
    return machine.banks


def burst_beats(machine: Machine) -> Fraction:
    """Transfers over a partition's part of the bus in one burst: the burst length."""
    return Fraction(banks_of(machine).burst_bytes * machine.partitions, machine.bus_bytes)


def burst_duration(machine: Machine) -> Fraction:
    """Memory cycles for which one burst holds a partition's part of the bus."""
    per_cycle = exact(machine.memory_data_rate_mhz) / exact(machine.memory_clock_mhz)
    return burst_beats(machine) / per_cycle


def read_cycle(machine: Machine) -> tuple[StageSpan, ...]:
    """One read from a closed row until the bank is ready for another row, from cycle 0.

    The row's data reach the sense amplifiers in tRCD and are restored in the cells until tRAS,
    while the column is read in tCL; precharge then takes tRP.
    """
    banks = banks_of(machine)
    opened = Fraction(banks.t_rcd_cycles)
    restored = Fraction(machine.t_ras_cycles)
    at_pins = opened + banks.t_cl_cycles
    return (
        StageSpan(0, Stage.ROW_ACCESS, Fraction(0), opened),
        StageSpan(0, Stage.DATA_RESTORE, opened, restored),
        StageSpan(0, Stage.COLUMN_READ, opened, at_pins),
        StageSpan(0, Stage.DATA_BURST, at_pins, at_pins + burst_duration(machine)),
        StageSpan(0, Stage.PRECHARGE, restored, restored + machine.t_rp_cycles),
    )


def pipelined_reads(machine: Machine, reads: int) -> tuple[StageSpan, ...]:
    """`reads` reads, each from another closed bank, through the four parts of the device.

    The command is taken as the first cycle of tRCD. Rows open tRRD apart, or a burst apart where
    that is longer. Raises MachineError for more reads than banks.
    """
    banks = banks_of(machine)
    if not 1 <= reads <= banks.count:
        raise MachineError(f"reads of different banks are 1 to {banks.count}, not {reads}.")
    interval = max(banks.t_rrd_cycles, math.ceil(burst_duration(machine)))
    spans = []
    for read in range(reads):
        times = [Fraction(read * interval)]
        column = Fraction(banks.t_rcd_cycles) + times[0]
        at_pins = column + banks.t_cl_cycles
        times += [times[0] + 1, column, at_pins, at_pins + burst_duration(machine)]
        stages = (Stage.COMMAND, Stage.ROW_ACCESS, Stage.COLUMN_READ, Stage.DATA_BURST)
        spans += [
            StageSpan(read, stage, start, end)
            for stage, start, end in zip(stages, times, times[1:], strict=False)
        ]
    return tuple(spans)


def consecutive_reads(machine: Machine, reads: int) -> tuple[StageSpan, ...]:
    """`reads` reads of one open row whose commands follow one another burst by burst.

    Commands begin on whole cycles, so bursts are without a gap where a burst lasts whole cycles.
    """
    banks = banks_of(machine)
    if reads < 1:
        raise MachineError(f"there must be at least 1 read, not {reads}.")
    interval = math.ceil(burst_duration(machine))
    spans = []
    for read in range(reads):
        command = Fraction(read * interval)
        at_pins = command + banks.t_cl_cycles
        spans.append(StageSpan(read, Stage.COLUMN_READ, command, at_pins))
        spans.append(StageSpan(read, Stage.DATA_BURST, at_pins, at_pins + burst_duration(machine)))
    return tuple(spans)
