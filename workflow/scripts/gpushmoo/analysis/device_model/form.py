"""The form of the model: seconds of a launch from what it asks of a device and 30 parameters.

A launch runs in waves: as many blocks as the device holds at once, then the rest. A wave of B
blocks on U multiprocessors, m = ceil(B / U) of them on the fullest one, is held up by

* starting:  m times the longer of a block's dispatch and the launches of its warps;
* service:   m times the longer of its instructions and of the lines that it loads and stores;
* waiting:   the life of one block: its start, a latency for every group of loads that is waited
             for, a little more the more warps there are (a block lasts as long as its slowest), and
             a share of its own service. A busy DRAM makes the latencies longer;
* L2:        bytes over its rate, and written bytes over that of writes; sectors that are used in
             part cost more than their bytes (and here: counters show that DRAM moves no more);
* DRAM:      bytes that L2 does not hold over the bus's rate, with what turning the bus between
             reads and writes costs.

Limits join as J_q(a, b, ...) = (a^q + b^q + ...)^(1/q): the larger q, the more the largest alone
counts. The exponents and the three other numbers of `SHAPE` were chosen with an H200's recorded
cells in view and do not belong to the parameters; docs/model.md tells what that is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pandas as pd

from .traffic import WIDEST

Floats = npt.NDArray[np.float64]
Values = Mapping[str, float]

SECTOR_BYTES = 32
# What binds a launch, in the order in which limits are named.
LIMITS = ("start", "dispatch", "service", "waiting", "L2", "DRAM")


@dataclass(frozen=True)
class Shape:
    """Constants of the form: how hard limits join, and three powers and ranges."""

    hard: float = 17.0
    service: float = 5.0
    dram: float = 6.0
    queue: float = 1.3
    l2_end: float = 8.0
    # Warps apart at which halves of an image's sector are no longer merged, in a decay.
    merge: float = 2.6
    steps: int = 6


SHAPE = Shape()


@dataclass(frozen=True)
class Launches:
    """What launches ask of one device; all arrays have shape (cells,).

    `resident` blocks fit on a multiprocessor; `in_a_sample` launches are timed together; `flushed`
    ones find nothing of their own in L2. `turns`, `waits`, `instructions` and `turn_instructions`
    are those of one thread (see core.code_path), `loads_a_wait` of its loads are out at once.
    Lines, sectors and bytes are those of a block over all its turns; `part_bytes` are in sectors
    that a warp uses in part. `texel_loads` and `texel_stores` say whether these go to an image,
    `access_bytes` how many bytes an access moves, `apart` how many warps lie between two rows of a
    block. `bytes_read` and `bytes_written` are those of the launch.
    """

    units: Floats
    clock_hz: Floats
    cache_bytes: Floats
    blocks: Floats
    warps: Floats
    resident: Floats
    persistent: Floats
    in_a_sample: Floats
    flushed: Floats
    turns: Floats
    waits: Floats
    instructions: Floats
    turn_instructions: Floats
    loads_a_wait: Floats
    load_lines: Floats
    store_lines: Floats
    store_first_lines: Floats
    part_bytes: Floats
    warp_sectors: Floats
    block_sectors: Floats
    block_bytes: Floats
    texel_loads: Floats
    texel_stores: Floats
    access_bytes: Floats
    apart: Floats
    bytes_read: Floats
    bytes_written: Floats

    @classmethod
    def of(cls, table: pd.DataFrame) -> Launches:
        """From a table that has these columns."""
        return cls(**{f.name: table[f.name].to_numpy(np.float64) for f in fields(cls)})


COLUMNS = tuple(f.name for f in fields(Launches))


def joined(power: float, *limits: Floats | float) -> Floats:
    """J_power of the limits."""
    stacked = np.maximum(np.stack(np.broadcast_arrays(*limits)).astype(np.float64), 1e-9)
    top = stacked.max(axis=0)
    return np.asarray(top * ((stacked / top) ** power).sum(axis=0) ** (1.0 / power))


@dataclass(frozen=True)
class Wave:
    """Cycles of a wave, and of each limit alone."""

    cycles: Floats
    limits: Mapping[str, Floats]


class Model:
    """The form with the values of all parameters: see `parameters.PARAMETERS`."""

    def __init__(self, values: Values, shape: Shape = SHAPE) -> None:
        self.values, self.shape = values, shape

    def seconds(self, x: Launches) -> Floats:
        """Predicted seconds of each launch."""
        return self._total(x)[0] / x.clock_hz

    def l2_share(self, x: Launches) -> Floats:
        """Share of a launch's bytes that L2 holds from the last launch; 0 where it was flushed."""
        p = self.values
        room = x.bytes_read + p["l2_written"] * x.bytes_written
        held = 1.0 / (1.0 + (room / (p["l2_end"] * x.cache_bytes)) ** self.shape.l2_end)
        return np.where(x.flushed > 0, 0.0, held)

    def sectors_sent(self, x: Launches) -> Floats:
        """Sectors that go between a block's L1 and L2: halves that other warps complete count once.

        Of images alone; L1 joins them the better the closer in time the warps are.
        """
        apart = 1.0 - np.exp(-x.apart / self.shape.merge)
        split = (x.warp_sectors - x.block_sectors) * np.where(x.texel_stores > 0, apart, 0.0)
        return x.block_sectors + split

    def dram_bytes(self, x: Launches) -> tuple[Floats, Floats]:
        """Bytes that a launch reads from DRAM and writes to it, without what turning costs."""
        held = self.l2_share(x)
        return x.bytes_read * (1 - held), self._written_back(x, held)

    def limits(self, x: Launches) -> dict[str, Floats]:
        """Cycles of each of LIMITS alone, over the whole launch."""
        return self._total(x)[1]

    def _total(self, x: Launches) -> tuple[Floats, dict[str, Floats]]:
        p = self.values
        held = np.maximum(x.units * x.resident, 1.0)
        full = np.floor(x.blocks / held)
        rest = x.blocks - full * held
        whole, last = self._wave(x, np.minimum(held, x.blocks)), self._wave(x, np.maximum(rest, 1))
        share = p["last_wave"] + (1 - p["last_wave"]) * np.sqrt(rest / held)
        weight = np.where(rest > 0, np.where(full > 0, share, 1.0), 0.0)
        start = p["start"] + p["sample"] / x.in_a_sample
        limits = {
            name: full * whole.limits[name] + weight * last.limits[name] for name in whole.limits
        }
        return start + full * whole.cycles + weight * last.cycles, {"start": start, **limits}

    def _wave(self, x: Launches, blocks: Floats) -> Wave:
        p, q = self.values, self.shape
        held = self.l2_share(x)
        fullest = np.ceil(blocks / x.units)
        dispatch = fullest * joined(q.hard, p["dispatch"], p["warp_launch"] * x.warps)
        service = fullest * self._service(x)
        l2, dram = self._l2_cycles(x, blocks), self._dram_cycles(x, held, blocks)
        alone, latency = self._life(x, held)
        hard = joined(q.hard, dispatch, l2)
        waiting = alone
        cycles = joined(q.hard, hard, joined(q.dram, dram, joined(q.service, service, waiting)))
        for _ in range(q.steps):
            busy = np.minimum(dram / cycles, 1.0)
            waiting = alone + latency * p["queue"] * busy**q.queue
            soft = joined(q.dram, dram, joined(q.service, service, waiting))
            cycles = 0.5 * cycles + 0.5 * joined(q.hard, hard, soft)
        names = {
            "dispatch": dispatch,
            "service": service,
            "waiting": waiting,
            "L2": l2,
            "DRAM": dram,
        }
        return Wave(cycles, names)

    def _service(self, x: Launches) -> Floats:
        """Cycles that a multiprocessor's pipelines take for one block."""
        p = self.values
        again = x.store_lines - x.store_first_lines
        stores = p["store_line"] * x.store_first_lines + p["store_again"] * again
        texels = np.where(x.texel_stores > 0, p["texel_store"] * x.warps, stores)
        lines = texels + np.where(x.texel_loads > 0, 0.0, p["load_line"] * x.load_lines)
        return joined(self.shape.hard, p["issue"] * x.warps * x.instructions, lines)

    def _life(self, x: Launches, held: Floats) -> tuple[Floats, Floats]:
        """Cycles of a block that is alone, and those of its latencies."""
        p = self.values
        latency = p["l2_latency"] + p["dram_latency"] * (1 - held)
        slowest = p["slowest"] * np.log(x.warps) * (x.waits > 0)
        waits = (x.waits + slowest) * latency
        work = p["warp_launch"] * x.warps + p["turn"] * x.turns * x.turn_instructions
        return p["block"] + work + waits + p["own_service"] * self._service(x), waits

    def _written_back(self, x: Launches, held: Floats) -> Floats:
        """Bytes written to DRAM: a flush leaves L2 full of others' data that go there first."""
        p = self.values
        room, moved = p["l2_end"] * x.cache_bytes, x.bytes_read + x.bytes_written
        beyond = np.maximum(0.0, moved - room) / np.maximum(moved, 1.0) * x.bytes_written
        flushed = p["dirty"] * np.minimum(moved, room) + beyond
        return np.where(x.flushed > 0, flushed, x.bytes_written * (1 - held))

    def _wasted(self, x: Launches) -> Floats:
        """Bytes that L2 could have moved while it serves sectors of a block, used in part."""
        p = self.values
        halves = np.maximum(self.sectors_sent(x) * SECTOR_BYTES - x.block_bytes, 0.0)
        texels = np.where(x.texel_stores > 0, p["part_texel_store"], p["part_texel_load"]) * halves
        image = (x.texel_loads > 0) | (x.texel_stores > 0)
        return (x.access_bytes / WIDEST) ** p["narrow"] * np.where(
            image, texels, p["part_sector"] * x.part_bytes
        )

    def _l2_cycles(self, x: Launches, blocks: Floats) -> Floats:
        p = self.values
        share, wasted = blocks / x.blocks, self._wasted(x) * blocks
        read, written = x.bytes_read * share, x.bytes_written * share
        stored = written + np.where(written > 0, wasted, 0.0)
        both = (read + written + wasted) / p["l2_rate"]
        return joined(self.shape.hard, both, stored / p["l2_write_rate"])

    def _dram_cycles(self, x: Launches, held: Floats, blocks: Floats) -> Floats:
        p = self.values
        share = blocks / x.blocks
        read, written = x.bytes_read * share * (1 - held), self._written_back(x, held) * share
        turning = (
            p["turn_round"]
            + p["turn_more"] * np.log2(np.maximum(x.loads_a_wait, 1.0))
            + p["turn_later"] * (1 - 1 / np.maximum(x.waits, 1.0))
        )
        moved = read + written + 2 * turning * np.minimum(read, written)
        return np.asarray(moved / p["dram_rate"])
