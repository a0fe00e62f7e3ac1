"""Define the space of a sweep: axes, cells with stable keys, shards, and chosen cells.

A cell is one point of the grid. Its key is a hash of its identity (kernel, type, variant, problem,
launch parameters), so it stays the same when a sweep gets more values. The assignment of cells to
shards is just as stable.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

# ``warm``: launches follow each other on the same buffers. ``flushed``: before each launch the last
# cache level is filled with other data.
CACHE_STATES = ("warm", "flushed")
# How launches reach the device. ``batched``: without waiting for the host; long ones one by one,
# short ones several together, from a graph if the backend has them. ``isolated``: one launch that
# finds the device idle. ``stream``: several launches, queued one by one. ``graph``: several
# launches in one graph.
TIMING_MODES = ("batched", "isolated", "stream", "graph")


# Without waves, a grid covers its problem once. As this was once the only kind, keys do not name
# it.
COVERING = ("waves", 0)

# Created once, because creating it takes longer than using it.
_encode = json.JSONEncoder(separators=(",", ":")).encode


# The axes of a block, in the order of its shape.
BLOCK_AXES = ("block_x", "block_y", "block_z")


def in_order(axes: Iterable[str]) -> list[str]:
    """Sort axes for a reader: those of the block first, then the others by name."""
    return sorted(axes, key=lambda axis: (axis not in BLOCK_AXES, axis))


@dataclass(frozen=True, order=True)
class Problem:
    """Size of a problem: `height` rows of `width` elements each."""

    height: int
    width: int

    @property
    def label(self) -> str:
        """``height x width``, as in file names."""
        return f"{self.height}x{self.width}"


@dataclass(frozen=True)
class RelativeSize:
    """Size whose working set is `of_cache` times the device's last cache level.

    The working set is that of the element type `dtype`. If `on_cpu` is given, it is the size on a
    CPU, and on a device that does not report its cache. `workloads.sizes` resolves it.
    """

    of_cache: float
    dtype: str
    on_cpu: Problem | None = None

    @property
    def label(self) -> str:
        """``{of_cache: 4}``, as in a configuration."""
        return f"{{of_cache: {self.of_cache:g}}}"


Size = Problem | RelativeSize
# The largest factor, as in the schema of the configuration.
MAX_OF_CACHE = 65536


def known_problems(sizes: Iterable[Size]) -> list[Problem]:
    """Return the sizes as problems; raise ValueError if one of them depends on the device."""
    problems = []
    for size in sizes:
        if isinstance(size, RelativeSize):
            raise ValueError(f"the size {size.label} is not resolved")
        problems.append(size)
    return problems


def plain_size(size: Size) -> Any:
    """Return a size as lists and dictionaries, as `size_of` reads it."""
    if isinstance(size, Problem):
        return [size.height, size.width]
    on_cpu = {} if size.on_cpu is None else {"on_cpu": plain_size(size.on_cpu)}
    return {"dtype": size.dtype, "of_cache": size.of_cache, **on_cpu}


def size_of(plain: Any) -> Size:
    """Return the size from the values of `plain_size`."""
    if not isinstance(plain, Mapping):
        return Problem(*plain)
    on_cpu = Problem(*plain["on_cpu"]) if "on_cpu" in plain else None
    return RelativeSize(plain["of_cache"], plain["dtype"], on_cpu)


class Condition(NamedTuple):
    """Measurement condition of a launch: cache state and timing mode."""

    cache_state: str = CACHE_STATES[0]
    timing_mode: str = TIMING_MODES[0]

    @property
    def flushed(self) -> bool:
        """Whether a launch finds none of its data in the last cache level."""
        return self.cache_state == "flushed"


def conditions(cache_states: Sequence[str], timing_modes: Sequence[str]) -> list[Condition]:
    """Return each timing mode in each state of the cache."""
    return [Condition(*pair) for pair in itertools.product(cache_states, timing_modes)]


USUAL = Condition()
# In the order in which they are measured.
CONDITIONS = conditions(CACHE_STATES, TIMING_MODES)


@dataclass(frozen=True, order=True)
class CellGroup:
    """Cells of one sweep and type that compete: they differ in their launch parameters only."""

    problem: Problem
    cache_state: str
    variant: str
    timing_mode: str = TIMING_MODES[0]

    @property
    def condition(self) -> Condition:
        """Cache state and timing mode of its launches."""
        return Condition(self.cache_state, self.timing_mode)


@dataclass(frozen=True)
class Cell:
    """One point of the grid: version, problem, launch parameters and measurement condition."""

    kernel: str
    dtype: str
    variant: str
    problem: Problem
    params: tuple[tuple[str, int], ...]
    cache_state: str = CACHE_STATES[0]
    timing_mode: str = TIMING_MODES[0]

    @cached_property
    def key(self) -> str:
        """Sixteen hex digits that identify the cell, independent of the rest of the sweep."""
        parts = [
            self.kernel,
            self.dtype,
            self.variant,
            [self.problem.height, self.problem.width],
            sorted(p for p in self.params if p != COVERING),
            self.cache_state,
        ]
        # The default mode, which was once the only one, is left out, so that keys stay the same.
        if self.timing_mode != TIMING_MODES[0]:
            parts.append(self.timing_mode)
        return hashlib.blake2b(_encode(parts).encode(), digest_size=8).hexdigest()

    def columns(self) -> dict[str, Any]:
        """Return the columns that identify the cell in a table, without its launch parameters."""
        return {
            "cell_key": self.key,
            "kernel": self.kernel,
            "dtype": self.dtype,
            "variant": self.variant,
            "height": self.problem.height,
            "width": self.problem.width,
            "cache_state": self.cache_state,
            "timing_mode": self.timing_mode,
        }

    @property
    def group(self) -> CellGroup:
        """The cells that this one competes with."""
        return CellGroup(self.problem, self.cache_state, self.variant, self.timing_mode)

    @property
    def condition(self) -> Condition:
        """Cache state and timing mode of its launches."""
        return Condition(self.cache_state, self.timing_mode)

    def __getitem__(self, name: str) -> int:
        """Return the value of the launch parameter `name`.

        Raises KeyError if there is no such axis.
        """
        # This runs for each of a million combinations, for which a dictionary would take too long.
        for axis, value in self.params:
            if axis == name:
                return value
        raise KeyError(f"no axis '{name}'; there are: {', '.join(sorted(dict(self.params)))}")


@dataclass(frozen=True, order=True)
class Version:
    """Compiled version of a kernel: a variant, and a value of each compile-time axis."""

    variant: str
    values: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """``naive`` or ``tile PAD=1 TILE=32``; unique among the versions of a kernel and type."""
        return " ".join([self.variant, *(f"{axis}={value}" for axis, value in self.values)])


# Additional definition of a version for large problems.
INDEX_BITS = "INDEX_BITS"


def indexed(version: Version, bits: int) -> Version:
    """Return `version` with indices of `bits` bits; 32 is the default and not named."""
    if bits == 32:
        return version
    return Version(version.variant, (*version.values, (INDEX_BITS, bits)))


@dataclass(frozen=True)
class Residency:
    """Blocks of a kernel that fit on a device: `resident_blocks` on each multiprocessor."""

    multiprocessors: int
    resident_blocks: int

    @property
    def blocks(self) -> int:
        """Resident blocks of the whole device."""
        return self.multiprocessors * self.resident_blocks


# Replaces a device's occupancy if only the number of cells matters, or if no axis depends on it.
TYPICAL = Residency(multiprocessors=32, resident_blocks=4)


def expand_axis(spec: Any, residency: Residency) -> list[int]:
    """Return the sorted distinct values of an axis specification.

    Parameters
    ----------
    spec
        An integer, a list of specifications, ``{from, to, step}`` (both ends included if a step
        reaches them), or ``{to_resident, points}``. The last form means `points` evenly spaced
        numbers of blocks up to ``to_resident`` times the blocks that fit on the device at once.
        It adds each multiple of the number of multiprocessors, and one more than that.
    residency
        Number of blocks that fit on the device at once. Only ``to_resident`` needs it.
    """
    return sorted(set(itertools.chain.from_iterable(_parts(spec, residency))))


def needs_device(spec: Any) -> bool:
    """Return whether the values of an axis specification depend on the device's occupancy."""
    parts = spec if isinstance(spec, list) else [spec]
    return any(isinstance(part, Mapping) and "to_resident" in part for part in parts)


