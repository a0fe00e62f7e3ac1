"""Arrays cut into tiles: where a half-warp's part of a tile lies, and in which partition."""

from __future__ import annotations

from dataclasses import dataclass

from .machine import Machine, MachineError


@dataclass(frozen=True)
class Tiling:
    """An array of `height` × `width` elements of `itemsize` bytes in tiles, numbered row by row.

    Each thread of a block takes `items` elements of a tile, `tile_height` / `items` rows apart;
    threads are numbered along the rows. Rows lie `pitch` elements apart in memory; None: next to
    each other. Raises MachineError for tiles that do not divide the array.
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
        """Tiles that lie side by side in a row of tiles."""
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
        """Size of one tile in bytes."""
        return self.tile_width * self.tile_height * self.itemsize

    def address(self, tile: int, item: int, thread: int) -> int:
        """Byte, from the array's beginning, of element `item` of a thread in a tile."""
        tile_y, tile_x = divmod(tile, self.tiles_x)
        row, column = divmod(thread, self.tile_width)
        y = tile_y * self.tile_height + item * (self.tile_height // self.items) + row
        x = tile_x * self.tile_width + column
        return y * self.pitch_bytes + x * self.itemsize


# Half-warps of one SM at most: bits of a word of the compiled simulation.
MOST_LANES = 64


@dataclass(frozen=True)
class SMResidency:
    """How a tiling's blocks lie on an SM: `blocks` at once, of `half_warps` each."""

    blocks: int
    half_warps: int


def residency(machine: Machine, tiling: Tiling) -> SMResidency:
    """Blocks that an SM holds at once. MachineError where it cannot run or simulate even one."""
    width = machine.half_warp
    if tiling.tile_width % width or tiling.threads % width:
        raise MachineError(
            f"half-warps of {width} threads do not fit tiles {tiling.tile_width} elements wide."
        )
    blocks, half_warps = machine.max_threads_per_sm // tiling.threads, tiling.threads // width
    if not blocks:
        raise MachineError(
            f"max_threads_per_sm must be at least the {tiling.threads} threads of a block, not "
            f"{machine.max_threads_per_sm}."
        )
    if blocks * half_warps > MOST_LANES:
        raise MachineError(
            f"max_threads_per_sm must be at most {MOST_LANES} half-warps "
            f"({MOST_LANES * width} threads), not {machine.max_threads_per_sm}."
        )
    return SMResidency(blocks, half_warps)


def partition_of(machine: Machine, address: int) -> int:
    """The partition of a byte: consecutive stretches of partition_bytes lie in consecutive ones."""
    return address // machine.partition_bytes % machine.partitions
