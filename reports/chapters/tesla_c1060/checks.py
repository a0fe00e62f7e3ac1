"""The numbers of the float-against-double study on a Tesla C1060, computed again beside its own.

Published values are literals in published/ and nowhere else; every one of ours is simulated,
counted or comes from a formula, and a row says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import yaml
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

FLOAT, DOUBLE, FLOAT3 = 4, 8, 12  # bytes of one element
TYPES = {"float": FLOAT, "double": DOUBLE}
# Lanes of an SM, over which the threads of a half-warp go in turns.
LANES = 8


# By unit and quantity, as printed.
PUBLISHED: Mapping[str, Mapping[str, str]] = yaml.load(
    (Path(__file__).parent / "published/numbers.yaml").read_text("utf-8"), yaml.BaseLoader
)
# A ratio is the published 2 within this share.
TWO_WITHIN = 0.05


@dataclass(frozen=True)
class Check:
    """One published number beside ours, both in `unit`; a published measurement has only its own.

    `decimals` is the number of printed decimals. `corrects` marks rows in which ours should differ,
    because it leaves out an error of the source; `arithmetic` marks those that follow from given
    numbers by a formula alone. `within` is the share by which a ratio may differ.
    """

    quantity: str
    unit: str
    published: float
    decimals: int
    ours: float | None
    how: str
    corrects: bool = False
    arithmetic: bool = False
    within: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether ours is the published number, rounded as printed or, a ratio, within a share."""
        if self.ours is None or self.within:
            return self.ours is not None and abs(self.ours / self.published - 1) <= self.within
        return round(self.ours, self.decimals) == self.published

    @property
    def reproduced(self) -> bool:
        """Whether it counts as a number that was simulated or counted again, not worked out."""
        return self.agrees and not self.arithmetic and not self.corrects


def check_published(asked: Mapping[str, Any], out: Path) -> None:
    """Write the published quantities recomputed."""
    machine = load_machine(ROOT / asked["file"])
    write_json(out, {"checks": [asdict(check) for check in published_checks(machine)]})


def published_checks(machine: Machine) -> list[Check]:
    """Return every number that the study's text determines, in the order of the text.

    Numbers that the study takes as given (clocks, latency, timing of the memory), and measured
    ones, are left out.
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


def _check(quantity: str, unit: str, ours: float | None, how: str, **more: Any) -> Check:
    """The row of a number that is in published/numbers.yaml."""
    return _row(quantity, PUBLISHED[unit][quantity], unit, ours, how, **more)


def _row(
    quantity: str, printed: str, unit: str, ours: float | None, how: str, **more: Any
) -> Check:
    decimals = len(printed.partition(".")[2])
    ours = None if ours is None else float(ours)
    return Check(quantity, unit, float(printed), decimals, ours, how, **more)


# Rows that a formula gives from given numbers.
_sum = partial(_check, arithmetic=True)


def _coalescing_checks(machine: Machine) -> Iterator[Check]:
    """Yield part I: a half-warp's requests, and the layout of 32 × 32 tiles of a 256² array."""
    rule, whole = "coalescing rule of compute capability 1.3", "one access of whole elements"
    for name, itemsize in TYPES.items():
        ours = machine.half_warp * itemsize
        yield _sum(f"half-warp of {name}", "bytes", ours, "threads × element")
    for name, itemsize in (*TYPES.items(), ("float3", FLOAT3)):
        ours = len(whole_accesses(itemsize, threads=machine.half_warp))
        yield _check(f"half-warp of {name}", "transactions", ours, f"{rule}, {whole}")
    compiled = sum(len(load.transactions) for load in compiled_loads(FLOAT3))
    how = f"{rule}, three loads of 4 bytes"
    yield _check("half-warp of float3", "transactions", compiled, how, corrects=True)
    tiling = Tiling.square_tiles(256, DOUBLE)
    yield _sum("coalesced copy: block", "threads", tiling.threads, "32 × 8")
    yield _sum("coalesced copy, 256²", "blocks", tiling.n_tiles, "(256 / 32)²")
    row = {
        p
        for tile in range(tiling.tiles_x)
        for p in (s.partition for s in tile_row_stretches(machine, tiling, tile))
    }
    yield _check("8 tiles of double side by side", "partitions", len(row), "map of addresses")
    tile_bytes = tiling.tile_width * FLOAT
    side_by_side = machine.partition_bytes / tile_bytes
    how = "256 bytes / (32 × 4 bytes), within a row"
    yield _sum("tiles of float in a partition", "tiles", side_by_side, how)
    over_all = machine.partitions * side_by_side
    yield _sum("tiles of float in all partitions", "tiles", over_all, f"partitions × {how}")
    yield _sum("row of 32 float3", "bytes", tiling.tile_width * FLOAT3, "32 × 12", corrects=True)