def most_values(spec: Any, residency: Residency) -> int:
    """Return the number of values of `expand_axis`; values in several parts count repeatedly."""
    return sum(map(len, _parts(spec, residency)))


def _parts(spec: Any, residency: Residency) -> Iterator[Sequence[int]]:
    if isinstance(spec, int):
        yield (spec,)
    elif isinstance(spec, Mapping):
        if "to_resident" in spec:
            factor, points = float(spec["to_resident"]), int(spec["points"])
            yield list(_resident_values(factor, points, residency))
        else:
            yield range(int(spec["from"]), int(spec["to"]) + 1, int(spec.get("step", 1)))
    else:
        for part in spec:
            yield from _parts(part, residency)


def _resident_values(factor: float, points: int, residency: Residency) -> Iterator[int]:
    """Yield `points` even steps up to `factor` full waves, and both sides of occupancy steps.

    The curve may jump where another round of the multiprocessors or a second wave begins
    (k·multiprocessors, and one more). A grid that misses the two sides of a jump cannot show it.
    """
    last = max(1, round(factor * residency.blocks))
    for i in range(1, points + 1):
        yield max(1, round(i * last / points))
    for full in range(residency.multiprocessors, last + 1, residency.multiprocessors):
        yield full
        if full < last:
            yield full + 1


