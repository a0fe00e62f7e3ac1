"""The event simulation against charts worked by hand, a naive simulator, and true bounds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from gpushmoo.model.gantt import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    Event,
    Run,
    Workload,
    simulate,
)
from gpushmoo.model.machine import Machine, load_machine
from hypothesis import given, settings
from hypothesis import strategies as st

C1060 = load_machine(Path(__file__).parents[2] / "config" / "devices" / "tesla-c1060.yaml")
FLOAT, DOUBLE = (Workload.square(C1060, 256, size) for size in (4, 8))
READS, COPIES = Chart(), Chart(writes=True)
SLOTTED = Chart(writes=True, slotted=True)


def periods(run: Run, block: int = 0) -> set[Fraction]:
    """Distances between the starts of consecutive tiles of a block."""
    return {b - a for a, b in pairwise(run.tile_starts[block])}


# --- charts of one SM, worked by hand ------------------------------------------------------


def test_float_and_double_tiles_of_the_study() -> None:
    assert Workload(n_tiles=128, half_warps=32, half_warp_bytes=64) == FLOAT
    assert Workload(n_tiles=128, half_warps=32, half_warp_bytes=128) == DOUBLE


def test_reads_of_one_sm_are_index_bound_plus_one_latency() -> None:
    run = simulate(C1060, FLOAT, 1, assumptions=FIRST_ASSUMPTIONS)
    assert run.makespan_cycles == 128 * 32 * 20 + 401
    assert periods(run) == {32 * 20}
    assert run.bytes_moved == 256 * 256 * 4


@pytest.mark.parametrize(
    ("assumptions", "slots"), [(FIRST_ASSUMPTIONS, 55), (CORRECTED_ASSUMPTIONS, 46)]
)
def test_every_tile_of_a_slotted_copy_takes_the_period_of_the_chart(
    assumptions: Assumptions, slots: int
) -> None:
    run = simulate(C1060, FLOAT, 1, chart=SLOTTED, assumptions=assumptions)
    unit = assumptions.index_cycles
    assert len(run.tile_starts[0]) == 128
    assert periods(run) == {slots * unit}
    assert run.makespan_cycles == 128 * slots * unit
    assert run.bytes_moved == 2 * 256 * 256 * 4


def test_slotted_chart_bar_by_bar() -> None:
    """The turn of hw31's write before hw0's second index, and the slots around it."""
    run = simulate(C1060, FLOAT, 1, chart=SLOTTED, assumptions=FIRST_ASSUMPTIONS, trace_limit=10**6)
    bars: dict[tuple[int, str], list[Event]] = {}
    for event in run.events:
        bars.setdefault((event.half_warp, event.phase), []).append(event)

    def slots(half_warp: int, phase: str, nth: int = 0) -> tuple[Fraction, Fraction]:
        event = bars[half_warp, phase][nth]
        return event.start / 20, event.end / 20

    assert slots(0, "index") == (0, 1)
    assert slots(0, "read") == (2, 23)  # the command fills slot 1, data 21 slots after it
    assert slots(0, "write") == (32, 33)
    assert slots(9, "write") == (32, 33)  # ten writes are ready and share the slot
    assert slots(10, "write") == (33, 34)
    assert slots(0, "store") == (33, 54)
    assert slots(31, "index") == (31, 32)
    assert slots(31, "read") == (33, 54)
    assert slots(31, "write") == (54, 55)
    assert slots(0, "index", nth=1) == (55, 56)


def test_a_slot_holds_no_more_writes_than_cycles() -> None:
    short = Assumptions(index_cycles=2, latency_cycles=10, beat_cycles=Fraction(1, 8))
    load = Workload(n_tiles=1, half_warps=8, half_warp_bytes=64)
    run = simulate(C1060, load, 1, chart=SLOTTED, assumptions=short, trace_limit=100)
    # Commands of slots 1..8, data 6 slots later: hw0 and hw1 are back at boundary 8 and 9.
    writes = [(e.half_warp, e.start / 2) for e in run.events if e.phase == "write"]
    assert writes[:2] == [(0, 8), (1, 9)]
    crowded = replace(short, latency_cycles=40)
    late = simulate(C1060, replace(load, half_warp_bytes=64 * 64), 1, chart=SLOTTED,
                    assumptions=crowded, trace_limit=100)  # fmt: skip
    per_slot: dict[Fraction, int] = {}
    for event in late.events:
        if event.phase == "write":
            per_slot[event.start] = per_slot.get(event.start, 0) + 1
    assert max(per_slot.values()) <= 2


def test_turns_go_by_cyclic_order_not_by_time_of_return() -> None:
    """Two half-warps back during another's index: the one after the last served goes first."""
    run = simulate(C1060, FLOAT, 1, assumptions=FIRST_ASSUMPTIONS, trace_limit=10**6)
    order = [e.half_warp for e in run.events if e.phase == "index"]
    assert order == list(range(32)) * 128


