"""From a checked configuration to shards: what each measuring job is told."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from ..core.backends import source_suffix
from ..core.paths import ROOT
from ..core.run_plan import RunPlan, SweepPlan
from ..core.space import TYPICAL, count_cells, expand_axis, shard_count, shard_name
from .config import RunConfig, SweepConfig
from .config_schema import ConfigError

# Measuring jobs of a run. Snakemake takes minutes and gigabytes to plan as many.
MOST_SHARDS = 100_000


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
    counts = {name: _shards(sweep, config.cells_per_shard) for name, sweep in config.sweeps.items()}
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


def _shards(sweep: SweepConfig, cells_per_shard: int) -> int:
    """Number of shards of each dtype."""
    axes = {a: expand_axis(spec, TYPICAL) for a, spec in sweep.axes.items()}
    cells = count_cells(axes, len(sweep.problems), len(sweep.variants), len(sweep.cache_states))
    rounds = len(set(sweep.problems)) * len(sweep.cache_states)
    return shard_count(cells, cells_per_shard, rounds)


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
        params = _sweep_params(config, backend, opencl_runtime, name, dtype)
        sweeps.setdefault(name, {})[dtype] = SweepPlan(params, count)
    return RunPlan(sweeps)


def _sweep_params(
    config: RunConfig, backend: str, opencl_runtime: str, name: str, dtype: str
) -> dict[str, Any]:
    """Everything that the measuring jobs of a sweep and dtype depend on besides their code.

    Plain values, which Snakemake compares with the last run's: a difference, and nothing else,
    measures again.
    """
    sweep: SweepConfig = config.sweeps[name]
    rule = config.measure.rule
    return {
        "axes": {a: sweep.axes[a] for a in sorted(sweep.axes)},
        "backend": backend,
        "cache_states": list(sweep.cache_states),
        "device": config.device,
        "dtype": dtype,
        "folder": os.path.relpath(sweep.folder.path, ROOT),
        "kernel_digest": sweep.folder.digest(source_suffix(backend)),
        "measure": {
            "budget_s": rule.budget_s,
            "max_samples": rule.max_samples,
            "min_samples": rule.min_samples,
            "relative_half_width": rule.relative_half_width,
            "repeats": config.repeats,
            "timeout_s": config.measure.cell_timeout_s,
            "warmup": config.measure.warmup,
        },
        "opencl_runtime": opencl_runtime,
        "seed": config.seed,
        "sizes": [[p.height, p.width] for p in sweep.problems],
        "thread_limit": config.measure.thread_limit,
        "variants": list(sweep.variants),
    }


def build_params(
    config: RunConfig, backend: str, runtime: str, sweep: SweepConfig, dtype: str
) -> dict[str, Any]:
    """Everything that a build file depends on besides its code."""
    return {
        "backend": backend,
        "cuda_arch": config.cuda_arch,
        "device": config.device,
        "dtype": dtype,
        "folder": os.path.relpath(sweep.folder.path, ROOT),
        "kernel_digest": sweep.folder.digest(source_suffix(backend)),
        "opencl_runtime": runtime,
        "variants": list(sweep.variants),
    }
