"""The event simulation of `reference`, compiled, and carried on into partitions and banks.

At the level of one bus it computes the times of `reference.simulate`, a hundred times faster. At
the others the half-warps do the same and requests wait at the partitions of `controller`. What a
run needs in memory does not depend on the size of the problem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

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
    PARTITIONS,
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
from .machine import MAX_LANES

Ints = npt.NDArray[np.int64]

PHASES = ("index", "read", "write", "store")


# Columns of the SMs. An SM does one thing after the other, so that it has one command to issue at
# most: COMMAND, a half-warp or -1, at FREE_AT. READY and WRITING have a bit for each half-warp.
# Its returns, a ring of RETURNING half-warps from HEAD on, are in order of time.
READY, WRITING, LAST, COMMAND, FREE_AT, STEP_AT, BLOCK_END, HEAD, RETURNING = range(9)
# The end of the last access that crossed the port with this number.
PORT_FREE = 9
# What it comes to: tiles, and the end of the last block.
TILES, FINISHED = 10, 11
SM_COLUMNS = 12
# The row behind the SMs counts for all of them.
EVENTS, MAKESPAN, DRAINED, TRANSFERS, NEXT_BLOCK = range(5)

# Columns of half-warps: accesses done, parts of one under way, the end of the latest so far, the
# returns, and the first half-warp of its slot. Such a first one also has what concerns the slot:
# the end of its block, the block, accesses of each half-warp to do, half-warps that are not done.
DONE, PARTS, LATEST, BACK_AT, BACK_LANE, FIRST, ENDS, OWN_BLOCK, TODO, LEFT = range(10)
LANE_COLUMNS = 10

# Numbers of PHASES in bars.
INDEX_BAR, READ_BAR, WRITE_BAR, STORE_BAR = range(4)

F = TypeVar("F", bound=Callable[..., Any])


def inlined(function: F) -> F:
    """Have Numba copy the function into those that call it."""
    compiled: Any = njit(inline="always")
    made: F = compiled(function)
    return made


def loop(function: F) -> F:
    """Compile an event loop; Numba keeps it for the next process.

    It neither allocates nor counts references to arrays (``_nrt``). With the counts of each inlined
    function it did a quarter of the events a second.
    """
    options: dict[str, Any] = {"_nrt": False}
    compiled: Any = njit(error_model="numpy", cache=True, nogil=True, **options)
    made: F = compiled(function)
    return made


class SMProgram(NamedTuple):
    """What the SMs do; times in ticks.

    `n_blocks` blocks of `half_warps` take tiles in turn, `n_blocks` apart, and `items` accesses of
    each; an SM holds `slots` blocks. The address of a half-warp's first access takes `first` of its
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
    first: int
    step: int
    hold: int
    commands: int
    sm_per_port: int
    port: int
    latency: int
    transfer: int
    writes: bool
    writes_awaited: bool


class Memory(NamedTuple):
    """What is behind the commands at the levels of partitions and banks.

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


class Partitions(NamedTuple):
    """A Memory while it runs: its arrays, the requests that wait, the one sent, the one served."""

    parameters: Ints
    state: Ints
    layout: Ints
    log: Ints
    profile: Ints
    bin_ticks: int
    queue: Ints
    request: Ints
    served: Ints


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

    Without `memory` there is one bus. Raises ValueError for an SM of over MAX_LANES half-warps.
    """
    if memory and not program.writes:
        raise ValueError("partitions are simulated with writes only")
    n_lanes = program.slots * program.half_warps
    if n_lanes > MAX_LANES:
        raise ValueError(f"an SM holds {n_lanes} half-warps; at most {MAX_LANES} are simulated")
    sms, lanes = _before_begin(program, n_lanes)
    if memory is None:
        _run_on_bus(program, sms, lanes, _agenda(program, 0), bars)
    else:
        tree = _agenda(program, len(memory.state))
        behind = _partitions(memory)
        while not _run_on_partitions(program, sms, lanes, tree, bars, behind):
            behind = behind._replace(queue=enlarged(behind.queue, behind.state))
    sm_tiles[:] = sms[:-1, TILES]
    sm_ends[:] = sms[:-1, FINISHED]
    return Counts(*sms[-1, :NEXT_BLOCK].tolist())


