"""Compiled controllers of memory partitions: a queue each, and banks of rows behind it.

Everything is a row of 64-bit integers, times in ticks, because the event loop of `compiled` calls
these functions some ten million times a second. The columns are named below.
"""
# Elements of arrays have no narrower type for mypy than Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]

# Later than any event; with the number of an actor behind it, it still fits into an integer.
NEVER = 2**50
LONG_AGO = -(2**40)

# Parameters of the machine. BANKS is 0 where rows do not count.
(
    PARTITIONS,
    STRIPE_BYTES,
    HASHED,
    TICKS_PER_BURST,
    BURST_BYTES,
    BANKS,
    PAGE_BYTES,
    T_RCD,
    T_RP,
    T_RAS,
    T_RC,
    T_RRD,
    T_CL,
    T_WL,
    T_WR,
    T_CDLR,
    CHOOSE_FROM,
    OPEN_AHEAD,
) = range(18)
N_PARAMETERS = 18

# State of a partition; from FIRST_BANK on, BANK_COLUMNS for each bank.
(
    HEAD,
    LENGTH,
    FREE_AT,  # of the data pins
    LAST_OPENED,
    LAST_WRITTEN,  # end of the data of the last write
    REQUESTS,
    OPENINGS,
    WAITED,
    LONGEST,
) = range(9)
FIRST_BANK = 9
ROW, OPENED, READABLE, COLUMN_END, WRITTEN = range(5)
BANK_COLUMNS = 5

# A request of one partition; queues are rings, a power of two long. POSTED ones nobody waits for.
ARRIVAL, REQUEST_ROW, BANK, BURSTS, KIND, SM, LANE, BLOCK = range(8)
REQUEST_COLUMNS = 8
READ, WRITE, POSTED = range(3)

# What `look` leaves behind of a request that it served; END also says whether there is one.
END, STARTED = 8, 9
SERVED_COLUMNS = 10

# Commands in a log of (time, partition, bank, command, row).
OPEN, CLOSE, COLUMN_READ, COLUMN_WRITE = range(4)
LOG_COLUMNS = 5

# Columns of a profile over time, for each partition.
P_BURSTS, P_WAITED, P_REQUESTS, P_OPENINGS = range(4)
PROFILE_COLUMNS = 4

# Addresses of half-warps in bytes: an array's row, a tile's row and a half-warp's part; rows of a
# tile and between two items of a thread; adjacent tiles; the output's beginning.
PITCH, TILE_PITCH, SPAN, TILE_ROWS, ITEM_ROWS, TILES_X, OUT = range(7)


def fresh_state(partitions: int, banks: int) -> Ints:
    """State of partitions that have not seen a request: the rows of all banks are closed."""
    state = np.zeros((partitions, FIRST_BANK + BANK_COLUMNS * banks), np.int64)
    state[:, LAST_OPENED] = LONG_AGO
    state[:, LAST_WRITTEN] = LONG_AGO
    state[:, FIRST_BANK:] = LONG_AGO
    state[:, FIRST_BANK + ROW :: BANK_COLUMNS] = -1
    return state


@njit(error_model="numpy", cache=True, nogil=True)
def byte_address(tile: int, item: int, half_warp: int, is_write: bool, layout: Ints) -> int:
    """First byte of a half-warp's part of a tile, from the beginning of the input."""
    tile_y = tile // layout[TILES_X]
    offset = half_warp * layout[SPAN]
    row = offset // layout[TILE_PITCH]
    y = tile_y * layout[TILE_ROWS] + item * layout[ITEM_ROWS] + row
    x = (tile - tile_y * layout[TILES_X]) * layout[TILE_PITCH] + offset - row * layout[TILE_PITCH]
    return y * layout[PITCH] + x + (layout[OUT] if is_write else 0)


@njit(error_model="numpy", cache=True, nogil=True)
def partition_number(stripe: int, partitions: int, hashed: int) -> int:
    """The partition of a stretch of partition_bytes: in turn, or spread by its number's digits."""
    if hashed == 0 or partitions == 1:
        return stripe % partitions
    total = 0
    rest = stripe
    while rest > 0:
        total += rest % partitions
        rest //= partitions
    return total % partitions