def enumerate_cells(
    kernel: str,
    dtype: str,
    variants: Sequence[str],
    problems: Sequence[Problem],
    axes: Mapping[str, Sequence[int]],
    cache_states: Sequence[str] = CACHE_STATES[:1],
    timing_modes: Sequence[str] = TIMING_MODES[:1],
) -> list[Cell]:
    """Return every point of the grid of one kernel and type, in a fixed order."""
    rounds = itertools.product(problems, conditions(cache_states, timing_modes))
    bases = [
        Cell(kernel, dtype, variant, problem, (), *met)
        for problem, met in rounds
        for variant in variants
    ]
    return list(_points_of(bases, axes))


def _points_of(bases: Iterable[Cell], axes: Mapping[str, Sequence[int]]) -> Iterator[Cell]:
    """Yield a cell for each of the `bases`, cells without parameters, and each combination."""
    names = sorted(axes)
    for base in bases:
        for point in itertools.product(*(axes[name] for name in names)):
            yield at_point(base, tuple(zip(names, point, strict=True)))


def at_point(base: Cell, params: tuple[tuple[str, int], ...]) -> Cell:
    """Return the cell with these parameters, and otherwise the values of `base`."""
    # Its own __init__ takes twice as long, which matters for a million combinations.
    cell = object.__new__(Cell)
    vars(cell).update(vars(base), params=params)
    return cell


def shard_count(cells: int, cells_per_shard: int, rounds: int) -> int:
    """Return the power of two of shards that keeps a shard near `cells_per_shard` cells.

    It is the smallest one, and a power of two because that rarely changes as cells are added. There
    are at most `rounds` shards, the number of problems times conditions, because cells that share
    both are measured in the same rounds.
    """
    n = 1
    while n * cells_per_shard < cells and n < rounds:
        n *= 2
    return min(n, rounds)


def shard_name(index: int, count: int, repeat: int) -> str:
    """Return the name of a shard's file without its suffix; later repeats are part of it."""
    name = f"{index:04d}-of-{count:04d}"
    return name if repeat == 1 else f"{name}.repeat-{repeat}"


def first_repeat_of(path: Path) -> Path:
    """Return the file of the first repeat of the shard to which the repeat `path` belongs."""
    return path.with_name(path.name.split(".", 1)[0] + path.suffix)


