"""Which simulated machine shows what the first document measured, and what that answers.

Its text fixes three facts of persistent blocks: from 16 to 32 of them float stays as it is; double
gets slower; and 30 are better than either. The machines differ in one thing each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from .simulation.machine import Level

Json = dict[str, Any]
PERSISTENT, COALESCED = "block_eq_partition", "copy2d_coalesced"
# A bandwidth has changed, up or down, from this share on; within it, it stays.
CHANGED = 0.10
# 30 blocks are best if none of the others is better by more than this share; within the other
# share they are as good as the better of them, no more.
BEST, EQUAL = 0.005, 0.01
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
    def thirty_margin(self) -> float:
        """By what share 30 blocks are ahead of the better of 16 and 32, for the worse type."""
        return min(
            self.gbs[dtype, 30] / max(self.gbs[dtype, n] for n in (16, 32)) - 1
            for dtype in ("float", "double")
        )

    @property
    def thirty_best(self) -> bool:
        """Whether 30 blocks are best, for float and for double."""
        return self.thirty_margin >= -BEST

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


def as_good(found: Iterable[Answer]) -> int:
    """In how many of them 30 blocks differ from the better of 16 and 32 by no more than EQUAL."""
    return sum(abs(a.thirty_margin) <= EQUAL for a in found)


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


FLOAT3 = 12  # bytes of a structure of three floats
NOT_SHOWN = (
    "This simulated device does not show what the answer rests on; its numbers stand in the tables."
)


def verdicts(sizes: Sizes, n_sm: int, half_warp: int) -> list[Json]:
    """The questions and what the variants of a device with `n_sm` SMs answer, at all `sizes`.

    A device that does not show what an answer rests on gets none.
    """
    commands = commands_slow_float3(sizes)
    shown: dict[str, tuple[bool, Callable[[], str]]] = {
        "Why does double get slower from 16 to 32 blocks?": (
            n_sm < 32 <= 2 * n_sm and second_blocks_slow_double(sizes),
            lambda: _why_double_falls(sizes, n_sm),
        ),
        "Do the banks of the memory explain it?": (
            banks_contradict(sizes),
            lambda: _banks(sizes),
        ),
        "Why is float3's coalesced copy dramatically worse than float's?": (
            commands,
            lambda: _float3(sizes, half_warp),
        ),
        "Does partition camping alone explain any of it?": (
            camping_is_not_needed(sizes) and commands,
            lambda: _camping(sizes),
        ),
    }
    return [
        {"question": question, "answer": answer() if holds else NOT_SHOWN}
        for question, (holds, answer) in shown.items()
    ]


def _why_double_falls(sizes: Sizes, n_sm: int) -> str:
    alone, even = at_levels(sizes, BOARD, ALONE), at_levels(sizes, BOARD, EVEN)
    together, half = at_levels(sizes, BOARD), at_levels(sizes, HALF)
    half_alone = at_levels(sizes, HALF, ALONE)
    second, work = _second_blocks(n_sm)
    full = [a.gbs["double", 16] for a in alone]
    best, equal = [a for a in alone if a.thirty_best], as_good(alone)
    margin = max(abs(a.float_change) for a in alone), min(-a.double_change for a in alone)
    return (
        f"A hypothesis: {second}, and an SM takes its second block after its first, though the "
        f"document says that there is room for both. 16 blocks of double keep the bus busy all the "
        f"time ({min(full):.0f} to {max(full):.0f} GB/s, memory at the board's clock). On 32, "
        f"{work} alone for {_percents(a.lonely_share for a in alone)} of the time and cannot fill "
        f"it. Over all sizes and levels double then does {_double(alone)}; "
        f"float, which does not fill the bus on 16 blocks and has nothing to lose, {_float(alone)} "
        f"(any threshold from {100 * margin[0]:.1f} to {100 * margin[1]:.1f} % tells them apart); "
        f"30 blocks are best in {len(best)} of {len(alone)} cases, but in {equal} within "
        f"{100 * EQUAL:.0f} % of the better of 16 and 32. On 32 SMs double does {_double(even)}. "
        f"If an SM holds both blocks at once, double does {_double(together)}, but float "
        f"{_float(together)}, which was not measured. At the document's halved clock 16 blocks of "
        f"float, too, keep the bus busy "
        f"{_percents(a.bus_busy['float', 16] for a in half_alone)} of the time: double does "
        f"{_double(half)}, and with one block at a time float falls as well "
        f"({_float(half_alone)}); that is why its model could not show it."
    )


def _second_blocks(n_sm: int) -> tuple[str, str]:
    """Which of 32 blocks share an SM, and who works when the others are done."""
    count = 32 - n_sm
    if count == 1:
        return "block 32 is the second block of one SM", "one SM works"
    sms = f"{'two' if count == 2 else count} SMs"
    last = "and 32" if count == 2 else "to 32"
    return f"blocks {n_sm + 1} {last} are second blocks of {sms}", f"{sms} work"


def _banks(sizes: Sizes) -> str:
    ordered = [by["half clock: banks, in order"] for by in sizes.values()]
    bus = [by[named(BOARD, Level.BUS, ALONE)] for by in sizes.values()]
    chosen = [by[named(HALF, Level.BANKS)] for by in sizes.values()]
    whole = [
        name
        for name in next(iter(sizes.values()))
        if all(s[name].shows_all for s in sizes.values())
    ]
    thirty = [a.gbs["double", 30] / a.gbs["double", 16] - 1 for a in ordered]
    return (
        f"They are not needed: on one bus, which knows none, double does {_double(bus)}. In order "
        f"they contradict the document: at half clock double does {_double(ordered)}, but 30 "
        f"blocks, which the document found best, are hit as well ({_span(thirty)}). Reads and "
        f"writes of different blocks take turns at a partition, and each read waits for the write "
        f"before it. A controller that may choose among 32 requests does {_double(chosen)}. "
        f"Variants with all three facts at every size: {'; '.join(whole) or 'none'}."
    )


def _float3(sizes: Sizes, half_warp: int) -> str:
    access = FLOAT3 * half_warp
    return (
        f"Not by camping. If a half-warp's {half_warp} float3 are one access of {access} bytes, as "
        f"the document assumes, float3 is about as fast as float or faster in every variant "
        f"({_times(sizes, 1)} times). But a structure of three floats is aligned to 4 bytes, so "
        f"that compiled code loads and stores it by three commands, 12 bytes apart; by the "
        f"coalescing rule of its day each of them moves all {access} bytes. Traffic triples, and "
        f"float3 gets {_times(sizes, 3)} times float's bandwidth."
    )


def _times(sizes: Sizes, commands: int) -> str:
    ratios = [a.float3_over_float(commands) for by in sizes.values() for a in by.values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def _camping(sizes: Sizes) -> str:
    def changes(name: str) -> str:
        return _double(by[name] for by in sizes.values())

    spread = f"board's clock: partitions, hashed, {ALONE}"
    queued = [by[named(HALF, Level.PARTITIONS)].float3_over_float(1) for by in sizes.values()]
    return (
        f"Not of the fall of double: from 16 to 32 blocks, one an SM at a time, double does "
        f"{changes(named(BOARD, Level.BUS, ALONE))} on one bus, which knows no partitions, "
        f"{changes(named(BOARD, Level.PARTITIONS, ALONE))} with queues at the partitions, and "
        f"{changes(spread)} when addresses are hashed over them. Nor of float3's collapse: one "
        f"access, queues at the partitions, {min(queued):.2f} to {max(queued):.2f} times float's "
        f"bandwidth."
    )


def _double(found: Iterable[Answer]) -> str:
    return _span(a.double_change for a in found)


def _float(found: Iterable[Answer]) -> str:
    return _span(a.float_change for a in found)


def _span(changes: Iterable[float]) -> str:
    """``−1.2 % to +3.4 %``, or one of them where they read the same."""
    values = sorted(changes)
    low, high = signed(values[0]), signed(values[-1])
    return low if low == high else f"{low} to {high}"


def _percents(shares: Iterable[float]) -> str:
    values = sorted(shares)
    return f"{100 * values[0]:.0f} to {100 * values[-1]:.0f} %"


def signed(change: float) -> str:
    """``+1.2 %``, or ``−1.2 %``; `change` is a share."""
    sign = "+" if change >= 0 else "−"
    return f"{sign}{abs(100 * change):.1f} %"
