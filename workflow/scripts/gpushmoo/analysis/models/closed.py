"""Closed formula for persistent blocks that share out equal tiles.

The time is (start) + (tiles of the critical path) × (time of a tile on the busiest of the shared
resources), for any number of blocks:

* P blocks share N tiles, so the busiest block works through k = ⌈N/P⌉ of them.
* The device holds C = units × per_unit blocks; further blocks wait for whole waves. Block 529 of a
  device that holds 528 costs a second wave, as 32 blocks do on a device that holds 30.
* Of B resident blocks, the fullest multiprocessor holds m = ⌈B/units⌉; they slow each other down by
  a share `crowding` for every further one.
* Every tile passes the memory bus, which serves the B blocks one after the other.
* A tile takes t = (latency^q + bus^q)^(1/q): the sum of both for q = 1 (nothing overlaps), the
  larger of both for q → ∞ (all overlaps).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ModelInputs:
    """What the model must know: multiprocessors, resident blocks of each, tiles of the problem."""

    units: int
    per_unit: int
    tiles: int


@dataclass(frozen=True)
class Parameters:
    """Times in seconds; `crowding` and `overlap` (q) are pure numbers."""

    start_s: float
    tile_s: float
    bus_s: float
    crowding: float
    overlap: float


def wave_tile_s(resident: Floats, machine: ModelInputs, p: Parameters) -> Floats:
    """Seconds per tile of a block while `resident` blocks share the device (0 where none)."""
    crowded = np.maximum(np.ceil(resident / machine.units) - 1.0, 0.0)
    latency = p.tile_s * (1.0 + p.crowding * crowded)
    bus = resident * p.bus_s
    larger = np.maximum(latency, bus)
    smaller = np.minimum(latency, bus)
    # Written with the ratio of both so that large q neither overflows nor vanishes.
    total = larger * (1.0 + (smaller / larger) ** p.overlap) ** (1.0 / p.overlap)
    return np.where(resident > 0, total, 0.0)


def total_s(blocks: Ints, machine: ModelInputs, p: Parameters) -> Floats:
    """Seconds of a launch for each number of `blocks` (at least 1)."""
    blocks_f = np.asarray(blocks, dtype=np.float64)
    capacity = float(machine.units * machine.per_unit)
    longest = np.ceil(machine.tiles / blocks_f)
    # More blocks than tiles: the surplus blocks find nothing to do and leave at once.
    working = np.minimum(blocks_f, float(machine.tiles))
    full_waves = np.floor(working / capacity)
    rest = working - full_waves * capacity
    full = wave_tile_s(np.full_like(blocks_f, capacity), machine, p)
    return p.start_s + longest * (full_waves * full + wave_tile_s(rest, machine, p))
