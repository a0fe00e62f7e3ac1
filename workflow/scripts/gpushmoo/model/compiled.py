"""The cycle-exact event simulation of `gantt`, compiled: the same times, a hundred times faster.

Level (a) of the simulated devices: half-warps round robin, a fixed latency, one bus. What a run
needs in memory does not depend on the size of the problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from . import dram
from .gantt import Assumptions, Event, Workload, resident_blocks
from .machine import Machine, exact

Ints = npt.NDArray[np.int64]

# Later than any event.
_NEVER = 2**62
# Half-warps of one SM at most: bits of a word.
MOST_LANES = 64
PHASES = ("index", "read", "write", "store")


@dataclass(frozen=True)
class FastRun:
    """Result of one simulation: as of `gantt.Run`, without what grows with the problem.

    `events` counts what a chart without end would show as bars (see `gantt.Event`): four for each
    half-warp and tile, two without writes.
    """

    makespan_cycles: Fraction
    drained_cycles: Fraction
    bus_busy_cycles: Fraction
    bytes_moved: int
    core_clock_ghz: float
    tiles_per_sm: tuple[int, ...]
    events: int
    bars: tuple[Event, ...]

    @property
    def critical_path_tiles(self) -> int:
        """Tiles of the busiest SM."""
        return max(self.tiles_per_sm)

    @property
    def drained_bandwidth_gbs(self) -> float:
        """Bytes over the time until the last posted write has crossed the bus, GB/s of 10⁹."""
        return float(self.bytes_moved / self.drained_cycles * exact(self.core_clock_ghz))


def simulate_fast(
    machine: Machine,
    workload: Workload,
    num_partition: int,
    *,
    writes: bool,
    assumptions: Assumptions | None = None,
    trace_limit: int = 0,
) -> FastRun:
    """What `gantt.simulate` computes for a chart that is not slotted.

    Raises ValueError as that does, and for an SM of more than MOST_LANES half-warps.
    """
    if num_partition < 1:
        raise ValueError(f"num_partition must be at least 1, not {num_partition}")
    slots = resident_blocks(machine, workload)
    lanes = slots * workload.half_warps
    if lanes > MOST_LANES:
        raise ValueError(f"an SM holds {lanes} half-warps; at most {MOST_LANES} are simulated")
    durations = assumptions or Assumptions.of(machine)
    transfer = dram.transfer_beats(machine, workload.half_warp_bytes) * durations.beat_cycles
    ticks = transfer.denominator
    tiles = np.zeros(machine.n_sm, np.int64)
    bars = np.zeros((trace_limit, 6), np.int64)
    found = _compiled()(
        machine.n_sm,
        slots,
        workload.half_warps,
        workload.n_tiles,
        num_partition,
        durations.index_cycles * ticks,
        durations.latency_cycles * ticks,
        transfer.numerator,
        ticks,
        writes,
        tiles,
        bars,
    )
    events, makespan, drained, transfers = (int(value) for value in found)
    shown = bars[: min(events, trace_limit)].tolist()
    return FastRun(
        makespan_cycles=Fraction(makespan, ticks),
        drained_cycles=Fraction(drained, ticks),
        bus_busy_cycles=transfers * transfer,
        bytes_moved=workload.n_tiles
        * workload.half_warps
        * workload.half_warp_bytes
        * (2 if writes else 1),
        core_clock_ghz=machine.core_clock_ghz,
        tiles_per_sm=tuple(tiles.tolist()),
        events=events,
        bars=tuple(
            Event(sm, block, half_warp, PHASES[phase], Fraction(start, ticks), Fraction(end, ticks))
            for sm, block, half_warp, phase, start, end in shown
        ),
    )


@cache
def _compiled() -> Callable[..., Any]:
    """Numba takes a second to import and some to compile: only where something is simulated."""
    from numba import njit

    return njit(error_model="numpy", cache=True)(_run)


def _run(
    n_sm: int,
    slots: int,
    width: int,
    n_tiles: int,
    num_partition: int,
    index: int,
    latency: int,
    transfer: int,
    hold: int,
    writes: bool,
    sm_tiles: Ints,
    bars: Ints,
) -> tuple[int, int, int, int]:
    """Events, makespan, time at which the bus is done, and transfers; times in ticks.

    One function, longer than any other here: at each call of a function Numba counts references
    to the arrays that it takes, and with the parts as functions of their own this did 1.2 million
    events a second instead of 60 to 100.

    An SM does one thing after the other, so that it has at most one command to issue: `command`, at
    `free_at`. The bus returns data in the order of the commands, so that an SM's returns, a ring,
    are in order of time. `coming` is an SM's next event: the end of a block, or a step.
    """
    lanes = slots * width
    one, zero = np.uint64(1), np.uint64(0)
    ready, writing = np.zeros(n_sm, np.uint64), np.zeros(n_sm, np.uint64)
    last, command = np.full(n_sm, lanes - 1), np.full(n_sm, -1)
    free_at, step_at = np.zeros(n_sm, np.int64), np.full(n_sm, _NEVER)
    coming, block_end = np.full(n_sm, _NEVER), np.full(n_sm, _NEVER)
    ends = np.full((n_sm, slots), _NEVER)
    block, todo, left = (
        np.zeros((n_sm, slots), np.int64),
        np.zeros((n_sm, slots), np.int64),
        np.zeros((n_sm, slots), np.int64),
    )
    done = np.zeros((n_sm, lanes), np.int64)
    back_at, back_lane = np.zeros((n_sm, lanes), np.int64), np.zeros((n_sm, lanes), np.int64)
    head, returning = np.zeros(n_sm, np.int64), np.zeros(n_sm, np.int64)
    slot_of = np.zeros(lanes, np.int64)
    whole = zero
    for lane in range(lanes):
        slot_of[lane] = lane // width
        if lane < width:
            whole = whole << one | one
    events = makespan = bus_free = transfers = next_block = 0
    n_blocks, limit = min(num_partition, n_tiles), bars.shape[0]
    # Before time 0 blocks end that never were, first one on each SM, then the next: so the first
    # wave of blocks is dealt out.
    for slot in range(slots):
        ends[:, slot] = slot - slots
    block_end[:] = coming[:] = -slots
    while True:
        sm, now = 0, coming[0]
        for i in range(1, n_sm):
            if coming[i] < now:
                sm, now = i, coming[i]
        if now == _NEVER:
            return events, makespan, bus_free, transfers
        if block_end[sm] == now:
            # A slot is free: the next block takes it.
            ended = 0
            while ends[sm, ended] != now:
                ended += 1
            ends[sm, ended], now = _NEVER, max(now, 0)
            if next_block < n_blocks:
                for lane in range(ended * width, (ended + 1) * width):
                    done[sm, lane] = 0
                block[sm, ended], left[sm, ended] = next_block, width
                todo[sm, ended] = (n_tiles - next_block + num_partition - 1) // num_partition
                sm_tiles[sm] += todo[sm, ended]
                ready[sm] |= whole << np.uint64(ended * width)
                next_block += 1
                if free_at[sm] <= now:
                    step_at[sm] = now
            soonest = _NEVER
            for slot in range(slots):
                soonest = min(soonest, ends[sm, slot])
            block_end[sm], coming[sm] = soonest, min(soonest, step_at[sm])
            continue
        lane = command[sm]
        if lane >= 0 and free_at[sm] <= now:
            # Its transfer is queued at the bus.
            command[sm] = -1
            slot, bit = slot_of[lane], one << np.uint64(lane)
            is_write = writing[sm] & bit != zero
            bus_free = max(bus_free, now + latency) + transfer
            transfers += 1
            if events < limit:
                bars[events, 0], bars[events, 1] = sm, block[sm, slot]
                bars[events, 2], bars[events, 3] = lane - slot * width, 3 if is_write else 1
                bars[events, 4], bars[events, 5] = now, bus_free
            events += 1
            if writes:
                writing[sm] ^= bit
            if is_write or not writes:
                done[sm, lane] += 1
            if (is_write or not writes) and done[sm, lane] == todo[sm, slot]:
                end = now if is_write else bus_free
                makespan = max(makespan, end)
                left[sm, slot] -= 1
                if left[sm, slot] == 0:
                    ends[sm, slot] = end
                    block_end[sm] = min(block_end[sm], end)
            else:
                place = head[sm] + returning[sm]
                if place >= lanes:
                    place -= lanes
                back_at[sm, place], back_lane[sm, place] = bus_free, lane
                returning[sm] += 1
        here, waiting, can = head[sm], returning[sm], ready[sm]
        while waiting > 0 and back_at[sm, here] <= now:
            can |= one << np.uint64(back_lane[sm, here])
            here = here + 1 if here + 1 < lanes else 0
            waiting -= 1
        head[sm], returning[sm] = here, waiting
        if can != zero:
            # The first that can, after the last one served, holds the SM.
            lane = last[sm] + 1 if last[sm] + 1 < lanes else 0
            while can >> np.uint64(lane) & one == zero:
                lane = lane + 1 if lane + 1 < lanes else 0
            bit = one << np.uint64(lane)
            can ^= bit
            is_write = writing[sm] & bit != zero
            free = now + (hold if is_write else index)
            last[sm], command[sm], free_at[sm], step_at[sm] = lane, lane, free, free
            if events < limit:
                slot = slot_of[lane]
                bars[events, 0], bars[events, 1] = sm, block[sm, slot]
                bars[events, 2], bars[events, 3] = lane - slot * width, 2 if is_write else 0
                bars[events, 4], bars[events, 5] = now, free
            events += 1
        elif waiting > 0:
            step_at[sm] = back_at[sm, here]
        else:
            step_at[sm] = _NEVER
        ready[sm] = can
        coming[sm] = min(step_at[sm], block_end[sm])
