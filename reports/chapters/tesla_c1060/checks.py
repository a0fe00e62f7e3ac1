"""The numbers of the float-against-double study on a Tesla C1060, computed anew beside its own.

Published values are literals here and nowhere else; every one of ours is simulated or comes
from a formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from gpushmoo.core.paths import ROOT
from gpushmoo.storage.wholefile import write_json

from .charts import Multiplier, SaturatedCopy, charted, double_over_float, saturated_bandwidth_gbs
from .memory import (
    assign_blocks,
    compiled_loads,
    partitions_by_step,
    tile_row_stretches,
    whole_accesses,
)
from .simulation.machine import (
    Level,
    Machine,
    Tiling,
    burst_cycles,
    load_machine,
    read_cycle_cycles,
    transfer_beats,
)
from .simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    Run,
    TileCopy,
    resident_blocks,
    simulate,
)
from .simulation.run import BLOCK_EQ, Case, run_case

FLOAT, DOUBLE, FLOAT3 = 4, 8, 12  # bytes of one element
TYPES = {"float": FLOAT, "double": DOUBLE}
# Lanes of an SM, over which the threads of a half-warp go in turns.
LANES = 8


@dataclass(frozen=True)
class Check:
    """One published number beside ours, both in `unit`; a published measurement has none of ours.

    `decimals` is how many the source printed. `corrects` marks rows in which ours is meant to
    differ, because it leaves out a slip of the source.
    """

    quantity: str
    unit: str
    published: float
    decimals: int
    ours: float | None
    how: str
    corrects: bool = False

    @property
    def agrees(self) -> bool:
        """Whether ours, rounded to the printed decimals, is the published number."""
        return self.ours is not None and round(self.ours, self.decimals) == self.published


def check_published(asked: Mapping[str, Any], out: Path) -> None:
    """Write the published quantities recomputed, and one block of float at all latencies asked."""
    machine = load_machine(ROOT / asked["file"])
    rows = [asdict(check) for check in published_checks(machine)]
    latency = latency_sweep(machine, asked["levels"], asked["latency_cycles"])
    write_json(out, {"checks": rows, "latency": latency})


def published_checks(machine: Machine) -> list[Check]:
    """Every number of the study that its text fixes, in the order in which it appears there.

    Left out are those that are taken as given (clocks, latency, timing of the memory) and those
    that were measured.
    """
    return [
        *_coalescing_checks(machine),
        *_memory_checks(machine),
        *_tile_checks(machine),
        *_first_chart_checks(machine),
        *_one_block_checks(machine),
        *_critical_path_checks(machine),
        *_second_chart_checks(machine),
        *_saturated_checks(machine),
    ]


def simulate_saturated(machine: Machine, copy: SaturatedCopy, itemsize: int) -> Run:
    """Event simulation of the saturated case: one block on every SM, all equally long."""
    load = TileCopy(
        n_tiles=copy.tiles_per_block * machine.n_sm,
        half_warps=copy.half_warps,
        half_warp_bytes=machine.half_warp * itemsize,
    )
    return simulate(machine, load, machine.n_sm, chart=Chart(writes=True))


def _exact(quantity: str, unit: str, published: int, ours: float, how: str) -> Check:
    """A row for a number that the document prints without decimals; it is compared so."""
    return Check(quantity, unit, published, 0, float(ours), how)


def _coalescing_checks(machine: Machine) -> Iterator[Check]:
    """Part I: what a half-warp asks for, and how 32 × 32 tiles of a 256² array lie."""
    rule, whole = "coalescing rule of compute capability 1.3", "one access of whole elements"
    for name, itemsize, published in (("float", FLOAT, 64), ("double", DOUBLE, 128)):
        ours = machine.half_warp * itemsize
        yield _exact(f"half-warp of {name}", "bytes", published, ours, "threads × element")
    for name, itemsize, published in (
        ("float", FLOAT, 1),
        ("double", DOUBLE, 1),
        ("float3", FLOAT3, 2),
    ):
        ours = len(whole_accesses(itemsize, threads=machine.half_warp))
        yield _exact(f"half-warp of {name}", "transactions", published, ours, f"{rule}, {whole}")
    compiled = sum(len(load.transactions) for load in compiled_loads(FLOAT3))
    how = f"{rule}, three loads of 4 bytes"
    yield Check("half-warp of float3", "transactions", 2, 0, compiled, how, corrects=True)
    tiling = Tiling.square_tiles(256, DOUBLE)
    yield _exact("coalesced copy: block", "threads", 256, tiling.threads, "32 × 8")
    yield _exact("coalesced copy, 256²", "blocks", 64, tiling.n_tiles, "(256 / 32)²")
    row = {
        p
        for tile in range(tiling.tiles_x)
        for p in (s.partition for s in tile_row_stretches(machine, tiling, tile))
    }
    yield _exact("8 tiles of double side by side", "partitions", 8, len(row), "map of addresses")
    tile_bytes = tiling.tile_width * FLOAT
    side_by_side = machine.partition_bytes / tile_bytes
    how = "256 bytes / (32 × 4 bytes), within a row"
    yield _exact("tiles of float in a partition", "tiles", 2, side_by_side, how)
    over_all = machine.partitions * side_by_side
    yield _exact("tiles of float in all partitions", "tiles", 16, over_all, f"partitions × {how}")
    bytes_of_row = tiling.tile_width * FLOAT3
    yield Check("row of 32 float3", "bytes", 378, 0, bytes_of_row, "32 × 12", corrects=True)


def _memory_checks(machine: Machine) -> Iterator[Check]:
    """Part II: one read, and half-warps on the bus."""
    per_cycle = machine.memory_data_rate_mhz / machine.memory_clock_mhz
    if machine.board_clock_mhz is not None:
        rate = machine.board_clock_mhz * per_cycle
        yield _exact("data rate of the board's memory", "MHz", 1600, rate, "clock × two edges")
    cycle = machine.t_ras_cycles + machine.t_rp_cycles
    yield _exact("complete read cycle tRC", "memory cycles", 34, cycle, "tRAS + tRP")
    yield Check(
        "complete read cycle tRC",
        "core cycles",
        110.5,
        1,
        float(read_cycle_cycles(machine)),
        "(tRAS + tRP) × core clock / memory clock",
    )
    yield _exact("memory interface", "bytes", 64, machine.bus_bytes, "512 bit")
    yield _exact("memory interface", "floats", 16, machine.bus_bytes / FLOAT, "512 bit / 32 bit")
    for name, itemsize, published in (
        ("float", FLOAT, 1),
        ("double", DOUBLE, 2),
        ("float3", FLOAT3, 3),
    ):
        ours = float(transfer_beats(machine, machine.half_warp * itemsize))
        how = "bytes / width of the bus"
        yield _exact(f"half-warp of {name} on the bus", "bus cycles", published, ours, how)


def _tile_checks(machine: Machine) -> Iterator[Check]:
    """Part III: tiles as wide as a partition, and the blocks that share them out."""
    for name, width, height in (("double", 32, 16), ("float", 64, 8)):
        tiling = Tiling.partition_wide(machine, 256, TYPES[name])
        what, how = f"tile of {name}", "as wide as a partition, for 512 threads"
        yield _exact(what, "columns", width, tiling.tile_width, how)
        yield _exact(what, "rows", height, tiling.tile_height, how)
        yield _exact(f"tiles of {name} in 256²", "tiles", 128, tiling.n_tiles, "map of tiles")
    doubles = tiling_of(machine)
    for where, published, ours in (("across", 8, doubles.tiles_x), ("down", 16, doubles.tiles_y)):
        yield _exact(f"tiles of double in 256², {where}", "tiles", published, ours, "map of tiles")
    steps = partitions_by_step(machine, doubles, 8)
    how = "fewest in any step, map of addresses"
    yield _exact("NUM_PARTITION 8, double", "partitions at once", 8, min(map(len, steps)), how)


def tiling_of(machine: Machine) -> Tiling:
    """The study's array of 256² doubles in tiles."""
    return Tiling.partition_wide(machine, 256, DOUBLE)


