"""Gantt charts, the saturated formula, the table of published numbers, and the document's slips."""

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
    charted,
    coarse,
    combined,
    double_over_float,
    formula_pieces,
    in_step,
    phases_of_bus,
    queues_at,
    saturated_bandwidth_gbs,
    start_up_cycles,
    vacuum_cycles,
)
from tesla_c1060.checks import Check, published_checks, simulate_saturated
from tesla_c1060.simulation.machine import Machine, transfer_beats
from tesla_c1060.simulation.reference import Assumptions, Chart, Event, TileCopy
from test_machine import C1060
from test_reference import cases, charts

FLOAT, DOUBLE = (TileCopy.square(C1060, 256, size) for size in (4, 8))
COPIES, COPY = Chart(writes=True), SaturatedCopy()


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


def test_queues_while_the_sm_is_idle_and_in_turn_after_the_last_one_served() -> None:
    bars = charted(C1060, FLOAT, 1, chart=COPIES).bars()
    assert queues_at(bars, 0, 32).ready == tuple(range(1, 32))
    assert queues_at(bars, 655, 32)[:2] == ((), None)
    assert queues_at(bars, 645, 32).running == 5
    bars = [Event(0, 0, n, "index", Fraction(2 * n), Fraction(2 * n + 2)) for n in range(3)]
    bars += [Event(0, 0, n, "read", Fraction(2 * n + 2), Fraction(2 * n + 3)) for n in range(3)]
    assert queues_at(bars, 10, 3) == ((0, 1, 2), None, ())
    assert queues_at(bars, 4, 3) == ((0,), 2, (1,))


@pytest.mark.parametrize("load", [FLOAT, DOUBLE])
def test_bandwidth_doubles_and_sms_stay_in_step(load: TileCopy) -> None:
    charts = [charted(C1060, load, blocks) for blocks in (1, 2, 4, 8)]
    assert all(in_step(chart.run.events) for chart in charts)
    assert not in_step(saturated(3).run.events)
    for one, two in pairwise(charts):
        assert two.run.bandwidth_gbs / one.run.bandwidth_gbs == pytest.approx(2, rel=0.05)
    bars = combined(charts[1].run.events)
    assert len(bars) == load.n_tiles * 32 * 2 // 2
    assert bars[0] == Bar(0, "index", Fraction(0), Fraction(20))


def saturated(tiles: int, itemsize: int = 4) -> Charted:
    load = TileCopy(30 * tiles, 32, 16 * itemsize)
    return charted(C1060, load, 30, chart=COPIES, assumptions=Assumptions.of(C1060))


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
    published = formula_pieces(C1060, COPY, 4, Multiplier.PUBLISHED)
    corrected = formula_pieces(C1060, COPY, 4, Multiplier.CORRECTED)
    assert published[0] == corrected[0] == CopyPhase("index", Fraction(0), Fraction(432))
    assert published[-1].end == 432 + 17 * 2 * Fraction("48.75") * 30
    assert corrected[1].end - corrected[1].start == 32 * Fraction("48.75")
    assert len(published) == 1 + 2 * 17
    assert all(a.end == b.start for a, b in pairwise(published))
    # Bytes per cycle at 1.3 GHz are the published bandwidth.
    gbs = saturated_bandwidth_gbs(C1060, COPY, 4, Multiplier.PUBLISHED)
    assert float(2 * 512**2 * 4 / published[-1].end) * 1.3 == pytest.approx(gbs)
    assert round(gbs, 4) == 54.3553
    # The simulated bus takes as long as the corrected formula, but for the first wait.
    assert saturated(17).run.drained_cycles == corrected[-1].end + 4
    # Short pieces are drawn as one.
    ends = [Fraction(n) for n in (0, 10, 11, 12, 13, 30)]
    phases = ("store", "read", "store", "read", "store")
    pieces = [CopyPhase(p, *span) for p, span in zip(phases, pairwise(ends), strict=True)]
    both = CopyPhase("both", Fraction(10), Fraction(13))
    assert coarse(pieces, 5) == (pieces[0], both, pieces[-1])


Case = tuple[Machine, TileCopy, int, Assumptions]


@given(cases(), charts, st.integers(1, 12))
def test_transfers_do_not_overlap_and_end_with_bars(
    case: Case, chart: Chart, quarters: int
) -> None:
    machine, load, blocks, durations = case
    durations = replace(durations, beat_cycles=Fraction(quarters, 4))
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


@pytest.mark.parametrize(
    ("n_bytes", "eighths"), [(1, 1), (32, 4), (64, 8), (65, 9), (128, 16), (192, 24), (193, 25)]
)
def test_a_part_used_share_of_a_partition_counts_whole(n_bytes: int, eighths: int) -> None:
    assert transfer_beats(C1060, n_bytes) == Fraction(eighths, 8)
    # A bus of seven partitions takes longer.
    seven = replace(C1060, partitions=7, bus_bytes=56)
    assert (transfer_beats(seven, 64), transfer_beats(seven, 56)) == (Fraction(8, 7), 1)


