"""Describe launches by the resources they need, from cells, kernels and machine code.

NVIDIA's multiprocessors look up lines of 128 bytes and move sectors of 32 bytes (CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory"). An array is stored row by row. CUDA does not
document the layout of an image. This module assumes NVIDIA's block-linear layout, in groups of 64
bytes × 8 rows (Linux, drm_fourcc.h, DRM_FORMAT_MOD_NVIDIA_BLOCK_LINEAR_2D). Byte x of row y of a
group is at x/32 · 256 + y/2 · 64 + x%32/16 · 32 + y%2 · 16 + x%16, divisions rounded down (Mesa's
nil and the crate tegra_swizzle, which untile such images). So a sector is 16 bytes × 2 rows, and a
line is 32 × 4. Hardware counters agree with that (docs/model.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..core.code_path import CodePath, PathPart
from ..core.dtypes import DTYPES
from ..core.schema import GROUP, Status
from ..core.space import TIMING_MODES, Cell, Problem
from ..storage.wholefile import read_json
from ..workloads.contract import Launch, Touched, Workload
from ..workloads.host_fed import HostFedWorkload

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Keyed by kernel, type, name of the version, and function in it.
Codes = Mapping[tuple[str, str, str, str], CodePath]

WARP = 32
# Widest access of a thread, in bytes.
WIDEST = 16
SECTOR_BYTES = 32
# Lines of a multiprocessor's blocks that are stored to in parts, above which this costs more.
# Chosen with the kernel `store_columns` on an NVIDIA H200 in view.
OPEN_LINES = 256.0
# The offset of a block's corner to the edges of sectors repeats after 8 blocks of elements of 4
# bytes or more, and after fewer rows of blocks. The two coordinates cover all offsets, but not in
# step.
POSITIONS = tuple((i, 3 * i % 8) for i in range(8))


@dataclass(frozen=True)
class DeviceFacts:
    """Facts of a device that the model takes as given, unlike its parameters."""

    multiprocessors: int
    cache_bytes: int
    clock_hz: float


@dataclass(frozen=True)
class Launches:
    """Resources that launches need on one device, as arrays of shape (cells,).

    Attributes
    ----------
    multiprocessors, clock_hz, cache_bytes
        Number of multiprocessors, core clock in Hz, and bytes of L2.
    blocks, warps
        Blocks of the launch, and warps of a block.
    resident
        Blocks that fit on a multiprocessor at the same time.
    persistent
        1 if each block processes several pieces of work, otherwise 0.
    in_a_sample
        Number of launches that are timed together.
    flushed
        1 if a launch finds none of its data in L2, otherwise 0.
    turns, waits, instructions, turn_instructions
        Counts for one thread: turns of its loop, waits for loads, instructions, and instructions in
        one turn (see `CodePath`).
    loads_a_wait
        Loads of a thread that are in flight at the same time.
    load_lines, store_lines, store_first_lines
        Cache lines that a block loads and stores over all turns. The last counts a line once per
        warp and turn.
    part_bytes
        Bytes in sectors of which a warp uses only a part.
    open_lines, open_sectors
        Lines that a block stores to in one pass after the other, and sectors that its warps store
        in parts. Both are 0 for a block of one pass, and for a persistent block, whose passes are
        different pieces of work.
    warp_sectors, block_sectors
        Sectors of images, counted per warp, and once for the whole block.
    block_bytes
        Bytes that a block loads or stores, whichever is more.
    texel_loads, texel_stores
        1 if loads, or stores, access an image, otherwise 0.
    filtered
        1 if a fetch takes the mean of texels, otherwise 0.
    access_bytes
        Width of an access in bytes.
    apart
        Number of warps between two rows of a block.
    barriers, shared_waits, edge_waits
        Barriers of a thread, its waits for shared memory, and its waits for data of other blocks at
        the edge of its block's tile.
    shared_waves
        Words that banks of shared memory serve one after the other, for a block.
    bytes_read, bytes_written
        Bytes that the launch reads and writes.
    """

    multiprocessors: Floats
    clock_hz: Floats
    cache_bytes: Floats
    blocks: Floats
    warps: Floats
    resident: Floats
    persistent: Floats
    in_a_sample: Floats
    flushed: Floats
    turns: Floats
    waits: Floats
    instructions: Floats
    turn_instructions: Floats
    loads_a_wait: Floats
    load_lines: Floats
    store_lines: Floats
    store_first_lines: Floats
    part_bytes: Floats
    open_lines: Floats
    open_sectors: Floats
    warp_sectors: Floats
    block_sectors: Floats
    block_bytes: Floats
    texel_loads: Floats
    texel_stores: Floats
    filtered: Floats
    access_bytes: Floats
    apart: Floats
    barriers: Floats
    shared_waits: Floats
    edge_waits: Floats
    shared_waves: Floats
    bytes_read: Floats
    bytes_written: Floats

    @classmethod
    def of(cls, table: pd.DataFrame) -> Launches:
        """Return the launches of a table that has these columns."""
        return cls(**{f.name: table[f.name].to_numpy(np.float64) for f in fields(cls)})


COLUMNS = tuple(f.name for f in fields(Launches))


# Traffic of a block


class Layout(NamedTuple):
    """Extents of a sector and of a line: (bytes along the row, rows)."""

    sector: tuple[int, int]
    line: tuple[int, int]


ROWS = Layout(sector=(32, 1), line=(128, 1))
TILED = Layout(sector=(16, 2), line=(32, 4))


@dataclass(frozen=True)
class Asked:
    """Memory traffic of one turn of a block, of its loads or its stores, as mean of some blocks.

    `lines` counts the lines of every instruction of every warp, `first_lines` only those that no
    other instruction of the warp requests in the same turn, and `block_lines` each line of the
    block once. `part_bytes` are bytes in sectors that a warp touches in part. Sectors are counted
    per warp, and for the whole block. `bytes` are those of all threads of the block,
    `distinct_bytes` count a byte once that several threads access.
    """

    lines: float = 0.0
    first_lines: float = 0.0
    block_lines: float = 0.0
    part_bytes: float = 0.0
    warp_sectors: float = 0.0
    block_sectors: float = 0.0
    bytes: float = 0.0
    distinct_bytes: float = 0.0


@dataclass(frozen=True)
class BlockTraffic:
    """Loads and stores of one turn of a block, and which of them access images."""

    load: Asked
    store: Asked
    image_loads: bool
    image_stores: bool


# Results by a hash of the elements and of all else that they depend on. Sizes and kernels that map
# threads in the same way share them.
Counted = dict[tuple[Any, ...], Asked]


def block_traffic(workload: Workload, cell: Cell, counted: Counted) -> BlockTraffic | None:
    """Return the traffic of one turn of the blocks of `cell`.

    The result is None if the kernel does not declare it.

    It looks at eight blocks, none at an edge if there are others.

    Parameters
    ----------
    workload, cell
        The kernel, and the cell whose blocks are looked at.
    counted
        Earlier results. They are reused, and new ones are added.
    """
    launch = workload.launch(cell)
    inner_x, inner_y = (max(1, n - 1) for n in launch.grid[:2])
    places = sorted({(x % inner_x, y % inner_y) for x, y in POSITIONS})
    blocks = [workload.touched(cell, place) for place in places]
    told = [block for block in blocks if block is not None]
    if len(told) < len(blocks):
        return None
    itemsize = DTYPES[cell.dtype].itemsize
    sides = {}
    images = {}
    for kind in ("load", "store"):
        mine = [[t for t in block if t.kind == kind] for block in told]
        images[kind] = any(t.image for block in mine for t in block)
        layout = TILED if images[kind] else ROWS
        piece = access_bytes(itemsize)
        elements, times = _different(mine, itemsize, layout)
        content = blake2b(elements.tobytes()).digest()
        key = (itemsize, piece, layout, elements.shape, times, content)
        if key not in counted:
            counted[key] = _asked(elements, times, itemsize, piece, layout)
        sides[kind] = counted[key]
    return BlockTraffic(sides["load"], sides["store"], images["load"], images["store"])


# Each row gets a bit range above the column, and above it a number that separates elements or
# sectors.
_ROW, _GROUP = 1 << 22, 1 << 42


def _different(
    blocks: Sequence[Sequence[Touched]], itemsize: int, layout: Layout
) -> tuple[Ints, tuple[int, ...]]:
    """Return the distinct accesses of blocks, (blocks, accesses, threads), and their numbers."""
    if not blocks[0]:
        return np.zeros((len(blocks), 0, 0), np.int64), (1,) * len(blocks)
    taken = np.array([[t.elements for t in block] for block in blocks])
    period = math.lcm(layout.line[0], itemsize) // itemsize, layout.line[1]
    places = _keys(0, taken[..., 0], taken[..., 1])
    corners = [taken[..., i].min(axis=(1, 2)) // n * n for i, n in enumerate(period)]
    places -= _keys(0, *corners)[:, None, None]
    times: dict[int, int] = {}
    for place, elements in enumerate(places):
        like = (n for n in times if np.array_equal(places[n], elements))
        first = next(like, place)
        times[first] = times.get(first, 0) + 1
    return places[list(times)], tuple(times.values())


def access_bytes(itemsize: int) -> int:
    """Return the bytes of an element that one instruction moves; 4 for one of 12 bytes (float3)."""
    return min(itemsize & -itemsize, WIDEST)


def _asked(
    elements: Ints, times: Sequence[int], itemsize: int, piece: int, layout: Layout
) -> Asked:
    """Return the mean over blocks, each with the number of blocks (`times`) that it represents."""
    blocks, accesses, threads = elements.shape
    if not accesses:
        return Asked()
    (wide, high), (long, tall) = layout
    warps = -(-threads // WARP)
    block = np.arange(blocks)[:, None, None] * warps
    warp = block + np.arange(threads) // WARP
    access = np.arange(accesses)[:, None] * blocks * warps
    kinds = np.repeat(times, warps)
    count = sum(times)

    def mean(keys: Ints) -> float:
        return float(kinds[keys // _GROUP % len(kinds)].sum() / count)

    row = elements // _ROW
    first = elements % _ROW * itemsize
    lines = 0.0
    sectors = []
    for offset in range(0, itemsize, piece):
        x = first + offset
        lines += mean(_distinct(_keys(warp + access, x // long, row // tall)))
        sectors.append(_keys(warp, x // wide, row // high).ravel())
    whole, used = np.unique(np.concatenate(sectors), return_counts=True)
    warp_of = whole // _GROUP
    row = whole % _GROUP // _ROW * high
    x = whole % _ROW * wide
    used_bytes = used * piece
    part = used_bytes < wide * high
    return Asked(
        lines=lines,
        first_lines=mean(_distinct(_keys(warp_of, x // long, row // tall))),
        block_lines=mean(_distinct(_keys(warp_of // warps * warps, x // long, row // tall))),
        part_bytes=float((kinds[warp_of] * used_bytes)[part].sum() / count),
        warp_sectors=mean(whole),
        block_sectors=mean(_distinct(_keys(warp_of // warps * warps, x, row))),
        bytes=float(threads * itemsize * accesses),
        distinct_bytes=mean(_distinct(elements + block * _GROUP)) * itemsize,
    )


def _keys(group: Ints | int, column: Ints, row: Ints) -> Ints:
    return np.asarray(group * _GROUP + row * _ROW + column)


def _distinct(keys: Ints) -> Ints:
    """Return each key once; equal neighbors are dropped first because sorting takes longest."""
    keys = keys.ravel()
    kept = np.sort(keys[_begins(keys)])
    return kept[_begins(kept)]


def _begins(keys: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask that is True if a key differs from the one before."""
    return np.concatenate(([True], keys[1:] != keys[:-1]))