# --- several SMs ---------------------------------------------------------------------------


@pytest.mark.parametrize(("num_partition", "tiles"), [(16, 8), (30, 5), (32, 8)])
def test_critical_path(num_partition: int, tiles: int) -> None:
    run = simulate(C1060, DOUBLE, num_partition, chart=COPIES)
    assert run.critical_path_tiles == tiles
    assert sum(run.tiles_per_sm) == 128


def test_blocks_beyond_the_sms_share_the_first_ones() -> None:
    run = simulate(C1060, DOUBLE, 32, chart=COPIES)
    assert run.tiles_per_sm == (8, 8, *[4] * 28)
    assert run.sm_of_block[30:] == (0, 1)


def test_a_block_beyond_all_slots_waits_for_the_first_one_to_end() -> None:
    load = replace(FLOAT, n_tiles=61)
    run = simulate(C1060, load, 61, chart=COPIES, trace_limit=10**6)
    ends: dict[int, Fraction] = {}
    for event in run.events:
        if event.phase == "write":
            ends[event.block] = max(ends.get(event.block, Fraction(0)), event.end)
    others = [end for block, end in ends.items() if block != 60]
    assert len(others) == 60
    assert min(others) <= run.tile_starts[60][0] <= min(others) + C1060.index_cycles
    assert run.sm_of_block[60] == run.sm_of_block[min(ends, key=lambda b: (ends[b], b))]
    full = simulate(C1060, replace(load, n_tiles=60), 60, chart=COPIES)
    assert run.makespan_cycles > full.makespan_cycles


def test_blocks_without_tiles_run_nowhere() -> None:
    run = simulate(C1060, replace(FLOAT, n_tiles=3), 5)
    assert run.tiles_per_sm[:4] == (1, 1, 1, 0)
    assert run.sm_of_block == (0, 1, 2, None, None)
    assert run.tile_starts[3:] == ((), ())


@pytest.mark.parametrize("itemsize", [4, 8])
def test_tile_period_does_not_grow_while_the_burst_is_shorter_than_the_index(itemsize: int) -> None:
    load = Workload.square(C1060, 256, itemsize)
    for num_partition in (1, 2, 4, 8):
        run = simulate(C1060, load, num_partition, assumptions=FIRST_ASSUMPTIONS)
        assert {p for b in range(num_partition) for p in periods(run, b)} == {640}


def test_doubling_law() -> None:
    """1024² elements, so that the one final latency is small beside the regular part."""
    gbs = {
        (itemsize, blocks): simulate(
            C1060, Workload.square(C1060, 1024, itemsize), blocks, assumptions=FIRST_ASSUMPTIONS
        ).bandwidth_gbs
        for itemsize in (4, 8)
        for blocks in (1, 2, 4, 8)
    }
    for blocks in (1, 2, 4):
        for itemsize in (4, 8):
            ratio = gbs[itemsize, 2 * blocks] / gbs[itemsize, blocks]
            assert ratio == pytest.approx(2, rel=0.01)
    for blocks in (1, 2, 4, 8):
        assert gbs[8, blocks] / gbs[4, blocks] == pytest.approx(2, rel=0.01)


def test_doubling_law_ends_where_the_burst_outlasts_the_index() -> None:
    """16 SMs × 2 cycles exceed 20 cycles for double; 16 × 1 do not for float."""
    load = Workload.square(C1060, 1024, 8)
    wide = [
        simulate(C1060, load, blocks, assumptions=FIRST_ASSUMPTIONS).bandwidth_gbs
        for blocks in (8, 16)
    ]
    assert wide[1] / wide[0] == pytest.approx(20 / 16, rel=0.01)
    narrow = [
        simulate(
            C1060, Workload.square(C1060, 1024, 4), blocks, assumptions=FIRST_ASSUMPTIONS
        ).bandwidth_gbs
        for blocks in (8, 16)
    ]
    assert narrow[1] / narrow[0] == pytest.approx(2, rel=0.01)


def test_bandwidth_is_bytes_over_time() -> None:
    run = simulate(C1060, FLOAT, 1, assumptions=FIRST_ASSUMPTIONS)
    seconds = 82321 / 1.3e9
    assert run.bandwidth_gbs == pytest.approx(262144 / seconds / 1e9, rel=1e-12)
    assert run.drained_bandwidth_gbs == run.bandwidth_gbs  # nothing is posted in a read