@pytest.mark.parametrize("multiplier", list(Multiplier))
def test_the_ratio_formula_is_the_ratio_of_the_bandwidths(multiplier: Multiplier) -> None:
    wide = saturated_bandwidth_gbs(C1060, COPY, 8, multiplier)
    narrow = saturated_bandwidth_gbs(C1060, COPY, 4, multiplier)
    assert wide / narrow == pytest.approx(double_over_float(C1060, COPY, multiplier), rel=1e-12)
    assert wide > narrow


@pytest.fixture(scope="module")
def checks() -> list[Check]:
    return published_checks(C1060)


def test_every_published_number_is_reproduced(checks: list[Check]) -> None:
    plain = [c for c in checks if not c.corrects]
    assert [c.published for c in plain] == [
        64,
        128,
        1,
        1,
        2,
        256,
        64,
        8,
        2,
        16,  # part I
        1600,
        34,
        110.5,
        64,
        16,
        1,
        2,
        3,  # part II
        32,
        16,
        128,
        64,
        8,
        128,
        8,
        16,
        8,  # part III: tiles
        401,
        402,
        402,
        404,
        32,
        22,
        22,
        11,
        *(2,) * 4,
        *(2,) * 6,
        64,  # charts
        4.14,
        4.84,
        3.22,
        3.1,
        4,
        4.2667,
        2,
        2,
        28,
        8,
        22,
        8,
        5,
        8,  # critical paths
        36.4,
        1.625,
        48.75,
        97.5,
        512,
        17.0667,
        20,
        54.3553,
        54.5904,
        1.00433,
    ]
    # Plain arithmetic does not count.
    assert sum(c.reproduced for c in checks) == 29
    ratios = [c for c in checks if c.within]
    assert (len(ratios), {c.within for c in ratios}) == (10, {0.05})
    assert not any(replace(c, ours=1.89).agrees for c in ratios)
    # What was measured has no number of ours beside it.
    assert [c.quantity for c in plain if not c.agrees] == ["one block, float, measured"]
    assert [c.quantity for c in checks if c.ours is None] == ["one block, float, measured"]


def test_corrections_stand_apart_from_the_published_numbers(checks: list[Check]) -> None:
    corrected = [c for c in checks if c.corrects]
    assert not any(c.agrees for c in corrected)
    told = [(c.published, round(c.ours or 0, 3)) for c in corrected]
    assert told[:4] == [(2, 6), (378, 384), (16, 36), (1.664, 1.625)]
    ours = [c.ours for c in corrected if "formula" in c.how and c.unit == "GB/s"]
    assert [round(value or 0, 4) for value in ours] == [50.9855, 51.1923]
    # Formula and simulation stay below what the bus can carry; what was published does not.
    (most,) = [c.ours for c in corrected if c.quantity == "half of the board's bandwidth"]
    assert max(c.ours for c in corrected if c.quantity.startswith("saturated")) < most < 54.3553


def test_checks_follow_the_machine() -> None:
    """Ours is computed: another device must not reproduce the published numbers."""
    sms = {"n_sm": 15, "core_clock_ghz": 1.0, "max_threads_per_sm": 512, "half_warp": 8}
    cycles = {"index_cycles": 30, "latency_cycles": 300, "t_rp_cycles": 12, "t_ras_cycles": 20}
    memory = {"partitions": 4, "partition_bytes": 128, "bus_bytes": 32}
    clocks = {"memory_clock_mhz": 300, "board_clock_mhz": 700}
    other = replace(C1060, **sms, **cycles, **memory, **clocks)
    agreeing = [c for c in published_checks(other) if c.agrees and not c.corrects]
    # What the kernel alone decides (tiles, threads) or the charts' own durations stays as it is.
    its_own = {"GB/s", "core cycles", "memory cycles", "MHz", "SMs", "partitions", "bytes"}
    assert [c.quantity for c in agreeing if c.unit in its_own | {"floats"}] == []


@pytest.mark.parametrize("itemsize", [4, 8])
def test_the_simulation_takes_the_side_of_the_corrected_formula(itemsize: int) -> None:
    run = simulate_saturated(C1060, COPY, itemsize)
    assert sum(run.tiles_per_sm) == 510
    published, corrected = (
        abs(run.drained_bandwidth_gbs / saturated_bandwidth_gbs(C1060, COPY, itemsize, m) - 1)
        for m in (Multiplier.PUBLISHED, Multiplier.CORRECTED)
    )
    assert corrected < 0.005
    assert published > 0.06
    # The bus never rests after its first transfer.
    wait = C1060.index_cycles + C1060.latency_cycles
    assert run.drained_cycles == wait + run.bus_busy_cycles
    # Hence X of the formula stands for the wait for the first data, to within a few cycles.
    assert wait == pytest.approx(start_up_cycles(C1060, COPY), rel=0.01)
    # Writes are posted: the last command leaves before the last data have crossed.
    assert run.makespan_cycles < run.drained_cycles < Fraction(103, 100) * run.makespan_cycles
