"""The event simulation of `reference`, compiled, and carried on into partitions and banks.

At the level of one bus it computes the times of `reference.simulate`, a hundred times faster. At
the others the half-warps do the same and requests wait at the partitions of `controller`. What a
run needs in memory does not depend on the size of the problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from .dram_controller import (
    ARRIVAL,
    BLOCK,
    BURSTS,
    END,
    HASHED,
    KIND,
    LANE,
    NEVER,
    OPENINGS,
    P_BURSTS,
    P_OPENINGS,
    P_REQUESTS,
    P_WAITED,
    POSTED,
    READ,
    REQUEST_COLUMNS,
    SERVED_COLUMNS,
    SM,
    SPAN,
    STRIPE_BYTES,
    WAITED,
    WRITE,
    accept,
    byte_address,
    enlarged,
    look,
    partition_number,
)
from .machine import MOST_LANES

Ints = npt.NDArray[np.int64]

PHASES = ("index", "read", "write", "store")


@njit(inline="always")
def enter(coming: Ints, bits: int, actor: int, time: int) -> None:
    """Have the next event of `actor` at `time`, which must be under 2^(63 - bits).

    `coming` is a tree of times, each with the number of its actor behind it. Leaves are from 2^bits
    on, a node's children at twice its number and one more. Every node is the least below it, so
    that the root, at 1, is the next time and actor; of equal times the first actor. A change costs
    `bits` comparisons, where looking through all actors costs as many as there are.
    """
    node = (1 << bits) + actor
    least = time << bits | actor
    coming[node] = least
    while node > 1:
        least = min(least, coming[node ^ 1])
        node >>= 1
        coming[node] = least


@dataclass(frozen=True)
class SMProgram:
    """What the SMs do; times in ticks.

    `n_blocks` blocks of `half_warps` take tiles in turn, `n_blocks` apart, and `items` accesses of
    each; an SM holds `slots` blocks. The address of a half-warp's first access takes `index` of its
    SM, of further ones in the same tile `step`; then each command `hold`, of which an access has
    `commands`. Its data may enter the bus `latency` later and cross it in `transfer`. The data of
    an awaited access then hold the port of `sm_per_port` SMs for `port`; others wait behind.
    """

    n_sm: int
    slots: int
    half_warps: int
    n_tiles: int
    n_blocks: int
    items: int
    index: int
    step: int
    hold: int
    commands: int
    sm_per_port: int
    port: int
    latency: int
    transfer: int
    writes: bool
    writes_awaited: bool


@dataclass(frozen=True)
class Memory:
    """What lies behind the commands at the levels of partitions and banks.

    `parameters`, `state` and `layout` as in `dram_controller`. `log` and `profile` get what happens
    where they have rows; a row of `profile` spans `bin_ticks`.
    """

    parameters: Ints
    state: Ints
    layout: Ints
    queue_size: int
    log: Ints
    profile: Ints
    bin_ticks: int


_ROW, _TABLE = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
NO_MEMORY = Memory(_ROW, _TABLE, _ROW, 0, _TABLE, np.zeros((0, 0, 0), np.int64), 1)


class Counts(NamedTuple):
    """What a run comes to; times in ticks. `events` counts bars (`reference.Event`)."""

    events: int
    makespan: int
    drained: int
    transfers: int


def execute(
    program: SMProgram, memory: Memory | None, sm_tiles: Ints, sm_ends: Ints, bars: Ints
) -> Counts:
    """Run to the end; tiles and the end of the last block of each SM, and `bars`, are filled in.

    Without `memory` there is one bus. Raises ValueError for an SM of over MOST_LANES half-warps.
    """
    if memory and not program.writes:
        raise ValueError("partitions are simulated with writes only")
    lanes = program.slots * program.half_warps
    if lanes > MOST_LANES:
        raise ValueError(f"an SM holds {lanes} half-warps; at most {MOST_LANES} are simulated")
    run, behind = _compiled(memory is not None), vars(memory or NO_MEMORY).values()
    found = run(*vars(program).values(), sm_tiles, sm_ends, bars, *behind)
    return Counts(*(int(value) for value in found))


@cache
def _compiled(partitioned: bool) -> Callable[..., Any]:
    """The event loop, compiled; Numba keeps it for the next process."""
    return njit(error_model="numpy", cache=True, nogil=True)(_loop(partitioned))


def _loop(partitioned: bool) -> Callable[..., Any]:
    """The event loop, for one bus or for partitions."""

    def run(
        n_sm: int,
        slots: int,
        width: int,
        n_tiles: int,
        num_blocks: int,
        items: int,
        index: int,
        step: int,
        hold: int,
        commands: int,
        sm_per_port: int,
        port: int,
        latency: int,
        transfer: int,
        writes: bool,
        awaited: bool,
        sm_tiles: Ints,
        sm_ends: Ints,
        bars: Ints,
        par: Ints,
        state: Ints,
        layout: Ints,
        queue_size: int,
        log: Ints,
        profile: Ints,
        bin_ticks: int,
    ) -> tuple[int, int, int, int]:
        """Events, makespan, time at which the bus is done, and transfers; times in ticks.

        One function, longer than any other here: at each call of a function Numba counts references
        to the arrays that it takes, and with the parts as functions of their own this did 1.2
        million events a second instead of 60 to 100. Only the partitions' parts are functions.

        An SM does one thing after the other, so that it has one command to issue at most: `command`
        at `free_at`. Its returns, a ring, are kept in order of time. `coming` is the tree of
        the SMs, by the end of a block or a step, and then of the partitions.
        """
        lanes = slots * width
        n_actors = n_sm + state.shape[0] if partitioned else n_sm
        one, zero = np.uint64(1), np.uint64(0)
        ready, writing = np.zeros(n_sm, np.uint64), np.zeros(n_sm, np.uint64)
        last, command = np.full(n_sm, lanes - 1), np.full(n_sm, -1)
        free_at, step_at = np.zeros(n_sm, np.int64), np.full(n_sm, NEVER)
        port_free = np.zeros(n_sm, np.int64)
        bits = 1
        while 1 << bits < n_actors:
            bits += 1
        coming, block_end = np.full(2 << bits, NEVER << bits), np.full(n_sm, NEVER)
        ends = np.full((n_sm, slots), NEVER)
        block, todo, left = (
            np.zeros((n_sm, slots), np.int64),
            np.zeros((n_sm, slots), np.int64),
            np.zeros((n_sm, slots), np.int64),
        )
        done = np.zeros((n_sm, lanes), np.int64)
        back_at, back_lane = np.zeros((n_sm, lanes), np.int64), np.zeros((n_sm, lanes), np.int64)
        head, returning = np.zeros(n_sm, np.int64), np.zeros(n_sm, np.int64)
        # Parts of a half-warp's access that are still under way, and the end of the latest so far.
        parts, latest = np.zeros((n_sm, lanes), np.int64), np.zeros((n_sm, lanes), np.int64)
        request = np.zeros(REQUEST_COLUMNS, np.int64)
        served = np.zeros(SERVED_COLUMNS, np.int64)
        queue = np.zeros((state.shape[0], queue_size, REQUEST_COLUMNS), np.int64)
        slot_of = np.zeros(lanes, np.int64)
        whole = zero
        for lane in range(lanes):
            slot_of[lane] = lane // width
            if lane < width:
                whole = whole << one | one
        events = makespan = drained = transfers = next_block = 0
        n_blocks, limit = min(num_blocks, n_tiles), bars.shape[0]
        # Before time 0 blocks end that never were, first one on each SM, then the next: so the
        # first wave of blocks is dealt out.
        for slot in range(slots):
            ends[:, slot] = slot - slots
        block_end[:] = -slots
        for i in range(n_sm):
            enter(coming, bits, i, -slots)
        while True:
            sm, now = coming[1] & (1 << bits) - 1, coming[1] >> bits
            if now == NEVER:
                return events, makespan, drained, transfers
            back, comer = -1, -1
            if partitioned and sm >= n_sm:
                p = sm - n_sm
                opened, waited = state[p, OPENINGS], state[p, WAITED]
                enter(coming, bits, sm, look(p, now, state, queue, par, served, log))
                bin_now = now // bin_ticks
                if bin_now < profile.shape[0]:
                    profile[bin_now, p, P_OPENINGS] += state[p, OPENINGS] - opened
                if served[END] == NEVER:
                    continue
                back, comer = served[END], served[LANE]
                drained = max(drained, back)
                if bin_now < profile.shape[0]:
                    profile[bin_now, p, P_BURSTS] += served[BURSTS]
                    profile[bin_now, p, P_WAITED] += state[p, WAITED] - waited
                    profile[bin_now, p, P_REQUESTS] += 1
                sm = served[SM]
                if events < limit:
                    bars[events, 0], bars[events, 1] = sm, served[BLOCK]
                    bars[events, 2] = comer - slot_of[comer] * width
                    bars[events, 3] = 1 if served[KIND] == READ else 3
                    bars[events, 4], bars[events, 5] = served[ARRIVAL] - latency, back
                events += 1
                if served[KIND] == POSTED:
                    continue
                parts[sm, comer] -= 1
                latest[sm, comer] = max(latest[sm, comer], back)
                if parts[sm, comer] > 0:
                    continue
                back = latest[sm, comer]
            elif block_end[sm] == now:
                # A slot is free: the next block takes it.
                ended = 0
                while ends[sm, ended] != now:
                    ended += 1
                ends[sm, ended], now = NEVER, max(now, 0)
                if next_block < n_blocks:
                    for lane in range(ended * width, (ended + 1) * width):
                        done[sm, lane] = 0
                    block[sm, ended], left[sm, ended] = next_block, width
                    tiles = (n_tiles - next_block + num_blocks - 1) // num_blocks
                    todo[sm, ended] = tiles * items
                    sm_tiles[sm] += tiles
                    ready[sm] |= whole << np.uint64(ended * width)
                    next_block += 1
                    if free_at[sm] <= now:
                        step_at[sm] = now
                soonest = NEVER
                for slot in range(slots):
                    soonest = min(soonest, ends[sm, slot])
                block_end[sm] = soonest
                enter(coming, bits, sm, min(soonest, step_at[sm]))
                continue
            elif command[sm] >= 0 and free_at[sm] <= now:
                # Its transfer is queued at the bus, or at its partitions.
                lane = command[sm]
                command[sm] = -1
                slot, bit = slot_of[lane], one << np.uint64(lane)
                is_write = writing[sm] & bit != zero
                ending = (is_write or not writes) and done[sm, lane] + 1 == todo[sm, slot]
                transfers += 1
                if partitioned:
                    kind = READ
                    if is_write:
                        kind = WRITE if awaited and not ending else POSTED
                    tile = block[sm, slot] + done[sm, lane] // items * num_blocks
                    address = byte_address(
                        tile, done[sm, lane] % items, lane - slot * width, is_write, layout
                    )
                    request[ARRIVAL], request[KIND], request[SM] = now + latency, kind, sm
                    request[LANE], request[BLOCK] = lane, block[sm, slot]
                    n = accept(address, layout[SPAN], commands, request, state, queue, par)
                    while n == 0:
                        queue = enlarged(queue, state)
                        n = accept(address, layout[SPAN], commands, request, state, queue, par)
                    if kind != POSTED:
                        parts[sm, lane], latest[sm, lane] = n, 0
                    final = (address + layout[SPAN] - 1) // par[STRIPE_BYTES]
                    for stripe in range(address // par[STRIPE_BYTES], final + 1):
                        p = n_sm + partition_number(stripe, n_actors - n_sm, par[HASHED])
                        if coming[(1 << bits) + p] >> bits > now + latency:
                            enter(coming, bits, p, now + latency)
                    back = now if kind == POSTED else -1
                else:
                    drained = max(drained, now + latency) + transfer
                    back = now if is_write and not awaited and not ending else drained
                    if events < limit:
                        bars[events, 0], bars[events, 1] = sm, block[sm, slot]
                        bars[events, 2], bars[events, 3] = lane - slot * width, 3 if is_write else 1
                        bars[events, 4], bars[events, 5] = now, drained
                    events += 1
                if writes:
                    writing[sm] ^= bit
                if is_write or not writes:
                    done[sm, lane] += 1
                if ending:
                    end = now if is_write else back
                    makespan = max(makespan, end)
                    left[sm, slot] -= 1
                    if left[sm, slot] == 0:
                        ends[sm, slot] = end
                        sm_ends[sm] = max(sm_ends[sm], end)
                        block_end[sm] = min(block_end[sm], end)
                elif back >= 0:
                    comer = lane
            if comer >= 0:
                if port > 0 and back > now:
                    # Its data cross the port of its SM after those before them.
                    back = max(back, port_free[sm // sm_per_port])
                    port_free[sm // sm_per_port] = back + port
                # It comes back at its time; on one bus that is after all others under way.
                place = head[sm] + returning[sm]
                if place >= lanes:
                    place -= lanes
                returning[sm] += 1
                for _ in range(returning[sm] - 1):
                    before = place - 1 if place > 0 else lanes - 1
                    if back_at[sm, before] <= back:
                        break
                    back_at[sm, place] = back_at[sm, before]
                    back_lane[sm, place] = back_lane[sm, before]
                    place = before
                back_at[sm, place], back_lane[sm, place] = back, comer
                if partitioned and command[sm] >= 0:
                    continue
                if partitioned and back > now:
                    step_at[sm] = min(step_at[sm], back)
                    enter(coming, bits, sm, min(step_at[sm], block_end[sm]))
                    continue
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
                if is_write:
                    free = now + hold * commands
                else:
                    again = items > 1 and done[sm, lane] % items > 0
                    free = now + (step if again else index) + hold * (commands - 1)
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
                step_at[sm] = NEVER
            ready[sm] = can
            enter(coming, bits, sm, min(step_at[sm], block_end[sm]))

    return run
