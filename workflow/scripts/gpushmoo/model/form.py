"""The form of the model: seconds of a launch from its resources and the parameters of a device.

A launch runs in waves: as many blocks as fit on the device at once, then the rest. For a wave of B
blocks on U multiprocessors, m = ceil(B / U) blocks run on the fullest one. The wave takes at least
as long as each of these limits:

* starting:  m times the longer of a block's dispatch and the launches of its warps;
* service:   m times the longer of its instructions and of the lines that it loads and stores, and
the words of shared memory that one bank serves one after the other. A block that stores parts of
sectors in one pass after the other takes longer, the more lines are stored to by all blocks;
* waiting:   the life of one block: its start, a latency for every group of loads that is waited
for, a little more with more warps (a block lasts as long as its slowest), and a share of its
service. A busy DRAM makes the latencies longer. With barriers, the warps of a block wait and are
served together, so that blocks take turns;
* L2:        bytes over its rate, and written bytes over the rate of writes; a sector that is used
in part costs more than its bytes (counters show that DRAM does not move more);
* DRAM:      bytes that miss L2 over the rate of the bus, plus the cost of turning the bus between
reads and writes.

Limits combine as J_q(a, b, ...) = (a^q + b^q + ...)^(1/q): the larger q, the more the largest limit
alone decides. The exponents and the three other constants below are not parameters. They were
chosen with an H200's recorded cells in view; docs/model.md states how this affects the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .launches import OPEN_LINES, SECTOR_BYTES, WIDEST, DeviceFacts, Floats, Launches

Values = Mapping[str, float]

LINE_BYTES = 128
# Names of the limits, in the order of reports.
LIMITS = ("start", "dispatch", "service", "waiting", "L2", "DRAM")
# Exponents for combining limits, for the queue and for the end of L2.
HARD, SERVICE, DRAM = 12.0, 5.0, 6.0
QUEUE, L2_END = 1.6, 8.0
# Iterations until a wave settles.
ITERATIONS = 6
# Distance in warps at which halves of an image's sector stop to merge, as a decay constant.
MERGE = 2.6

# The parameters


class Quantity(NamedTuple):
    """A parameter: its unit, its meaning, and its value before any measurement.

    Cycles are those of a multiprocessor at its nominal clock. The first values are about those of
    an NVIDIA H200. `fact` names the figure of `machine` that measures the parameter directly.
    """

    unit: str
    words: str
    first: float
    fact: str | None = None


PARAMETERS: Mapping[str, Quantity] = {
    "start": Quantity("cycles", "from one launch to the next, in a row of them", 1800, "launch_s"),
    "sample": Quantity("cycles", "what a timed interval costs besides", 8500, "sample_s"),
    "issue": Quantity("cycles", "an instruction of a warp", 0.28, "issue_s"),
    "dispatch": Quantity("cycles", "between two blocks that start", 157, "dispatch_s"),
    "warp_launch": Quantity("cycles", "a warp that starts", 12.8, "warp_launch_s"),
    "block": Quantity("cycles", "a block's start and end", 100),
    "l2_latency": Quantity("cycles", "a load from L2", 340, "latency_l2_s"),
    "dram_latency": Quantity("cycles", "what a load from DRAM takes beyond one from L2", 400),
    "turn": Quantity("cycles", "an instruction of a loop, to a warp that waits for it", 1.8),
    "store_line": Quantity("cycles", "a line that a warp stores to", 4.6, "store_port_bytes_per_s"),
    "store_again": Quantity("cycles", "a line that the warp stored to by the access before", 1.5),
    "open_sector": Quantity(
        "cycles",
        "a sector stored in parts, for each doubling of the lines that are stored to",
        6.6,
        "open_sector_s",
    ),
    "load_line": Quantity("cycles", "a line that a warp loads from", 0.9, "load_port_bytes_per_s"),
    "shared_wave": Quantity("cycles", "a word that a bank of shared memory serves", 1.0),
    "shared_latency": Quantity("cycles", "a load from shared memory", 30.0),
    "barrier": Quantity("cycles", "a barrier of a block, after its last warp", 30.0),
    "own_service": Quantity("1", "share of a block's own service that its warps wait for", 0.31),
    "l2_rate": Quantity("bytes/cycle", "L2, reads and writes", 3650, "l2_copy_bps"),
    "l2_write_rate": Quantity("bytes/cycle", "L2, writes", 2310, "l2_write_bps"),
    "dram_rate": Quantity("bytes/cycle", "DRAM", 2330, "bus_read_bps"),
    "turn_round": Quantity(
        "1", "turning DRAM from reads to writes, a share of both", 0.07, "turn_1"
    ),
    "turn_more": Quantity(
        "1", "turning DRAM, more for each doubling of the loads that a warp has out", 0.026
    ),
    "turn_later": Quantity(
        "1", "turning DRAM, more for warps that load again after they stored", 0.11
    ),
    "part_sector": Quantity("1", "bytes of L2 for a byte in a sector used in part", 3.6),
    "part_texel_store": Quantity(
        "1", "bytes of L2 for a byte in an image's sector stored in part", 2.9
    ),
    "part_texel_load": Quantity(
        "1", "bytes of L2 for a byte in an image's sector loaded in part", 1.7
    ),
    "narrow": Quantity(
        "1", "power of an access's width by which bytes in sectors used in part grow", 0.4
    ),
    "l2_end": Quantity("1", "where L2 ends, as a share of its size", 0.7, "cache_end_rate_share"),
    "l2_written": Quantity("1", "room of a written byte in L2, in read ones", 1.0),
    "dirty": Quantity("1", "share of a flushed L2 that has to be written back", 0.68),
    "slowest": Quantity("1", "the slowest of e times as many warps, in latencies", 0.12),
    "queue": Quantity("1", "latency added by a saturated DRAM, in latencies", 0.95),
    "stagger": Quantity("1", "how much blocks of one turn stagger in a wave, in lives", 3.0),
    "texel_store": Quantity("cycles", "a warp that stores to an image", 17.2),
    "texel_filter": Quantity("cycles", "a warp that fetches texels of 16 bytes by a filter", 53.0),
}
FIRST: Mapping[str, float] = {name: meaning.first for name, meaning in PARAMETERS.items()}

# Facts in seconds. The others are rates, which the clock divides, and shares, which stay.
_SECONDS = frozenset(
    {
        "launch_s",
        "sample_s",
        "issue_s",
        "dispatch_s",
        "warp_launch_s",
        "latency_l2_s",
        "open_sector_s",
    }
)
_PORTS = {"store_line": "store_port_bytes_per_s", "load_line": "load_port_bytes_per_s"}


def first_values(facts: Mapping[str, float], device: DeviceFacts) -> dict[str, float]:
    """Return all parameters before any sweep of a device.

    A parameter that no micro-benchmark measures keeps its value of FIRST, found on an NVIDIA H200.
    For another device that is a guess.

    Parameters
    ----------
    facts
        Values by the names of `machine`, in seconds, bytes/s or 1.
    device
        Facts of the device, such as its clock.
    """
    values = dict(FIRST)
    for name, meaning in PARAMETERS.items():
        fact = facts.get(meaning.fact or "")
        if fact is None:
            continue
        if name in _PORTS:
            values[name] = LINE_BYTES / (fact / device.clock_hz)
        elif meaning.fact in _SECONDS:
            values[name] = fact * device.clock_hz
        else:
            values[name] = fact / device.clock_hz if meaning.unit == "bytes/cycle" else fact
    if "latency_l2_s" in facts and "latency_dram_s" in facts:
        beyond = facts["latency_dram_s"] - facts["latency_l2_s"]
        values["dram_latency"] = beyond * device.clock_hz
    return values


# The form


def joined(power: float, one: Floats | float, other: Floats | float) -> Floats:
    """Combine two limits smoothly: J_power(one, other), see the module."""
    one, other = np.maximum(one, 1e-9), np.maximum(other, 1e-9)
    top = np.maximum(one, other)
    return np.asarray(top * (1.0 + (np.minimum(one, other) / top) ** power) ** (1.0 / power))


def taking_turns(service: Floats, waiting: Floats, blocks: Floats) -> Floats:
    """Return the cycles in which each of `blocks` is served once and waits once.

    `service` is that of all blocks, one after the other, and `waiting` that of one. This is the
    cycle of a closed queue with one server, by Schweitzer's approximation: a block that arrives
    finds the queue that the others leave on average. One block takes the sum of both, and many take
    the longer one.
    """
    apart = np.sqrt((service - waiting) ** 2 + 4 * service * waiting / np.maximum(blocks, 1.0))
    return np.asarray((service + waiting + apart) / 2)


@dataclass(frozen=True)
class _Blocks:
    """Quantities that do not depend on how many blocks run together.

    `held` is the share of bytes that hit L2. The others are cycles of one block: of a
    multiprocessor's pipelines, of the whole block when `alone`, and of its latencies.
    """

    held: Floats
    service: Floats
    alone: Floats
    latency: Floats


class Model:
    """The form with the values of all parameters: see PARAMETERS."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def seconds(self, x: Launches) -> Floats:
        """Return the predicted seconds of each launch, shape (cells,)."""
        return self._total(x)[0] / x.clock_hz

    def l2_share(self, x: Launches) -> Floats:
        """Return the share of a launch's bytes that L2 keeps from the last launch; 0 if flushed."""
        p = self.values
        room = x.bytes_read + p["l2_written"] * x.bytes_written
        held = 1.0 / (1.0 + (room / (p["l2_end"] * x.cache_bytes)) ** L2_END)
        return np.where(x.flushed > 0, 0.0, held)

    def sectors_sent(self, x: Launches) -> Floats:
        """Return the sectors between a block's L1 and L2.

        Halves that other warps complete count once.

        Only sectors of images merge like this. L1 merges them better the closer in time the warps
        are.
        """
        apart = 1.0 - np.exp(-x.apart / MERGE)
        split = (x.warp_sectors - x.block_sectors) * np.where(x.texel_stores > 0, apart, 0.0)
        return x.block_sectors + split

    def dram_bytes(self, x: Launches) -> tuple[Floats, Floats]:
        """Return the bytes that a launch reads from and writes to DRAM, without turning the bus."""
        held = self.l2_share(x)
        return x.bytes_read * (1 - held), self._written_back(x, held)

    def limits(self, x: Launches) -> dict[str, Floats]:
        """Return the cycles of each of LIMITS alone, over the whole launch."""
        return self._total(x)[1]

    def said(self, x: Launches, half_width: Floats | float) -> dict[str, npt.NDArray[Any]]:
        """Return the model's columns; the band has the half-width `half_width` in the logarithm."""
        cycles, limits = self._total(x)
        seconds = cycles / x.clock_hz
        alone = np.stack([limits[name] for name in LIMITS])
        shares = alone / alone.max(axis=0)
        return {
            "predicted_s": seconds,
            "low_s": seconds * np.exp(-half_width),
            "high_s": seconds * np.exp(half_width),
            "predicted_gbs": (x.bytes_read + x.bytes_written) * 1e-9 / seconds,
            "limit": np.array(LIMITS)[alone.argmax(axis=0)],
            **{f"{name.lower()}_share": shares[i] for i, name in enumerate(LIMITS)},
        }

    def _total(self, x: Launches) -> tuple[Floats, dict[str, Floats]]:
        p = self.values
        held = np.maximum(x.multiprocessors * x.resident, 1.0)
        full = np.floor(x.blocks / held)
        rest = x.blocks - full * held
        of_block = self._blocks(x)
        whole = self._wave(x, of_block, np.minimum(held, x.blocks))
        last = self._wave(x, of_block, np.maximum(rest, 1))
        # Blocks that start together end together, so that the rest takes a whole wave. The more
        # waves came before, and the fewer turns even out a block's life, the more they stagger.
        # Then the rest takes its share of a wave.
        abreast = 1.0 / (1.0 + p["stagger"] * full / np.maximum(x.turns, 1.0))
        share = abreast + (1 - abreast) * rest / held
        weight = np.where(rest > 0, np.where(full > 0, share, 1.0), 0.0)
        start = p["start"] + p["sample"] / x.in_a_sample
        limits = [full * w + weight * r for w, r in zip(whole[1:], last[1:], strict=True)]
        cycles = start + full * whole[0] + weight * last[0]
        return cycles, dict(zip(LIMITS, [start, *limits], strict=True))

    def _blocks(self, x: Launches) -> _Blocks:
        held = self.l2_share(x)
        service = self._service(x, held)
        return _Blocks(held, service, *self._life(x, held, service))

    def _wave(self, x: Launches, of_block: _Blocks, blocks: Floats) -> tuple[Floats, ...]:
        """Return the cycles of a wave of `blocks`, and of each limit except the launch's start."""
        p = self.values
        fullest = np.ceil(blocks / x.multiprocessors)
        dispatch = fullest * joined(HARD, p["dispatch"], p["warp_launch"] * x.warps)
        service = fullest * of_block.service
        alone = of_block.alone
        l2, dram = self._l2_cycles(x, blocks), self._dram_cycles(x, of_block.held, blocks)
        hard = joined(HARD, dispatch, l2)
        waiting = alone
        cycles = joined(HARD, hard, joined(DRAM, dram, self._served(x, fullest, service, waiting)))
        for _ in range(ITERATIONS):
            busy = np.minimum(dram / cycles, 1.0)
            waiting = alone + of_block.latency * p["queue"] * busy**QUEUE
            soft = joined(DRAM, dram, self._served(x, fullest, service, waiting))
            cycles = 0.5 * cycles + 0.5 * joined(HARD, hard, soft)
        return cycles, dispatch, service, waiting, l2, dram

    def _served(self, x: Launches, blocks: Floats, service: Floats, waiting: Floats) -> Floats:
        """Return the cycles of the fullest multiprocessor, which holds `blocks`.

        Barriers make the warps of a block wait and be served together, so that only other blocks,
        or what is between other barriers, fill the time. Without them each warp goes on by itself.
        """
        together = taking_turns(service, waiting, blocks * x.barriers)
        return np.where(x.barriers > 0, together, joined(SERVICE, service, waiting))

    def _service(self, x: Launches, held: Floats) -> Floats:
        """Return the cycles that a multiprocessor's pipelines take for one block."""
        p = self.values
        again = x.store_lines - x.store_first_lines
        stores = p["store_line"] * x.store_first_lines + p["store_again"] * again
        # Outside of L2, sectors are written back before the block has completed them.
        lines = np.log2(1.0 + x.resident * x.open_lines / OPEN_LINES)
        stores = stores + p["open_sector"] * lines * x.open_sectors * (1 - held)
        texels = np.where(x.texel_stores > 0, p["texel_store"] * x.warps, stores)
        lines = texels + np.where(x.texel_loads > 0, 0.0, p["load_line"] * x.load_lines)
        # Filters of narrower texels are faster than all else that these texels need.
        filtered = np.where(x.filtered > 0, p["texel_filter"] * x.warps, 0.0)
        lines = joined(HARD, lines, np.where(x.access_bytes >= WIDEST, filtered, 0.0))
        shared = p["shared_wave"] * x.shared_waves
        return joined(HARD, p["issue"] * x.warps * x.instructions, lines + shared)

    def _life(self, x: Launches, held: Floats, service: Floats) -> tuple[Floats, Floats]:
        """Return the cycles of a block that is alone, and those of its latencies."""
        p = self.values
        latency = p["l2_latency"] + p["dram_latency"] * (1 - held)
        slowest = p["slowest"] * np.log(x.warps) * (x.waits > 0)
        # Another block has loaded the data of a tile's edge to L2, or is about to.
        waits = (x.waits + slowest) * latency + x.edge_waits * p["l2_latency"]
        work = p["warp_launch"] * x.warps + p["turn"] * x.turns * x.turn_instructions
        work = work + p["shared_latency"] * x.shared_waits + p["barrier"] * x.barriers
        # With barriers, all of its service adds to its waiting: see `taking_turns`.
        own = np.where(x.barriers > 0, 0.0, p["own_service"] * service)
        return p["block"] + work + waits + own, waits

    def _written_back(self, x: Launches, held: Floats) -> Floats:
        """Return the bytes written to DRAM; a flushed L2 first writes back data of others."""
        p = self.values
        room = p["l2_end"] * x.cache_bytes
        moved = x.bytes_read + x.bytes_written
        beyond = np.maximum(0.0, moved - room) / np.maximum(moved, 1.0) * x.bytes_written
        flushed = p["dirty"] * np.minimum(moved, room) + beyond
        return np.where(x.flushed > 0, flushed, x.bytes_written * (1 - held))

    def _wasted(self, x: Launches) -> Floats:
        """Return the bytes that L2 could move while it serves partly used sectors of a block."""
        p = self.values
        halves = np.maximum(self.sectors_sent(x) * SECTOR_BYTES - x.block_bytes, 0.0)
        texels = np.where(x.texel_stores > 0, p["part_texel_store"], p["part_texel_load"]) * halves
        image = (x.texel_loads > 0) | (x.texel_stores > 0)
        return (x.access_bytes / WIDEST) ** p["narrow"] * np.where(
            image, texels, p["part_sector"] * x.part_bytes
        )

    def _l2_cycles(self, x: Launches, blocks: Floats) -> Floats:
        p = self.values
        share = blocks / x.blocks
        wasted = self._wasted(x) * blocks
        read, written = x.bytes_read * share, x.bytes_written * share
        stored = written + np.where(written > 0, wasted, 0.0)
        both = (read + written + wasted) / p["l2_rate"]
        return joined(HARD, both, stored / p["l2_write_rate"])

    def _dram_cycles(self, x: Launches, held: Floats, blocks: Floats) -> Floats:
        p = self.values
        share = blocks / x.blocks
        read = x.bytes_read * share * (1 - held)
        written = self._written_back(x, held) * share
        turning = (
            p["turn_round"]
            + p["turn_more"] * np.log2(np.maximum(x.loads_a_wait, 1.0))
            + p["turn_later"] * (1 - 1 / np.maximum(x.waits, 1.0))
        )
        moved = read + written + 2 * turning * np.minimum(read, written)
        return np.asarray(moved / p["dram_rate"])