# Shared memory

# A multiprocessor has 32 banks, and each serves one word of 4 bytes in a cycle (CUDA C++
# Programming Guide, "Shared Memory").
BANKS, BANK_BYTES = 32, 4


def wavefronts(offsets: Ints, itemsize: int) -> int:
    """Return how often shared memory serves words for one access by all threads of a block.

    A warp's access takes as long as the bank with the most different words. Elements of 8 bytes are
    served by half-warps, and those of 16 bytes by quarter-warps.

    Parameters
    ----------
    offsets
        Element of each thread in shared memory, shape (threads,).
    itemsize
        Bytes of an element.
    """
    width = access_bytes(itemsize)
    words = max(1, width // BANK_BYTES)
    together = np.arange(len(offsets)) // (WARP // words)
    groups = int(together[-1]) + 1
    served = 0
    for first in range(0, itemsize, width):
        word = (offsets[:, None] * itemsize + first) // BANK_BYTES + np.arange(words)
        different = _distinct(_keys(together[:, None], word, np.zeros_like(word)))
        banks = different // _GROUP * BANKS + different % _GROUP % BANKS
        counts = np.bincount(banks, minlength=groups * BANKS).reshape(groups, BANKS)
        served += int(counts.max(axis=1).sum())
    return served


# From cells to columns


def code_paths(
    provenance: Iterable[Mapping[str, Any]], recorded: Path | None = None
) -> dict[tuple[str, str, str, str], CodePath]:
    """Return the path of one thread through the machine code of each kernel entry.

    Paths come from the file `recorded`, if given, and from the shards' provenance. Where both have
    a path, that of the file counts: a shard keeps what was read from the machine code when it was
    measured, and a later version of the project may read it better.

    Parameters
    ----------
    provenance
        Metadata of measured shards.
    recorded
        JSON file of recorded code paths, or None.

    Returns
    -------
    dict
        `CodePath` by the names of the kernel, element type, version and entry.
    """
    found = {}
    for shard in provenance:
        params = shard["params"]
        kernel = Path(params["folder"]).name
        for version, told in (shard["machine_code"] or {}).get("variants", {}).items():
            for entry in told.get("entries") or ():
                if entry.get("path"):
                    path = CodePath.from_json(entry["path"])
                    found[kernel, params["dtype"], version, entry["entry"]] = path
    kept = read_json(recorded)["paths"] if recorded else {}
    return found | {
        (kernel, dtype, version, entry): CodePath.from_json(path)
        for kernel, dtypes in kept.items()
        for dtype, versions in dtypes.items()
        for version, entries in versions.items()
        for entry, path in entries.items()
    }


def device_facts(provenance: Iterable[Mapping[str, Any]]) -> DeviceFacts:
    """Return the facts of the first device; all devices of a data set have the same name."""
    device = next(iter(provenance))["device"]
    return DeviceFacts(device["multiprocessors"], device["cache"], device["core_clock_mhz"] * 1e6)


# Reason for kernels without `Workload.texels`.
UNTOLD = "its workload.py does not declare the elements that a thread accesses"


class Describer:
    """Describes cells of one device, and looks only once at anything that several cells share."""

    def __init__(
        self, workloads: Mapping[str, Workload], codes: Codes, device: DeviceFacts
    ) -> None:
        self.workloads, self.codes, self.device = workloads, codes, device
        self._traffic: dict[Cell, BlockTraffic | None] = {}
        self._counted: Counted = {}

    def table(self, cells: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
        """Return a row for each verified batched cell, and by kernel the reason for no row."""
        rows = []
        why = {}
        wanted = (cells["status"] == Status.OK) & (cells["timing_mode"] == TIMING_MODES[0])
        for row in cells[wanted].to_dict("records"):
            described = self._row(row)
            if isinstance(described, str):
                why[row["kernel"]] = described
            else:
                rows.append(described)
        columns = [*GROUP, "cell_key", "measured_s", *COLUMNS]
        return pd.DataFrame(rows, columns=columns), why

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any] | str:
        workload = self.workloads.get(row["kernel"])
        if workload is None or isinstance(workload, HostFedWorkload) or not workload.device_code:
            return "its time includes the host"
        if pd.isna(row["resident_blocks"]):
            return "its device does not report how many blocks a multiprocessor holds"
        axes = [(n, int(row[n])) for n in sorted(workload.axes) if pd.notna(row.get(n))]
        problem = Problem(int(row["height"]), int(row["width"]))
        cell = Cell(
            row["kernel"], row["dtype"], row["variant"], problem, tuple(axes), row["cache_state"]
        )
        # A time without the overhead of its sample is that of an infinitely long sample.
        is_net = pd.notna(row.get("overhead_s")) and row["overhead_s"] > 0.0
        in_a_sample = math.inf if is_net else float(row["launches_per_sample"])
        asked = self.launch(cell, int(row["resident_blocks"]), in_a_sample)
        if isinstance(asked, str):
            return asked
        told = {n: row[n] for n in (*GROUP, "cell_key")}
        return {**told, "measured_s": row["median_s"], **asked}

    def launch(self, cell: Cell, resident: int, in_a_sample: float) -> dict[str, float] | str:
        """Return the columns of `Launches` for one cell, or the reason as a clause.

        `resident` is the number of blocks that fit on a multiprocessor, `in_a_sample` that of
        launches.
        """
        workload = self.workloads[cell.kernel]
        launch = workload.launch(cell).in_waves(self.device.multiprocessors * resident)
        path = self.codes.get((cell.kernel, cell.dtype, workload.version(cell).name, launch.entry))
        if path is None:
            return "its machine code was not read"
        traffic = self.traffic(cell)
        if traffic is None:
            return UNTOLD
        if not sum(workload.bytes_moved(cell)):
            return "it declares no bytes"
        return _columns(workload, cell, launch, path, traffic) | {
            "multiprocessors": self.device.multiprocessors,
            "clock_hz": self.device.clock_hz,
            "cache_bytes": self.device.cache_bytes,
            "resident": resident,
            "in_a_sample": 1 if cell.cache_state == "flushed" else in_a_sample,
            "flushed": float(cell.cache_state == "flushed"),
        }

    def traffic(self, cell: Cell) -> BlockTraffic | None:
        """Return the traffic of one turn of the cell's blocks.

        The result is None if the kernel does not declare it.
        """
        known = Cell(cell.kernel, cell.dtype, cell.variant, cell.problem, cell.params)
        if known not in self._traffic:
            self._traffic[known] = block_traffic(self.workloads[cell.kernel], known, self._counted)
        return self._traffic[known]


def _columns(
    workload: Workload, cell: Cell, launch: Launch, path: CodePath, traffic: BlockTraffic
) -> dict[str, float]:
    read, written = workload.bytes_moved(cell)
    itemsize = DTYPES[cell.dtype].itemsize
    turn = max(traffic.load.bytes, traffic.store.bytes)
    distinct = (traffic.store if traffic.store.bytes else traffic.load).distinct_bytes
    # The persistent block with the most pieces of work lasts longest.
    persistent = workload.persistent_axis is not None or launch.waves > 0
    passes = (
        float(-(-launch.tiles // launch.blocks))
        if persistent
        else max(1.0, max(read, written) / launch.blocks / max(1.0, distinct))
    )
    accesses = _instructions_a_pass(path, traffic, launch.threads)
    turns, waits, instructions, loads = _steps(path, accesses, passes)
    steps = workload.steps(cell)
    # The loop around the turn's is among the instructions once.
    around = (workload.outer_turns(cell) - 1) * path.around.instructions
    instructions += around + steps * path.step.instructions

    def ran(count: Callable[[PathPart], int]) -> float:
        return count(path.once) + turns * count(path.turn) + steps * count(path.step)

    load, store = traffic.load, traffic.store
    image = traffic.image_loads or traffic.image_stores
    pictured = store if traffic.image_stores else load
    parts = ((load.part_bytes, read), (store.part_bytes, written))
    used = [part for part, moved in parts if moved]
    # An inner loop stores to further lines, before the outer one comes back to the first of them.
    outer = workload.outer_turns(cell)
    comes_back = passes > 1.0 and not persistent
    inner = passes / outer if outer > 1 else 1.0
    return {
        "blocks": launch.blocks,
        "warps": -(-launch.threads // WARP),
        "persistent": float(persistent),
        "turns": turns,
        "waits": waits,
        "instructions": instructions,
        "turn_instructions": path.turn.instructions + around / max(1.0, turns),
        "loads_a_wait": loads / max(1.0, waits),
        "load_lines": load.lines * passes if read else 0.0,
        "store_lines": store.lines * passes if written else 0.0,
        "store_first_lines": store.first_lines * passes if written else 0.0,
        "part_bytes": float(np.mean(used or [0.0])) * passes,
        "open_lines": store.block_lines * inner if comes_back else 0.0,
        "open_sectors": store.part_bytes / SECTOR_BYTES * passes if comes_back else 0.0,
        "warp_sectors": (pictured.warp_sectors if image else 0.0) * passes,
        "block_sectors": (pictured.block_sectors if image else 0.0) * passes,
        "block_bytes": turn * passes,
        "texel_loads": float(traffic.image_loads),
        "texel_stores": float(traffic.image_stores),
        "filtered": float(workload.filtered(cell)),
        "access_bytes": float(access_bytes(itemsize)),
        "apart": launch.block[0] / WARP,
        "barriers": ran(lambda part: part.barriers),
        "shared_waits": ran(lambda part: part.shared_waits),
        "edge_waits": ran(lambda part: part.edge_waits),
        "shared_waves": passes * sum(wavefronts(a, itemsize) for a in workload.shared(cell)),
        "bytes_read": read,
        "bytes_written": written,
    }


def _instructions_a_pass(path: CodePath, traffic: BlockTraffic, threads: int) -> float:
    """Return the access instructions of a thread in one pass over the elements of its block."""
    busier = traffic.load if traffic.load.bytes >= traffic.store.bytes else traffic.store
    part = path.turn if path.turn.accesses else path.once
    width = part.load_width if busier is traffic.load else part.store_width
    return max(1.0, busier.bytes / threads / max(1, width))


def _steps(path: CodePath, accesses: float, passes: float) -> tuple[float, float, float, float]:
    """Return turns, waits, instructions and loads of a thread; unrolled turns have more passes."""
    once, turn = path.once, path.turn
    needed = max(1.0, round(accesses * passes))
    if not turn.accesses:
        return 0.0, float(once.waits), float(once.instructions), float(once.loads)
    a_turn = turn.loads or turn.stores
    outside = once.loads if turn.loads else once.stores
    turns = float(needed // a_turn)
    left = needed - turns * a_turn
    each = turn.instructions / a_turn
    waits = turns * turn.waits
    if left:
        waits += once.waits * left / outside if outside else turn.waits
    instructions = max(8.0, once.instructions - max(0.0, outside - left) * each)
    instructions += turns * turn.instructions + max(0.0, left - outside) * each
    return turns, waits, instructions, needed if turn.loads else 0.0


# Occupancy without a device


class Multiprocessor(NamedTuple):
    """Capacity of a multiprocessor of one compute capability: warps, blocks, shared memory."""

    warps: int
    blocks: int
    shared_bytes: int


# By architecture, as compilers name it. Limits and granularities are those of the CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability", and of NVIDIA's occupancy
# calculator. Tests compare the result with the driver's on an H200, for all recorded kernels.
MULTIPROCESSORS: Mapping[str, Multiprocessor] = {
    arch: Multiprocessor(warps, blocks, kib * 1024)
    for arch, warps, blocks, kib in (
        ("sm_75", 32, 16, 64),
        ("sm_80", 64, 32, 164),
        ("sm_86", 48, 16, 100),
        ("sm_89", 48, 24, 100),
        ("sm_90", 64, 32, 228),
        ("sm_100", 64, 32, 228),
        ("sm_120", 48, 32, 100),
    )
}
REGISTERS, REGISTER_STEP = 65536, 256
SHARED_STEP, SHARED_RESERVED = 128, 1024
# Threads of the largest block, on all of these architectures.
MAX_THREADS = 1024


def resident_blocks(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Return the number of blocks that fit on a multiprocessor.

    Parameters
    ----------
    arch
        Architecture, such as ``sm_90``.
    threads, registers, shared_bytes
        Threads of a block, registers of a thread, and bytes of shared memory of a block.

    Raises
    ------
    KeyError
        If MULTIPROCESSORS does not have `arch`.
    """
    unit = MULTIPROCESSORS[arch]
    if threads > MAX_THREADS:
        return 0
    warps = -(-threads // WARP)
    a_warp = -(-registers * WARP // REGISTER_STEP) * REGISTER_STEP
    # Each of the four parts of a multiprocessor has a quarter of the registers.
    by_registers = REGISTERS // 4 // a_warp * 4 // warps if registers else unit.blocks
    shared = -(-max(shared_bytes, SHARED_RESERVED) // SHARED_STEP) * SHARED_STEP
    return min(unit.blocks, unit.warps // warps, by_registers, unit.shared_bytes // shared)
