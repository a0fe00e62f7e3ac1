"""Which machine shows what the first document measured, of simulated ones that differ in one thing.

Its text fixes three facts of persistent blocks: from 16 to 32 of them float stays as it is; double
gets slower; and 30 are better than either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

PERSISTENT, COALESCED = "block_eq_partition", "copy2d_coalesced"
# Float counts as unchanged within this share, double as slower beyond the other.
UNCHANGED, SLOWER = 0.10, 0.02
# 30 blocks are best if none of the others is better by more than this share.
BEST = 0.005
# From this share of the time on the bus counts as busy all the time.
BUSY = 0.9
# A pause of this share of the time counts.
LONELY = 0.05
# Bandwidths count as equal from this ratio on, float3 as dramatically worse below the other.
AS_FAST, WORSE = 0.9, 0.6


@dataclass(frozen=True)
class Answer:
    """Bandwidths in GB/s of one variant, by dtype and number of blocks.

    `coalesced` holds those of the coalesced copy by (dtype, commands of an access). `lonely_share`
    is that of double on 32 blocks: the time in which fewer than half of the SMs have work.
    `bus_busy` is the share of the time in which the bus is busy, by dtype and number of blocks.
    """

    variant: str
    level: str
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
        return abs(self.float_change) <= UNCHANGED

    @property
    def double_falls(self) -> bool:
        """Whether double is slower on 32 blocks than on 16."""
        return self.double_change < -SLOWER

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


def answers(cells: pd.DataFrame) -> list[Answer]:
    """An answer for each variant, in the order of `cells` (SIMULATION_SCHEMA)."""
    found = []
    for variant, part in cells.groupby("variant", sort=False):
        shared = part[part["kernel"] == PERSISTENT]
        whole = part[part["kernel"] == COALESCED]
        last = shared[(shared["dtype"] == "double") & (shared["num_partition"] == 32)]
        found.append(
            Answer(
                variant=str(variant),
                level=str(part["level"].iloc[0]),
                gbs=_by(shared, "num_partition"),
                coalesced=_by(whole, "commands"),
                lonely_share=float(last["lonely_share"].iloc[0]),
                bus_busy=_by(shared, "num_partition", "bus_busy_share"),
            )
        )
    return found


def _by(
    cells: pd.DataFrame, column: str, value: str = "bandwidth_gbs"
) -> dict[tuple[str, int], float]:
    return {
        (str(dtype), int(key)): float(number)
        for dtype, key, number in zip(cells["dtype"], cells[column], cells[value], strict=True)
    }


# What the report says of the document's questions holds where one of these does.


def second_blocks_slow_double(by: Mapping[str, Answer]) -> bool:
    """Whether double falls on 32 blocks because some SMs have two, and float has nothing to lose.

    With as many SMs as blocks it does not fall, at half the clock the bus is full on 8 blocks.
    """
    board, half = by["board's clock: one bus"], by["half clock: one bus"]
    even, alone = (
        by["board's clock: one bus, 32 SMs"],
        by["board's clock: one bus, one block an SM"],
    )
    return (
        board.double_falls
        and board.lonely_share >= LONELY
        and board.bus_busy["double", 16] >= BUSY > board.bus_busy["float", 16]
        and board.float_change >= -SLOWER
        and not even.double_falls
        and alone.shows_all
        and not half.double_falls
        and half.bus_busy["double", 8] >= BUSY
    )


def banks_contradict(by: Mapping[str, Answer]) -> bool:
    """Whether double falls without banks, and banks in order slow it on 30 blocks too.

    Reads that wait for writes are to blame where it rises once they need not.
    """
    ordered = by["half clock: banks, in order"]
    apart = by["half clock: in order, no turnaround"]
    fallen = (1 - SLOWER) * ordered.gbs["double", 16]
    return (
        by["board's clock: one bus"].double_falls
        and ordered.double_falls
        and ordered.gbs["double", 30] < fallen
        and apart.gbs["double", 32] * (1 - SLOWER) > ordered.gbs["double", 32]
    )


def commands_slow_float3(by: Mapping[str, Answer]) -> bool:
    """Whether float3 is as fast as float by one command at every level, and not by three."""
    return all(
        a.float3_over_float(1) >= AS_FAST and a.float3_over_float(3) < WORSE for a in by.values()
    )


def camping_deepens(by: Mapping[str, Answer]) -> bool:
    """Whether double falls without partitions, and further with those that are camped on."""
    bus, queued = by["board's clock: one bus"], by["board's clock: partitions"]
    spread = by["board's clock: partitions, hashed"]
    return bus.double_falls and queued.double_change < min(bus.double_change, spread.double_change)