# --- refusals ------------------------------------------------------------------------------


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="num_partition"):
        simulate(C1060, FLOAT, 0)
    with pytest.raises(ValueError, match="1040 threads does not fit an SM of 1024"):
        simulate(C1060, replace(FLOAT, half_warps=65), 1)
    with pytest.raises(ValueError, match="n_tiles"):
        Workload(0, 32, 64)
    with pytest.raises(ValueError, match="index_cycles"):
        Assumptions(0, 400, Fraction(1))
    with pytest.raises(ValueError, match="do not split"):
        Workload.square(C1060, 250, 4)
    with pytest.raises(ValueError, match="do not split"):
        Workload.square(C1060, 256, 12)  # float3: 256 bytes hold no whole number of elements


# --- properties on small machines ----------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[Machine, Workload, int, Assumptions]:
    """A small machine of whole-cycle durations, a workload, and a number of blocks."""
    half_warps = draw(st.integers(1, 5))
    slots = draw(st.integers(1, 2))
    machine = replace(
        C1060, n_sm=draw(st.integers(1, 3)), max_threads_per_sm=16 * half_warps * slots
    )
    load = Workload(draw(st.integers(1, 12)), half_warps, 64 * draw(st.integers(1, 2)))
    durations = Assumptions(
        draw(st.integers(1, 6)), draw(st.integers(2, 25)), Fraction(draw(st.integers(1, 4)))
    )
    return machine, load, draw(st.integers(1, 9)), durations


charts = st.builds(Chart, writes=st.booleans(), slotted=st.booleans())


def naive(
    machine: Machine, load: Workload, num_partition: int, writes: bool, durations: Assumptions
) -> tuple[int, int]:
    """Makespan and drain time of a cycle-exact chart, found by looking at every single cycle.

    Shares no idea with the event simulation but the rules: the bus is a queue from which one
    transfer is taken whenever it is idle, and half-warps are plain records in a list.
    """
    transfer = int(durations.beat_cycles) * load.half_warp_bytes // 64
    slots = machine.max_threads_per_sm // (16 * load.half_warps)
    waiting = [list(range(b, load.n_tiles, num_partition)) for b in range(num_partition)]
    waiting = [tiles for tiles in waiting if tiles]
    # A half-warp: [tiles to do, state]; states: idle, index, asked, got, write, sent.
    sms = [[[0, "idle"] for _ in range(slots * load.half_warps)] for _ in range(machine.n_sm)]
    serving: list[tuple[int, int] | None] = [None] * machine.n_sm  # (lane, end)
    turn = [0] * machine.n_sm
    bus: list[tuple[int, int, int]] = []  # (earliest start, SM, lane)
    on_bus: tuple[int, int, int] | None = None  # (end, SM, lane)
    makespan = drained = 0

    def fill(n: int, slot: int) -> None:
        if waiting:
            for lane in range(slot * load.half_warps, (slot + 1) * load.half_warps):
                sms[n][lane] = [len(waiting[0]), "idle"]
            waiting.pop(0)

    def free(n: int) -> None:
        for slot in range(slots):
            part = sms[n][slot * load.half_warps : (slot + 1) * load.half_warps]
            if not any(hw[0] for hw in part):
                fill(n, slot)

    def serve(n: int, now: int) -> None:
        lanes = range(len(sms[n]))
        for lane in sorted(lanes, key=lambda i: (i - turn[n]) % len(lanes)):
            hw = sms[n][lane]
            if hw[0] and hw[1] in ("idle", "got"):
                hold = durations.index_cycles if hw[1] == "idle" else 1
                hw[1] = "index" if hw[1] == "idle" else "write"
                serving[n], turn[n] = (lane, now + hold), lane + 1
                return

    for slot in range(slots):
        for n in range(machine.n_sm):
            fill(n, slot)
    now = 0
    while any(hw[0] for sm in sms for hw in sm) or bus or on_bus:
        if on_bus and on_bus[0] == now:
            hw, drained = sms[on_bus[1]][on_bus[2]], now
            if hw[1] == "asked" and not writes:
                hw[0] -= 1
                makespan = max(makespan, now)
            hw[1] = "got" if hw[1] == "asked" and writes else "idle"
            on_bus = None
        for n in range(machine.n_sm):
            if not writes:
                free(n)
            current = serving[n]
            if current and current[1] == now:
                hw = sms[n][current[0]]
                bus.append((now + durations.latency_cycles, n, current[0]))
                serving[n] = None
                if hw[1] == "write":
                    hw[0] -= 1
                    makespan = max(makespan, now)
                hw[1] = "asked" if hw[1] == "index" else "sent"
            if serving[n] is None:
                serve(n, now)
            free(n)
            if serving[n] is None:
                serve(n, now)
        if on_bus is None and bus and bus[0][0] <= now:
            on_bus = (now + transfer, *bus.pop(0)[1:])
        now += 1
    return makespan, drained


