"""The compiled simulation against the plain one, event by event, and its levels of detail."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tesla_c1060.simulation import dram_controller as c
from tesla_c1060.simulation.event_loop import MAX_LANES, SMProgram
from tesla_c1060.simulation.machine import (
    Banks,
    Level,
    Machine,
    Tiling,
    at_board_clock,
    load_machine,
    transfer_beats,
)
from tesla_c1060.simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    TileCopy,
    resident_blocks,
    simulate,
)
from tesla_c1060.simulation.run import (
    FastRun,
    Watch,
    _at_least_one,
    _run,
    layout_of,
    simulate_tiles,
)
from test_machine import C1060
from test_reference import cases

ALL = 10**6


@pytest.mark.parametrize("level", list(Level))
def test_a_shared_port_passes_one_access_after_the_other(level: Level) -> None:
    """What crosses it takes its time at least; a wide one, or one of its own, changes little."""
    tiling = Tiling.partition_wide(C1060, 256, 8)

    def cycles(sms: int, port_bytes: int | None, blocks: int) -> float:
        machine = replace(at_board_clock(C1060), sm_per_port=sms, port_bytes=port_bytes)
        return float(simulate_tiles(machine, tiling, blocks, level).drained_cycles)

    # Of 30 blocks eight copy five tiles: the busiest three SMs read 15 and await 12 writes.
    crossing = (15 + 12) * tiling.tile_bytes / 2
    assert crossing < cycles(3, 2, 30) < 1.1 * crossing
    assert cycles(3, 2, 30) > 1.5 * cycles(1, None, 30)
    assert cycles(3, 1024, 8) == pytest.approx(cycles(1, None, 8), rel=0.02)
    # One block has the port to itself, and needs it for less than its index computation.
    assert cycles(3, 8, 1) == cycles(1, 8, 1)


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
        first=durations.index_cycles * ticks,
        step=0,
        hold=ticks,
        commands=1,
        sm_per_port=1,
        port=0,
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
@pytest.mark.parametrize("blocks", [1, 30, 61, pytest.param(200, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("durations", [None, FIRST_ASSUMPTIONS, CORRECTED_ASSUMPTIONS])
def test_the_c1060_is_the_same(itemsize: int, blocks: int, durations: Assumptions | None) -> None:
    load = TileCopy.square(C1060, 256, itemsize)
    expect_the_same(C1060, load, blocks, True, durations)
    if durations is None:
        tiling = Tiling.partition_wide(C1060, 256, itemsize)
        tiles = simulate_tiles(C1060, tiling, blocks, Level.BUS, watch=Watch(bars=ALL))
        assert tiles == simulate_fast(C1060, load, blocks, writes=True, trace_limit=ALL)


def test_as_many_bars_are_kept_as_asked_for_and_blocks_simulated_as_there_are_bits() -> None:
    load = TileCopy.square(C1060, 256, 4)
    whole = simulate_fast(C1060, load, 2, writes=True, trace_limit=300)
    assert len(whole.bars) == 300
    assert simulate_fast(C1060, load, 2, writes=True, trace_limit=17).bars == whole.bars[:17]
    assert simulate_fast(C1060, load, 2, writes=True).bars == ()
    wide = replace(C1060, max_threads_per_sm=16 * (MAX_LANES + 1))
    said = f"holds {MAX_LANES + 1} half-warps; at most {MAX_LANES}"
    with pytest.raises(ValueError, match=said):
        simulate_fast(wide, TileCopy(4, MAX_LANES + 1, 64), 1, writes=True)
    with pytest.raises(ValueError, match="num_partition must be at least 1"):
        simulate_fast(C1060, TileCopy(4, 2, 64), 0, writes=True)
    full = replace(C1060, max_threads_per_sm=16 * MAX_LANES)
    expect_the_same(full, TileCopy(9, MAX_LANES, 64), 3, True, None)


DEVICES = Path(__file__).parents[1] / "devices"


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Small made-up devices with banks of any timings."""
    cycles = st.integers(1, 20)
    open_ahead = draw(st.integers(1, 12))
    timings = ("t_rrd_cycles", "t_wl_cycles", "t_wr_cycles", "t_cdlr_cycles", "t_cl_cycles")
    banks = Banks(
        count=draw(st.integers(1, 4)),
        page_bytes=draw(st.sampled_from([128, 256, 1024])),
        burst_bytes=32,
        t_rcd_cycles=draw(cycles),
        choose_from=draw(st.integers(1, open_ahead)),
        open_ahead=open_ahead,
        **{name: draw(cycles) for name in timings},
    )
    partitions = draw(st.sampled_from([1, 2, 3, 5, 8]))
    return replace(
        C1060,
        n_sm=draw(st.integers(1, 5)),
        core_clock_ghz=draw(st.sampled_from([1.0, 1.3])),
        max_threads_per_sm=draw(st.sampled_from([64, 128])),
        index_cycles=draw(st.integers(1, 30)),
        latency_cycles=draw(st.integers(200, 400)),
        partitions=partitions,
        partition_bytes=128,
        t_ras_cycles=banks.t_rcd_cycles + draw(cycles),
        t_rp_cycles=draw(cycles),
        bus_bytes=8 * partitions,
        hashed_partitions=draw(st.booleans()),
        writes_awaited=draw(st.booleans()),
        banks=banks,
    )


