"""The data behind the document's Gantt charts, against its text and against first principles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tesla_c1060.charts import (
    Bar,
    Charted,
    CopyPhase,
    Multiplier,
    SaturatedCopy,
    Transfer,
    bus_transfers,
    charted,
    coarse,
    combined,
    formula_pieces,
    in_step,
    phases_of_bus,
    queues_at,
    saturated_bandwidth_gbs,
    tile_periods,
    vacuum_cycles,
)
from tesla_c1060.simulation.machine import Machine
from tesla_c1060.simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    Event,
    TileCopy,
)
from test_machine import C1060

FLOAT, DOUBLE = (TileCopy.square(C1060, 256, size) for size in (4, 8))
SLOTTED = Chart(writes=True, slotted=True)
COPIES, READS = Chart(writes=True), Chart()


# --- queues --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "ready", "running", "waiting"),
    [
        (1, range(2, 32), 1, [0]),
        (22, [*range(23, 32), 0], 22, range(1, 22)),
        # A unit earlier its data have not crossed the bus: they are back at cycle 421.
        (21, range(22, 32), 21, range(21)),
        # As in the document: data of hw10 are back at 621, those of hw11 at 641, a cycle too late.
        (32, range(1, 11), 0, range(11, 32)),
    ],
)
def test_queues_after_a_unit(
    unit: int, ready: Sequence[int], running: int, waiting: Sequence[int]
) -> None:
    found = queues_at(charted(C1060, FLOAT, 1).bars(), 20 * unit, 32)
    assert (found.ready, found.running, found.waiting) == (tuple(ready), running, tuple(waiting))


def test_queues_at_the_begin_and_while_the_sm_is_idle() -> None:
    bars = charted(C1060, FLOAT, 1, chart=COPIES).bars()
    assert queues_at(bars, 0, 32).ready == tuple(range(1, 32))
    idle = queues_at(bars, 655, 32)
    assert idle.running is None
    assert idle.ready == ()
    assert set(idle.waiting) == set(range(32))
    assert queues_at(bars, 645, 32).running == 5


def test_half_warps_with_data_are_ready_in_turn_after_the_last_one_served() -> None:
    bars = [Event(0, 0, n, "index", Fraction(2 * n), Fraction(2 * n + 2)) for n in range(3)] + [
        Event(0, 0, n, "read", Fraction(2 * n + 2), Fraction(2 * n + 3)) for n in range(3)
    ]
    assert queues_at(bars, 10, 3) == ((0, 1, 2), None, ())
    assert queues_at(bars, 4, 3) == ((0,), 2, (1,))


# --- charts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chart", "assumptions", "units", "gbs"),
    [
        (SLOTTED, FIRST_ASSUMPTIONS, 55, 4.84),
        (SLOTTED, CORRECTED_ASSUMPTIONS, 46, 3.22),
        (READS, FIRST_ASSUMPTIONS, 32, 4.14),
    ],
)
def test_periods_of_tiles(chart: Chart, assumptions: Assumptions, units: int, gbs: float) -> None:
    found = charted(C1060, FLOAT, 1, chart=chart, assumptions=assumptions)
    assert set(tile_periods(found.run)) == {units * found.unit}
    assert round(found.run.bandwidth_gbs, 2) == gbs


def test_two_sms_use_the_bus_one_after_the_other() -> None:
    first, second = charted(C1060, FLOAT, 2).transfers[:2]
    assert first == Transfer(0, 0, 0, "read", Fraction(420), Fraction(421))
    assert second == Transfer(1, 1, 0, "read", Fraction(421), Fraction(422))


@pytest.mark.parametrize("load", [FLOAT, DOUBLE])
def test_bandwidth_doubles_and_sms_stay_in_step(load: TileCopy) -> None:
    charts = [charted(C1060, load, blocks) for blocks in (1, 2, 4, 8)]
    assert all(in_step(chart.run.events) for chart in charts)
    assert not in_step(saturated(3).run.events)
    for one, two in pairwise(charts):
        assert two.run.bandwidth_gbs / one.run.bandwidth_gbs == pytest.approx(2, rel=0.05)
    assert charted(C1060, DOUBLE, 1).run.bandwidth_gbs == pytest.approx(
        2 * charted(C1060, FLOAT, 1).run.bandwidth_gbs, rel=1e-4
    )


def test_bursts_of_8_doubles_are_shorter_than_the_index_computation() -> None:
    chart = charted(C1060, DOUBLE, 8)
    burst = chart.transfers[:8]
    assert {t.half_warp for t in burst} == {0}
    assert burst[-1].end - burst[0].start == 16 < chart.unit == 20
    assert vacuum_cycles(burst) == 0


def test_charts_combine_into_one() -> None:
    chart = charted(C1060, FLOAT, 2)
    bars = combined(chart.run.events)
    assert len(bars) == 64 * 32 * 2
    assert bars[0] == Bar(0, "index", Fraction(0), Fraction(20))
    assert Bar(0, "read", Fraction(20), Fraction(422)) in bars
    assert Bar(0, "read", Fraction(420), Fraction(422)) in combined(chart.transfers)


# --- a block on every SM -------------------------------------------------------------------


def saturated(tiles: int, itemsize: int = 4) -> Charted:
    load = TileCopy(30 * tiles, 32, 16 * itemsize)
    return charted(C1060, load, 30, chart=COPIES, assumptions=Assumptions.of(C1060))


def test_the_burst_of_30_sms_is_longer_than_the_index_computation() -> None:
    burst = saturated(3).transfers[:30]
    assert burst[-1].end - burst[0].start == Fraction("48.75")
    assert Fraction("48.75") > C1060.index_cycles == 36


def test_the_saturated_bus_never_rests_and_alternates() -> None:
    chart = saturated(3)
    assert vacuum_cycles(chart.transfers) == 0
    pieces = phases_of_bus(chart.transfers)
    # Of tile 0 first all reads, then all writes: 32 bursts of 48.75 cycles each.
    assert pieces[0] == CopyPhase("read", Fraction(436), Fraction(1996))
    assert pieces[1] == CopyPhase("store", Fraction(1996), Fraction(3556))
    assert {a.phase != b.phase for a, b in pairwise(pieces)} == {True}
    assert pieces[-1].end == chart.run.drained_cycles


def test_formula_pieces_are_x_and_y() -> None:
    copy = SaturatedCopy()
    published = formula_pieces(C1060, copy, 4, Multiplier.PUBLISHED)
    corrected = formula_pieces(C1060, copy, 4, Multiplier.CORRECTED)
    assert published[0] == corrected[0] == CopyPhase("index", Fraction(0), Fraction(432))
    assert published[-1].end == 432 + 17 * 2 * Fraction("48.75") * 30
    assert corrected[1].end - corrected[1].start == 32 * Fraction("48.75")
    assert len(published) == 1 + 2 * 17
    assert all(a.end == b.start for a, b in pairwise(published))
    # Bytes per cycle at 1.3 GHz are the published bandwidth.
    n_bytes = 2 * 512**2 * 4
    gbs = saturated_bandwidth_gbs(C1060, copy, 4, Multiplier.PUBLISHED)
    assert float(n_bytes / published[-1].end) * 1.3 == pytest.approx(gbs)
    assert round(gbs, 4) == 54.3553
    # The simulated bus takes as long as the corrected formula, but for the first wait.
    assert saturated(17).run.drained_cycles == corrected[-1].end + 4


def test_short_pieces_are_drawn_as_one() -> None:
    ends = [0, 10, 11, 12, 13, 30]
    pieces = [
        CopyPhase("read" if n % 2 else "store", Fraction(a), Fraction(b))
        for n, (a, b) in enumerate(pairwise(ends))
    ]
    assert coarse(pieces, 5) == (
        pieces[0],
        CopyPhase("both", Fraction(10), Fraction(13)),
        pieces[-1],
    )


# --- transfers of small machines -----------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[Machine, TileCopy, int, Chart, Assumptions]:
    half_warps = draw(st.integers(1, 5))
    machine = replace(
        C1060,
        n_sm=draw(st.integers(1, 3)),
        max_threads_per_sm=16 * half_warps * draw(st.integers(1, 2)),
    )
    load = TileCopy(draw(st.integers(1, 10)), half_warps, 64 * draw(st.integers(1, 2)))
    beat = Fraction(draw(st.integers(1, 12)), 4)
    durations = Assumptions(draw(st.integers(1, 6)), draw(st.integers(0, 25)), beat)
    chart = Chart(writes=draw(st.booleans()), slotted=draw(st.booleans()))
    return machine, load, draw(st.integers(1, 9)), chart, durations


@given(cases())
def test_transfers_never_overlap_and_end_with_their_bars(
    case: tuple[Machine, TileCopy, int, Chart, Assumptions],
) -> None:
    machine, load, blocks, chart, durations = case
    found = charted.__wrapped__(machine, load, blocks, chart=chart, assumptions=durations)
    waits = [e for e in found.run.events if e.phase in ("read", "store")]
    assert len(found.transfers) == len(waits) == load.n_tiles * load.half_warps * (1 + chart.writes)
    assert all(a.end <= b.start for a, b in pairwise(found.transfers))
    for wait, transfer in zip(waits, found.transfers, strict=True):
        assert wait[:4] == transfer[:4]
        assert transfer.end - transfer.start == found.transfer_cycles
        assert transfer.start >= wait.start + durations.latency_cycles
        slot = durations.index_cycles if chart.slotted else found.transfer_cycles
        if chart.slotted:
            assert 0 <= wait.end - transfer.end < slot
        else:
            assert wait.end == transfer.end
    busy = sum((t.end - t.start for t in found.transfers), Fraction(0))
    assert busy == found.run.bus_busy_cycles
    assert found.transfers[-1].end == found.run.drained_cycles


@given(cases(), st.integers(0, 200))
def test_every_half_warp_is_in_one_queue(
    case: tuple[Machine, TileCopy, int, Chart, Assumptions], time: int
) -> None:
    machine, load, _, _, durations = case
    bars = charted.__wrapped__(machine, load, 1, assumptions=durations).bars()
    found = queues_at(bars, time, load.half_warps)
    running = () if found.running is None else (found.running,)
    assert sorted(found.ready + running + found.waiting) == list(range(load.half_warps))


def test_no_events_no_transfers() -> None:
    assert bus_transfers([], Fraction(1), 400) == ()
    assert phases_of_bus(()) == ()
    assert vacuum_cycles(()) == 0
