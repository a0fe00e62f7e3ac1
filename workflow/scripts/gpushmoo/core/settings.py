"""How cells are measured: the section ``measure`` of a configuration, which jobs are given as well.

These are plain classes, because a measuring process need not import what checks a configuration.
`planning.settings` reads the bounds and the text below each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Ge, Gt, Le, Lt


@dataclass(frozen=True, kw_only=True)
class Search:
    """Which cells are measured, and how well."""

    # A guided search asks a model of the cells measured so far which to try next. A twentieth of
    # the cells is the usual.
    mode: Literal["all", "race", "guided"] = "race"
    """all (every cell has all samples), race (slow cells have few), or guided (most cells have
    none)."""
    tolerance: Annotated[float, Gt(0), Le(1)] = 0.01
    """How much faster than the fastest found a cell that was left out may be, as a share."""
    better_probability: Annotated[float, Gt(0), Lt(1)] = 0.05
    """A guided search ends when a cell that was left out is that much faster with less than this
    probability, all together."""
    most_share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of a group's cells after which a guided search ends whatever it knows."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How the cells of sweeps are measured."""

    # Intervals then say what another run may find. With 1 they say only how well this run knows
    # its own median.
    repeats: Annotated[int, Ge(1), Le(100)] = 3
    """How often all cells are measured, in separate processes; they share the samples of each
    cell."""
    # Shared by all jobs that measure. Every cell gets its fewest samples even so, once in each
    # repeat.
    budget: Annotated[float, Gt(0)] | None = 60.0
    """Seconds of measuring in which cells that may be the fastest are known as well as it allows;
    null for no limit."""
    # Each of two repeats takes six at least, each of more repeats three.
    min_samples: Annotated[int, Ge(6), Le(10_000)] = 10
    """Samples that every cell gets; the median of fewer than 6 has no 95 % interval."""
    # Of three repeats or more, a cell that these would not make as well known as asked takes the
    # fewest.
    max_samples: Annotated[int, Ge(6), Le(10_000)] = 41
    """Samples that no cell exceeds, but for six that each repeat may take."""
    relative_half_width: Annotated[float, Gt(0), Le(1)] = 0.01
    """A cell is done when half of its 95 % interval is narrower than this share of the median."""
    cell_budget_s: Annotated[float, Gt(0)] = 2.0
    """Seconds of sampling after which a cell stops with the samples that it has."""
    cell_timeout_s: Annotated[float, Gt(0)] = 10.0
    """A launch that takes longer ends its cell as timeout, in seconds. A hanging launch costs this
    and about 3 s."""
    # Each faulty launch costs the start of a process or two: 1 to 2 s on a GPU.
    max_faults: Annotated[int, Ge(1)] | None = 64
    """Cells of one version of the code that crash or hang, after which its other cells are skipped,
    unless one was right; null for no limit."""
    # Seconds of a processor, so that a busy machine costs no kernel. A compiler that only waits is
    # ended after ten times this by the clock. Another value compiles again and measures nothing
    # again.
    compile_timeout_s: Annotated[float, Gt(0)] = 60.0
    """A compilation that takes longer, in seconds of a processor, ends its version as
    build_failed."""
    warmup: Annotated[int, Ge(0), Le(1000)] = 1
    """Untimed samples before a cell's first, on a GPU."""
    search: Search = field(default_factory=Search)
    """Which cells are measured, and how well."""
    # If the driver lets this user. Memory is held at its highest clock. Clocks are free again when
    # the job has ended, also when it was killed.
    lock_clocks: Literal["base"] | Annotated[int, Ge(1), Le(10_000)] | None = None
    """null (never), base (the clock that the device holds at its rated power), or a core clock in
    MHz."""
    # For experiments: a cell's time must not depend on it.
    launches_factor: Annotated[float, Ge(0.125), Le(8)] = 1.0
    """Multiplies the length of a sample in a row of launches; 1 is 200 µs."""
    # The number of shards is a power of two.
    cells_per_shard: Annotated[int, Ge(1), Le(1_000_000)] = 1024
    """Cells that one job measures, about."""
    # So that a typing error in a range is found at once and not after hours of planning.
    max_cells: Annotated[int, Ge(1), Le(10**9)] = 2_000_000
    """Valid cells of all sweeps together; a configuration of more is refused."""
    # One for each combination of variant, element type and values of the axes that are compiled in.
    max_builds: Annotated[int, Ge(1), Le(1_000_000)] = 20_000
    """Versions of kernels with valid cells that a run may compile; a configuration of more is
    refused."""

    # Keys about runs of many jobs: a change of them measures nothing again.
    OF_RUNS: ClassVar = (
        "budget",
        "cells_per_shard",
        "compile_timeout_s",
        "max_cells",
        "max_builds",
    )

    @property
    def of_jobs(self) -> dict[str, Any]:
        """What a measuring job depends on, as plain values, sorted by name.

        A key that asks for nothing is left out, so that it leaves alone what was measured before
        there was such a key.
        """
        values = {k: v for k, v in asdict(self).items() if k not in self.OF_RUNS and v is not None}
        values["search"] = dict(sorted(values["search"].items()))
        return dict(sorted(values.items()))

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """The settings from which `of_jobs` made these values."""
        # A limit that is left out is none.
        given = {"max_faults": None, **values}
        return cls(**{**given, "search": Search(**values["search"])})