def _before_begin(program: SMProgram, n_lanes: int) -> tuple[Ints, Ints]:
    """Return the SMs and their half-warps before time 0.

    There blocks end that never were, first one on each SM, then the next: so the first wave of
    blocks is dealt out.
    """
    sms = np.zeros((program.n_sm + 1, SM_COLUMNS), np.int64)
    sms[:-1, LAST] = n_lanes - 1
    sms[:-1, COMMAND] = -1
    sms[:-1, STEP_AT] = NEVER
    sms[:-1, BLOCK_END] = -program.slots
    lanes = np.zeros((program.n_sm, n_lanes, LANE_COLUMNS), np.int64)
    slot_of = np.arange(n_lanes) // program.half_warps
    lanes[:, :, FIRST] = slot_of * program.half_warps
    lanes[:, :, ENDS] = slot_of - program.slots
    return sms, lanes


def _partitions(memory: Memory) -> Partitions:
    n_partitions = len(memory.state)
    return Partitions(
        parameters=memory.parameters,
        state=memory.state,
        layout=memory.layout,
        log=memory.log,
        profile=memory.profile,
        bin_ticks=memory.bin_ticks,
        queue=np.zeros((n_partitions, memory.queue_size, REQUEST_COLUMNS), np.int64),
        request=np.zeros(REQUEST_COLUMNS, np.int64),
        served=np.zeros(SERVED_COLUMNS, np.int64),
    )


def _agenda(program: SMProgram, partitions: int) -> Ints:
    """Return the next events of all actors: the first blocks of the SMs.

    Actors are the SMs, by the end of a block or a step, and then the partitions. It is a tree of
    times, each with the number of its actor behind it, in `bits` bits, a number at place 0. Leaves
    are from 2^bits on, a node's children at twice its number and one more. Every node is the least
    below it, so that the root, at 1, is the next time and actor; of equal times the first actor.
    """
    bits = max(1, (program.n_sm + partitions - 1).bit_length())
    tree = np.full(2 << bits, NEVER << bits, np.int64)
    tree[0] = bits
    for sm in range(program.n_sm):
        tree[(1 << bits) + sm] = -program.slots << bits | sm
    for node in range((1 << bits) - 1, 0, -1):
        tree[node] = min(tree[2 * node], tree[2 * node + 1])
    return tree


# Parts of both loops


@inlined
def enter(tree: Ints, actor: int, time: int) -> None:
    """Have the next event of `actor` at `time`, which must be under 2^(63 - bits).

    A change costs `bits` comparisons, where looking through all actors costs as many as there are.
    """
    bits = tree[0]
    node = (1 << bits) + actor
    least = time << bits | actor
    tree[node] = least
    while node > 1:
        least = min(least, tree[node ^ 1])
        node >>= 1
        tree[node] = least


@inlined
def note(
    sms: Ints, bars: Ints, sm: int, block: int, half_warp: int, phase: int, start: int, end: int
) -> None:
    """Count a bar, and keep it as long as there is room."""
    event = sms[-1, EVENTS]
    if event < bars.shape[0]:
        bars[event, 0] = sm
        bars[event, 1] = block
        bars[event, 2] = half_warp
        bars[event, 3] = phase
        bars[event, 4] = start
        bars[event, 5] = end
    sms[-1, EVENTS] = event + 1


@inlined
def take_block(program: SMProgram, sms: Ints, lanes: Ints, tree: Ints, sm: int, now: int) -> None:
    """Give the slot that is free from `now` on to the next block."""
    width = program.half_warps
    first = 0
    while lanes[sm, first, ENDS] != now:
        first += width
    lanes[sm, first, ENDS] = NEVER
    begin = max(now, 0)
    block = sms[-1, NEXT_BLOCK]
    if block < min(program.n_blocks, program.n_tiles):
        for lane in range(first, first + width):
            lanes[sm, lane, DONE] = 0
            sms[sm, READY] |= 1 << lane
        tiles = (program.n_tiles - block + program.n_blocks - 1) // program.n_blocks
        lanes[sm, first, OWN_BLOCK] = block
        lanes[sm, first, LEFT] = width
        lanes[sm, first, TODO] = tiles * program.items
        sms[sm, TILES] += tiles
        sms[-1, NEXT_BLOCK] = block + 1
        if sms[sm, FREE_AT] <= begin:
            sms[sm, STEP_AT] = begin
    soonest = NEVER
    for slot in range(program.slots):
        soonest = min(soonest, lanes[sm, slot * width, ENDS])
    sms[sm, BLOCK_END] = soonest
    enter(tree, sm, min(soonest, sms[sm, STEP_AT]))