def _first_chart_checks(machine: Machine) -> Iterator[Check]:
    """The charts of reads with an index of 20 cycles."""
    first, last = FIRST_ASSUMPTIONS, CORRECTED_ASSUMPTIONS
    for assumptions, ends in ((first, (401, 402)), (last, (402, 404))):
        for (name, itemsize), published in zip(TYPES.items(), ends, strict=True):
            beats = transfer_beats(machine, machine.half_warp * itemsize)
            ours = float(assumptions.latency_cycles + beats * assumptions.beat_cycles)
            how = f"latency + {assumptions.beat_cycles} a bus width"
            what = f"data of a half-warp of {name}, index {assumptions.index_cycles}"
            yield _exact(what, "cycles after the command", published, ours, how)
    load = TileCopy.square(machine, 256, FLOAT)
    yield _exact("block of 512 threads", "half-warps", 32, load.half_warps, "512 / 16")
    one = charted(machine, load, 1)
    units = {
        b.half_warp: ceil(b.end / one.unit) for b in reversed(one.bars()) if b.phase == "index"
    }
    back = [t.end for t in one.transfers]
    how = "event simulation, first tile"
    yield _exact("hw21's index is computed in time unit", "20 cycles", 22, units[21], how)
    yield _exact("hw0's data are back in time unit", "20 cycles", 22, ceil(back[0] / one.unit), how)
    returned = sum(end <= 32 * one.unit for end in back)
    yield _exact("back after time unit 32: hw0 to hw10", "half-warps", 11, returned, how)
    gbs = {
        (name, blocks): charted(machine, TileCopy.square(machine, 256, size), blocks).run
        for name, size in TYPES.items()
        for blocks in (1, 2, 4, 8)
    }
    for blocks in (1, 2, 4, 8):
        ratio = gbs["double", blocks].bandwidth_gbs / gbs["float", blocks].bandwidth_gbs
        how = f"event simulation, reads: {ratio:.4f}"
        yield _exact(f"double / float, NUM_PARTITION {blocks}", "1", 2, ratio, how)
    for name in TYPES:
        for blocks in (2, 4, 8):
            ratio = gbs[name, blocks].bandwidth_gbs / gbs[name, blocks // 2].bandwidth_gbs
            how = f"event simulation, reads: {ratio:.4f}"
            yield _exact(f"NUM_PARTITION {blocks} / {blocks // 2}, {name}", "1", 2, ratio, how)
    tiles = gbs["float", 2].tiles_per_sm[0]
    yield _exact("NUM_PARTITION 2, float, 256²", "tiles of an SM", 64, tiles, "event simulation")


def _one_block_checks(machine: Machine) -> Iterator[Check]:
    """256² floats copied by one block, in the three charts of the source."""
    cases: tuple[tuple[str, float, Chart, Assumptions], ...] = (
        ("read only", 4.14, Chart(), FIRST_ASSUMPTIONS),
        ("read and write", 4.84, Chart(writes=True, slotted=True), FIRST_ASSUMPTIONS),
        ("read and write, revised", 3.22, Chart(writes=True, slotted=True), CORRECTED_ASSUMPTIONS),
    )
    load = TileCopy.square(machine, 256, FLOAT)
    for name, published, chart, assumptions in cases:
        run = simulate(machine, load, 1, chart=chart, assumptions=assumptions)
        how = (
            f"event simulation, {'slotted' if chart.slotted else 'cycle-exact'}: index "
            f"{assumptions.index_cycles}, latency {assumptions.latency_cycles}, transfer "
            f"{assumptions.beat_cycles} cycles; {float(run.makespan_cycles):.0f} cycles in all"
        )
        yield Check(f"one block, float, 256², {name}", "GB/s", published, 2, run.bandwidth_gbs, how)
    how = "the document's measurement, of a size that it does not give; see the latencies below"
    yield Check("one block, float, measured", "GB/s", MEASURED_GBS, DECIMALS, None, how)


def _critical_path_checks(machine: Machine) -> Iterator[Check]:
    """Which SMs have how many blocks and tiles of 256² doubles."""
    load = TileCopy.square(machine, 256, DOUBLE)
    for num_partition, mean, decimals in ((32, 4, 0), (30, 4.2667, 4)):
        what = f"a block of NUM_PARTITION {num_partition}, double, 256²"
        ours = load.n_tiles / num_partition
        yield Check(what, "tiles", mean, decimals, ours, f"{load.n_tiles} / {num_partition}")
    fit = resident_blocks(machine, load)
    yield _exact("blocks of 512 threads that an SM holds", "blocks", 2, fit, "1024 / 512")
    sms = {n: assign_blocks(machine, tiling_of(machine), n) for n in (30, 32)}
    for blocks, published in ((2, 2), (1, 28)):
        ours = sum(len(sm.blocks) == blocks for sm in sms[32])
        what = f"SMs with {blocks} {'blocks' if blocks > 1 else 'block'}, NUM_PARTITION 32"
        yield _exact(what, "SMs", published, ours, "blocks given out in turn")
    for tiles, published in ((5, 8), (4, 22)):
        ours = sum(sm.n_tiles == tiles for sm in sms[30])
        what = f"SMs with {tiles} tiles, NUM_PARTITION 30"
        yield _exact(what, "SMs", published, ours, "blocks given out in turn")
    for num_partition, published in ((16, 8), (30, 5), (32, 8)):
        run = simulate(machine, load, num_partition, chart=Chart(writes=True))
        yield Check(
            f"critical path, double, 256², NUM_PARTITION {num_partition}",
            "tiles",
            published,
            0,
            run.critical_path_tiles,
            "tiles of the busiest SM in the event simulation",
        )


def _second_chart_checks(machine: Machine) -> Iterator[Check]:
    """The corrected durations, in core cycles."""
    turns = machine.half_warp / LANES
    index, how = "index computation of a half-warp", "18.2 × threads / lanes of an SM"
    yield Check(index, "core cycles", 36.4, 1, 18.2 * turns, how)
    how = "18 × threads / lanes of an SM"
    yield Check(index, "core cycles", 16, 0, 18 * turns, how, corrects=True)
    beat, how = float(machine.beat_cycles), "core clock / data rate"
    yield Check("one transfer of 512 bit", "core cycles", 1.664, 3, beat, how, corrects=True)
    yield Check("one transfer of 512 bit", "core cycles", 1.625, 3, beat, how)
    for (name, itemsize), published, decimals in zip(
        TYPES.items(), (48.75, 97.5), (2, 1), strict=True
    ):
        ours = float(burst_cycles(machine, machine.half_warp * itemsize))
        how = "transfer × SMs"
        what = f"a half-warp of {name} of every SM"
        yield Check(what, "core cycles", published, decimals, ours, how)


def _saturated_checks(machine: Machine) -> Iterator[Check]:
    """512² elements over all SMs: the formula with its slip, without it, and the simulation."""
    copy = SaturatedCopy()
    types = (("float", FLOAT, 54.3553), ("double", DOUBLE, 54.5904))
    tiles = TileCopy.square(machine, copy.side, FLOAT).n_tiles
    yield _exact("tiles of float in 512²", "tiles", 512, tiles, "512² / 512")
    mean, how = tiles / machine.n_sm, "512 tiles / SMs"
    yield Check("tiles of a block, 512²", "tiles", 17.0667, 4, mean, how)
    for multiplier in Multiplier:
        corrects = multiplier is Multiplier.CORRECTED
        how = f"closed formula, bursts × {multiplier.value}"
        for name, itemsize, published in types:
            ours = saturated_bandwidth_gbs(machine, copy, itemsize, multiplier)
            yield Check(f"saturated, {name}, 512²", "GB/s", published, 4, ours, how, corrects)
        ratio = double_over_float(machine, copy, multiplier)
        printed = round(types[1][2] / types[0][2], 5)
        what = "saturated, double / float, of the two published"
        yield Check(what, "1", printed, 5, ratio, how, corrects)
    half = machine.bus_bytes * machine.memory_data_rate_mhz / 1e3
    how = "bus width × data rate, which nothing that crosses the bus can pass"
    yield Check("half of the board's bandwidth", "GB/s", 54.3553, 4, half, how, corrects=True)
    for name, itemsize, published in types:
        run = simulate_saturated(machine, copy, itemsize)
        how = (
            f"event simulation, cycle-exact, {sum(run.tiles_per_sm)} tiles, until the last write "
            f"has crossed the bus (until the last command: {run.bandwidth_gbs:.4f} GB/s)"
        )
        ours = run.drained_bandwidth_gbs
        yield Check(f"saturated, {name}, 512²", "GB/s", published, 4, ours, how, corrects=True)


SIDE, FLOAT = 256, 4  # elements; bytes of one
# GB/s of one block of float, to so many decimals as the document prints.
MEASURED_GBS, DECIMALS = 3.1, 1


def latency_sweep(
    machine: Machine, levels: Sequence[str], latencies: Sequence[int]
) -> list[dict[str, Any]]:
    """GB/s of one block that copies 256² floats, at each of the latencies in core cycles.

    `first` and `corrected` are the document's slotted charts under its assumptions, `exact` those
    of the cycle-exact simulation by level of detail.
    """
    return [
        {
            "latency_cycles": latency,
            "first": _slotted_gbs(machine, replace(FIRST_ASSUMPTIONS, latency_cycles=latency)),
            "corrected": _slotted_gbs(
                machine, replace(CORRECTED_ASSUMPTIONS, latency_cycles=latency)
            ),
            "exact": {level: _simulated_gbs(machine, level, latency) for level in levels},
        }
        for latency in latencies
    ]


def _slotted_gbs(machine: Machine, assumptions: Assumptions) -> float:
    load = TileCopy.square(machine, SIDE, FLOAT)
    chart = Chart(writes=True, slotted=True)
    return simulate(machine, load, 1, chart=chart, assumptions=assumptions).bandwidth_gbs


def _simulated_gbs(machine: Machine, level: str, latency: int) -> float:
    case = Case(BLOCK_EQ, "float", SIDE, 1, Level(level))
    return run_case(replace(machine, latency_cycles=latency), case).drained_bandwidth_gbs


def explains(gbs: float) -> bool:
    """Whether a bandwidth, rounded as printed, is the measured one."""
    return round(gbs, DECIMALS) == MEASURED_GBS