def _memory_checks(machine: Machine) -> Iterator[Check]:
    """Part II: one read, and half-warps on the bus."""
    per_cycle = machine.memory_data_rate_mhz / machine.memory_clock_mhz
    if machine.board_clock_mhz is not None:
        rate = machine.board_clock_mhz * per_cycle
        yield _sum("data rate of the board's memory", "MHz", rate, "clock × two edges")
    name, how = "complete read cycle tRC", "tRAS + tRP"
    yield _sum(name, "memory cycles", machine.t_ras_cycles + machine.t_rp_cycles, how)
    cycles = float(read_cycle_cycles(machine))
    yield _sum(name, "core cycles", cycles, f"({how}) × core clock / memory clock")
    yield _sum("memory interface", "bytes", machine.bus_bytes, "512 bit")
    yield _sum("memory interface", "floats", machine.bus_bytes / FLOAT, "512 bit / 32 bit")
    for name, itemsize in (*TYPES.items(), ("float3", FLOAT3)):
        ours = float(transfer_beats(machine, machine.half_warp * itemsize))
        how = "bytes / width of the bus"
        yield _sum(f"half-warp of {name} on the bus", "bus cycles", ours, how)


def _tile_checks(machine: Machine) -> Iterator[Check]:
    """Part III: tiles as wide as a partition, and the blocks that share them out."""
    for name in reversed(TYPES):
        tiling = Tiling.partition_wide(machine, 256, TYPES[name])
        what = f"tile of {name}"
        how = "as wide as a partition, for 512 threads"
        yield _sum(what, "columns", tiling.tile_width, how)
        yield _sum(what, "rows", tiling.tile_height, how)
        yield _sum(f"tiles of {name} in 256²", "tiles", tiling.n_tiles, "256² / 512")
    doubles = tiling_of(machine)
    for where, ours in (("across", doubles.tiles_x), ("down", doubles.tiles_y)):
        yield _sum(f"tiles of double in 256², {where}", "tiles", ours, "256 / side of a tile")
    steps = partitions_by_step(machine, doubles, 8)
    how = "fewest in any step, map of addresses"
    yield _check("NUM_PARTITION 8, double", "partitions at once", min(map(len, steps)), how)


def tiling_of(machine: Machine) -> Tiling:
    """The study's array of 256² doubles in tiles."""
    return Tiling.partition_wide(machine, 256, DOUBLE)