@dataclass(frozen=True)
class ShardSpace:
    """Part `index` of `count` of the swept cells.

    The values of `axes` and the `sizes` may depend on the device.
    """

    dtype: str
    variants: Sequence[str]
    sizes: Sequence[Size]
    cache_states: Sequence[str]
    axes: dict[str, Any]
    index: int
    count: int
    timing_modes: Sequence[str] = TIMING_MODES[:1]

    @property
    def problems(self) -> list[Problem]:
        """The sizes, which no longer depend on the device, without repetitions."""
        return list(dict.fromkeys(known_problems(self.sizes)))

    @property
    def asks_for_sizes(self) -> bool:
        """Whether a size depends on the device."""
        return any(isinstance(size, RelativeSize) for size in self.sizes)

    def at(self, problems: Sequence[Problem]) -> ShardSpace:
        """Return a copy of the space that has these sizes."""
        return replace(self, sizes=problems)

    @property
    def rounds(self) -> list[tuple[Problem, Condition]]:
        """Problems and conditions of this part; empty if there are more parts than problems.

        One process measures the cells of one problem and condition, all variants, in the same
        rounds, because they are compared. Large problems, which take longest, are distributed
        first.
        """
        met = conditions(self.cache_states, self.timing_modes)
        order = sorted(self.problems, key=lambda p: (-p.height * p.width, p))
        return [(p, condition) for p in order for condition in met][self.index :: self.count]

    @property
    def planned_cells(self) -> int:
        """Cells of all parts; an estimate if values or sizes depend on the device."""
        axes = (expand_axis(spec, TYPICAL) for spec in self.axes.values())
        others = (self.sizes, self.variants, self.cache_states, self.timing_modes)
        return math.prod(map(len, (*axes, *others)))

    def each_cell(self, kernel: str, values: Mapping[str, Sequence[int]]) -> Iterator[Cell]:
        """Yield the cells of `kernel` in this part, for these values of the axes."""
        return _points_of(self.bases(kernel), values)

    def cells(self, kernel: str, values: Mapping[str, Sequence[int]]) -> list[Cell]:
        """List all cells that `each_cell` yields."""
        return list(self.each_cell(kernel, values))

    def cells_at(
        self, kernel: str, values: Mapping[str, Sequence[int]], places: Iterable[int]
    ) -> list[Cell]:
        """Return the cells at these indices of `each_cell`, from 0."""
        bases = self.bases(kernel)
        names = sorted(values)
        found = []
        for place in places:
            params = []
            # The last axis changes fastest.
            for name in reversed(names):
                place, at = divmod(place, len(values[name]))
                params.append((name, values[name][at]))
            found.append(at_point(bases[place], tuple(reversed(params))))
        return found

    def bases(self, kernel: str) -> list[Cell]:
        """Return a cell without parameters for each problem, condition and variant of this part."""
        return [
            Cell(kernel, self.dtype, variant, problem, (), *met)
            for problem, met in self.rounds
            for variant in self.variants
        ]


def space_of(params: Mapping[str, Any]) -> ShardSpace:
    """Return the shard's part of the sweep from the parameters of a measuring job (`run_plan`)."""
    index, count = params["shard"]
    return ShardSpace(
        dtype=params["dtype"],
        variants=params["variants"],
        sizes=[size_of(size) for size in params["sizes"]],
        cache_states=params["cache_states"],
        axes=params["axes"],
        index=index,
        count=count,
        timing_modes=params.get("timing_modes", TIMING_MODES[:1]),
    )


@dataclass(frozen=True)
class ChosenCell:
    """A cell, and the reason for its choice: ``fastest``, ``tied``, ``32 × 8``."""

    cell: Cell
    role: str


def chosen_cell(row: Mapping[str, Any], axes: Sequence[str], role: str) -> ChosenCell:
    """Return the cell of a row of a data set whose group has these axes."""
    columns = ("kernel", "dtype", "variant", "cache_state", "timing_mode")
    names = {name: str(row[name]) for name in columns}
    problem = Problem(int(row["height"]), int(row["width"]))
    params = tuple((axis, int(row[axis])) for axis in sorted(axes))
    return ChosenCell(Cell(**names, problem=problem, params=params), role)


def to_plain(chosen: Sequence[ChosenCell]) -> dict[str, Any]:
    """Return an object for JSON, which `from_plain` reads."""
    return {
        "cells": [
            {**asdict(one.cell), "params": dict(one.cell.params), "role": one.role}
            for one in chosen
        ]
    }


def from_plain(content: Mapping[str, Any]) -> list[ChosenCell]:
    """Return the cells from the object of `to_plain`."""
    found = []
    for values in content["cells"]:
        named = dict(values)
        role, problem, params = map(named.pop, ("role", "problem", "params"))
        cell = Cell(**named, problem=Problem(**problem), params=tuple(sorted(params.items())))
        found.append(ChosenCell(cell, role))
    return found