@inlined
def finish_access(
    program: SMProgram,
    sms: Ints,
    lanes: Ints,
    sm: int,
    lane: int,
    is_write: bool,
    ending: bool,
    end: int,
) -> None:
    """Count an access; if it is the last one of its half-warp, `ending`, its block may `end`."""
    if program.writes:
        sms[sm, WRITING] ^= 1 << lane
    if is_write or not program.writes:
        lanes[sm, lane, DONE] += 1
    if ending:
        first = lanes[sm, lane, FIRST]
        sms[-1, MAKESPAN] = max(sms[-1, MAKESPAN], end)
        lanes[sm, first, LEFT] -= 1
        if lanes[sm, first, LEFT] == 0:
            lanes[sm, first, ENDS] = end
            sms[sm, FINISHED] = max(sms[sm, FINISHED], end)
            sms[sm, BLOCK_END] = min(sms[sm, BLOCK_END], end)


@inlined
def come_back(
    program: SMProgram, sms: Ints, lanes: Ints, sm: int, lane: int, now: int, end: int
) -> int:
    """Enter a half-warp whose access has an `end` into the returns; when it comes back."""
    n_lanes = lanes.shape[1]
    back = end
    if program.port > 0 and back > now:
        # Its data cross the port of its SM after those before them.
        port = sm // program.sm_per_port
        back = max(back, sms[port, PORT_FREE])
        sms[port, PORT_FREE] = back + program.port
    # It comes back at its time; on one bus that is after all others under way.
    place = sms[sm, HEAD] + sms[sm, RETURNING]
    if place >= n_lanes:
        place -= n_lanes
    sms[sm, RETURNING] += 1
    for _ in range(sms[sm, RETURNING] - 1):
        before = place - 1 if place > 0 else n_lanes - 1
        if lanes[sm, before, BACK_AT] <= back:
            break
        lanes[sm, place, BACK_AT] = lanes[sm, before, BACK_AT]
        lanes[sm, place, BACK_LANE] = lanes[sm, before, BACK_LANE]
        place = before
    lanes[sm, place, BACK_AT] = back
    lanes[sm, place, BACK_LANE] = lane
    return back


@inlined
def serve(
    program: SMProgram, sms: Ints, lanes: Ints, tree: Ints, bars: Ints, sm: int, now: int
) -> None:
    """Have the first half-warp that can, after the last one served, hold the SM."""
    n_lanes = lanes.shape[1]
    here = sms[sm, HEAD]
    waiting = sms[sm, RETURNING]
    can = sms[sm, READY]
    while waiting > 0 and lanes[sm, here, BACK_AT] <= now:
        can |= 1 << lanes[sm, here, BACK_LANE]
        here = here + 1 if here + 1 < n_lanes else 0
        waiting -= 1
    sms[sm, HEAD] = here
    sms[sm, RETURNING] = waiting
    if can != 0:
        lane = sms[sm, LAST] + 1 if sms[sm, LAST] + 1 < n_lanes else 0
        while can >> lane & 1 == 0:
            lane = lane + 1 if lane + 1 < n_lanes else 0
        can ^= 1 << lane
        hold(program, sms, lanes, bars, sm, lane, now)
    elif waiting > 0:
        sms[sm, STEP_AT] = lanes[sm, here, BACK_AT]
    else:
        sms[sm, STEP_AT] = NEVER
    sms[sm, READY] = can
    enter(tree, sm, min(sms[sm, STEP_AT], sms[sm, BLOCK_END]))


