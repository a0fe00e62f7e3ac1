"""Event simulation of half-warps that copy tiles on the SMs of a simulated device.

Each half-warp computes an index (which holds its SM), reads, and in charts with writes issues a
write command and waits for it before its next tile. An SM serves its resident half-warps in strict
round robin: the next one served is the first ready one after the last one served. All SMs share one
memory bus, first come first served. Partitions count as perfectly spread, so the bus is the only
memory resource.

Reads are awaited, writes are posted: a run ends when every half-warp has got its last data and
issued its last write command, which is also when a block leaves its SM.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from .machine import Machine, exact, transfer_beats


@dataclass(frozen=True)
class Assumptions:
    """Durations of a chart, core cycles; `beat_cycles` is the bus time of one bus width."""

    index_cycles: int
    latency_cycles: int
    beat_cycles: Fraction

    def __post_init__(self) -> None:
        """Refuse durations with which time would not advance."""
        if self.index_cycles < 1 or self.latency_cycles < 0 or self.beat_cycles <= 0:
            raise ValueError(
                "index_cycles must be at least 1, latency_cycles at least 0 and beat_cycles "
                f"above 0, not {self.index_cycles}, {self.latency_cycles}, {self.beat_cycles}"
            )

    @classmethod
    def of(cls, machine: Machine) -> Assumptions:
        """The durations that the device file states, with the exact clock ratio of the bus."""
        return cls(machine.index_cycles, machine.latency_cycles, machine.beat_cycles)


# The source's charts round the bus beat to whole cycles; its revision doubles the index
# computation (8 lanes serve 16 threads) and takes a beat of 13/8 cycles as 2.
FIRST_ASSUMPTIONS = Assumptions(20, 400, Fraction(1))
CORRECTED_ASSUMPTIONS = Assumptions(36, 400, Fraction(2))


@dataclass(frozen=True)
class Chart:
    """How a run is charted.

    `writes` adds the write of every tile. A `slotted` chart puts everything on a grid of
    `index_cycles`: a slot of an SM holds one index computation or up to `index_cycles` write
    commands, a read command fills the slot after its index computation without holding the SM,
    and commands leave, and data arrive, at slot boundaries.
    """

    writes: bool = False
    slotted: bool = False


@dataclass(frozen=True)
class TileCopy:
    """Tiles to copy; each of a block's `half_warps` moves `half_warp_bytes` of every tile."""

    n_tiles: int
    half_warps: int
    half_warp_bytes: int

    def __post_init__(self) -> None:
        """Raise ValueError if the workload is empty."""
        for name in ("n_tiles", "half_warps", "half_warp_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @classmethod
    def square(cls, machine: Machine, side: int, itemsize: int, threads: int = 512) -> TileCopy:
        """A side × side array in tiles of `threads` elements, one partition wide."""
        width = machine.partition_bytes // itemsize
        height = threads // width
        if width * height != threads or side % width or side % height:
            raise ValueError(
                f"{side}×{side} elements of {itemsize} bytes do not split into tiles of "
                f"{threads} elements that are one partition ({machine.partition_bytes} bytes) wide"
            )
        n_bytes = machine.half_warp * itemsize
        return cls(side * side // threads, threads // machine.half_warp, n_bytes)


class Event(NamedTuple):
    """One bar of a chart over time, `start` to `end` in core cycles.

    `phase` is ``index``, ``read`` (command issued to data back), ``write`` (the command) or
    ``store`` (write command issued to write complete); ``read`` includes waiting for the bus.
    """

    sm: int
    block: int
    half_warp: int
    phase: str
    start: Fraction
    end: Fraction


@dataclass(frozen=True)
class Run:
    """Result of one simulation; times in core cycles.

    `tile_starts[b]` has the start of the first index computation of each tile of block b, and
    `sm_of_block[b]` the SM that it ran on (None for a block without tiles). The bus carries posted
    writes until `drained_cycles`, which may be after `makespan_cycles`.
    """

    makespan_cycles: Fraction
    drained_cycles: Fraction
    bus_busy_cycles: Fraction
    bytes_moved: int
    core_clock_ghz: float
    tiles_per_sm: tuple[int, ...]
    tile_starts: tuple[tuple[Fraction, ...], ...]
    sm_of_block: tuple[int | None, ...]
    events: tuple[Event, ...]

    @property
    def critical_path_tiles(self) -> int:
        """Tiles that the busiest multiprocessor copies, one after the other."""
        return max(self.tiles_per_sm)

    @property
    def bandwidth_gbs(self) -> float:
        """Bytes read, and written where the chart writes, per makespan: GB/s of 10⁹ bytes/s.

        The last writes count although the makespan does not wait for them, as in the source; on
        a saturated bus this can exceed the bus's own rate. `drained_bandwidth_gbs` cannot.
        """
        return self._gbs(self.makespan_cycles)

    @property
    def drained_bandwidth_gbs(self) -> float:
        """Divide the bytes by the time until the last posted write has crossed the bus, GB/s."""
        return self._gbs(self.drained_cycles)

    def _gbs(self, cycles: Fraction) -> float:
        # Bytes per core cycle times 10⁹ cycles per second are GB/s.
        return float(self.bytes_moved / cycles * exact(self.core_clock_ghz))


def simulate(
    machine: Machine,
    workload: TileCopy,
    num_partition: int,
    *,
    chart: Chart = Chart(),
    assumptions: Assumptions | None = None,
    trace_limit: int = 0,
) -> Run:
    """Run `num_partition` blocks over the tiles; block b takes tiles b, b + num_partition, ….

    Without `assumptions` the durations are those of `machine`. At most `trace_limit` bars of the
    chart over time are kept.
    """
    if num_partition < 1:
        raise ValueError(f"num_partition must be at least 1, not {num_partition}")
    durations = assumptions or Assumptions.of(machine)
    simulation = _Simulation(machine, workload, num_partition, chart, durations, trace_limit)
    return simulation.run()


def resident_blocks(machine: Machine, workload: TileCopy) -> int:
    """Blocks of `workload` that one SM holds at once; ValueError when not even one fits."""
    threads = workload.half_warps * machine.half_warp
    if threads > machine.max_threads_per_sm:
        raise ValueError(
            f"a block of {threads} threads does not fit an SM of {machine.max_threads_per_sm}"
        )
    return machine.max_threads_per_sm // threads


@dataclass(slots=True)
class _Sm:
    """State of one SM. A lane is one resident half-warp; sets of lanes are bit masks."""

    number: int
    tiles_done: list[int]  # per lane
    block: list[int]  # per block slot
    block_tiles: list[int]  # per block slot
    lanes_left: list[int]  # per block slot: half-warps that still have work
    ready: int = 0
    writing: int = 0  # lanes whose next operation is a write command
    last_served: int = -1
    free_at: int = 0
    alarm: int = -1  # time of the one valid entry of this SM in the agenda
    tiles: int = 0
    # Both queues fill in order of time: an SM does one thing after the other, and the bus
    # returns data in the order of the commands. So neither needs a heap.
    commands: deque[tuple[int, int]] = field(default_factory=deque)  # (issue time, lane)
    returning: deque[tuple[int, int]] = field(default_factory=deque)  # (time back, lane)


class _Simulation:
    """Agenda of the SMs in order of time, ties in order of SM; one shared bus.

    Times are integers in ticks of 1/`ticks` cycle, the common denominator of all durations
    (13/8 cycles are 13 ticks of 1/8), so that runs repeat exactly and ties are true ties.
    """

    def __init__(
        self,
        machine: Machine,
        workload: TileCopy,
        num_partition: int,
        chart: Chart,
        durations: Assumptions,
        trace_limit: int,
    ) -> None:
        self.workload, self.num_partition, self.trace_limit = workload, num_partition, trace_limit
        self.core_clock_ghz, self.writes = machine.core_clock_ghz, chart.writes
        beats = transfer_beats(machine, workload.half_warp_bytes)
        transfer = beats * durations.beat_cycles
        self.ticks, self.transfer = transfer.denominator, transfer.numerator
        self.index = durations.index_cycles * self.ticks
        self.latency = durations.latency_cycles * self.ticks
        # From the end of the index computation to the issue of the read command.
        self.command_gap = self.index if chart.slotted else 0
        self.write_hold = self.index if chart.slotted else self.ticks
        self.writes_per_hold = durations.index_cycles if chart.slotted else 1
        self.boundary = self.index if chart.slotted else 1

        width = workload.half_warps
        self.slots = resident_blocks(machine, workload)
        self.sms = [
            _Sm(n, [0] * (self.slots * width), [0] * self.slots, [0] * self.slots, [0] * self.slots)
            for n in range(machine.n_sm)
        ]
        self.waiting = iter(range(min(num_partition, workload.n_tiles)))  # blocks with tiles
        # Entries are (time, SM, slot): the slot of a block that ends, or `slots` for a step of
        # the SM, which so comes after the block ends of the same time.
        self.agenda: list[tuple[int, int, int]] = []
        self.bus_free = 0
        self.transfers = 0
        self.makespan = 0
        self.tile_starts: list[list[int]] = [[] for _ in range(num_partition)]
        self.sm_of_block: list[int | None] = [None] * num_partition
        self.bars: list[tuple[int, int, int, str, int, int]] = []  # fields of Event, in ticks

    def run(self) -> Run:
        """Place the first wave, then work through the agenda until nothing is left."""
        for slot in range(self.slots):
            for sm in self.sms:
                self._place_block(sm, slot, 0)
        while self.agenda:
            now, number, slot = heapq.heappop(self.agenda)
            sm = self.sms[number]
            if slot < self.slots:
                self._place_block(sm, slot, now)
            elif now == sm.alarm:
                self._step(sm, now)
        return self._result()

    def _place_block(self, sm: _Sm, slot: int, now: int) -> None:
        """Give a free slot of an SM to the next waiting block, if there is one."""
        block = next(self.waiting, None)
        if block is None:
            return
        width = self.workload.half_warps
        lanes = slice(slot * width, (slot + 1) * width)
        sm.tiles_done[lanes] = [0] * width
        sm.block[slot], sm.lanes_left[slot] = block, width
        sm.block_tiles[slot] = len(range(block, self.workload.n_tiles, self.num_partition))
        sm.tiles += sm.block_tiles[slot]
        sm.ready |= ((1 << width) - 1) << lanes.start
        self.sm_of_block[block] = sm.number
        if sm.free_at <= now:
            self._wake(sm, now)

    def _wake(self, sm: _Sm, time: int) -> None:
        sm.alarm = time
        heapq.heappush(self.agenda, (time, sm.number, self.slots))

    def _step(self, sm: _Sm, now: int) -> None:
        """Issue due commands, take back returned half-warps, serve one, set the next alarm."""
        commands, returning = sm.commands, sm.returning
        while commands and commands[0][0] <= now:
            self._issue(sm, commands.popleft()[1], now)
        while returning and returning[0][0] <= now:
            sm.ready |= 1 << returning.popleft()[1]
        if sm.ready:
            self._serve(sm, now)
            self._wake(sm, sm.free_at)
        elif commands or returning:
            self._wake(sm, min(queue[0][0] for queue in (commands, returning) if queue))

    def _serve(self, sm: _Sm, now: int) -> None:
        """Let the next half-warp in turn hold the SM; a slot of writes serves several."""
        lane = _next_in_turn(sm.ready, sm.last_served)
        if not sm.writing >> lane & 1:
            self._start_index(sm, lane, now)
            return
        sm.free_at = now + self.write_hold
        for _ in range(self.writes_per_hold):
            sm.ready ^= 1 << lane
            sm.last_served = lane
            sm.commands.append((sm.free_at, lane))
            self._trace(sm, lane, "write", now, sm.free_at)
            # A half-warp in turn that wants to compute ends the slot: no turn is skipped.
            if not sm.ready or not sm.writing >> (lane := _next_in_turn(sm.ready, lane)) & 1:
                return

    def _start_index(self, sm: _Sm, lane: int, now: int) -> None:
        starts = self.tile_starts[sm.block[lane // self.workload.half_warps]]
        if len(starts) == sm.tiles_done[lane]:  # the first half-warp to reach this tile
            starts.append(now)
        sm.ready ^= 1 << lane
        sm.last_served = lane
        sm.free_at = now + self.index
        sm.commands.append((sm.free_at + self.command_gap, lane))
        self._trace(sm, lane, "index", now, sm.free_at)

    def _issue(self, sm: _Sm, lane: int, now: int) -> None:
        """Queue a command's transfer at the bus and decide what the half-warp does after it."""
        # Steps run in order of time and the latency is the same for all, so this is first come
        # first served by the time at which the data could enter the bus.
        self.bus_free = max(self.bus_free, now + self.latency) + self.transfer
        self.transfers += 1
        back = -(-self.bus_free // self.boundary) * self.boundary
        is_write = bool(sm.writing >> lane & 1)
        self._trace(sm, lane, "store" if is_write else "read", now, back)
        if self.writes:
            sm.writing ^= 1 << lane
        if is_write or not self.writes:
            sm.tiles_done[lane] += 1
            slot = lane // self.workload.half_warps
            if sm.tiles_done[lane] == sm.block_tiles[slot]:
                self._retire(sm, slot, now if is_write else back)
                return
        sm.returning.append((back, lane))

    def _retire(self, sm: _Sm, slot: int, end: int) -> None:
        """A half-warp has done its last tile at `end`; the last one of a block frees its slot."""
        self.makespan = max(self.makespan, end)
        sm.lanes_left[slot] -= 1
        if not sm.lanes_left[slot]:
            heapq.heappush(self.agenda, (end, sm.number, slot))

    def _trace(self, sm: _Sm, lane: int, phase: str, start: int, end: int) -> None:
        if len(self.bars) < self.trace_limit:
            slot, half_warp = divmod(lane, self.workload.half_warps)
            self.bars.append((sm.number, sm.block[slot], half_warp, phase, start, end))

    def _result(self) -> Run:
        def cycles(ticks: int) -> Fraction:
            return Fraction(ticks, self.ticks)

        load = self.workload
        directions = 2 if self.writes else 1
        return Run(
            makespan_cycles=cycles(self.makespan),
            drained_cycles=cycles(self.bus_free),
            bus_busy_cycles=cycles(self.transfers * self.transfer),
            bytes_moved=load.n_tiles * load.half_warps * load.half_warp_bytes * directions,
            core_clock_ghz=self.core_clock_ghz,
            tiles_per_sm=tuple(sm.tiles for sm in self.sms),
            tile_starts=tuple(tuple(map(cycles, starts)) for starts in self.tile_starts),
            sm_of_block=tuple(self.sm_of_block),
            events=tuple(
                Event(sm, block, half_warp, phase, cycles(start), cycles(end))
                for sm, block, half_warp, phase, start, end in self.bars
            ),
        )


def _next_in_turn(ready: int, last: int) -> int:
    """First lane of the non-empty set `ready` that comes after `last` in cyclic order."""
    after = ready >> (last + 1)
    if after:
        return last + (after & -after).bit_length()
    return (ready & -ready).bit_length() - 1