def _first_chart_checks(machine: Machine) -> Iterator[Check]:
    """The charts of reads with an index of 20 cycles."""
    for assumptions in (FIRST_ASSUMPTIONS, CORRECTED_ASSUMPTIONS):
        for name, itemsize in TYPES.items():
            beats = transfer_beats(machine, machine.half_warp * itemsize)
            ours = float(assumptions.latency_cycles + beats * assumptions.beat_cycles)
            how = f"latency + {assumptions.beat_cycles} a bus width"
            what = f"data of a half-warp of {name}, index {assumptions.index_cycles}"
            yield _sum(what, "cycles after the command", ours, how)
    load = TileCopy.square(machine, 256, FLOAT)
    yield _sum("block of 512 threads", "half-warps", load.half_warps, "512 / 16")
    one = charted(machine, load, 1)
    units = {
        b.half_warp: ceil(b.end / one.unit) for b in reversed(one.bars()) if b.phase == "index"
    }
    back = [t.end for t in one.transfers]
    how = "event simulation, first tile"
    yield _check("hw21's index is computed in time unit", "20 cycles", units[21], how)
    yield _check("hw0's data are back in time unit", "20 cycles", ceil(back[0] / one.unit), how)
    returned = sum(end <= 32 * one.unit for end in back)
    yield _check("back after time unit 32: hw0 to hw10", "half-warps", returned, how)
    runs = {
        (name, blocks): charted(machine, TileCopy.square(machine, 256, size), blocks).run
        for name, size in TYPES.items()
        for blocks in (1, 2, 4, 8)
    }
    gbs = {key: run.bandwidth_gbs for key, run in runs.items()}
    for blocks in (1, 2, 4, 8):
        ratio = gbs["double", blocks] / gbs["float", blocks]
        yield _twice("double / float", f"NUM_PARTITION {blocks}", ratio)
    for name in TYPES:
        for blocks in (2, 4, 8):
            ratio = gbs[name, blocks] / gbs[name, blocks // 2]
            where = f"{name}, NUM_PARTITION {blocks}"
            yield _twice("bandwidth / on half the blocks", where, ratio)
    tiles = runs["float", 2].tiles_per_sm[0]
    yield _check("NUM_PARTITION 2, float, 256²", "tiles of an SM", tiles, "event simulation")


def _twice(law: str, where: str, ratio: float) -> Check:
    how = f"event simulation, reads: {ratio:.4f}; counts as 2 within {100 * TWO_WITHIN:.0f} %"
    printed = PUBLISHED["times"][law]
    return _row(f"{law}, {where}", printed, "times", ratio, how, within=TWO_WITHIN)


def _one_block_checks(machine: Machine) -> Iterator[Check]:
    """256² floats copied by one block, in the three charts of the source."""
    cases: tuple[tuple[str, Chart, Assumptions], ...] = (
        ("read only", Chart(), FIRST_ASSUMPTIONS),
        ("read and write", Chart(writes=True, slotted=True), FIRST_ASSUMPTIONS),
        ("read and write, revised", Chart(writes=True, slotted=True), CORRECTED_ASSUMPTIONS),
    )
    load = TileCopy.square(machine, 256, FLOAT)
    for name, chart, assumptions in cases:
        run = simulate(machine, load, 1, chart=chart, assumptions=assumptions)
        how = (
            f"event simulation, {'slotted' if chart.slotted else 'cycle-exact'}: index "
            f"{assumptions.index_cycles}, latency {assumptions.latency_cycles}, transfer "
            f"{assumptions.beat_cycles} cycles; {float(run.makespan_cycles):.0f} cycles in all"
        )
        yield _check(f"one block, float, 256², {name}", "GB/s", run.bandwidth_gbs, how)
    how = "the document's measurement, of a size that it does not give; see the joint search"
    yield _check("one block, float, measured", "GB/s", None, how)


def _critical_path_checks(machine: Machine) -> Iterator[Check]:
    """Which SMs have how many blocks and tiles of 256² doubles."""
    load = TileCopy.square(machine, 256, DOUBLE)
    for num_partition in (32, 30):
        what = f"a block of NUM_PARTITION {num_partition}, double, 256²"
        how = f"{load.n_tiles} / {num_partition}"
        yield _sum(what, "tiles", load.n_tiles / num_partition, how)
    fit = resident_blocks(machine, load)
    yield _sum("blocks of 512 threads that an SM holds", "blocks", fit, "1024 / 512")
    sms = {n: assign_blocks(machine, tiling_of(machine), n) for n in (30, 32)}
    how = "blocks given out in turn"
    for blocks in (2, 1):
        ours = sum(len(sm.blocks) == blocks for sm in sms[32])
        what = f"SMs with {blocks} {'blocks' if blocks > 1 else 'block'}, NUM_PARTITION 32"
        yield _check(what, "SMs", ours, how)
    for tiles in (5, 4):
        ours = sum(sm.n_tiles == tiles for sm in sms[30])
        yield _check(f"SMs with {tiles} tiles, NUM_PARTITION 30", "SMs", ours, how)
    how = "tiles of the busiest SM in the event simulation"
    for num_partition in (16, 30, 32):
        run = simulate(machine, load, num_partition, chart=Chart(writes=True))
        what = f"critical path, double, 256², NUM_PARTITION {num_partition}"
        yield _check(what, "tiles", run.critical_path_tiles, how)


def _second_chart_checks(machine: Machine) -> Iterator[Check]:
    """The corrected durations, in core cycles."""
    unit = "core cycles"
    turns = machine.half_warp / LANES
    measured = PUBLISHED[unit]["index computation, measured"]
    index, how = "index computation of a half-warp", "× threads / lanes of an SM"
    yield _sum(index, unit, float(measured) * turns, f"{measured} {how}")
    yield _sum(f"{index}, “18 x 2”", unit, 18 * turns, f"18 {how}", corrects=True)
    beat = float(machine.beat_cycles)
    how = "core clock / data rate"
    transfer = "one transfer of 512 bit"
    yield _sum(f"{transfer}, “1 memory cycle”", unit, beat, how, corrects=True)
    yield _sum(transfer, unit, beat, how)
    for name, itemsize in TYPES.items():
        ours = float(burst_cycles(machine, machine.half_warp * itemsize))
        yield _sum(f"a half-warp of {name} of every SM", unit, ours, "transfer × SMs")


def _saturated_checks(machine: Machine) -> Iterator[Check]:
    """512² elements over all SMs: the formula with its slip, without it, and the simulation."""
    copy = SaturatedCopy()
    tiles = TileCopy.square(machine, copy.side, FLOAT).n_tiles
    yield _sum("tiles of float in 512²", "tiles", tiles, "512² / 512")
    yield _sum("tiles of a block, 512²", "tiles", tiles / machine.n_sm, "512 tiles / SMs")
    how = "block's half-warps − time units of its wait for data"
    hidden = "half-warps whose first index is hidden"
    yield _sum(hidden, "half-warps", copy.hidden_half_warps, how)
    names = {name: f"saturated, {name}, 512²" for name in TYPES}
    printed = {name: PUBLISHED["GB/s"][what] for name, what in names.items()}
    both = f"{float(printed['double']) / float(printed['float']):.5f}"
    for multiplier in Multiplier:
        more = {"corrects": multiplier is Multiplier.CORRECTED, "arithmetic": True}
        how = f"closed formula, bursts × {multiplier.value}"
        for name, itemsize in TYPES.items():
            ours = saturated_bandwidth_gbs(machine, copy, itemsize, multiplier)
            yield _check(names[name], "GB/s", ours, how, **more)
        ratio = double_over_float(machine, copy, multiplier)
        what = "saturated, double / float, of the two published"
        yield _row(what, both, "times", ratio, how, **more)
    half = machine.bus_bytes * machine.memory_data_rate_mhz / 1e3
    how = "bus width × data rate, which nothing that crosses the bus can pass"
    what = "half of the board's bandwidth"
    yield _row(what, printed["float"], "GB/s", half, how, corrects=True, arithmetic=True)
    for name, itemsize in TYPES.items():
        run = simulate_saturated(machine, copy, itemsize)
        how = (
            f"event simulation, cycle-exact, {sum(run.tiles_per_sm)} tiles, until the last write "
            f"has crossed the bus (until the last command: {run.bandwidth_gbs:.4f} GB/s)"
        )
        yield _check(names[name], "GB/s", run.drained_bandwidth_gbs, how, corrects=True)


# GB/s of one block of float, with the decimals that the document prints.
_MEASURED = PUBLISHED["GB/s"]["one block, float, measured"]
MEASURED_GBS = float(_MEASURED)
DECIMALS = len(_MEASURED.partition(".")[2])
