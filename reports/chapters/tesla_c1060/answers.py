"""Which machine shows what the first document measured, of simulated ones that differ in one thing.

Its text fixes three facts of persistent blocks: from 16 to 32 of them float stays as it is; double
gets slower; and 30 are better than either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from gpushmoo.simulation.machine import Level

PERSISTENT, COALESCED = "block_eq_partition", "copy2d_coalesced"
# A bandwidth has changed, up or down, from this share on; within it, it stays.
CHANGED = 0.10
# 30 blocks are best if none of the others is better by more than this share.
BEST = 0.005
# From this share of the time on the bus counts as busy all the time.
BUSY = 0.9
# A pause of this share of the time counts.
LONELY = 0.05
# Bandwidths count as equal from this ratio on, float3 as dramatically worse below the other.
AS_FAST, WORSE = 0.9, 0.6

# Parts of variants' names: clocks of the memory, and what is changed at every level.
HALF, BOARD = "half clock", "board's clock"
EVEN, ALONE = "32 SMs", "one block an SM"
_DETAIL = {
    Level.BUS: "one bus",
    Level.PARTITIONS: "partitions",
    Level.BANKS: "banks, choice of 32",
}


def named(clock: str, level: Level, changed: str = "") -> str:
    """Name of the variant at a memory clock and level, with one thing changed."""
    return f"{clock}: {_DETAIL[level]}" + (f", {changed}" if changed else "")


@dataclass(frozen=True)
class Answer:
    """Bandwidths in GB/s of one variant at one size, by dtype and number of blocks.

    `coalesced` holds those of the coalesced copy by (dtype, commands of an access). `lonely_share`
    is that of double on 32 blocks: the time in which fewer than half of the SMs have work.
    `bus_busy` is the share of the time in which the bus is busy, by dtype and number of blocks.
    """

    variant: str
    level: str
    side: int
    gbs: dict[tuple[str, int], float]
    coalesced: dict[tuple[str, int], float]
    lonely_share: float
    bus_busy: dict[tuple[str, int], float]

    @property
    def float_change(self) -> float:
        """Relative change of float from 16 to 32 blocks."""
        return self.gbs["float", 32] / self.gbs["float", 16] - 1

    @property
    def double_change(self) -> float:
        """Relative change of double from 16 to 32 blocks."""
        return self.gbs["double", 32] / self.gbs["double", 16] - 1

    @property
    def float_stays(self) -> bool:
        """Whether float is on 32 blocks what it is on 16."""
        return abs(self.float_change) <= CHANGED

    @property
    def double_falls(self) -> bool:
        """Whether double is slower on 32 blocks than on 16."""
        return self.double_change < -CHANGED

    @property
    def thirty_best(self) -> bool:
        """Whether 30 blocks are best, for float and for double."""
        return all(
            self.gbs[dtype, 30] >= (1 - BEST) * max(self.gbs[dtype, n] for n in (16, 32))
            for dtype in ("float", "double")
        )

    @property
    def shows_all(self) -> bool:
        """Whether all three facts come out."""
        return self.float_stays and self.double_falls and self.thirty_best

    def float3_over_float(self, commands: int) -> float:
        """Coalesced copy: bandwidth of float3 by so many commands, over that of float."""
        return self.coalesced["float3", commands] / self.coalesced["float", 1]


# Answers of one size by variant, and those of all sizes by side.
Variants = Mapping[str, Answer]
Sizes = Mapping[int, Variants]


def answers(cells: pd.DataFrame) -> dict[int, dict[str, Answer]]:
    """An answer for each size and variant, in the order of `cells` (SIMULATION_SCHEMA)."""
    found: dict[int, dict[str, Answer]] = {}
    for (side, variant), part in cells.groupby(["width", "variant"], sort=False):
        shared = part[part["kernel"] == PERSISTENT]
        whole = part[part["kernel"] == COALESCED]
        last = shared[(shared["dtype"] == "double") & (shared["num_partition"] == 32)]
        found.setdefault(int(side), {})[str(variant)] = Answer(
            variant=str(variant),
            level=str(part["level"].iloc[0]),
            side=int(side),
            gbs=_by(shared, "num_partition"),
            coalesced=_by(whole, "commands"),
            lonely_share=float(last["lonely_share"].iloc[0]),
            bus_busy=_by(shared, "num_partition", "bus_busy_share"),
        )
    return found


def _by(
    cells: pd.DataFrame, column: str, value: str = "bandwidth_gbs"
) -> dict[tuple[str, int], float]:
    return {
        (str(dtype), int(key)): float(number)
        for dtype, key, number in zip(cells["dtype"], cells[column], cells[value], strict=True)
    }


def at_levels(sizes: Sizes, clock: str, changed: str = "") -> list[Answer]:
    """One machine at every size and level of detail, the sizes from small to large."""
    return [sizes[side][named(clock, level, changed)] for side in sorted(sizes) for level in Level]


# What the report says of the document's questions holds where one of these does.


def second_blocks_slow_double(sizes: Sizes) -> bool:
    """Whether, at all sizes and levels, double falls and float stays with one block an SM alone.

    With as many SMs as blocks double does not fall, nor at half the clock with two blocks an SM;
    with two at the board's clock float does not stay.
    """
    alone = at_levels(sizes, BOARD, ALONE)
    return (
        all(a.double_falls and a.float_stays for a in alone)
        and all(a.lonely_share >= LONELY for a in alone)
        and all(a.bus_busy["double", 16] >= BUSY > a.bus_busy["float", 16] for a in alone)
        and not any(a.double_falls for a in at_levels(sizes, BOARD, EVEN))
        and not any(a.double_falls for a in at_levels(sizes, HALF))
        and not any(a.float_stays for a in at_levels(sizes, BOARD))
        and not any(a.float_stays for a in at_levels(sizes, HALF, ALONE))
    )


def banks_contradict(sizes: Sizes) -> bool:
    """Whether double falls without banks, and banks in order slow it on 30 blocks too."""
    bus = [sizes[side][named(BOARD, Level.BUS, ALONE)] for side in sizes]
    ordered = [by["half clock: banks, in order"] for by in sizes.values()]
    return all(a.double_falls for a in bus + ordered) and all(
        a.gbs["double", 30] < (1 - CHANGED) * a.gbs["double", 16] for a in ordered
    )


def commands_slow_float3(sizes: Sizes) -> bool:
    """Whether float3 is as fast as float by one command at every level, and not by three."""
    return all(
        a.float3_over_float(1) >= AS_FAST and a.float3_over_float(3) < WORSE
        for by in sizes.values()
        for a in by.values()
    )


def camping_is_not_needed(sizes: Sizes) -> bool:
    """Whether double falls on one bus, which knows no partitions, at least as far as with them."""
    return all(
        bus.double_falls and bus.double_change <= queued.double_change
        for bus, queued in zip(
            (by[named(BOARD, Level.BUS, ALONE)] for by in sizes.values()),
            (by[named(BOARD, Level.PARTITIONS, ALONE)] for by in sizes.values()),
            strict=True,
        )
    )