@settings(max_examples=400, deadline=None)
@given(cases(), st.booleans())
def test_agrees_with_the_naive_simulator(
    case: tuple[Machine, Workload, int, Assumptions], writes: bool
) -> None:
    machine, load, num_partition, durations = case
    run = simulate(machine, load, num_partition, chart=Chart(writes=writes), assumptions=durations)
    expected = naive(machine, load, num_partition, writes, durations)
    assert (run.makespan_cycles, run.drained_cycles) == expected


@settings(deadline=None)
@given(cases(), charts)
def test_work_is_conserved_and_runs_repeat(
    case: tuple[Machine, Workload, int, Assumptions], chart: Chart
) -> None:
    machine, load, num_partition, durations = case
    runs = [
        simulate(machine, load, num_partition, chart=chart, assumptions=durations, trace_limit=999)
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    run = runs[0]
    assert sum(run.tiles_per_sm) == load.n_tiles == sum(map(len, run.tile_starts))
    phases = [e.phase for e in run.events]
    n = load.n_tiles * load.half_warps
    for phase in ("index", "read", "write", "store"):
        expected = n if chart.writes or phase in ("index", "read") else 0
        assert phases.count(phase) == expected


@settings(deadline=None)
@given(cases(), charts)
def test_makespan_respects_every_lower_bound(
    case: tuple[Machine, Workload, int, Assumptions], chart: Chart
) -> None:
    machine, load, num_partition, durations = case
    run = simulate(machine, load, num_partition, chart=chart, assumptions=durations)
    transfer = durations.beat_cycles * (load.half_warp_bytes // 64)
    reads = load.n_tiles * load.half_warps * transfer
    assert run.bus_busy_cycles == (2 if chart.writes else 1) * reads
    first_wait = durations.index_cycles + durations.latency_cycles
    assert run.makespan_cycles >= first_wait + reads
    assert run.drained_cycles >= first_wait + run.bus_busy_cycles
    # The busiest SM computes all its indices, then waits at least for the last data.
    own = run.critical_path_tiles * load.half_warps * durations.index_cycles
    assert run.makespan_cycles >= own + durations.latency_cycles + transfer
    # A half-warp does its tiles one after the other.
    alone = durations.index_cycles + durations.latency_cycles + transfer
    assert run.makespan_cycles >= max(map(len, run.tile_starts)) * alone


@settings(deadline=None)
@given(cases(), charts)
def test_an_sm_does_one_thing_at_a_time(
    case: tuple[Machine, Workload, int, Assumptions], chart: Chart
) -> None:
    machine, load, num_partition, durations = case
    run = simulate(
        machine, load, num_partition, chart=chart, assumptions=durations, trace_limit=10**6
    )
    for n in range(machine.n_sm):
        held = [(e.start, e.end, e.phase) for e in run.events if e.sm == n]
        held = sorted({bar for bar in held if bar[2] in ("index", "write")})
        assert all(a[1] <= b[0] for a, b in pairwise(held))
    if chart.slotted:
        unit = durations.index_cycles
        assert all(t % unit == 0 for e in run.events for t in (e.start, e.end))


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 32), st.integers(1, 40), st.integers(2, 500), st.data())
def test_closed_form_of_one_sm_reading(
    tiles: int, half_warps: int, index: int, latency: int, data: st.DataObject
) -> None:
    """The turn of a half-warp comes round after all indices, or when its own data are back."""
    transfer = data.draw(st.integers(1, index))  # a longer one would queue at the bus
    run = simulate(
        C1060,
        Workload(tiles, half_warps, 64),
        1,
        assumptions=Assumptions(index, latency, Fraction(transfer)),
    )
    all_indices = half_warps * index
    period = max(all_indices, index + latency + transfer)
    assert run.makespan_cycles == (tiles - 1) * period + all_indices + latency + transfer


@settings(deadline=None)
@given(cases(), charts, st.integers(2, 9))
def test_time_scales_with_the_unit(
    case: tuple[Machine, Workload, int, Assumptions], chart: Chart, eighths: int
) -> None:
    """Fractions of a cycle are exact: refining the tick leaves a whole-cycle run unchanged."""
    machine, load, num_partition, durations = case
    plain = simulate(machine, load, num_partition, chart=chart, assumptions=durations)
    nudged = replace(durations, beat_cycles=durations.beat_cycles + Fraction(1, 10**eighths))
    later = simulate(machine, load, num_partition, chart=chart, assumptions=nudged)
    transfers = plain.bus_busy_cycles / durations.beat_cycles
    assert later.bus_busy_cycles - plain.bus_busy_cycles == transfers * Fraction(1, 10**eighths)
