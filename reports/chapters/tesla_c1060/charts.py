"""What Gantt charts of the study show, and its formula of the saturated case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from .simulation.machine import Machine, burst_cycles, exact, transfer_beats
from .simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    Event,
    Run,
    TileCopy,
    simulate,
)


class Multiplier(Enum):
    """What the saturated formula multiplies a burst by."""

    PUBLISHED = "SMs of the device"
    CORRECTED = "half-warps of a tile"


@dataclass(frozen=True)
class SaturatedCopy:
    """A copy of side × side elements that keeps all SMs and the bus busy.

    `tiles_per_block` is rounded as in the source (512 tiles over 30 blocks taken as 17).
    """

    side: int = 512
    tiles_per_block: int = 17
    half_warps: int = 32

    @property
    def hidden_half_warps(self) -> int:
        """Half-warps of the first tile whose index computation overlaps with memory.

        The source gives their number without a derivation: those that are not left over by the
        wait for a half-warp's data in its corrected chart, in time units.
        """
        wait = CORRECTED_ASSUMPTIONS.latency_cycles + CORRECTED_ASSUMPTIONS.beat_cycles
        return self.half_warps - ceil(wait / CORRECTED_ASSUMPTIONS.index_cycles)


def start_up_cycles(machine: Machine, copy: SaturatedCopy) -> int:
    """X: core cycles of index computation before the bus is saturated."""
    return (copy.half_warps - copy.hidden_half_warps) * machine.index_cycles


def streaming_cycles(
    machine: Machine, copy: SaturatedCopy, itemsize: int, multiplier: Multiplier
) -> Fraction:
    """Y for elements of `itemsize` bytes: core cycles of reads and writes back to back."""
    factor = machine.n_sm if multiplier is Multiplier.PUBLISHED else copy.half_warps
    burst = burst_cycles(machine, machine.half_warp * itemsize)
    return copy.tiles_per_block * 2 * burst * factor


def saturated_bandwidth_gbs(
    machine: Machine, copy: SaturatedCopy, itemsize: int, multiplier: Multiplier
) -> float:
    """Bytes read and written per second, GB/s (10⁹ bytes): 2 · side² · itemsize / (X + Y)."""
    n_bytes = 2 * copy.side**2 * itemsize
    cycles = start_up_cycles(machine, copy) + streaming_cycles(machine, copy, itemsize, multiplier)
    # Bytes per cycle times 10⁹ cycles per second are GB/s.
    return float(n_bytes / cycles * exact(machine.core_clock_ghz))


def double_over_float(machine: Machine, copy: SaturatedCopy, multiplier: Multiplier) -> float:
    """Bandwidth ratio of 8-byte to 4-byte elements, 1 + X / (X + 2Y); above 1 for any X > 0.

    X is paid once for either type, and is spread over twice the bytes for the wider one.
    """
    x = start_up_cycles(machine, copy)
    y = streaming_cycles(machine, copy, 4, multiplier)
    return float(1 + x / (x + 2 * y))


_READS = Chart()
# Above the bars of the largest run that is charted, 512 tiles that are read and written.
_ALL_BARS = 4 * 64 * 512
# Phases in which a half-warp holds its SM; in the others it waits for memory.
_HOLDING = ("index", "write")


class Transfer(NamedTuple):
    """Data of one half-warp on the memory bus, `start` to `end` in core cycles.

    `phase` is ``read`` or ``store``, as of the event that waits for it.
    """

    sm: int
    block: int
    half_warp: int
    phase: str
    start: Fraction
    end: Fraction


class Bar(NamedTuple):
    """A bar of a chart in which blocks are drawn as one; `start` to `end` in core cycles."""

    half_warp: int
    phase: str
    start: Fraction
    end: Fraction


class Queues(NamedTuple):
    """Half-warps of one SM at one moment.

    `ready` is in the order in which round robin will take them, `waiting` in the order of their
    commands. `running` was taken at or before this moment and still holds the SM.
    """

    ready: tuple[int, ...]
    running: int | None
    waiting: tuple[int, ...]


class CopyPhase(NamedTuple):
    """A stretch of the saturated copy's closed formula; `phase` as of a bar, in core cycles."""

    phase: str
    start: Fraction
    end: Fraction


@dataclass(frozen=True)
class Charted:
    """A run with all its bars, what it was run with, and its transfers in the bus's order."""

    run: Run
    load: TileCopy
    assumptions: Assumptions
    chart: Chart
    transfer_cycles: Fraction
    transfers: tuple[Transfer, ...]

    @property
    def unit(self) -> int:
        """Core cycles of the charts' time unit: one index computation."""
        return self.assumptions.index_cycles

    def bars(self, block: int = 0) -> tuple[Event, ...]:
        """The bars of one block in the order in which the simulation made them."""
        return tuple(event for event in self.run.events if event.block == block)


@lru_cache(maxsize=16)
def charted(
    machine: Machine,
    load: TileCopy,
    blocks: int,
    *,
    chart: Chart = _READS,
    assumptions: Assumptions = FIRST_ASSUMPTIONS,
) -> Charted:
    """Simulate `blocks` persistent blocks over the tiles of `load` and keep every bar."""
    run = simulate(
        machine, load, blocks, chart=chart, assumptions=assumptions, trace_limit=_ALL_BARS
    )
    each = transfer_beats(machine, load.half_warp_bytes) * assumptions.beat_cycles
    transfers = bus_transfers(run.events, each, assumptions.latency_cycles)
    return Charted(run, load, assumptions, chart, each, transfers)