@njit(error_model="numpy", cache=True, nogil=True)
def accept(
    address: int, n_bytes: int, times: int, request: Ints, state: Ints, queue: Ints, par: Ints
) -> int:
    """Queue the parts of a request `times` over; return their number, or 0 if a queue is full.

    `request` has the values that all parts share. Each part gets its row, bank and bursts.
    """
    mask, stripe_bytes, burst = queue.shape[1] - 1, par[STRIPE_BYTES], par[BURST_BYTES]
    n_partitions = par[PARTITIONS]
    first, last = address // stripe_bytes, (address + n_bytes - 1) // stripe_bytes
    for stripe in range(first, last + 1):
        p = partition_number(stripe, n_partitions, par[HASHED])
        if state[p, LENGTH] + times * (last - first + 1) > mask + 1:
            return 0
    for _ in range(times):
        for stripe in range(first, last + 1):
            p = partition_number(stripe, n_partitions, par[HASHED])
            low = max(address, stripe * stripe_bytes)
            high = min(address + n_bytes, (stripe + 1) * stripe_bytes)
            bursts = (high + burst - 1) // burst - low // burst
            own = stripe // n_partitions * stripe_bytes + low % stripe_bytes
            place = (state[p, HEAD] + state[p, LENGTH]) & mask
            for column in range(REQUEST_COLUMNS):
                queue[p, place, column] = request[column]
            queue[p, place, BURSTS] = bursts
            if par[BANKS] > 0:
                page = own // par[PAGE_BYTES]
                queue[p, place, BANK] = page % par[BANKS]
                queue[p, place, REQUEST_ROW] = page // par[BANKS]
            state[p, LENGTH] += 1
            state[p, LONGEST] = max(state[p, LONGEST], state[p, LENGTH])
    return times * (last - first + 1)


@njit(error_model="numpy", cache=True, nogil=True)
def _open_rows(
    p: int, now: int, waiting: int, state: Ints, queue: Ints, par: Ints, log: Ints
) -> int:
    """Open rows for waiting requests, in order; when to look for the next one.

    A bank is left alone while a request that may still be served needs the row it has open.
    """
    mask = queue.shape[1] - 1
    head = state[p, HEAD]
    again = NEVER
    busy = 0
    for i in range(waiting):
        k = (head + i) & mask
        if (
            i < par[CHOOSE_FROM]
            and state[p, FIRST_BANK + BANK_COLUMNS * queue[p, k, BANK]] == queue[p, k, REQUEST_ROW]
        ):
            busy |= 1 << queue[p, k, BANK]
    for i in range(waiting):
        k = (head + i) & mask
        if busy >> queue[p, k, BANK] & 1:
            continue
        busy |= 1 << queue[p, k, BANK]
        bank = FIRST_BANK + BANK_COLUMNS * queue[p, k, BANK]
        if state[p, bank + ROW] == queue[p, k, REQUEST_ROW]:
            continue
        opened = max(now, state[p, LAST_OPENED] + par[T_RRD])
        start = opened
        if state[p, bank + ROW] >= 0:
            start = max(
                max(now, state[p, bank + OPENED] + par[T_RAS]),
                max(state[p, bank + COLUMN_END], state[p, bank + WRITTEN] + par[T_WR]),
            )
            opened = max(max(opened, start + par[T_RP]), state[p, bank + OPENED] + par[T_RC])
        if start > now:
            again = min(again, start)
            continue
        if state[p, bank + ROW] >= 0:
            _note(log, start, p, queue[p, k, BANK], CLOSE, state[p, bank + ROW])
        _note(log, opened, p, queue[p, k, BANK], OPEN, queue[p, k, REQUEST_ROW])
        state[p, bank + ROW], state[p, bank + OPENED] = queue[p, k, REQUEST_ROW], opened
        state[p, bank + READABLE] = opened + par[T_RCD]
        state[p, LAST_OPENED] = opened
        state[p, OPENINGS] += 1
    return again


@njit(error_model="numpy", cache=True, nogil=True)
def _note(log: Ints, time: int, p: int, bank: int, command: int, row: int) -> None:
    """Append to the log, whose first line counts."""
    place = log[0, 0] + 1
    if place < log.shape[0]:
        log[place, 0], log[place, 1], log[place, 2] = time, p, bank
        log[place, 3], log[place, 4] = command, row
        log[0, 0] = place


