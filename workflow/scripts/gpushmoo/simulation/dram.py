"""DRAM durations in core cycles: the complete read cycle and the occupation of the data bus."""

from __future__ import annotations

from fractions import Fraction

from .machine import Machine, exact


def read_cycle_cycles(machine: Machine) -> Fraction:
    """Core cycles of a complete read cycle of one bank, row activation to end of precharge.

    tRC = tRAS + tRP in memory cycles (Jacob, Ng, Wang: Memory Systems), times the ratio of the
    core clock to the memory clock.
    """
    memory_cycles = machine.t_ras_cycles + machine.t_rp_cycles
    return memory_cycles * exact(machine.core_clock_ghz) * 1000 / exact(machine.memory_clock_mhz)


def half_warp_bytes(machine: Machine, itemsize: int) -> int:
    """Bytes a half-warp moves with one element of `itemsize` bytes per thread."""
    return machine.half_warp * itemsize


def transfer_beats(machine: Machine, n_bytes: int) -> Fraction:
    """Bus periods that `n_bytes` take.

    The bus consists of the partitions' parts, each of them used whole: 64 bytes take 8/7 periods of
    a bus of 7 × 8 bytes, and of a wider bus they leave the rest to others.
    """
    part = machine.bus_bytes // machine.partitions
    return Fraction(-(-n_bytes // part), machine.partitions)


def transfer_cycles(machine: Machine, n_bytes: int) -> Fraction:
    """Core cycles for which a transfer of `n_bytes` holds the memory bus."""
    return transfer_beats(machine, n_bytes) * machine.beat_cycles


def burst_cycles(machine: Machine, n_bytes: int) -> Fraction:
    """Core cycles in which every SM moves `n_bytes` once, back to back over the one bus."""
    return machine.n_sm * transfer_cycles(machine, n_bytes)
