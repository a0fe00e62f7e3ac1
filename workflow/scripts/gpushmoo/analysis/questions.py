"""Which machine shows what the first document measured, of simulated ones that differ in one thing.

Its text fixes three facts of persistent blocks: from 16 to 32 of them float stays as it is; double
gets slower; and 30 are better than either.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

PERSISTENT, COALESCED = "block_eq_partition", "copy2d_coalesced"
# Float counts as unchanged within this share, double as slower beyond the other.
UNCHANGED, SLOWER = 0.10, 0.02
# 30 blocks are best if none of the others is better by more than this share.
BEST = 0.005


@dataclass(frozen=True)
class Answer:
    """Bandwidths in GB/s of one variant, by dtype and number of blocks.

    `coalesced` holds those of the coalesced copy by (dtype, commands of an access). `lonely_share`
    is that of double on 32 blocks: the time in which fewer than half of the SMs have work.
    """

    variant: str
    level: str
    gbs: dict[tuple[str, int], float]
    coalesced: dict[tuple[str, int], float]
    lonely_share: float

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
            )
        )
    return found


def _by(cells: pd.DataFrame, column: str) -> dict[tuple[str, int], float]:
    return {
        (str(dtype), int(value)): float(gbs)
        for dtype, value, gbs in zip(
            cells["dtype"], cells[column], cells["bandwidth_gbs"], strict=True
        )
    }