tilings = st.builds(
    lambda itemsize, x, y, items, pad: Tiling(
        32 * x, 2 * items * y, itemsize, 32, 2 * items, items, 32 * (x + pad)
    ),
    itemsize=st.sampled_from([4, 8, 12]),
    x=st.integers(1, 4),
    y=st.integers(1, 3),
    items=st.integers(1, 3),
    pad=st.sampled_from([0, 1, 3]),
)


@given(tiling=tilings, is_write=st.booleans())
def test_every_element_is_of_one_half_warp(tiling: Tiling, is_write: bool) -> None:
    layout, half_warps = layout_of(C1060, tiling, 10**6), tiling.threads // 16
    starts = [
        c.byte_address.py_func(tile, item, half_warp, is_write, layout) - is_write * 10**6
        for tile in range(tiling.n_tiles)
        for item in range(tiling.items)
        for half_warp in range(half_warps)
    ]
    found = sorted(start + n * tiling.itemsize for start in starts for n in range(16))
    assert found == [
        y * tiling.pitch_bytes + x * tiling.itemsize
        for y in range(tiling.height)
        for x in range(tiling.width)
    ]


@given(machine=machines(), tiling=tilings, blocks=st.integers(1, 12), commands=st.integers(1, 3))
def test_one_partition_one_bus(
    machine: Machine, tiling: Tiling, blocks: int, commands: int
) -> None:
    one = replace(machine, partitions=1, bus_bytes=16, banks=None)
    watch = Watch(bars=ALL)
    bus, queued = (
        simulate_tiles(one, tiling, blocks, level, commands=commands, watch=watch)
        for level in (Level.BUS, Level.PARTITIONS)
    )
    assert queued.makespan_cycles == bus.makespan_cycles
    assert queued.drained_cycles == bus.drained_cycles
    assert queued.tiles_per_sm == bus.tiles_per_sm
    if commands == 1 and tiling.itemsize * one.half_warp <= one.partition_bytes:
        assert sorted(queued.bars) == sorted(bus.bars)


