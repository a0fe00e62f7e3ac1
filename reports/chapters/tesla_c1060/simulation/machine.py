"""The simulated device: what its YAML file may say, what follows, and arrays cut into tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpushmoo.core.errors import UnreadableError
from gpushmoo.core.readable import read_mapping


class MachineError(ValueError):
    """A device file describes a machine that cannot exist; the message names the key."""


class Level(Enum):
    """What a simulation knows of the memory; each level adds to the one before it.

    `BUS`: a fixed latency and one bus, first come first served. `PARTITIONS`: each partition has
    its own share of the bus and a queue before it. `BANKS`: behind each queue are banks whose rows
    have to be opened and closed, and a controller that may choose among waiting requests.
    """

    BUS = "bus"
    PARTITIONS = "partitions"
    BANKS = "banks"


# Levels of detail, in words.
LEVELS = {"bus": "one bus", "partitions": "partitions", "banks": "banks"}


@dataclass(frozen=True)
class Banks:
    """DRAM behind one partition; cycles are of the machine's `memory_clock_mhz`.

    A row of one bank holds `page_bytes` of a partition. After a column command, `burst_bytes` cross
    the partition's data pins. The controller may serve any of the first `choose_from` waiting
    requests before the first one (1 keeps their order) and opens rows ahead for the first
    `open_ahead`.
    """

    count: int
    page_bytes: int
    burst_bytes: int
    t_rcd_cycles: int
    t_rrd_cycles: int
    t_cl_cycles: int
    t_wl_cycles: int
    t_wr_cycles: int
    t_cdlr_cycles: int
    choose_from: int
    open_ahead: int

    def __post_init__(self) -> None:
        """Refuse values that no memory can have."""
        _check_types(self)
        if self.choose_from > self.open_ahead:
            raise MachineError(
                f"choose_from must be at most open_ahead ({self.open_ahead}), for only a request "
                f"whose row is open can be served, not {self.choose_from}."
            )


@dataclass(frozen=True)
class Machine:
    """A simulated device: multiprocessors that share one bus, behind it DRAM in partitions.

    The names of clocks include their unit. `index_cycles` and `latency_cycles` are core cycles,
    `t_ras_cycles` and `t_rp_cycles` are cycles of `memory_clock_mhz`. `bus_bytes` cross the memory
    bus in one period of `memory_data_rate_mhz`. With `writes_awaited`, a half-warp begins its next
    tile only when its write is complete, as in the study's charts. `step_cycles` are core cycles
    for the address of a thread's next element in the same tile. With `hashed_partitions`, stretches
    of memory are spread over the partitions by all digits of their number, not the last.
    `board_clock_mhz` is the real clock of the memory if `memory_clock_mhz` is another. A command
    holds its SM for `command_cycles`. With `port_bytes`, `sm_per_port` neighboring SMs share a port
    that passes this number of bytes per core cycle; awaited data queue there.
    """

    name: str
    n_sm: int
    core_clock_ghz: float
    max_threads_per_sm: int
    index_cycles: int
    latency_cycles: int
    partitions: int
    partition_bytes: int
    memory_clock_mhz: float
    memory_data_rate_mhz: float
    t_ras_cycles: int
    t_rp_cycles: int
    half_warp: int = 16
    bus_bytes: int = 64
    writes_awaited: bool = True
    step_cycles: int = 4
    hashed_partitions: bool = False
    board_clock_mhz: float | None = None
    command_cycles: int = 1
    sm_per_port: int = 1
    port_bytes: int | None = None
    banks: Banks | None = None

    def __post_init__(self) -> None:
        """Refuse values that no device can have."""
        _check_types(self)
        if self.max_threads_per_sm < self.half_warp:
            raise MachineError(
                f"max_threads_per_sm must be at least one half-warp ({self.half_warp} threads), "
                f"not {self.max_threads_per_sm}."
            )
        if self.memory_data_rate_mhz < self.memory_clock_mhz:
            raise MachineError(
                f"memory_data_rate_mhz must be at least memory_clock_mhz "
                f"({self.memory_clock_mhz:g}), not {self.memory_data_rate_mhz:g}."
            )
        if self.latency_cycles < self.beat_cycles:
            raise MachineError(
                f"latency_cycles must be at least one bus transfer "
                f"({float(self.beat_cycles):g} core cycles), not {self.latency_cycles}."
            )
        if self.bus_bytes % self.partitions:
            raise MachineError(
                f"bus_bytes must be a multiple of the {self.partitions} partitions, which share "
                f"the bus evenly, not {self.bus_bytes}."
            )
        if self.banks is not None:
            self._check_banks(self.banks)

    def _check_banks(self, banks: Banks) -> None:
        """Refuse banks that do not go with the partitions before them."""
        if banks.page_bytes % self.partition_bytes:
            raise MachineError(
                f"page_bytes must be a multiple of partition_bytes ({self.partition_bytes}), not "
                f"{banks.page_bytes}."
            )
        if self.partition_bytes % banks.burst_bytes:
            raise MachineError(
                f"burst_bytes must divide partition_bytes ({self.partition_bytes}), not "
                f"{banks.burst_bytes}."
            )
        if self.t_ras_cycles < banks.t_rcd_cycles:
            raise MachineError(
                f"t_ras_cycles must be at least t_rcd_cycles ({banks.t_rcd_cycles}), not "
                f"{self.t_ras_cycles}."
            )
        least = (banks.t_rcd_cycles + banks.t_cl_cycles) * self.memory_cycle
        if self.latency_cycles < least:
            raise MachineError(
                f"latency_cycles must be at least the opening of a row and its first data, "
                f"t_rcd_cycles + t_cl_cycles ({float(least):g} core cycles), not "
                f"{self.latency_cycles}."
            )

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of detail that the file says enough for."""
        return tuple(Level) if self.banks else (Level.BUS, Level.PARTITIONS)

    @property
    def memory_cycle(self) -> Fraction:
        """Core cycles in one cycle of `memory_clock_mhz`."""
        return exact(self.core_clock_ghz) * 1000 / exact(self.memory_clock_mhz)

    @property
    def beat_cycles(self) -> Fraction:
        """Core cycles in which `bus_bytes` cross the bus: core clock / memory data rate."""
        return exact(self.core_clock_ghz) * 1000 / exact(self.memory_data_rate_mhz)


