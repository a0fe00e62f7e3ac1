"""The numbers of the float-against-double study on a Tesla C1060, computed anew beside its own.

Published values are literals here and nowhere else; every one of ours is simulated or comes
from a formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpushmoo.simulation.dram import read_cycle_cycles
from gpushmoo.simulation.machine import Machine
from gpushmoo.simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    Run,
    TileCopy,
    simulate,
)

from .saturation import Multiplier, SaturatedCopy, double_over_float, saturated_bandwidth_gbs

FLOAT, DOUBLE = 4, 8  # bytes of one element


@dataclass(frozen=True)
class Check:
    """One published number beside ours, both in `unit`.

    `decimals` is how many the source printed. `corrects` marks rows in which ours is meant to
    differ, because it leaves out a slip of the source.
    """

    quantity: str
    unit: str
    published: float
    decimals: int
    ours: float
    how: str
    corrects: bool = False

    @property
    def agrees(self) -> bool:
        """Whether ours, rounded to the printed decimals, is the published number."""
        return round(self.ours, self.decimals) == self.published


def published_checks(machine: Machine) -> list[Check]:
    """Every number of the study that its text fixes, in the order in which it appears there."""
    return [
        Check(
            "complete read cycle tRC",
            "core cycles",
            110.5,
            1,
            float(read_cycle_cycles(machine)),
            "(tRAS + tRP) × core clock / memory clock",
        ),
        *_one_block_checks(machine),
        *_critical_path_checks(machine),
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


def _critical_path_checks(machine: Machine) -> Iterator[Check]:
    load = TileCopy.square(machine, 256, DOUBLE)
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


def _saturated_checks(machine: Machine) -> Iterator[Check]:
    """512² elements over all SMs: the formula with its slip, without it, and the simulation."""
    copy = SaturatedCopy()
    types = (("float", FLOAT, 54.3553), ("double", DOUBLE, 54.5904))
    for multiplier in Multiplier:
        corrects = multiplier is Multiplier.CORRECTED
        how = f"closed formula, bursts × {multiplier.value}"
        for name, itemsize, published in types:
            ours = saturated_bandwidth_gbs(machine, copy, itemsize, multiplier)
            yield Check(f"saturated, {name}, 512²", "GB/s", published, 4, ours, how, corrects)
        ratio = double_over_float(machine, copy, multiplier)
        yield Check("saturated, double / float", "1", 1.0043251, 7, ratio, how, corrects)
    for name, itemsize, published in types:
        run = simulate_saturated(machine, copy, itemsize)
        how = (
            f"event simulation, cycle-exact, {sum(run.tiles_per_sm)} tiles, until the last write "
            f"has crossed the bus (until the last command: {run.bandwidth_gbs:.4f} GB/s)"
        )
        ours = run.drained_bandwidth_gbs
        yield Check(f"saturated, {name}, 512²", "GB/s", published, 4, ours, how, corrects=True)
