"""The event simulation on small random machines: a naive simulator, invariants, true bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tesla_c1060.simulation.machine import Machine
from tesla_c1060.simulation.reference import Assumptions, Chart, Run, TileCopy, simulate
from test_machine import C1060


@st.composite
def cases(draw: st.DrawFn) -> tuple[Machine, TileCopy, int, Assumptions]:
    """A small machine of whole-cycle durations, a workload, and a number of blocks."""
    half_warps = draw(st.integers(1, 5))
    slots = draw(st.integers(1, 2))
    machine = replace(
        C1060, n_sm=draw(st.integers(1, 3)), max_threads_per_sm=16 * half_warps * slots
    )
    load = TileCopy(draw(st.integers(1, 12)), half_warps, 64 * draw(st.integers(1, 2)))
    durations = Assumptions(
        draw(st.integers(1, 6)), draw(st.integers(2, 25)), Fraction(draw(st.integers(1, 4)))
    )
    return machine, load, draw(st.integers(1, 9)), durations


charts = st.builds(Chart, writes=st.booleans(), slotted=st.booleans())


@dataclass
class _HalfWarp:
    to_do: int  # tiles
    state: str = "idle"  # then index, asked, got, write, sent, and idle again


def naive(
    machine: Machine, load: TileCopy, num_partition: int, writes: bool, durations: Assumptions
) -> tuple[Fraction | int, Fraction | int]:
    """Makespan and drain time of a cycle-exact chart, found by looking at every single cycle.

    Shares no idea with the event simulation but the rules: the bus is a queue from which one
    transfer is taken whenever it is idle, and half-warps are plain records in a list.
    """
    transfer = int(durations.beat_cycles) * load.half_warp_bytes // 64
    slots = machine.max_threads_per_sm // (16 * load.half_warps)
    waiting = [list(range(b, load.n_tiles, num_partition)) for b in range(num_partition)]
    waiting = [tiles for tiles in waiting if tiles]
    sms = [[_HalfWarp(0) for _ in range(slots * load.half_warps)] for _ in range(machine.n_sm)]
    serving: list[tuple[int, int] | None] = [None] * machine.n_sm  # (lane, end)
    turn = [0] * machine.n_sm
    bus: list[tuple[int, _HalfWarp]] = []  # (earliest start, whose transfer)
    on_bus: tuple[int, _HalfWarp] | None = None  # (end, whose transfer)
    makespan = drained = 0

    def fill(n: int, slot: int) -> None:
        if waiting:
            for lane in range(slot * load.half_warps, (slot + 1) * load.half_warps):
                sms[n][lane] = _HalfWarp(len(waiting[0]))
            waiting.pop(0)

    def free(n: int) -> None:
        for slot in range(slots):
            part = sms[n][slot * load.half_warps : (slot + 1) * load.half_warps]
            if not any(hw.to_do for hw in part):
                fill(n, slot)

    def serve(n: int, now: int) -> None:
        lanes = range(len(sms[n]))
        for lane in sorted(lanes, key=lambda i: (i - turn[n]) % len(lanes)):
            hw = sms[n][lane]
            if hw.to_do and hw.state in ("idle", "got"):
                hold = durations.index_cycles if hw.state == "idle" else 1
                hw.state = "index" if hw.state == "idle" else "write"
                serving[n], turn[n] = (lane, now + hold), lane + 1
                return

    for slot in range(slots):
        for n in range(machine.n_sm):
            fill(n, slot)
    now = 0
    while any(hw.to_do for sm in sms for hw in sm) or bus or on_bus:
        if on_bus and on_bus[0] == now:
            hw, drained = on_bus[1], now
            if hw.state == "asked" and not writes:
                hw.to_do -= 1
                makespan = max(makespan, now)
            hw.state = "got" if hw.state == "asked" and writes else "idle"
            on_bus = None
        for n in range(machine.n_sm):
            if not writes:
                free(n)
            current = serving[n]
            if current and current[1] == now:
                hw = sms[n][current[0]]
                bus.append((now + durations.latency_cycles, hw))
                serving[n] = None
                if hw.state == "write":
                    hw.to_do -= 1
                    makespan = max(makespan, now)
                hw.state = "asked" if hw.state == "index" else "sent"
            if serving[n] is None:
                serve(n, now)
            free(n)
            if serving[n] is None:
                serve(n, now)
        if on_bus is None and bus and bus[0][0] <= now:
            on_bus = (now + transfer, bus.pop(0)[1])
        now += 1
    return makespan, drained


@settings(max_examples=examples(400))
@given(cases(), st.booleans())
def test_agrees_with_the_naive_simulator(
    case: tuple[Machine, TileCopy, int, Assumptions], writes: bool
) -> None:
    machine, load, num_partition, durations = case
    run = simulate(machine, load, num_partition, chart=Chart(writes=writes), assumptions=durations)
    expected = naive(machine, load, num_partition, writes, durations)
    assert (run.makespan_cycles, run.drained_cycles) == expected


@given(cases(), charts)
def test_work_is_conserved_bounded_from_below_and_done_in_turn(
    case: tuple[Machine, TileCopy, int, Assumptions], chart: Chart
) -> None:
    machine, load, num_partition, durations = case
    run, again = (
        simulate(
            machine, load, num_partition, chart=chart, assumptions=durations, trace_limit=10**6
        )
        for _ in range(2)
    )
    assert run == again
    assert sum(run.tiles_per_sm) == load.n_tiles == sum(map(len, run.tile_starts))
    phases = [e.phase for e in run.events]
    n = load.n_tiles * load.half_warps
    for phase in ("index", "read", "write", "store"):
        assert phases.count(phase) == (n if chart.writes or phase in ("index", "read") else 0)
    check_lower_bounds(run, load, durations, chart.writes)
    # An SM does one thing at a time.
    for sm in range(machine.n_sm):
        held = [e for e in run.events if e.sm == sm and e.phase in ("index", "write")]
        for first, then in pairwise(sorted(held, key=lambda e: e.start)):
            same_slot = chart.slotted and first.start == then.start
            both_write = first.phase == then.phase == "write"
            assert first.end <= then.start or (same_slot and both_write)
    if chart.slotted:
        assert all(t % durations.index_cycles == 0 for e in run.events for t in (e.start, e.end))


def check_lower_bounds(run: Run, load: TileCopy, durations: Assumptions, writes: bool) -> None:
    transfer = durations.beat_cycles * (load.half_warp_bytes // 64)
    reads = load.n_tiles * load.half_warps * transfer
    assert run.bus_busy_cycles == (2 if writes else 1) * reads
    first_wait = durations.index_cycles + durations.latency_cycles
    assert run.makespan_cycles >= first_wait + reads
    assert run.drained_cycles >= first_wait + run.bus_busy_cycles
    # The busiest SM computes all its indices, then waits at least for the last data.
    own = run.critical_path_tiles * load.half_warps * durations.index_cycles
    assert run.makespan_cycles >= own + durations.latency_cycles + transfer
    # A half-warp does its tiles one after the other.
    assert run.makespan_cycles >= max(map(len, run.tile_starts)) * (first_wait + transfer)


@given(cases(), st.booleans())
def test_turns_are_strict_and_no_sm_idles_while_a_half_warp_is_ready(
    case: tuple[Machine, TileCopy, int, Assumptions], writes: bool
) -> None:
    machine, load, num_partition, durations = case
    slots = machine.max_threads_per_sm // (16 * load.half_warps)
    num_partition = min(num_partition, machine.n_sm * slots)  # one wave: lanes keep their block
    run = simulate(
        machine,
        load,
        num_partition,
        chart=Chart(writes=writes),
        assumptions=durations,
        trace_limit=10**6,
    )
    n_lanes = slots * load.half_warps
    for n in range(machine.n_sm):
        turns: list[tuple[Fraction, Fraction, int, Fraction]] = []  # served, end, lane, ready
        ready: dict[int, Fraction] = {}
        for e in sorted((e for e in run.events if e.sm == n), key=lambda e: e.start):
            lane = e.block // machine.n_sm * load.half_warps + e.half_warp
            if e.phase in ("index", "write"):
                turns.append((e.start, e.end, lane, ready.get(lane, Fraction(0))))
            else:
                ready[lane] = e.end
        last, free = -1, Fraction(0)
        for served, end, lane, _ in turns:
            waiting = [(t[2], t[3]) for t in turns if t[3] <= served <= t[0]]
            assert lane == min((i for i, _ in waiting), key=lambda i: (i - last - 1) % n_lanes)
            assert served == max(free, min(since for _, since in waiting))
            last, free = lane, end


@given(st.integers(1, 12), st.integers(1, 32), st.integers(1, 40), st.integers(2, 500), st.data())
def test_closed_form_of_one_sm_reading(
    tiles: int, half_warps: int, index: int, latency: int, data: st.DataObject
) -> None:
    """The turn of a half-warp comes round after all indices, or when its own data are back."""
    transfer = data.draw(st.integers(1, index))  # a longer one would queue at the bus
    run = simulate(
        C1060,
        TileCopy(tiles, half_warps, 64),
        1,
        assumptions=Assumptions(index, latency, Fraction(transfer)),
    )
    all_indices = half_warps * index
    period = max(all_indices, index + latency + transfer)
    assert run.makespan_cycles == (tiles - 1) * period + all_indices + latency + transfer


@given(cases(), st.booleans(), st.integers(1, 30))
def test_fractions_of_a_cycle_are_exact(
    case: tuple[Machine, TileCopy, int, Assumptions], slotted: bool, eighths: int
) -> None:
    """Reads with a bus beat in eighths of a cycle, against all durations taken eightfold."""
    machine, load, num_partition, durations = case
    fine = replace(durations, beat_cycles=Fraction(eighths, 8))
    whole = Assumptions(8 * fine.index_cycles, 8 * fine.latency_cycles, Fraction(eighths))
    chart = Chart(slotted=slotted)
    small, large = (
        simulate(machine, load, num_partition, chart=chart, assumptions=a) for a in (fine, whole)
    )
    assert large.makespan_cycles == 8 * small.makespan_cycles
    assert large.tile_starts == tuple(tuple(8 * t for t in s) for s in small.tile_starts)
