"""From a checked configuration to shards: what each measuring job is told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..core.run_plan import RunPlan, SweepPlan
from ..core.space import TYPICAL, count_cells, expand_axis, shard_count, shard_name
from ..search.planner import SearchMode
from .config import RunConfig
from .config_schema import ConfigError
from .job_params import sweep_params
from .sweeps import SweepConfig

# Measuring jobs of a run. Snakemake takes minutes and gigabytes to plan as many.
MOST_SHARDS = 100_000
# The share of the cells that a search measures, about: a job is to have enough to do.
MEASURED: Mapping[str, float] = {SearchMode.GUIDED: 1 / 16}


@dataclass(frozen=True)
class ShardJob:
    """One measuring job: a repeat, from 1, of part `index` of `count` of a sweep and dtype."""

    sweep: str
    dtype: str
    index: int
    count: int
    repeat: int = 1

    @property
    def name(self) -> str:
        """Name of the shard's file without its suffix; see `space.shard_name`."""
        return shard_name(self.index, self.count, self.repeat)

    @property
    def path(self) -> str:
        """Relative path of the shard's file within ``cells/``."""
        return f"{self.sweep}/{self.dtype}/{self.name}.parquet"


def plan_shards(config: RunConfig) -> list[ShardJob]:
    """All shards of a run, a whole repeat after the other, in a fixed order; asks no device.

    Raises ConfigError, before there is any, where they are more than MOST_SHARDS.
    """
    counts = {name: _shards(sweep, config) for name, sweep in config.sweeps.items()}
    dtypes = {name: sweep.dtypes for name, sweep in config.sweeps.items()}
    total = config.repeats * sum(n * len(dtypes[name]) for name, n in counts.items())
    if total > MOST_SHARDS:
        raise ConfigError(
            f"measure.cells_per_shard: {config.cells_per_shard} makes {total} measuring jobs; a "
            f"run may have {MOST_SHARDS}: raise it, or sweep fewer sizes."
        )
    first = [
        ShardJob(n, d, i, counts[n]) for n in counts for d in dtypes[n] for i in range(counts[n])
    ]
    return [replace(s, repeat=n) for n in range(1, config.repeats + 1) for s in first]


def _shards(sweep: SweepConfig, config: RunConfig) -> int:
    """Number of shards of each dtype."""
    axes = {a: expand_axis(spec, TYPICAL) for a, spec in sweep.axes.items()}
    cells = count_cells(axes, len(sweep.problems), len(sweep.variants), len(sweep.met))
    cells = math.ceil(cells * MEASURED.get(config.measure.search.mode, 1.0))
    rounds = len(set(sweep.problems)) * len(sweep.met)
    return shard_count(cells, config.cells_per_shard, rounds)


def named_shard(wildcards: Any) -> ShardJob:
    """The shard that the wildcards of a measuring rule name; of rule `measure` the first repeat."""
    index, count = (int(n) for n in wildcards.shard.split("-of-"))
    repeat = int(getattr(wildcards, "repeat", 1))
    return ShardJob(wildcards.sweep, wildcards.dtype, index, count, repeat)


def run_plan(config: RunConfig, backend: str, opencl_runtime: str) -> RunPlan:
    """What every measuring job of the run is told; see `RunPlan`."""
    shards = {(s.sweep, s.dtype): s.count for s in plan_shards(config)}
    sweeps: dict[str, dict[str, SweepPlan]] = {}
    for (name, dtype), count in shards.items():
        params = sweep_params(
            config.sweeps[name],
            dtype,
            config.measure,
            config.repeats,
            backend,
            config.device,
            opencl_runtime,
        )
        sweeps.setdefault(name, {})[dtype] = SweepPlan(params, count)
    return RunPlan(sweeps)