def bus_transfers(
    events: Iterable[Event], transfer_cycles: Fraction, latency_cycles: int
) -> tuple[Transfer, ...]:
    """Return the times at which the data of each command cross the bus, first come first served.

    `events` are all bars of a run from its begin, in the simulation's order, which for ``read`` and
    ``store`` is the order of the commands. A transfer starts `latency_cycles` after its command, or
    when the bus is free. It ends with its bar, unless the chart is slotted: in that case the bar
    continues to the end of the slot.
    """
    transfers: list[Transfer] = []
    free = Fraction(0)
    for event in events:
        if event.phase in ("read", "store"):
            start = max(free, event.start + latency_cycles)
            free = start + transfer_cycles
            transfers.append(Transfer(*event[:4], start, free))
    return tuple(transfers)


def queues_at(events: Iterable[Event], time: Fraction | int, half_warps: int) -> Queues:
    """Queues of one SM at `time`, after the scheduler has chosen, from all bars of its block.

    For charts that are not slotted, in which one half-warp at a time holds the SM. A half-warp
    that has not begun is ready, and so is one whose data are back. `time` is at least 0, when the
    first half-warp begins.
    """
    latest: dict[int, Event] = {}
    for event in sorted(events, key=lambda e: e.start):
        if event.start <= time:
            latest[event.half_warp] = event
            if event.phase in _HOLDING:
                last = event
    # A command leaves when its index computation ends, or a little later.
    waiting = {
        half_warp: event.start
        for half_warp, event in latest.items()
        if (event.end <= time if event.phase in _HOLDING else event.end > time)
    }
    running = last.half_warp if last.end > time else None
    turn = sorted(range(half_warps), key=lambda n: (n - last.half_warp - 1) % half_warps)
    return Queues(
        ready=tuple(n for n in turn if n not in waiting and n != running),
        running=running,
        waiting=tuple(sorted(waiting, key=lambda n: waiting[n])),
    )


def combined(events: Iterable[Event | Transfer]) -> tuple[Bar, ...]:
    """The charts of all blocks in one: a bar of each phase, tile and half-warp for all blocks.

    It reaches from the first start to the last end of the blocks' own bars or transfers.
    """
    seen: dict[tuple[int, int, str], int] = defaultdict(int)
    spans: dict[tuple[int, str, int], tuple[Fraction, Fraction]] = {}
    for event in events:
        origin = (event.block, event.half_warp, event.phase)
        key = (event.half_warp, event.phase, seen[origin])
        seen[origin] += 1
        start, end = spans.get(key, (event.start, event.end))
        spans[key] = (min(start, event.start), max(end, event.end))
    return tuple(Bar(hw, phase, *span) for (hw, phase, _), span in spans.items())


def in_step(events: Iterable[Event]) -> bool:
    """Whether all blocks of equally many tiles compute their indices at the same times."""
    starts: dict[int, list[Fraction]] = defaultdict(list)
    for event in events:
        if event.phase == "index":
            starts[event.block].append(event.start)
    return len({tuple(times) for times in starts.values()}) <= 1


def phases_of_bus(transfers: Iterable[Transfer]) -> tuple[CopyPhase, ...]:
    """Stretches in which the bus carries data of one direction without a gap."""
    runs: list[CopyPhase] = []
    for transfer in transfers:
        if runs and runs[-1].phase == transfer.phase and runs[-1].end == transfer.start:
            runs[-1] = runs[-1]._replace(end=transfer.end)
        else:
            runs.append(CopyPhase(transfer.phase, transfer.start, transfer.end))
    return tuple(runs)


def coarse(pieces: Iterable[CopyPhase], least: Fraction | int) -> tuple[CopyPhase, ...]:
    """Make runs of pieces that are each shorter than `least` core cycles one of phase ``both``."""
    joined: list[CopyPhase] = []
    for piece in pieces:
        if piece.end - piece.start < least:
            if joined and joined[-1].phase == "both" and joined[-1].end == piece.start:
                joined[-1] = joined[-1]._replace(end=piece.end)
                continue
            piece = piece._replace(phase="both")
        joined.append(piece)
    return tuple(joined)


def vacuum_cycles(transfers: Sequence[Transfer]) -> Fraction:
    """Core cycles for which the bus rests between its first and its last transfer."""
    rests = (after.start - before.end for before, after in pairwise(transfers))
    return sum(rests, Fraction(0))


def tile_periods(run: Run, block: int = 0) -> tuple[Fraction, ...]:
    """Core cycles between the starts of consecutive tiles of a block."""
    return tuple(after - before for before, after in pairwise(run.tile_starts[block]))


def formula_pieces(
    machine: Machine, copy: SaturatedCopy, itemsize: int, multiplier: Multiplier
) -> tuple[CopyPhase, ...]:
    """X, then Y tile by tile as its reads and its writes: X + Y core cycles in all."""
    x = Fraction(start_up_cycles(machine, copy))
    y = streaming_cycles(machine, copy, itemsize, multiplier)
    half = y / (2 * copy.tiles_per_block)
    pieces = [CopyPhase("index", Fraction(0), x)]
    for number in range(2 * copy.tiles_per_block):
        start = x + number * half
        pieces.append(CopyPhase("store" if number % 2 else "read", start, start + half))
    return tuple(pieces)