@given(machine=machines(), tiling=tilings, blocks=st.integers(1, 12), commands=st.integers(1, 2))
def test_no_command_comes_too_early_and_every_byte_is_read_and_written(
    machine: Machine, tiling: Tiling, blocks: int, commands: int
) -> None:
    """All timings of the banks are kept, whatever the controller chooses."""
    watch = Watch(commands=ALL, bins=500, bin_cycles=10**4)
    run = simulate_tiles(machine, tiling, blocks, Level.BANKS, commands=commands, watch=watch)
    logs = defaultdict(list)
    bursts = dict.fromkeys((c.COLUMN_READ, c.COLUMN_WRITE), 0)
    for time, partition, bank, command, value in run.commands:
        logs[partition].append((time, command, bank, value))
        if command in bursts:
            bursts[command] += value
    assert set(logs) == {p for p, n in enumerate(run.requests) if n}
    for log in logs.values():
        _check_partition(machine, sorted(log))
    assert set(bursts.values()) == {commands * tiling.n_bytes // 32}
    assert run.profile[:, :, c.P_BURSTS].sum() == sum(bursts.values())
    assert run.profile[:, :, c.P_REQUESTS].sum() == sum(run.requests)
    assert run.profile[:, :, c.P_OPENINGS].sum() == sum(run.row_openings)
    assert run.bytes_moved == 2 * tiling.n_bytes
    assert sum(run.tiles_per_sm) == tiling.n_tiles


def _check_partition(machine: Machine, log: list[tuple[float, int, int, int]]) -> None:
    banks = machine.banks
    assert banks is not None
    cycle = float(machine.memory_cycle)
    burst = float(
        Fraction(banks.burst_bytes * machine.partitions, machine.bus_bytes) * machine.beat_cycles
    )
    opened: dict[int, float] = {}
    closed: dict[int, float] = {}
    rows: dict[int, int | None] = {}
    last_opened = last_written = pins_free = -math.inf
    column_end: dict[int, float] = defaultdict(lambda: -math.inf)
    written: dict[int, float] = defaultdict(lambda: -math.inf)
    tiny = 1e-6
    for time, command, bank, value in log:
        late = time + tiny
        if command == c.CLOSE:
            assert rows[bank] == value
            assert late >= opened[bank] + machine.t_ras_cycles * cycle
            assert late >= column_end[bank]
            assert late >= written[bank] + banks.t_wr_cycles * cycle
            rows[bank], closed[bank] = None, time
        elif command == c.OPEN:
            assert rows.get(bank) is None
            assert late >= last_opened + banks.t_rrd_cycles * cycle
            assert late >= closed.get(bank, -math.inf) + machine.t_rp_cycles * cycle
            rows[bank], opened[bank], last_opened = value, time, time
        else:
            reads = command == c.COLUMN_READ
            data = time + (banks.t_cl_cycles if reads else banks.t_wl_cycles) * cycle
            assert rows[bank] is not None
            assert late >= opened[bank] + banks.t_rcd_cycles * cycle
            assert data + tiny >= pins_free
            if reads:
                assert late >= last_written + banks.t_cdlr_cycles * cycle
            pins_free = data + value * burst
            column_end[bank] = time + value * burst
            if not reads:
                last_written = written[bank] = pins_free


@given(machine=machines(), tiling=tilings, blocks=st.integers(1, 12))
def test_data_come_in_order_of_their_requests(
    machine: Machine, tiling: Tiling, blocks: int
) -> None:
    assert machine.banks is not None
    strict = replace(machine, banks=replace(machine.banks, choose_from=1))
    one = replace(strict, partitions=1, bus_bytes=16)
    run = simulate_tiles(one, tiling, blocks, Level.BANKS, watch=Watch(bars=ALL))
    waits = sorted((b.start, b.end) for b in run.bars if b.phase in ("read", "store"))
    ends = [end for _, end in waits]
    # Those issued at the same time by several SMs may be in any order among themselves.
    for (start, end), (later, later_end) in itertools.pairwise(waits):
        assert end <= later_end or start == later
    assert len(ends) == sum(run.requests)


def test_items_of_a_tile_are_tiles_of_a_block_for_the_sms() -> None:
    """Level of one bus, one block: four rows of one tile take what four tiles of a row take."""
    step = replace(C1060, step_cycles=C1060.index_cycles)
    rows = simulate_tiles(step, Tiling(32, 32, 4, 32, 32, 4), 1, Level.BUS, watch=Watch(bars=ALL))
    tiles = simulate_tiles(step, Tiling(32, 32, 4, 32, 8), 1, Level.BUS, watch=Watch(bars=ALL))
    assert rows.bars == tiles.bars
    quick = simulate_tiles(C1060, Tiling(32, 32, 4, 32, 32, 4), 1, Level.BUS)
    assert quick.makespan_cycles < rows.makespan_cycles


@pytest.mark.parametrize("itemsize", [4, 8])
def test_all_in_one_partition_get_an_eighth_of_the_bus(itemsize: int) -> None:
    """Camping, in closed form: stretches so long that all of the input is in one partition."""
    tiling = Tiling.partition_wide(C1060, 256, itemsize)
    camped = replace(C1060, partition_bytes=8 * tiling.n_bytes, banks=None)
    run = simulate_tiles(camped, tiling, 30, Level.PARTITIONS)
    assert sum(n > 0 for n in run.requests) == 1
    first_data = camped.index_cycles + camped.latency_cycles
    per_byte = 8 * Fraction(13, 8) / 64
    assert run.drained_cycles == first_data + 2 * tiling.n_bytes * per_byte


@pytest.mark.parametrize("level", list(Level))
def test_three_commands_take_three_times_the_bus(level: Level) -> None:
    tiling = Tiling.square_tiles(512, 12)
    one = simulate_tiles(C1060, tiling, tiling.n_tiles, level)
    three = simulate_tiles(C1060, tiling, tiling.n_tiles, level, commands=3)
    assert three.bytes_moved == one.bytes_moved
    assert three.drained_bandwidth_gbs < 51.2 / 3
    assert three.drained_bandwidth_gbs < 0.65 * one.drained_bandwidth_gbs


@pytest.mark.parametrize("path", sorted(DEVICES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_device_runs_at_every_level(path: Path) -> None:
    machine = load_machine(path)
    tiling = Tiling.partition_wide(machine, 2 * machine.partition_bytes, 8)
    peak = machine.bus_bytes * machine.memory_data_rate_mhz / 1e3
    for level in machine.levels:
        run = simulate_tiles(machine, tiling, 2 * machine.n_sm, level)
        assert 0 < run.drained_bandwidth_gbs <= peak * (1 + 1e-9)
        assert sum(run.tiles_per_sm) == tiling.n_tiles