@njit(error_model="numpy", cache=True, nogil=True)
def _choose(p: int, now: int, waiting: int, state: Ints, queue: Ints, par: Ints) -> tuple[int, int]:
    """Which of the waiting requests can be served first, and when; (-1, NEVER) if none can."""
    mask = queue.shape[1] - 1
    head = state[p, HEAD]
    best = -1
    best_at = NEVER
    for i in range(min(waiting, par[CHOOSE_FROM])):
        k = (head + i) & mask
        bank = FIRST_BANK + BANK_COLUMNS * queue[p, k, BANK]
        if state[p, bank + ROW] != queue[p, k, REQUEST_ROW]:
            continue
        at = max(now, state[p, bank + READABLE])
        if queue[p, k, KIND] == READ:
            at = max(at, max(state[p, FREE_AT] - par[T_CL], state[p, LAST_WRITTEN] + par[T_CDLR]))
        else:
            at = max(at, state[p, FREE_AT] - par[T_WL])
        if at < best_at:
            best, best_at = i, at
    return best, best_at


@njit(error_model="numpy", cache=True, nogil=True)
def look(p: int, now: int, state: Ints, queue: Ints, par: Ints, served: Ints, log: Ints) -> int:
    """Open rows and serve at most one request of partition `p`; return when to look again.

    `served` gets the request's columns, END and STARTED. Without a request, END is NEVER.
    """
    mask = queue.shape[1] - 1
    head = state[p, HEAD]
    length = state[p, LENGTH]
    served[END] = NEVER
    if length == 0:
        return NEVER
    banks = par[BANKS] > 0
    reach = min(length, par[OPEN_AHEAD]) if banks else 1
    waiting = 0
    while waiting < reach and queue[p, (head + waiting) & mask, ARRIVAL] <= now:
        waiting += 1
    again = queue[p, (head + waiting) & mask, ARRIVAL] if waiting < reach else NEVER
    if waiting == 0:
        return again
    place = 0
    at = max(now, state[p, FREE_AT])
    lead = 0
    if banks:
        again = min(again, _open_rows(p, now, waiting, state, queue, par, log))
        place, at = _choose(p, now, waiting, state, queue, par)
    if at > now:
        return min(again, at)
    k = (head + place) & mask
    duration = queue[p, k, BURSTS] * par[TICKS_PER_BURST]
    if banks:
        lead = par[T_CL] if queue[p, k, KIND] == READ else par[T_WL]
        bank = FIRST_BANK + BANK_COLUMNS * queue[p, k, BANK]
        state[p, bank + COLUMN_END] = now + duration
        _note(
            log,
            now,
            p,
            queue[p, k, BANK],
            COLUMN_READ if queue[p, k, KIND] == READ else COLUMN_WRITE,
            queue[p, k, BURSTS],
        )
    start = now + lead
    state[p, FREE_AT] = start + duration
    if queue[p, k, KIND] != READ:
        state[p, LAST_WRITTEN] = start + duration
        if banks:
            state[p, bank + WRITTEN] = start + duration
    for column in range(REQUEST_COLUMNS):
        served[column] = queue[p, k, column]
    served[STARTED] = start
    served[END] = start + duration
    state[p, REQUESTS] += 1
    state[p, WAITED] += start - queue[p, k, ARRIVAL]
    # Those before it move up by one: they are at most CHOOSE_FROM.
    for i in range(place, 0, -1):
        for column in range(REQUEST_COLUMNS):
            queue[p, (head + i) & mask, column] = queue[p, (head + i - 1) & mask, column]
    state[p, HEAD] = (head + 1) & mask
    state[p, LENGTH] -= 1
    return now + duration if state[p, LENGTH] > 0 else NEVER


@njit(error_model="numpy", cache=True, nogil=True)
def enlarged(queue: Ints, state: Ints) -> Ints:
    """Move all requests to queues of twice the size."""
    n, size, columns = queue.shape
    mask = size - 1
    larger = np.zeros((n, 2 * size, columns), np.int64)
    for p in range(n):
        for i in range(state[p, LENGTH]):
            larger[p, i] = queue[p, (state[p, HEAD] + i) & mask]
        state[p, HEAD] = 0
    return larger