def exact(value: float) -> Fraction:
    """The decimal number a person wrote: 1.3 becomes 13/10, not the nearest binary fraction.

    Clock ratios stay exact this way, so that simulated times repeat to the last bit.
    """
    return Fraction(str(value))


def load_machine(path: Path | str) -> Machine:
    """Read a device file; MachineError says in one sentence which key is wrong and why."""
    try:
        data = read_mapping(path)
    except UnreadableError as error:
        raise MachineError(str(error)) from error
    try:
        values = _known(Machine, data)
        if values.get("banks") is not None:
            if not isinstance(values["banks"], Mapping):
                raise MachineError("banks must be a mapping of keys to values.")
            values["banks"] = Banks(**_known(Banks, values["banks"]))
        return Machine(**values)
    except MachineError as error:
        raise MachineError(f"{path}: {error}") from None


def _known(kind: type[Machine] | type[Banks], data: Mapping[Any, Any]) -> dict[str, Any]:
    """The values of `data`, which has all keys that `kind` needs and no others."""
    known = {f.name: f for f in fields(kind)}
    for key in data:
        if key not in known:
            raise MachineError(f"unknown key {key!r}; allowed are {', '.join(known)}.")
    for key, field in known.items():
        if key not in data and field.default is MISSING:
            raise MachineError(f"the key {key} is missing.")
    return dict(data)