@inlined
def hold(
    program: SMProgram, sms: Ints, lanes: Ints, bars: Ints, sm: int, lane: int, now: int
) -> None:
    """Have the half-warp compute the address of its access and issue its commands."""
    is_write = sms[sm, WRITING] >> lane & 1 == 1
    if is_write:
        free = now + program.hold * program.commands
    else:
        again = program.items > 1 and lanes[sm, lane, DONE] % program.items > 0
        address = program.step if again else program.first
        free = now + address + program.hold * (program.commands - 1)
    sms[sm, LAST] = lane
    sms[sm, COMMAND] = lane
    sms[sm, FREE_AT] = free
    sms[sm, STEP_AT] = free
    first = lanes[sm, lane, FIRST]
    phase = WRITE_BAR if is_write else INDEX_BAR
    note(sms, bars, sm, lanes[sm, first, OWN_BLOCK], lane - first, phase, now, free)


# One bus


@inlined
def cross_bus(
    program: SMProgram,
    sms: Ints,
    lanes: Ints,
    bars: Ints,
    sm: int,
    lane: int,
    now: int,
    is_write: bool,
) -> int:
    """Queue the transfer of an access at the bus; when it has crossed."""
    drained: int = max(sms[-1, DRAINED], now + program.latency) + program.transfer
    sms[-1, DRAINED] = drained
    first = lanes[sm, lane, FIRST]
    phase = STORE_BAR if is_write else READ_BAR
    note(sms, bars, sm, lanes[sm, first, OWN_BLOCK], lane - first, phase, now, drained)
    return drained


@loop
def _run_on_bus(program: SMProgram, sms: Ints, lanes: Ints, tree: Ints, bars: Ints) -> None:
    """Do all events, with one bus behind the SMs."""
    bits = tree[0]
    while True:
        sm = tree[1] & (1 << bits) - 1
        now = tree[1] >> bits
        if now == NEVER:
            return
        if sms[sm, BLOCK_END] == now:
            take_block(program, sms, lanes, tree, sm, now)
            continue
        if sms[sm, COMMAND] >= 0 and sms[sm, FREE_AT] <= now:
            lane = sms[sm, COMMAND]
            sms[sm, COMMAND] = -1
            sms[-1, TRANSFERS] += 1
            is_write = sms[sm, WRITING] >> lane & 1 == 1
            last = lanes[sm, lane, DONE] + 1 == lanes[sm, lanes[sm, lane, FIRST], TODO]
            ending = (is_write or not program.writes) and last
            crossed = cross_bus(program, sms, lanes, bars, sm, lane, now, is_write)
            end = now if is_write else crossed
            finish_access(program, sms, lanes, sm, lane, is_write, ending, end)
            if not ending:
                back = crossed if program.writes_awaited else end
                come_back(program, sms, lanes, sm, lane, now, back)
        serve(program, sms, lanes, tree, bars, sm, now)


# Partitions


@inlined
def make_request(
    program: SMProgram,
    sms: Ints,
    lanes: Ints,
    layout: Ints,
    request: Ints,
    sm: int,
    lane: int,
    now: int,
) -> int:
    """Fill in the request of a half-warp's access; its address.

    A block does not wait for its last writes: these are posted.
    """
    first = lanes[sm, lane, FIRST]
    done = lanes[sm, lane, DONE]
    is_write = sms[sm, WRITING] >> lane & 1 == 1
    kind = READ
    if is_write:
        ending = done + 1 == lanes[sm, first, TODO]
        kind = WRITE if program.writes_awaited and not ending else POSTED
    request[ARRIVAL] = now + program.latency
    request[KIND] = kind
    request[SM] = sm
    request[LANE] = lane
    request[BLOCK] = lanes[sm, first, OWN_BLOCK]
    tile = request[BLOCK] + done // program.items * program.n_blocks
    address: int = byte_address(tile, done % program.items, lane - first, is_write, layout)
    return address


@inlined
def await_parts(lanes: Ints, request: Ints, n: int) -> None:
    """Have the half-warp wait for the `n` parts of its access, if it is awaited."""
    if request[KIND] != POSTED:
        lanes[request[SM], request[LANE], PARTS] = n
        lanes[request[SM], request[LANE], LATEST] = 0


