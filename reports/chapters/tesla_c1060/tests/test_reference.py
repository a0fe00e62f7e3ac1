"""The event simulation against charts worked by hand, a naive simulator and true bounds."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tesla_c1060.simulation.machine import Machine
from tesla_c1060.simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    Event,
    Run,
    TileCopy,
    simulate,
)
from test_machine import C1060

FLOAT, DOUBLE = (TileCopy.square(C1060, 256, size) for size in (4, 8))
COPIES = Chart(writes=True)
SLOTTED = Chart(writes=True, slotted=True)


def periods(run: Run, block: int = 0) -> set[Fraction]:
    """Distances between the starts of consecutive tiles of a block."""
    return {b - a for a, b in pairwise(run.tile_starts[block])}


@pytest.mark.parametrize(
    ("assumptions", "slots"), [(FIRST_ASSUMPTIONS, 55), (CORRECTED_ASSUMPTIONS, 46)]
)
def test_every_tile_takes_the_period_of_the_chart(assumptions: Assumptions, slots: int) -> None:
    run = simulate(C1060, FLOAT, 1, chart=SLOTTED, assumptions=assumptions)
    unit = assumptions.index_cycles
    assert len(run.tile_starts[0]) == 128
    assert periods(run) == {slots * unit}
    assert run.makespan_cycles == 128 * slots * unit
    assert run.bytes_moved == 2 * 256 * 256 * 4
    reads = simulate(C1060, FLOAT, 1, assumptions=FIRST_ASSUMPTIONS)
    assert reads.makespan_cycles == 128 * 32 * 20 + 401
    assert periods(reads) == {32 * 20}


def test_slotted_chart_bar_by_bar() -> None:
    """The turn of hw31's write before hw0's second index, and the slots around it."""
    run = simulate(C1060, FLOAT, 1, chart=SLOTTED, assumptions=FIRST_ASSUMPTIONS, trace_limit=10**6)
    bars: dict[tuple[int, str], list[Event]] = {}
    for event in run.events:
        bars.setdefault((event.half_warp, event.phase), []).append(event)

    def slots(half_warp: int, phase: str, nth: int = 0) -> tuple[Fraction | int, Fraction | int]:
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
    """Slots of two cycles; data one slot after the command, so six writes wait at boundary 8."""
    short = Assumptions(index_cycles=2, latency_cycles=1, beat_cycles=Fraction(1, 8))
    load = TileCopy(n_tiles=1, half_warps=8, half_warp_bytes=64)
    run = simulate(C1060, load, 1, chart=SLOTTED, assumptions=short, trace_limit=100)
    writes: list[tuple[int, Fraction | int]]
    writes = [(e.half_warp, e.start / 2) for e in run.events if e.phase == "write"]
    assert writes == [(0, 8), (1, 8), (2, 9), (3, 9), (4, 10), (5, 10), (6, 11), (7, 11)]
    assert run.makespan_cycles == 12 * 2


def test_critical_path_and_that_blocks_beyond_the_sms_share_the_first_ones() -> None:
    runs = {n: simulate(C1060, DOUBLE, n, chart=COPIES) for n in (16, 30, 32)}
    assert {n: run.critical_path_tiles for n, run in runs.items()} == {16: 8, 30: 5, 32: 8}
    assert runs[32].tiles_per_sm == (8, 8, *[4] * 28)
    assert runs[32].sm_of_block[30:] == (0, 1)


def test_doubling_law_and_its_end_where_the_burst_outlasts_the_index() -> None:
    """1024² elements, so that the one final latency is small beside the regular part."""
    gbs = {
        (itemsize, blocks): simulate(
            C1060, TileCopy.square(C1060, 1024, itemsize), blocks, assumptions=FIRST_ASSUMPTIONS
        ).bandwidth_gbs
        for itemsize in (4, 8)
        for blocks in (1, 2, 4, 8, 16)
    }
    for blocks in (1, 2, 4, 8):
        assert gbs[4, 2 * blocks] / gbs[4, blocks] == pytest.approx(2, rel=0.01)
        # 16 SMs × 2 cycles exceed 20 cycles for double; 16 × 1 do not for float.
        gain = 20 / 16 if blocks == 8 else 2
        assert gbs[8, 2 * blocks] / gbs[8, blocks] == pytest.approx(gain, rel=0.01)
        assert gbs[8, blocks] / gbs[4, blocks] == pytest.approx(2, rel=0.01)


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


@given(cases(), charts)
def test_work_is_conserved_and_an_sm_does_one_thing_at_a_time(
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
    # An SM does one thing at a time.
    for sm in range(machine.n_sm):
        held = [e for e in run.events if e.sm == sm and e.phase in ("index", "write")]
        for first, then in pairwise(sorted(held, key=lambda e: e.start)):
            same_slot = chart.slotted and first.start == then.start
            both_write = first.phase == then.phase == "write"
            assert first.end <= then.start or (same_slot and both_write)
    if chart.slotted:
        assert all(t % durations.index_cycles == 0 for e in run.events for t in (e.start, e.end))


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
