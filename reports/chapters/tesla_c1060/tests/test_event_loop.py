"""The compiled simulation against the plain one, event by event."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from fractions import Fraction

import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tesla_c1060.simulation import event_loop
from tesla_c1060.simulation.event_loop import MOST_LANES, SMProgram
from tesla_c1060.simulation.machine import Machine, transfer_beats
from tesla_c1060.simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    TileCopy,
    resident_blocks,
    simulate,
)
from tesla_c1060.simulation.run import FastRun, Watch, _at_least_one, _run
from test_machine import C1060
from test_simulation_properties import cases

ALL = 10**6


def simulate_fast(
    machine: Machine,
    workload: TileCopy,
    num_partition: int,
    *,
    writes: bool,
    assumptions: Assumptions | None = None,
    trace_limit: int = 0,
) -> FastRun:
    """What `simulate` computes for a chart that is not slotted, by the compiled event loop."""
    durations = assumptions or Assumptions.of(machine)
    transfer = transfer_beats(machine, workload.half_warp_bytes) * durations.beat_cycles
    ticks = transfer.denominator
    program = SMProgram(
        n_sm=machine.n_sm,
        slots=resident_blocks(machine, workload),
        half_warps=workload.half_warps,
        n_tiles=workload.n_tiles,
        n_blocks=_at_least_one(num_partition),
        items=1,
        index=durations.index_cycles * ticks,
        step=0,
        hold=ticks,
        commands=1,
        latency=durations.latency_cycles * ticks,
        transfer=transfer.numerator,
        writes=writes,
        writes_awaited=True,
    )
    moved = workload.n_tiles * workload.half_warps * workload.half_warp_bytes
    return _run(machine, program, None, ticks, moved * (2 if writes else 1), Watch(trace_limit))


def expect_the_same(
    machine: Machine, load: TileCopy, blocks: int, writes: bool, durations: Assumptions | None
) -> None:
    chart = Chart(writes=writes)
    slow = simulate(machine, load, blocks, chart=chart, assumptions=durations, trace_limit=ALL)
    fast = simulate_fast(
        machine, load, blocks, writes=writes, assumptions=durations, trace_limit=len(slow.events)
    )
    assert fast.bars == slow.events
    assert fast.events == len(slow.events) == load.n_tiles * load.half_warps * (4 if writes else 2)
    for name in ("makespan_cycles", "drained_cycles", "bus_busy_cycles", "bytes_moved"):
        assert getattr(fast, name) == getattr(slow, name), name
    assert fast.tiles_per_sm == slow.tiles_per_sm
    assert fast.critical_path_tiles == slow.critical_path_tiles
    assert fast.drained_bandwidth_gbs == slow.drained_bandwidth_gbs


@given(case=cases(), writes=st.booleans(), beat=st.sampled_from([1, Fraction(13, 8), 3]))
@settings(max_examples=examples(150))
def test_every_event_is_that_of_the_plain_simulation(
    case: tuple[Machine, TileCopy, int, Assumptions], writes: bool, beat: Fraction
) -> None:
    machine, load, blocks, durations = case
    durations = replace(durations, beat_cycles=Fraction(beat))
    expect_the_same(machine, load, blocks, writes, durations)


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize(
    "blocks",
    [1, 30, 61, *(pytest.param(n, marks=pytest.mark.hunt) for n in (8, 16, 32, 60, 200))],
)
@pytest.mark.parametrize("durations", [None, FIRST_ASSUMPTIONS, CORRECTED_ASSUMPTIONS])
def test_the_c1060_is_the_same_machine(
    itemsize: int, blocks: int, durations: Assumptions | None
) -> None:
    expect_the_same(C1060, TileCopy.square(C1060, 256, itemsize), blocks, True, durations)


def test_only_as_many_bars_as_asked_for_are_kept() -> None:
    load = TileCopy.square(C1060, 256, 4)
    whole = simulate_fast(C1060, load, 2, writes=True, trace_limit=300)
    assert len(whole.bars) == 300
    assert simulate_fast(C1060, load, 2, writes=True, trace_limit=17).bars == whole.bars[:17]
    assert simulate_fast(C1060, load, 2, writes=True).bars == ()


def test_memory_does_not_grow_with_the_problem() -> None:
    def peak(side: int) -> int:
        tracemalloc.start()
        simulate_fast(C1060, TileCopy.square(C1060, side, 4), 30, writes=True)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(256)  # compiles
    assert peak(2048) < 1.5 * peak(256)


def test_more_half_warps_than_a_word_has_bits_are_refused() -> None:
    wide = replace(C1060, max_threads_per_sm=16 * (MOST_LANES + 1))
    with pytest.raises(
        ValueError, match=f"holds {MOST_LANES + 1} half-warps; at most {MOST_LANES}"
    ):
        simulate_fast(wide, TileCopy(4, MOST_LANES + 1, 64), 1, writes=True)
    full = replace(C1060, max_threads_per_sm=16 * MOST_LANES)
    expect_the_same(full, TileCopy(9, MOST_LANES, 64), 3, True, None)


@pytest.mark.parametrize("blocks", [0, -1])
def test_no_blocks_are_refused(blocks: int) -> None:
    with pytest.raises(ValueError, match="num_partition must be at least 1"):
        simulate_fast(C1060, TileCopy(4, 2, 64), blocks, writes=True)


def test_uncompiled_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a fault of the compiler would show as one."""
    monkeypatch.setattr(event_loop, "_compiled", event_loop._loop)
    expect_the_same(C1060, TileCopy(40, 4, 64), 7, True, None)