def _check_types(part: Machine | Banks) -> None:
    """Every field has its declared type, and every number is finite and above zero."""
    for field in fields(part):
        value: Any = getattr(part, field.name)
        if field.type == "bool":
            if not isinstance(value, bool):
                raise MachineError(f"{field.name} must be true or false, not {value!r}.")
            continue
        if field.name == "banks" or (field.default is None and value is None):
            continue
        # The annotations of this module are strings, see `from __future__ import annotations`.
        if field.type == "str":
            if not isinstance(value, str) or not value.strip():
                raise MachineError(f"{field.name} must be a non-empty text, not {value!r}.")
        elif field.type == "int":
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MachineError(
                    f"{field.name} must be a whole number of at least 1, not {value!r}."
                )
        elif (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not math.isfinite(value)
            or value <= 0
        ):
            raise MachineError(f"{field.name} must be a number above 0, not {value!r}.")


# Durations in core cycles.


def read_cycle_cycles(machine: Machine) -> Fraction:
    """Core cycles of a complete read cycle of one bank, row activation to end of precharge.

    tRC = tRAS + tRP in memory cycles (Jacob, Ng, Wang: Memory Systems).
    """
    return (machine.t_ras_cycles + machine.t_rp_cycles) * machine.memory_cycle


def transfer_beats(machine: Machine, n_bytes: int) -> Fraction:
    """Bus periods that `n_bytes` take.

    The bus consists of the partitions' parts, each of them used whole: 64 bytes take 8/7 periods of
    a bus of 7 × 8 bytes, and of a wider bus they leave the rest to others.
    """
    part = machine.bus_bytes // machine.partitions
    return Fraction(-(-n_bytes // part), machine.partitions)


def burst_cycles(machine: Machine, n_bytes: int) -> Fraction:
    """Core cycles in which every SM moves `n_bytes` once, back to back over the one bus."""
    return machine.n_sm * transfer_beats(machine, n_bytes) * machine.beat_cycles


# The memory clocks of the study: that of its text, and the board's own.


def at_board_clock(machine: Machine) -> Machine:
    """Return the machine with its memory at `board_clock_mhz`; raise MachineError without one."""
    if machine.board_clock_mhz is None:
        raise MachineError(
            f"{machine.name} has no board_clock_mhz, which the document's clock is compared with."
        )
    faster = machine.board_clock_mhz / machine.memory_clock_mhz
    return replace(
        machine,
        memory_clock_mhz=machine.board_clock_mhz,
        memory_data_rate_mhz=faster * machine.memory_data_rate_mhz,
    )


def clocks(machine: Machine) -> dict[str, Machine]:
    """The machine as described and, where the board's clock is another, at that; by ``400 MHz``."""
    found = [machine] if machine.board_clock_mhz is None else [machine, at_board_clock(machine)]
    return {f"{m.memory_clock_mhz:g} MHz": m for m in found}


@dataclass(frozen=True)
class Tiling:
    """An array of `height` × `width` elements of `itemsize` bytes in tiles, numbered row by row.

    Each thread of a block takes `items` elements of a tile, `tile_height` / `items` rows apart.
    Threads are numbered along the rows. Rows are `pitch` elements apart in memory; None: adjacent.
    Raises MachineError for tiles that do not divide the array.
    """

    width: int
    height: int
    itemsize: int
    tile_width: int
    tile_height: int
    items: int = 1
    pitch: int | None = None

    def __post_init__(self) -> None:
        """Refuse tiles that do not fit."""
        for name, side, tile in (
            ("wide", self.width, self.tile_width),
            ("high", self.height, self.tile_height),
        ):
            if tile < 1 or tile > side or side % tile:
                raise MachineError(
                    f"tiles {tile} elements {name} do not divide an array {side} elements {name}."
                )
        if self.items < 1 or self.tile_height % self.items:
            raise MachineError(
                f"{self.items} elements of a thread do not divide a tile {self.tile_height} "
                f"elements high."
            )
        if self.pitch is not None and self.pitch < self.width:
            raise MachineError(
                f"a pitch of {self.pitch} elements is less than a row of {self.width}."
            )

    @classmethod
    def partition_wide(
        cls, machine: Machine, side: int, itemsize: int, threads: int = 512
    ) -> Tiling:
        """The study's blockEqPartition: tiles of `threads` elements, one partition wide.

        float gets 64 × 8 and double 32 × 16. float3 (12 bytes) has no such tile: MachineError.
        """
        wide = machine.partition_bytes
        if wide % itemsize or threads % (wide // itemsize):
            raise MachineError(
                f"no tile of {threads} elements of {itemsize} bytes is one partition "
                f"({wide} bytes) wide."
            )
        return cls.of_rows(side, itemsize, wide, threads=threads)

    @classmethod
    def of_rows(
        cls, side: int, itemsize: int, row_bytes: int, pad_bytes: int = 0, threads: int = 512
    ) -> Tiling:
        """Tiles of `threads` elements with rows of `row_bytes`; `pad_bytes` between array rows.

        MachineError where elements or threads do not come out even.
        """
        width = row_bytes // itemsize
        if width < 1 or row_bytes % itemsize or pad_bytes % itemsize or threads % width:
            raise MachineError(
                f"no tile of {threads} elements of {itemsize} bytes has rows of {row_bytes} bytes, "
                f"{pad_bytes} bytes between those of the array."
            )
        pitch = side + pad_bytes // itemsize
        return cls(side, side, itemsize, width, threads // width, pitch=pitch)

    @classmethod
    def square_tiles(cls, side: int, itemsize: int) -> Tiling:
        """The study's coalesced copy: 32 × 32 elements, 32 × 8 threads that take 4 each."""
        return cls(side, side, itemsize, 32, 32, 4)

    @property
    def tiles_x(self) -> int:
        """Number of tiles in a row of tiles."""
        return self.width // self.tile_width

    @property
    def tiles_y(self) -> int:
        """Rows of tiles, one below the other."""
        return self.height // self.tile_height

    @property
    def n_tiles(self) -> int:
        """Number of tiles of the whole array."""
        return self.tiles_x * self.tiles_y

    @property
    def threads(self) -> int:
        """Threads of the block that copies a tile."""
        return self.tile_width * self.tile_height // self.items

    @property
    def n_bytes(self) -> int:
        """Size of all elements of the array in bytes."""
        return self.width * self.height * self.itemsize

    @property
    def pitch_bytes(self) -> int:
        """Bytes from the beginning of a row of the array to that of the next."""
        return (self.width if self.pitch is None else self.pitch) * self.itemsize

    @property
    def extent_bytes(self) -> int:
        """Bytes of memory that the array takes, those between its rows included."""
        return self.height * self.pitch_bytes

    @property
    def tile_bytes(self) -> int:
        """Bytes that one block copies at a time: the elements of a tile, no padding of rows."""
        return self.tile_width * self.tile_height * self.itemsize


# Half-warps of one SM at most: bits of a word of the compiled simulation.
MAX_LANES = 64


@dataclass(frozen=True)
class SMResidency:
    """How a tiling's blocks are on an SM: `blocks` at once, of `half_warps` each."""

    blocks: int
    half_warps: int


def residency(machine: Machine, tiling: Tiling) -> SMResidency:
    """Blocks that an SM holds at once. MachineError where it cannot run or simulate even one."""
    width = machine.half_warp
    if tiling.tile_width % width or tiling.threads % width:
        raise MachineError(
            f"half-warps of {width} threads do not fit tiles {tiling.tile_width} elements wide."
        )
    blocks = machine.max_threads_per_sm // tiling.threads
    half_warps = tiling.threads // width
    if not blocks:
        raise MachineError(
            f"max_threads_per_sm must be at least the {tiling.threads} threads of a block, not "
            f"{machine.max_threads_per_sm}."
        )
    if blocks * half_warps > MAX_LANES:
        raise MachineError(
            f"max_threads_per_sm must be at most {MAX_LANES} half-warps "
            f"({MAX_LANES * width} threads), not {machine.max_threads_per_sm}."
        )
    return SMResidency(blocks, half_warps)


def partition_of(machine: Machine, address: int) -> int:
    """The partition of a byte: consecutive stretches of partition_bytes are in consecutive ones."""
    return address // machine.partition_bytes % machine.partitions
