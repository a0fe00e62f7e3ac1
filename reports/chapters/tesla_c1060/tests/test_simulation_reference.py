"""The event simulation against charts worked by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
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


# --- charts of one SM, worked by hand ------------------------------------------------------


def test_float_and_double_tiles_of_the_study() -> None:
    assert TileCopy(n_tiles=128, half_warps=32, half_warp_bytes=64) == FLOAT
    assert TileCopy(n_tiles=128, half_warps=32, half_warp_bytes=128) == DOUBLE


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


# --- several SMs ---------------------------------------------------------------------------


@pytest.mark.parametrize(("num_partition", "tiles"), [(16, 8), (30, 5), (32, 8)])
def test_critical_path_and_that_blocks_beyond_the_sms_share_the_first_ones(
    num_partition: int, tiles: int
) -> None:
    run = simulate(C1060, DOUBLE, num_partition, chart=COPIES)
    assert run.critical_path_tiles == tiles
    assert sum(run.tiles_per_sm) == 128
    if num_partition == 32:
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
    load = TileCopy.square(C1060, 256, itemsize)
    for num_partition in (1, 2, 4, 8):
        run = simulate(C1060, load, num_partition, assumptions=FIRST_ASSUMPTIONS)
        assert {p for b in range(num_partition) for p in periods(run, b)} == {640}


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
        TileCopy(0, 32, 64)
    with pytest.raises(ValueError, match="index_cycles"):
        Assumptions(0, 400, Fraction(1))
    with pytest.raises(ValueError, match="do not split"):
        TileCopy.square(C1060, 250, 4)
    with pytest.raises(ValueError, match="do not split"):
        TileCopy.square(C1060, 256, 12)  # float3: 256 bytes hold no whole number of elements


def test_a_faster_bus_may_finish_later() -> None:
    """Why no test demands the opposite: strict turns allow this anomaly, by under 2 %."""
    machine = replace(C1060, n_sm=1, max_threads_per_sm=160)
    load = TileCopy(n_tiles=4, half_warps=5, half_warp_bytes=64)
    slow, fast = (
        simulate(machine, load, 5, chart=COPIES, assumptions=Assumptions(6, 8, beat))
        for beat in (Fraction(3), Fraction(3, 2))
    )
    assert slow.makespan_cycles == 142
    assert fast.makespan_cycles == Fraction("144.5")
    assert fast.bus_busy_cycles == slow.bus_busy_cycles / 2
