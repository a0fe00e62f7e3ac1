"""The document's open questions and what the simulated machines answer, as the page's sentences."""

from __future__ import annotations

from collections.abc import Iterable

from gpushmoo.report.simulated import signed
from gpushmoo.report.tables import Json
from gpushmoo.simulation.machine import Level

from .answers import (
    ALONE,
    BOARD,
    EVEN,
    HALF,
    Answer,
    Sizes,
    at_levels,
    banks_contradict,
    camping_is_not_needed,
    commands_slow_float3,
    named,
    second_blocks_slow_double,
)

FLOAT3 = 12  # bytes of a structure of three floats


def verdicts(sizes: Sizes, n_sm: int, half_warp: int) -> list[Json]:
    """The questions and what the variants of a device with `n_sm` SMs answer, at all `sizes`.

    A device that does not show what an answer rests on gets its numbers alone.
    """
    return [
        {
            "question": "Why does double get slower from 16 to 32 blocks?",
            "answer": _why_double_falls(sizes, n_sm),
        },
        {"question": "Do the banks of the memory explain it?", "answer": _banks(sizes)},
        {
            "question": "Why is float3's coalesced copy dramatically worse than float's?",
            "answer": _float3(sizes, half_warp),
        },
        {"question": "Does partition camping alone explain any of it?", "answer": _camping(sizes)},
    ]


def _why_double_falls(sizes: Sizes, n_sm: int) -> str:
    alone, even = at_levels(sizes, BOARD, ALONE), at_levels(sizes, BOARD, EVEN)
    together, half = at_levels(sizes, BOARD), at_levels(sizes, HALF)
    half_alone = at_levels(sizes, HALF, ALONE)
    if not (n_sm < 32 <= 2 * n_sm and second_blocks_slow_double(sizes)):
        return (
            f"This simulated device, of {n_sm} SMs, does not tell. From 16 to 32 blocks, over all "
            f"sizes and levels, with one block an SM at a time at the board's clock double does "
            f"{_double(alone)} and float {_float(alone)}; with as many as fit {_double(together)} "
            f"and {_float(together)}; on 32 SMs double does {_double(even)}, at half the clock "
            f"{_double(half)}."
        )
    second, work = _second_blocks(n_sm)
    full = [a.gbs["double", 16] for a in alone]
    best = [a for a in alone if a.thirty_best]
    margin = max(abs(a.float_change) for a in alone), min(-a.double_change for a in alone)
    return (
        f"Because {second}, if an SM takes its second block after its first. 16 blocks of double "
        f"keep the bus busy all the time ({min(full):.0f} to {max(full):.0f} GB/s, memory at the "
        f"board's clock). On 32 {work} alone for {_percents(a.lonely_share for a in alone)} of the "
        f"time and cannot fill it. Over all sizes and levels double then does {_double(alone)}; "
        f"float, which does not fill the bus on 16 blocks and has nothing to lose, {_float(alone)} "
        f"(any threshold from {100 * margin[0]:.1f} to {100 * margin[1]:.1f} % tells them apart); "
        f"30 blocks are best in {len(best)} of {len(alone)} cases. On 32 SMs double does "
        f"{_double(even)}. If an SM holds both blocks at once, for which the document says there "
        f"is room, double does {_double(together)}, but float {_float(together)}, which was not "
        f"measured. At the document's halved clock 16 blocks of float, too, keep the bus busy "
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
    if banks_contradict(sizes):
        text = (
            f"They are not needed: on one bus, which knows none, double does {_double(bus)}. In "
            f"order they contradict the document: at half clock double does {_double(ordered)}, "
            f"but 30 blocks, which the document found best, are hit as well ({_span(thirty)}). "
            f"Reads and writes of different blocks take turns at a partition, and each read waits "
            f"for the write before it."
        )
    else:
        text = (
            f"This simulated device does not tell. From 16 to 32 blocks double does {_double(bus)} "
            f"on one bus at the board's clock, which knows no banks, and {_double(ordered)} with "
            f"banks in order at half clock, where it does {_span(thirty)} on 30."
        )
    return (
        f"{text} A controller that may choose among 32 requests does {_double(chosen)}. Variants "
        f"with all three facts at every size: {'; '.join(whole) or 'none'}."
    )


def _float3(sizes: Sizes, half_warp: int) -> str:
    access = FLOAT3 * half_warp
    if not commands_slow_float3(sizes):
        return (
            f"This simulated device does not tell. By one access of a half-warp float3 gets "
            f"{_times(sizes, 1)} times float's bandwidth over all variants, by the three commands "
            f"of compiled code {_times(sizes, 3)} times."
        )
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
    text = (
        f"from 16 to 32 blocks, one an SM at a time, double does "
        f"{changes(named(BOARD, Level.BUS, ALONE))} on one bus, which knows no partitions, "
        f"{changes(named(BOARD, Level.PARTITIONS, ALONE))} with queues at the partitions, and "
        f"{changes(spread)} when addresses are hashed over them."
    )
    queued = [by[named(HALF, Level.PARTITIONS)].float3_over_float(1) for by in sizes.values()]
    one_access = (
        f"one access, queues at the partitions, {min(queued):.2f} to {max(queued):.2f} times"
    )
    if not (camping_is_not_needed(sizes) and commands_slow_float3(sizes)):
        return (
            f"This simulated device does not tell: {text} With {one_access} float's bandwidth for "
            "float3."
        )
    return (
        f"Not of the fall of double: {text} Nor of float3's collapse: {one_access} float's "
        "bandwidth."
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
