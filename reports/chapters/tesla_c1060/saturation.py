"""Closed formula for the bandwidth of the tiled copy when the memory bus never rests.

Every SM computes the indices of its first tile while the bus is still idle; from then on all
half-warps queue at the bus, whose bursts hide further index computation. Total core cycles:

    X + Y,  X = (half_warps - hidden_half_warps) · index_cycles,
            Y = tiles_per_block · 2 · burst_cycles · multiplier

where `burst_cycles` is the time in which all SMs move one half-warp each, and 2 stands for read
and write. A tile consists of `half_warps` such bursts, so that is the right multiplier. The
published formula has the number of SMs in its place, which `burst_cycles` already contains.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from .simulation.machine import Machine, burst_cycles, exact, half_warp_bytes


class Multiplier(Enum):
    """What the saturated formula multiplies a burst by."""

    PUBLISHED = "SMs of the device"
    CORRECTED = "half-warps of a tile"


@dataclass(frozen=True)
class SaturatedCopy:
    """A copy of side × side elements that keeps all SMs and the bus busy.

    `tiles_per_block` is rounded as in the source (512 tiles over 30 blocks taken as 17).
    `hidden_half_warps` are the half-warps of the first tile whose index computation overlaps
    with memory; the source states 20 of 32 without derivation. The 12 that remain equal the
    memory wait of its corrected chart, ⌈402/36⌉ = 12 time units.
    """

    side: int = 512
    tiles_per_block: int = 17
    half_warps: int = 32
    hidden_half_warps: int = 20


def start_up_cycles(machine: Machine, copy: SaturatedCopy) -> int:
    """X: core cycles of index computation before the bus is saturated."""
    return (copy.half_warps - copy.hidden_half_warps) * machine.index_cycles


def streaming_cycles(
    machine: Machine, copy: SaturatedCopy, itemsize: int, multiplier: Multiplier
) -> Fraction:
    """Y for elements of `itemsize` bytes: core cycles of reads and writes back to back."""
    factor = machine.n_sm if multiplier is Multiplier.PUBLISHED else copy.half_warps
    burst = burst_cycles(machine, half_warp_bytes(machine, itemsize))
    return copy.tiles_per_block * 2 * burst * factor


def saturated_bandwidth_gbs(
    machine: Machine, copy: SaturatedCopy, itemsize: int, multiplier: Multiplier
) -> float:
    """Bytes read and written per second, GB/s (10⁹ bytes): 2 · side² · itemsize / (X + Y)."""
    n_bytes = 2 * copy.side**2 * itemsize
    cycles = start_up_cycles(machine, copy) + streaming_cycles(machine, copy, itemsize, multiplier)
    # Bytes per cycle times 10⁹ cycles per second are GB/s.
    return float(n_bytes / cycles * exact(machine.core_clock_ghz))


def double_over_float(machine: Machine, copy: SaturatedCopy, multiplier: Multiplier) -> float:
    """Bandwidth ratio of 8-byte to 4-byte elements, 1 + X / (X + 2Y); above 1 for any X > 0.

    X is paid once for either type, and is spread over twice the bytes for the wider one.
    """
    x = start_up_cycles(machine, copy)
    y = streaming_cycles(machine, copy, 4, multiplier)
    return float(1 + x / (x + 2 * y))