@inlined
def wake_partitions(n_sm: int, tree: Ints, layout: Ints, par: Ints, address: int, at: int) -> None:
    """Have the partitions of an access look at their queues `at` its arrival, or earlier."""
    bits = tree[0]
    final = (address + layout[SPAN] - 1) // par[STRIPE_BYTES]
    for stripe in range(address // par[STRIPE_BYTES], final + 1):
        actor = n_sm + partition_number(stripe, par[PARTITIONS], par[HASHED])
        if tree[(1 << bits) + actor] >> bits > at:
            enter(tree, actor, at)


@inlined
def add_to_profile(
    profile: Ints, bin_now: int, p: int, state: Ints, served: Ints, opened: int, waited: int
) -> None:
    """Add what partition `p` did since it had `opened` rows and requests had `waited`."""
    if bin_now < profile.shape[0]:
        profile[bin_now, p, P_OPENINGS] += state[p, OPENINGS] - opened
        if served[END] != NEVER:
            profile[bin_now, p, P_BURSTS] += served[BURSTS]
            profile[bin_now, p, P_WAITED] += state[p, WAITED] - waited
            profile[bin_now, p, P_REQUESTS] += 1


@inlined
def part_done(program: SMProgram, sms: Ints, lanes: Ints, bars: Ints, served: Ints) -> bool:
    """Count a part that was served; whether it is the last one of an awaited access."""
    sm = served[SM]
    lane = served[LANE]
    end = served[END]
    sms[-1, DRAINED] = max(sms[-1, DRAINED], end)
    half_warp = lane - lanes[sm, lane, FIRST]
    phase = READ_BAR if served[KIND] == READ else STORE_BAR
    begin = served[ARRIVAL] - program.latency
    note(sms, bars, sm, served[BLOCK], half_warp, phase, begin, end)
    is_awaited = served[KIND] != POSTED
    if is_awaited:
        lanes[sm, lane, PARTS] -= 1
        lanes[sm, lane, LATEST] = max(lanes[sm, lane, LATEST], end)
    return bool(is_awaited and lanes[sm, lane, PARTS] == 0)


@loop
def _run_on_partitions(
    program: SMProgram, sms: Ints, lanes: Ints, tree: Ints, bars: Ints, memory: Partitions
) -> bool:
    """Do all events, with partitions behind the SMs; False if larger queues are needed to go on."""
    bits = tree[0]
    par = memory.parameters
    state = memory.state
    layout = memory.layout
    queue = memory.queue
    request = memory.request
    served = memory.served
    while True:
        sm = tree[1] & (1 << bits) - 1
        now = tree[1] >> bits
        if now == NEVER:
            return True
        lane = -1
        back = now
        if sm >= program.n_sm:
            p = sm - program.n_sm
            opened = state[p, OPENINGS]
            waited = state[p, WAITED]
            enter(tree, sm, look(p, now, state, queue, par, served, memory.log))
            bin_now = now // memory.bin_ticks
            add_to_profile(memory.profile, bin_now, p, state, served, opened, waited)
            if served[END] == NEVER or not part_done(program, sms, lanes, bars, served):
                continue
            sm = served[SM]
            lane = served[LANE]
            back = lanes[sm, lane, LATEST]
        elif sms[sm, BLOCK_END] == now:
            take_block(program, sms, lanes, tree, sm, now)
            continue
        elif sms[sm, COMMAND] >= 0 and sms[sm, FREE_AT] <= now:
            issued = sms[sm, COMMAND]
            address = make_request(program, sms, lanes, layout, request, sm, issued, now)
            n = accept(address, layout[SPAN], program.commands, request, state, queue, par)
            if n == 0:
                return False
            await_parts(lanes, request, n)
            sms[sm, COMMAND] = -1
            sms[-1, TRANSFERS] += 1
            wake_partitions(program.n_sm, tree, layout, par, address, request[ARRIVAL])
            is_write = request[KIND] != READ
            todo = lanes[sm, lanes[sm, issued, FIRST], TODO]
            ending = is_write and lanes[sm, issued, DONE] + 1 == todo
            finish_access(program, sms, lanes, sm, issued, is_write, ending, now)
            if request[KIND] == POSTED and not ending:
                lane = issued
        if lane >= 0:
            back = come_back(program, sms, lanes, sm, lane, now, back)
            if sms[sm, COMMAND] >= 0:
                continue
            if back > now:
                sms[sm, STEP_AT] = min(sms[sm, STEP_AT], back)
                enter(tree, sm, min(sms[sm, STEP_AT], sms[sm, BLOCK_END]))
                continue
        serve(program, sms, lanes, tree, bars, sm, now)
