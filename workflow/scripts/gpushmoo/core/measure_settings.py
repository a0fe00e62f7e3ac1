"""Define how cells are measured: the section ``measure`` of a configuration, also for jobs.

These are plain classes, so that a measuring process need not import the code that checks a
configuration. Each key has an annotation with its bounds and its meaning, which `planning.settings`
and the arguments of `sweep` read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Ge, Gt, Le, Lt

from .meaning import Meaning

# A guided search lets a model of the cells measured so far choose the next ones. It usually
# measures a twentieth of the cells.
Mode = Annotated[
    Literal["all", "race", "guided"],
    Meaning(
        "all (every cell has all samples), race (slow cells have few), or guided (most cells "
        "have no samples)."
    ),
]
Tolerance = Annotated[
    float,
    Gt(0),
    Le(1),
    Meaning("How much faster than the fastest found a cell that was left out may be, as a share."),
]
BetterProbability = Annotated[
    float,
    Gt(0),
    Lt(1),
    Meaning(
        "A guided search ends when a cell that was left out is that much faster with less than "
        "this probability, all together."
    ),
]
MaxShare = Annotated[
    float,
    Gt(0),
    Le(1),
    Meaning("Share of a group's cells after which a guided search ends whatever it knows."),
]


@dataclass(frozen=True, kw_only=True)
class Search:
    """Choice of the cells to measure, and of the number of their samples."""

    mode: Mode = "race"
    tolerance: Tolerance = 0.01
    better_probability: BetterProbability = 0.05
    max_share: MaxShare = 1.0

    # Former names of keys, with today's names.
    FORMERLY: ClassVar = {"most_share": "max_share"}


# With several repeats, intervals predict another run. With 1, they cover the median of this run
# only.
Repeats = Annotated[
    int,
    Ge(1),
    Le(100),
    Meaning(
        "How often all cells are measured, in separate processes. The repeats share the "
        "samples of each cell."
    ),
]
# All measuring jobs share it. Every cell still gets its fewest samples, once in each repeat.
Budget = Annotated[
    Annotated[float, Gt(0)] | None,
    Meaning(
        "Seconds of measuring, which gpushmoo spends on the cells that may be the fastest. "
        "null for no limit."
    ),
]
# Each of two repeats takes at least six samples, each of more repeats three.
MinSamples = Annotated[
    int,
    Ge(6),
    Le(10_000),
    Meaning("Samples that every cell gets. The median of fewer than 6 has no 95 % interval."),
]
# With three or more repeats, a cell that these could not make precise enough gets the fewest.
MaxSamples = Annotated[
    int,
    Ge(6),
    Le(10_000),
    Meaning("Samples that no cell exceeds, but for six that each repeat may take."),
]
RelativeHalfWidth = Annotated[
    float,
    Gt(0),
    Le(1),
    Meaning(
        "A cell is done when half of its 95 % interval is narrower than this share of the median."
    ),
]
CellBudgetS = Annotated[
    float,
    Gt(0),
    Meaning("Seconds of sampling after which a cell stops with the samples that it has."),
]
CellTimeoutS = Annotated[
    float,
    Gt(0),
    Meaning(
        "A launch that takes longer ends its cell as timeout, in seconds. A hanging launch "
        "costs this and about 3 s."
    ),
]
# Each faulty launch costs one or two starts of a process: 1 to 2 s on a GPU.
MaxFaults = Annotated[
    Annotated[int, Ge(1)] | None,
    Meaning(
        "Cells of one version of the code that crash or hang, after which its other cells are "
        "skipped, unless one was right. null for no limit."
    ),
]
# Processor seconds, so that a busy machine does not fail a kernel. A compiler that only waits is
# ended after ten times this by the clock. Another value compiles again, but measures nothing again.
CompileTimeoutS = Annotated[
    float,
    Gt(0),
    Meaning(
        "A compilation that takes longer, in seconds of a processor, ends its version as "
        "build_failed."
    ),
]
# An untimed launch precedes each sample of short launches in any case.
Warmup = Annotated[
    int,
    Ge(0),
    Le(1000),
    Meaning("Untimed samples before a cell's first, on a GPU."),
]
SearchKey = Annotated[Search, Meaning("Which cells are measured, and how well.")]
# This requires the driver's permission. Memory is locked at its highest clock. Clocks are unlocked
# when the job has ended, even if it was killed.
LockClocks = Annotated[
    Literal["base"] | Annotated[int, Ge(1), Le(10_000)] | None,
    Meaning(
        "null (never), base (the clock that the device holds at its rated power), or a core "
        "clock in MHz."
    ),
]
# For experiments: a cell's time must not depend on it.
LaunchesFactor = Annotated[
    float,
    Ge(0.125),
    Le(8),
    Meaning("Multiplies the length of a sample in a row of launches. 1 is 200 µs."),
]
# The number of shards is a power of two.
CellsPerShard = Annotated[
    int,
    Ge(1),
    Le(1_000_000),
    Meaning("Cells that one job measures, about."),
]
# A typing error in a range is thus found at once, not after hours of planning.
MaxCells = Annotated[
    int,
    Ge(1),
    Le(10**9),
    Meaning("Valid cells of all sweeps together. gpushmoo refuses a configuration of more."),
]
# One for each combination of variant, element type and values of the compiled axes.
MaxBuilds = Annotated[
    int,
    Ge(1),
    Le(1_000_000),
    Meaning(
        "Versions of kernels with valid cells that a run may compile. gpushmoo refuses a "
        "configuration of more."
    ),
]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Settings of the measurement of a sweep's cells."""

    repeats: Repeats = 3
    budget: Budget = 60.0
    min_samples: MinSamples = 10
    max_samples: MaxSamples = 41
    relative_half_width: RelativeHalfWidth = 0.01
    cell_budget_s: CellBudgetS = 2.0
    cell_timeout_s: CellTimeoutS = 10.0
    max_faults: MaxFaults = 64
    compile_timeout_s: CompileTimeoutS = 60.0
    warmup: Warmup = 0
    search: Annotated[Search, Meaning("Which cells are measured, and how well.")] = field(
        default_factory=Search
    )
    lock_clocks: LockClocks = None
    launches_factor: LaunchesFactor = 1.0
    cells_per_shard: CellsPerShard = 1024
    max_cells: MaxCells = 2_000_000
    max_builds: MaxBuilds = 20_000

    # Keys about runs of many jobs. A change of them does not measure anything again.
    OF_RUNS: ClassVar = (
        "budget",
        "cells_per_shard",
        "compile_timeout_s",
        "max_cells",
        "max_builds",
    )

    @property
    def of_jobs(self) -> dict[str, Any]:
        """The settings that a measuring job depends on, as plain values, sorted by name.

        A key that changes nothing is left out, so that cells from before the key existed stay
        valid.
        """
        values = {k: v for k, v in asdict(self).items() if k not in self.OF_RUNS and v is not None}
        values["search"] = dict(sorted(values["search"].items()))
        return dict(sorted(values.items()))

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings from the values of `of_jobs`."""
        # A limit that is left out means that there is no limit.
        given = {"max_faults": None, **values}
        return cls(**{**given, "search": Search(**values["search"])})
