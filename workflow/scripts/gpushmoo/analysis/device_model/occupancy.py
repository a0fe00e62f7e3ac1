"""How many blocks a multiprocessor holds at once, computed where no device can be asked.

Limits and granularities are those of the CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability", and of the occupancy calculator that NVIDIA published with it. Tests hold the
result against what an H200's driver said of all recorded kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .traffic import WARP

REGISTERS, REGISTER_STEP = 65536, 256
SHARED_STEP, SHARED_RESERVED = 128, 1024


@dataclass(frozen=True)
class Multiprocessor:
    """What a multiprocessor of one compute capability holds: warps, blocks, shared memory."""

    warps: int
    blocks: int
    shared_bytes: int


KIB = 1024
# By architecture, as compilers name it.
MULTIPROCESSORS: Mapping[str, Multiprocessor] = {
    "sm_75": Multiprocessor(32, 16, 64 * KIB),
    "sm_80": Multiprocessor(64, 32, 164 * KIB),
    "sm_86": Multiprocessor(48, 16, 100 * KIB),
    "sm_89": Multiprocessor(48, 24, 100 * KIB),
    "sm_90": Multiprocessor(64, 32, 228 * KIB),
    "sm_100": Multiprocessor(64, 32, 228 * KIB),
    "sm_120": Multiprocessor(48, 32, 100 * KIB),
}


def resident_blocks(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks of so many threads, registers a thread and bytes of shared memory; 0: none fits.

    Raises KeyError for an architecture that is not in MULTIPROCESSORS.
    """
    unit = MULTIPROCESSORS[arch]
    warps = -(-threads // WARP)
    a_warp = -(-registers * WARP // REGISTER_STEP) * REGISTER_STEP
    # Each of the four parts of a multiprocessor has a quarter of the registers.
    by_registers = REGISTERS // 4 // a_warp * 4 // warps if registers else unit.blocks
    shared = -(-max(shared_bytes, SHARED_RESERVED) // SHARED_STEP) * SHARED_STEP
    return min(unit.blocks, unit.warps // warps, by_registers, unit.shared_bytes // shared)
